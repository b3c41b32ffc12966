"""replay: exactly the records of a range arrive, as they were and in their order, once however often it is resumed."""

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline import topics
from tests.pipeline.jobs import TIMES, Ran, a_topic, in_range, run
from tests.support.broker import Broker
from tests.support.logs import NOW, open_log
from tests.support.workload import unique_topic
from tidelog.pipeline.jobs import replay
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.options import parse
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import layout

Captured = pytest.CaptureFixture[str]
FIRST, END = NOW + 1000, NOW + 2500


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return unique_topic(request.node.originalname)


def replayed(capsys: Captured, data: Path, broker: Broker, topic: str, *more: str) -> Ran:
    flags = ("--source", f"segments:{data}", "--topic", "t", "--json")
    return run(
        capsys, "replay", *flags, "--target", f"broker:{broker.address}", "--target-topic", topic, *more
    )


def origins(found: list[topics.Read]) -> list[bytes | None]:
    return [value for one in found for name, value in one.headers if name == "tidelog.source"]


def expected(partition: int, first: int = FIRST, end: int = END) -> list[bytes]:
    return [b"t-%d@%d" % (partition, offset) for offset, _ in in_range(TIMES, first, end)]


def test_a_range_is_sent_exactly_and_resumed_without_a_double(
    spark: Any, capsys: Captured, tmp_path: Path, target_broker: Broker, topic: str
) -> None:
    data, target = a_topic(tmp_path), topics.make(target_broker, topic, 2)
    some = ("--keep-partition", "--from", str(FIRST), "--to")
    ran = replayed(capsys, data, target_broker, target, *some, str(END))
    assert ran.status == 0, ran.err
    found = topics.read(target_broker, target)
    for partition in range(2):
        there = [one for one in found if one.partition == partition]
        # Each partition in the order that it had, though several tasks may read it.
        assert origins(there) == expected(partition)
        assert [one.timestamp_ms for one in there] == [at for _, at in in_range(TIMES, FIRST, END)]
        assert [one.value for one in there] == [
            b"v%d" % (offset % 10) for offset, _ in in_range(TIMES, FIRST, END)
        ]
    assert (ran.rows[0]["rows"], ran.rows[0]["left_out"], ran.rows[0]["topic"]) == (len(found), 0, target)
    assert "left at most" in ran.err or "rows/s\n" in ran.err
    again = replayed(capsys, data, target_broker, target, *some, str(END), "--resume")
    assert (again.rows[0]["rows"], again.rows[0]["left_out"]) == (0, len(found))
    assert topics.read(target_broker, target) == found
    # Another range has another mark; what is there of it, too, is left out.
    more = replayed(capsys, data, target_broker, target, *some, str(END + 300), "--resume")
    assert more.rows[0]["left_out"] == len(found)
    assert sorted(filter(None, origins(topics.read(target_broker, target)))) == sorted(
        expected(0, FIRST, END + 300) + expected(1, FIRST, END + 300)
    )


