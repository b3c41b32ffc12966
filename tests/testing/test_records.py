"""What is read from the files of a log, up to its end and without control records, and how its folder is doubled."""

from pathlib import Path

from tests.support.batches import batch_of, plain_record
from tests.support.tested import values
from tidelog.protocol.records.batch import CONTROL, TRANSACTIONAL
from tidelog.testing.records import read_log
from tidelog.testing.snapshot import double


def test_a_log_ends_where_it_is_said_to_and_control_records_are_left_out(tmp_path: Path) -> None:
    entries = [
        batch_of(plain_record(value=b"one"), base_offset=0),
        batch_of(plain_record(value=b"mark"), base_offset=1, attributes=TRANSACTIONAL | CONTROL),
        batch_of(plain_record(value=b"two"), base_offset=2),
        batch_of(plain_record(value=b"three"), base_offset=3),
    ]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(entries) + entries[0][:30])
    assert values(read_log(tmp_path, 0, None)) == [b"one", b"two", b"three"]
    assert values(read_log(tmp_path, 0, 3)) == [b"one", b"two"]
    assert values(read_log(tmp_path, 1, 3)) == [b"two"]


def test_a_copy_shares_what_is_sealed_and_leaves_what_was_of_the_broker(tmp_path: Path) -> None:
    log, gone = tmp_path / "from" / "t-0", tmp_path / "from" / "u-0.0-delete"
    for folder in (log, gone):
        folder.mkdir(parents=True)
        for base in (0, 5):
            (folder / f"{base:020d}.log").write_bytes(b"x")
    for name in (".lock", ".control"):
        (tmp_path / "from" / name).touch()
    double(tmp_path / "from", tmp_path / "to")
    assert [each.name for each in (tmp_path / "to").iterdir()] == ["t-0"]
    links = [(log / f"{base:020d}.log").stat().st_nlink for base in (0, 5)]
    assert links == [2, 1]
