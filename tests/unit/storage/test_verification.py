"""What is believed of a segment whose bytes are not those that its summary describes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compaction import COMPACTED, clean_all, keyed
from tests.support.logs import NOW, fill, is_damaged, open_log, scan
from tidelog.protocol.records.batch import BatchHeader
from tidelog.storage.errors import CorruptLog, Mismatch
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT
from tidelog.storage.summary import Summary

# Records a batch; the lengths differ, so that headers lie across the edges of blocks too.
COUNTS = [1, 2, 1, 3, 1, 2, 1]
OFFSETS = [sum(COUNTS[:n]) for n in range(len(COUNTS) + 1)]
OFFSET, EPOCH = slice(0, 8), slice(12, 16)


@pytest.fixture(params=[64, 1 << 16])
def folder(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks_of: Callable[[int], None],
) -> Path:
    """The folder of a log of two leader epochs that was stopped cleanly."""
    blocks_of(request.param)
    monkeypatch.setattr(
        "tidelog.storage.log.SNAPSHOT_FROM_BYTES", 0
    )  # A start reads no batch for its producers.
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    log = open_log(tmp_path / "good")
    for number, count in enumerate(COUNTS):
        if number == 4:
            log.flush()
            log = open_log(tmp_path / "good", recovery_point=log.log_end_offset)
        fill(log, [[NOW + number] * count], value=b"v" * (11 * number))
    log.close()
    return tmp_path / "good"


def changed(folder: Path, changes: dict[int, tuple[slice, int]], lost: tuple[int, ...] = ()) -> Log:
    """Add to fields of the headers of batches, spoil the last byte of others, and start again."""
    copy = folder.with_name("bad")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    path = copy / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    places = [(position, header.size_bytes) for _, position, header in start(folder).headers(0)]
    for number, (field, step) in changes.items():
        at = places[number][0]
        part = slice(at + field.start, at + field.stop)
        value = int.from_bytes(data[part], "big") + step
        data[part] = value.to_bytes(field.stop - field.start, "big")
    for number in lost:
        data[sum(places[number]) - 1] ^= 1
    path.write_bytes(data)
    return start(copy)


def start(folder: Path) -> Log:
    return open_log(folder, clean=True, recovery_point=OFFSETS[-1])


def serves_all_but(log: Log, good: Path, lost: set[int]) -> None:
    """See that what is answered is what was written, and that no more than the batches that are lost is refused."""
    assert [is_damaged(log, offset) for offset in OFFSETS[:-1]] == [n in lost for n in range(len(COUNTS))]
    offsets = {offset for n in lost for offset in range(OFFSETS[n], OFFSETS[n + 1])}
    assert scan(log) == [row for row in scan(start(good)) if row.offset not in offsets]
    assert log.log_end_offset == OFFSETS[-1]
    for n in lost:
        behind = next(m for m in range(n, len(OFFSETS)) if m not in lost)
        with pytest.raises(CorruptLog, match=f"read on from {OFFSETS[behind]}$"):
            log.read(OFFSETS[n], 1000, True, PATIENT)


@pytest.mark.parametrize("number", range(len(COUNTS)))
def test_an_offset_that_was_changed_is_seen(folder: Path, number: int) -> None:
    for step in (-1, 1, 2, 256, 1 << 40):
        if OFFSETS[number] + step >= 0:
            serves_all_but(changed(folder, {number: (OFFSET, step)}), folder, {number})


@pytest.mark.parametrize("number", range(1, len(COUNTS)))
def test_an_offset_that_was_changed_behind_damage_is_seen(folder: Path, number: int) -> None:
    """What is before it tells nothing then, but what is behind it does."""
    for step in (-1, 1, 2):
        log = changed(folder, {number: (OFFSET, step)}, lost=(number - 1,))
        serves_all_but(log, folder, {number - 1, number})


@pytest.mark.parametrize("number", range(len(COUNTS) - 1))
def test_an_offset_that_was_changed_before_damage_is_seen(folder: Path, number: int) -> None:
    for step in (1, 2):
        log = changed(folder, {number: (OFFSET, step)}, lost=(number + 1,))
        serves_all_but(log, folder, {number, number + 1})


def test_an_offset_beyond_the_end_is_seen_between_damaged_batches(folder: Path) -> None:
    serves_all_but(changed(folder, {5: (OFFSET, 100)}, lost=(4, 6)), folder, {4, 5, 6})


@pytest.mark.parametrize("number", range(len(COUNTS)))
def test_a_leader_epoch_that_was_changed_is_seen(folder: Path, number: int) -> None:
    for step in (1, 2, 1 << 20):
        serves_all_but(changed(folder, {number: (EPOCH, step)}), folder, {number})


def test_a_batch_between_damaged_ones_is_served(folder: Path) -> None:
    for lost in ((0, 2), (1, 3, 5), (0, 6), (4, 5, 6), tuple(range(7))):
        serves_all_but(changed(folder, {}, lost), folder, set(lost))


def test_without_leader_epochs_no_batch_is_refused_for_its_own(folder: Path) -> None:
    (folder / "leader-epoch-checkpoint").unlink()
    serves_all_but(changed(folder, {3: (EPOCH, 5)}, lost=(1,)), folder, {1})


def test_the_summary_of_a_log_that_ended_before_costs_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a copy leaves it that mixes up files: other bytes, as many of them, and smaller offsets."""
    path = folder / f"{0:020d}.summary"
    summary = Summary.load(path)
    assert summary is not None
    summary.next_offset = OFFSETS[2]
    summary.digests = bytes(len(summary.digests))
    path.write_bytes(summary.encode())
    log = start(folder)
    assert [row.offset for row in scan(log)] == list(range(OFFSETS[-1]))
    assert (log.segments[0].summary.damage, log.log_end_offset) == ((), OFFSETS[-1])
    assert "reason=summary-not-of-this-log" in caplog.text