def test_from_a_topic_of_a_broker_to_another_of_it_at_a_rate(
    spark: Any, capsys: Captured, target_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --target, the broker is that of the source."""
    write, said = replay._write, []

    def noted(frame: Any, options: dict[str, str], *more: Any) -> None:
        said.append(options)
        write(frame, options, *more)

    monkeypatch.setattr(replay, "_write", noted)
    origin = topics.make(target_broker, topic)
    target = topics.make(target_broker, topic + "-again")
    topics.send(target_broker, origin, [NOW + 7 * number for number in range(300)])
    flags = (
        "--source",
        f"broker:{target_broker.address}",
        "--topic",
        origin,
        "--target-topic",
        target,
        "--json",
    )
    ran = run(capsys, "replay", *flags, "--from", str(NOW + 70), "--rate", "100")
    assert ran.status == 0, ran.err
    assert [options["maxRecordsPerSecond"] for options in said] == ["100"]
    found = topics.read(target_broker, target)
    assert [one.timestamp_ms for one in found] == [NOW + 7 * number for number in range(10, 300)]
    # Whether it is read from the broker or from its files, it is the same topic.
    flags = ("--source", f"segments:{target_broker.data_dir}", "--target", f"broker:{target_broker.address}")
    flags += ("--topic", origin, "--target-topic", target, "--json")
    again = run(capsys, "replay", *flags, "--from", str(NOW + 70), "--resume")
    assert (again.rows[0]["rows"], again.rows[0]["left_out"]) == (0, 290)


def test_a_topic_of_this_name_on_another_cluster_is_another(
    spark: Any, capsys: Captured, tmp_path: Path, target_broker: Broker, topic: str
) -> None:
    target = topics.make(target_broker, topic)
    for number in range(2):
        data = a_topic(tmp_path / str(number), partitions=1)
        layout.save_topic_id(data / "t-0", bytes([65 + number]) * 16)
    first, second = (
        [b"t-0/%s@%d" % (digits * 16, offset) for offset, _ in in_range(TIMES, FIRST, END)]
        for digits in (b"41", b"42")
    )
    some = ("--from", str(FIRST), "--to", str(END))
    assert replayed(capsys, tmp_path / "0", target_broker, target, *some).status == 0
    # What is there is none of it, and what it marks is no end of the other's.
    for number, counts in ((1, (len(second), 0)), (0, (0, len(first))), (1, (0, len(second)))):
        ran = replayed(capsys, tmp_path / str(number), target_broker, target, *some, "--resume")
        assert (ran.rows[0]["rows"], ran.rows[0]["left_out"]) == counts, ran.err
    assert origins(topics.read(target_broker, target)) == first + second


def test_a_task_has_a_partition_whole_and_in_its_order(spark: Any) -> None:
    mixed = spark.range(0, 400, 1, 8).selectExpr("int(id % 3) as partition", "399 - id as offset")
    rows = replay.in_order(mixed).selectExpr("spark_partition_id()", "partition", "offset").collect()
    for partition in range(3):
        there = [(task, offset) for task, number, offset in rows if number == partition]
        assert len({task for task, _ in there}) == 1
        assert [offset for _, offset in there] == sorted(offset for _, offset in there)
    assert len(rows) == 400


def test_a_record_that_cannot_be_written_fails_and_is_named(
    spark: Any, capsys: Captured, tmp_path: Path, target_broker: Broker, topic: str
) -> None:
    target = topics.make(target_broker, topic)
    log = open_log(tmp_path / "t-0")
    for offset, headers in enumerate([[], [("a", b"1")], [("a", None)]]):
        log.append(bytearray(build_batch([Record(0, NOW + offset, None, b"v", headers)])), NOW)
    log.close()
    ran = replayed(capsys, tmp_path, target_broker, target)
    assert (ran.status, ran.out) == (1, "")
    assert "(t-0@2): column headers has" in ran.err
    assert "the same command with --resume sends the rest" in ran.err
    whole = replayed(capsys, tmp_path, target_broker, target, "--resume", "--to", str(NOW + 2))
    assert whole.status == 0
    assert origins(topics.read(target_broker, target)) == [b"t-0@0", b"t-0@1"]


def test_what_cannot_be_replayed_is_said_before_spark_starts(
    capsys: Captured, tmp_path: Path, target_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobFlags, "session", lambda _: pytest.fail("Spark was started"))
    data = a_topic(tmp_path, partitions=1)
    assert "no topic nowhere" in replayed(capsys, data, target_broker, "nowhere").err
    stamps = topics.make(target_broker, topic, message_timestamp_type="LogAppendTime")
    ran = replayed(capsys, data, target_broker, stamps)
    assert (ran.status, "create times would be lost" in ran.err) == (1, True)
    assert "--target-topic is missing" in replayed(capsys, data, target_broker, "").err
    for wrong in ("", "segments:x", "broker:"):
        flags = ("--source", f"segments:{data}", "--topic", "t", "--target", wrong, "--target-topic", "u")
        ran = run(capsys, "replay", *flags)
        assert (ran.status, "only a broker appends" in ran.err) == (2, True)
    assert run(capsys, "replay --rate -1").status == 2


def test_ranges_have_marks_of_their_own() -> None:
    source = {"source": "segments:d", "topic": "t"}
    chosen = parse(source, NOW)
    some = parse({**source, "from": "@5", "to": "@6", "clock": "append"}, NOW)
    assert replay.job_of(chosen, "") == "replay.t.record.start.end"
    assert replay.job_of(some, "41") == "replay.t/41.append.5000.6000"
