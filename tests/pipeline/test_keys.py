"""audit-keys, upsert and compact: the results for each key, against a look at every record."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.pipeline.jobs import Ran, rows_of, run
from tests.pipeline.test_ingest import do_last_batch_again
from tests.support.broker import Broker
from tests.support.logs import NOW, open_log
from tests.support.raw_client import RawClient
from tidelog.cli.main import app
from tidelog.config.load import load
from tidelog.pipeline import options
from tidelog.pipeline.jobs import audit_keys
from tidelog.pipeline.jobs.parts import following
from tidelog.pipeline.jobs.upsert import COLUMNS
from tidelog.pipeline.key_audit import Bounds
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.log_manager import LogManager

pytestmark = pytest.mark.e2e
Captured = pytest.CaptureFixture[str]
Pair = tuple[bytes | None, bytes | None]

# Two partitions; a tombstone, no key, an empty one and one that is no text.
LOG: list[list[list[Pair]]] = [
    [
        [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")],
        [(None, b"4"), (b"", b"5"), (b"c", None)],
        [(b"a", b"6"), (b"\xff", b"7"), (b"b", None)],
    ],
    [[(b"a", b"8")], [(b"d", b"9"), (b"a", None)], [(b"d", b"10")]],
]


def made(pairs: Sequence[Pair], first: int = 0, **options: Any) -> bytearray:
    records = [Record(n, NOW + first + n, key, value) for n, (key, value) in enumerate(pairs)]
    return bytearray(build_batch(records, **options))


def a_topic(folder: Path) -> Path:
    for partition, batches in enumerate(LOG):
        log = open_log(folder / f"t-{partition}", segment_bytes=200)
        for pairs in batches:
            log.append(made(pairs, log.log_end_offset), NOW)
        log.close()
    return folder


def latest(partitions: Sequence[Sequence[Sequence[Pair]]]) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    """Offset and value of the last record of each key, of those that are no tombstones."""
    found: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}
    for partition, batches in enumerate(partitions):
        for offset, (key, value) in enumerate(pair for batch in batches for pair in batch):
            if key is not None:
                found[partition, key] = offset, value
    return {key: (offset, value) for key, (offset, value) in found.items() if value is not None}


def committed(broker: Broker, group: str, topic: str, *offsets: int) -> None:
    with closing(KafkaConsumer(bootstrap_servers=broker.address, group_id=group)) as simple:
        given = {TopicPartition(topic, n): OffsetAndMetadata(each, "", -1) for n, each in enumerate(offsets)}
        simple.assign(list(given))
        simple.commit(given)


def produce(client: RawClient, topic: str) -> None:
    client.create(topic, len(LOG))
    for partition, batches in enumerate(LOG):
        at = 0
        for pairs in batches:
            client.produce(topic, bytes(made(pairs, at)), partition)
            at += len(pairs)


@pytest.mark.parametrize("kind", ["broker", "segments"])
def test_S101_audit_keys_says_what_the_command_says(
    spark: Any, capsys: Captured, broker: Broker, client: RawClient, kind: str
) -> None:
    topic = f"audited-{kind}"
    produce(client, topic)
    committed(broker, topic, topic, 4, 1)
    source = f"broker:{broker.address}" if kind == "broker" else f"segments:{broker.data_dir}"
    ran = run(capsys, "audit-keys --source", source, "--topic", topic, "--group", topic, "--json")
    assert ran.status == 0, ran.err
    words = ["audit", "keys", topic, "--group", topic, "--json", "--bootstrap", broker.address]
    listed = [json.loads(line) for line in CliRunner().invoke(app, words).stdout.splitlines()]
    found = ran.rows
    for row in (*listed, *found):
        assert row.pop("behind_ms") > 0
    assert found == listed
    assert len(listed) == 7
    assert "audit-keys: 7 keys behind, by 8 records" in ran.err


def test_committed_offsets_may_come_from_a_file(here: Any, capsys: Captured, tmp_path: Path) -> None:
    folder, given = a_topic(tmp_path / "data"), tmp_path / "committed"
    flags = ["--source", f"segments:{folder}", "--topic", "t"]
    rows = [{"topic": "t", "partition": 0, "committed": 8}, {"topic": "u", "partition": 1, "committed": 3}]
    given.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    ran = run(capsys, "audit-keys", *flags, "--committed", str(given))
    assert ran.status == 0, ran.err
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0][:4] == ["partition", "key", "produced_offset", "delivered_offset"]
    assert [line[:6] for line in lines[1:]] == [
        ["0", "b", "8", "1", "-", "1"],
        ["1", "a", "2", "-", "-", "2"],
        ["1", "d", "3", "-", "-", "2"],
    ]
    ran = run(capsys, "audit-keys", *flags, "--committed", str(given), "--dry-run", "--json")
    assert ran.rows[0]["records_at_most"] == 13
    for text, why in (
        ("{}\n", "line 1 of"),
        (f"{json.dumps(rows[0])}\n" * 2, "has partition 0 twice"),
        (None, "cannot be read"),
    ):
        given.unlink(missing_ok=True)
        if text is not None:
            given.write_text(text)
        ran = run(capsys, "audit-keys", *flags, "--committed", str(given))
        assert (ran.status, why in ran.err) == (2, True), ran.err
    assert run(capsys, "audit-keys", *flags).status == 2
    assert run(capsys, "audit-keys", *flags, "--group", "g", "--to", "now").status == 2
    assert "group g has committed nothing" in run(capsys, "audit-keys", *flags, "--group", "g").err


def table(out: Path) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    rows = DeltaTable(out).to_pyarrow_table()
    assert set(rows.column_names) == {"key", "value", "offset", "partition", "create_time"}
    found = {(row["partition"], row["key"]): (row["offset"], row["value"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    return found


def test_upsert_keeps_the_latest_value_of_each_key_whatever_is_done_again(
    spark: Any, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = a_topic(tmp_path / "data"), tmp_path / "out"
    write = following.write

    def write_columns(job: str, frame: Any, *rest: Any) -> bool:
        # A column that is not used, such as headers, is not decoded.
        assert set(frame.columns) == set(COLUMNS)
        return write(job, frame, *rest)

    monkeypatch.setattr(following, "write", write_columns)

    def upsert(*more: str) -> Ran:
        flags = ["--source", f"segments:{folder}", "--topic", "t", "--out", str(out)]
        return run(capsys, "upsert", *flags, "--available-now", "--json", *more)

    ran = upsert("--max-records", "6")
    assert ran.status == 0, ran.err
    assert ran.rows[0]["batches"] > 1
    assert table(out) == latest(LOG)
    do_last_batch_again(out / "_checkpoint")
    log = open_log(folder / "t-1", segment_bytes=200)
    more: list[Pair] = [(b"d", None), (b"e", b"11")]
    log.append(made(more, log.log_end_offset), NOW)
    log.close()
    ran = upsert()
    assert (ran.status, table(out)) == (0, latest([LOG[0], [*LOG[1], more]])), ran.err
    assert not list(out.glob("_staged*"))
    # The last key of its partition is taken out.
    log = open_log(folder / "t-1", segment_bytes=200)
    log.append(made([(b"e", None)], log.log_end_offset), NOW)
    log.close()
    assert upsert().status == 0
    assert table(out) == latest([LOG[0]])
    other = ["--checkpoint", str(tmp_path / "other")]
    ran = upsert(*other)
    assert (ran.status, "by the checkpoint" in ran.err) == (1, True), ran.err


def test_upsert_asks_for_what_it_needs(capsys: Captured, tmp_path: Path) -> None:
    folder = a_topic(tmp_path / "data")
    flags = ["upsert", "--source", f"segments:{folder}", "--topic", "t"]
    for more in ((), ("--dry-run",)):
        ran = run(capsys, *flags, "--out", "s3://b/t", *more)
        assert (ran.status, ran.out, "--checkpoint is missing" in ran.err) == (2, "", True)
    assert run(capsys, *flags, "--out", str(tmp_path), "--from", "now").status == 2
    assert run(capsys, *flags).status == 2
    assert run(capsys, *flags, "--out", str(tmp_path), "--max-records", "0").status == 2
    assert "takes a second" not in run(capsys, "upsert --help").out
    assert "1000000" in run(capsys, "upsert --help").out
    assert run(capsys, *flags, "--dry-run", "--json").rows[0]["records_at_most"] == 13


def a_data_folder(folder: Path) -> Path:
    """A folder that a broker has left in order, with a topic of which most records were replaced."""
    folder.mkdir()
    manager = LogManager(folder, load(None, {}, {"log.dir": str(folder)}), lambda: NOW)
    manager.open()
    options = load(None, {}, {"log.segment.bytes": "600"}).topic_defaults()
    for partition in range(2):
        log = manager.create("t", partition, bytes(16), options)
        for n in range(60):
            log.append(made([(b"k%d" % (n % 7), b"v%d" % n)], n), NOW + n)
    assert manager.close()
    return folder


def records(folder: Path) -> list[tuple[int, int, bytes, bytes]]:
    return [tuple(row.values()) for row in rows_of(folder, ("partition", "offset", "key", "value"))]  # type: ignore[misc]


def test_compact_leaves_of_each_key_the_last_record_at_its_offset(capsys: Captured, tmp_path: Path) -> None:
    folder = a_data_folder(tmp_path / "data")
    flags = ["--source", f"segments:{folder}", "--topic", "t"]
    before = records(folder)
    ran = run(capsys, "compact", *flags, "--dry-run", "--json")
    assert (sum(row["records"] for row in ran.rows), ran.rows[0]["yield"]) == (120, None)
    assert records(folder) == before
    ran = run(capsys, "compact", *flags, "--json")
    assert ran.status == 0, ran.err
    ends = {
        partition: max(row["segment"] for row in ran.rows if row["partition"] == partition)
        for partition in (0, 1)
    }
    last = {(partition, key): offset for partition, offset, key, _ in before if offset < ends[partition]}
    assert records(folder) == [
        row for row in before if row[1] >= ends[row[0]] or last[row[0], row[2]] == row[1]
    ]
    assert ran.rows[0]["yield"] > 0.5
    assert ran.rows[0]["bytes"] < ran.rows[0]["source_bytes"]
    # What was being written is sealed, and compacted with the rest.
    ran = run(capsys, "compact", *flags, "--roll")
    assert ran.status == 0, ran.err
    kept = {(partition, key): (partition, offset, key, value) for partition, offset, key, value in before}
    assert records(folder) == sorted(kept.values())
    with Broker(folder) as broker:
        broker.start()
        ran = run(capsys, "compact", *flags)
        assert (ran.status, "a broker has this data folder open" in ran.err) == (1, True), ran.err
        broker.stop()


def test_compact_refuses_what_is_no_folder_of_a_broker(capsys: Captured, tmp_path: Path) -> None:
    folder = a_topic(tmp_path / "data")
    flags = ["compact", "--source", f"segments:{folder}"]
    assert "no data folder of a broker" in run(capsys, *flags, "--topic", "t").err
    assert "no topic u" in run(capsys, *flags, "--topic", "u").err
    (folder / "t-0" / "manifest.json").write_text("{}")
    assert "it is an archive" in run(capsys, *flags, "--topic", "t").err
    assert run(capsys, *flags).status == 2
    assert run(capsys, *flags, "--topic", "t", "--from", "now").status == 2
    assert run(capsys, "compact --source broker:localhost:1 --topic t").status == 2


def test_records_of_aborted_transactions_are_not_behind(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    of: dict[str, Any] = {"transactional": True, "producer_id": 1}
    batches = [
        build_batch([Record(0, NOW, b"a", b"1")]),
        build_batch([Record(1, NOW, b"b", b"2")], **of),
        build_batch([Record(2, NOW, b"\0\0\0\0", b"\0\0\0\0\0\0")], control=True, **of),
        build_batch([Record(3, NOW, b"c", b"3")]),
    ]
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batches))
    chosen = options.parse({"source": f"segments:{tmp_path}", "topic": "t"}, NOW)
    found = audit_keys.behind(chosen, (0, Bounds(0, 4, 1)))
    assert [(partition, each.key, each.records) for partition, each in found] == [(0, b"c", 1)]