def test_who_reads_an_index_goes_on_with_it_while_its_segment_gets_another(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    fill(log, [[NOW + n] for n in range(20)])
    log.roll(NOW)
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=20)
    segment = log.segments[0]
    indexes = segment.offset_index, segment.time_index
    before = [bytes(index.data) for index in indexes]
    size = segment.size // 20
    segment.file.write_at(b"?", 3 * size - 1)
    with pytest.raises(CorruptLog):
        log.read(2, 1000, True, PATIENT)
    assert log.segments[0] is not segment
    assert [bytes(index.data) for index in indexes] == before
    assert len(log.segments[0].offset_index) == len(indexes[0]) - 1
    again = open_log(tmp_path, clean=True, recovery_point=20)
    assert [row.offset for row in scan(again)] == [0, 1, *range(3, 20)]


def test_a_mismatch_says_where_and_names_the_segment(folder: Path) -> None:
    path = folder / f"{0:020d}.log"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    segment = start(folder).active
    with pytest.raises(Mismatch, match=r"^/.*/0{20}\.log@0-10: does not match its summary$") as found:
        segment.read(10, 0, PATIENT)
    assert found.value.segment is segment


# -- a log that was compacted has gaps -------------------------------------------------------------------------


@pytest.fixture(params=[64, 1 << 16])
def compacted(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks_of: Callable[[int], None],
) -> Path:
    """The folder of a log whose batches of one record are those of every key's latest value, stopped cleanly."""
    blocks_of(request.param)
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    log = open_log(tmp_path / "good", **COMPACTED | {"segment_bytes": 1 << 20})
    for number in range(24):
        key = b"again" if number % 5 in (1, 3) else b"%d" % number
        log.append(keyed((key, b"v" * (7 * number))), NOW)
    log.roll(NOW)
    clean_all(log)
    log.close()
    return tmp_path / "good"


def batches_of(folder: Path) -> list[tuple[int, BatchHeader]]:
    return [(position, header) for _, position, header in reopened(folder).headers(0) if header.record_count]


def reopened(folder: Path) -> Log:
    return open_log(folder, clean=True, recovery_point=24, **COMPACTED)


def with_bytes(folder: Path, changes: dict[int, int]) -> Log:
    """Start again with other bytes, XORed, at some positions of the log."""
    copy = folder.with_name("bad")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    path = copy / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    for position, mask in changes.items():
        data[position] ^= mask
    path.write_bytes(data)
    return reopened(copy)


@pytest.mark.parametrize("where", ["epoch", "records"])
def test_V10_damage_in_a_compacted_log_takes_its_batch_and_one_more_at_most(
    compacted: Path, where: str
) -> None:
    """Of the one behind it nobody knows whether it has changed too, where a gap follows. One further is whole."""
    batches, rows = batches_of(compacted), scan(reopened(compacted))
    assert [header.base_offset for _, header in batches] == [
        *(n for n in range(23) if n % 5 in (0, 2, 4)),
        23,
    ]
    offsets = {header.base_offset for _, header in batches} | {24}
    for number, (position, header) in enumerate(batches):
        log = with_bytes(compacted, {position + (15 if where == "epoch" else header.size_bytes - 1): 1})
        lost = {header.base_offset}
        if number + 1 < len(batches) and batches[number + 1][1].last_offset + 1 not in offsets:
            lost.add(batches[number + 1][1].base_offset)
        assert {row.offset for row in rows} - {row.offset for row in scan(log)} <= lost
        assert is_damaged(log, header.base_offset)
        assert log.log_end_offset == 24


def test_I3_no_record_of_a_compacted_log_is_served_at_another_offset(compacted: Path) -> None:
    """Whichever offset has changed, alone or with the batch before it."""
    batches, rows = batches_of(compacted), set(scan(reopened(compacted)))
    offsets = [header.base_offset for _, header in batches] + [24]
    for number, (position, _) in enumerate(batches):
        for mask in (1, 2, 3, 4, 7, 8, 128):
            changes = {position + 7: mask}
            assert set(scan(with_bytes(compacted, changes))) <= rows
            # By chance it may fit; what writes over the end of one and the offset of the other hits no such number.
            if number and (offsets[number] ^ mask) + 1 != offsets[number + 1]:
                assert set(scan(with_bytes(compacted, changes | {position - 1: 1}))) <= rows


def test_what_is_damaged_in_a_compacted_log_stays_so_and_takes_no_more(compacted: Path) -> None:
    batches = batches_of(compacted)
    position, header = batches[5]
    log = with_bytes(compacted, {position + header.size_bytes - 1: 1})
    assert is_damaged(log, header.base_offset)
    rows = scan(log)
    log.close()
    assert scan(reopened(log.directory)) == rows
