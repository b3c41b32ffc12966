"""Rows appended to topics, and what is said of those that cannot be: the writer, called as Spark calls it."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2
from pyspark.sql import types

from tests.pipeline import topics
from tests.pipeline.test_from_broker import delete_before
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.workload import unique_topic
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.source import TidelogSource
from tidelog.pipeline.writing import late, produce, rate, sink, target

# As Spark has each column, and as its batches have it.
ARROW: dict[str, tuple[pa.DataType, types.DataType]] = {
    "value": (pa.binary(), types.BinaryType()),
    "key": (pa.binary(), types.BinaryType()),
    "headers": (
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        types.ArrayType(
            types.StructType().add("key", types.StringType()).add("value", types.BinaryType()),
        ),
    ),
    "partition": (pa.int32(), types.IntegerType()),
    "timestamp": (pa.timestamp("us", "UTC"), types.TimestampType()),
    "topic": (pa.string(), types.StringType()),
    "source": (pa.string(), types.StringType()),
}


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return unique_topic(request.node.originalname)


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    fields = [(name, ARROW[name][0]) for name in rows[0]]
    return pa.RecordBatch.from_pylist(list(rows), pa.schema(fields))


def schema_of(rows: Sequence[dict[str, Any]]) -> types.StructType:
    return types.StructType([types.StructField(name, ARROW[name][1]) for name in rows[0]])


def a_writer(broker: Broker, rows: Sequence[dict[str, Any]], **options: str) -> sink.Writer:
    source = TidelogSource({"target": f"broker:{broker.address}", **options})
    return source.writer(schema_of(rows), overwrite=False)


def write(broker: Broker, rows: Sequence[dict[str, Any]], **options: str) -> sink.Done:
    writer = a_writer(broker, rows, **options)
    done = writer.write(iter([batch(rows)]))
    writer.commit([done])
    return done


def test_every_column_arrives_as_it_was(target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic, 3)
    at = datetime(2001, 2, 3, 4, 5, 6, 789_999, tzinfo=UTC)  # what is less than a millisecond is cut
    full = {"value": b"v", "key": b"k", "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b""}]}
    rows: list[dict[str, Any]] = [
        {**full, "partition": 2, "timestamp": at},
        {"value": None, "key": b"tombstone", "headers": None, "partition": 0, "timestamp": at},
        {"value": b"no key", "key": None, "headers": [], "partition": 0, "timestamp": at},
        {
            "value": None,
            "key": None,
            "headers": [],
            "partition": 1,
            "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
        },
    ]
    assert write(target_broker, rows, topic=topic).written == 4
    ms = 981_173_106_789
    assert topics.read(target_broker, topic) == [
        topics.Read(0, 0, ms, b"tombstone", None, []),
        topics.Read(0, 1, ms, None, b"no key", []),
        topics.Read(1, 0, 0, None, None, []),
        topics.Read(2, 0, ms, b"k", b"v", [("a", b"1"), ("a", b"")]),
    ]


def test_a_row_without_a_partition_goes_to_that_of_its_key_and_one_without_a_time_is_of_now(
    target_broker: Broker, topic: str
) -> None:
    topics.make(target_broker, topic, 3)
    keys = [b"a", b"b", b"c", b"d"]
    rows = [{"value": b"%d" % i, "key": keys[i % 4], "partition": None, "timestamp": None} for i in range(40)]
    before = time.time_ns() // 1_000_000
    write(target_broker, rows, topic=topic)
    found = topics.read(target_broker, topic)
    assert {one.key: one.partition for one in found} == {key: (murmur2(key) & 0x7FFFFFFF) % 3 for key in keys}
    assert all(before <= one.timestamp_ms <= time.time_ns() // 1_000_000 for one in found)
    assert [one.value for one in found if one.key == b"a"] == [b"%d" % i for i in range(0, 40, 4)]


def test_each_row_may_name_its_topic_and_the_option_is_for_those_that_do_not(
    target_broker: Broker, topic: str
) -> None:
    first, second = topics.make(target_broker, topic), topics.make(target_broker, topic + "-2")
    rows = [{"value": b"1", "topic": second}, {"value": b"2", "topic": None}, {"value": b"3", "topic": first}]
    write(target_broker, rows, topic=first)
    assert topics.values(target_broker, first) == [b"2", b"3"]
    assert topics.values(target_broker, second) == [b"1"]
    with pytest.raises(PipelineError, match="row 1 of task 0: column topic is null"):
        write(target_broker, rows)


def test_text_is_written_in_utf_8(target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic)
    source = TidelogSource({"target": f"broker:{target_broker.address}", "topic": topic})
    writer = source.writer(
        types.StructType().add("key", types.StringType()).add("value", types.StringType()), overwrite=False
    )
    writer.write(iter([pa.RecordBatch.from_pydict({"key": ["ключ"], "value": ["värde"]})]))
    [one] = topics.read(target_broker, topic)
    assert (one.key, one.value) == ("ключ".encode(), "värde".encode())


def test_memory_is_bounded(target_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is under way than is said, and rows are taken from Spark no earlier than they are sent."""
    topics.make(target_broker, topic)
    monkeypatch.setattr("tidelog.client.producer.UNDER_WAY_BYTES", 100_000)
    most, taken = 0, 0
    send = produce.Sender.send

    def watched(self: produce.Sender, record: produce.Record) -> None:
        nonlocal most
        send(self, record)
        most = max(most, sum(len(each.value or b"") for each in self._under_way.values()))
        assert taken * 100 - self.sent < 300

    monkeypatch.setattr(produce.Sender, "send", watched)
    rows = [{"value": b"x" * 1000} for _ in range(100)]

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(10):
            taken += 1
            yield batch(rows)

    assert a_writer(target_broker, rows, topic=topic).write(batches()).written == 1000
    assert 90_000 < most <= 100_000
    assert len(topics.read(target_broker, topic)) == 1000


def test_of_large_rows_few_become_objects_at_a_time() -> None:
    assert sink._rows_at_once(batch([of(1)])) == 1024
    assert 100 <= sink._rows_at_once(batch([of(10_000)] * 300)) <= 105
    assert sink._rows_at_once(batch([of(3 << 20)] * 2)) == 1


def of(size: int) -> dict[str, Any]:
    return {"value": b"x" * size, "key": b"k"}


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime.now(UTC)
REFUSED: dict[str, tuple[dict[str, str], list[dict[str, Any]], str]] = {
    "too large": (
        {"max_message_bytes": "1000"},
        [of(1), of(2000), of(2)],
        r"row 1 of task 0: not written to \S+ at \S+: larger than max.message.bytes",
    ),
    "no key": (
        {"cleanup_policy": "compact"},
        [of(1), of(2), {"value": b"", "key": None}],
        r"row 2 of task 0: not written to \S+ at \S+: .*INVALID_RECORD, 87: no key",
    ),
    "too old": (
        {"message_timestamp_before_max_ms": "3600000"},
        [{"value": b"", "timestamp": NOW}, {"value": b"", "timestamp": EPOCH}],
        r"row 1 of task 0: not written to \S+ at \S+: .*INVALID_TIMESTAMP, 32: .*message.timestamp.before.max.ms",
    ),
    "before 1970": (
        {},
        [{"value": b"", "timestamp": datetime(1969, 1, 1, tzinfo=UTC)}],
        r"row 0 of task 0: column timestamp is -31536000000000 us, before 1970",
    ),
    "partition": (
        {},
        [{"value": b"", "partition": 0}, {"value": b"", "partition": 7}],
        r"row 1 of task 0: topic \S+ has no partition 7, it has 1",
    ),
    "topic": (
        {},
        [{"value": b"", "topic": "nowhere"}],
        r"row 0 of task 0: topic nowhere is not on .*create nowhere",
    ),
    "header": (
        {},
        [{"value": b"", "headers": [{"key": "a", "value": None}]}],
        r"row 0 of task 0: column headers has .*'a'.* which may be empty",
    ),
    "source": (
        {},
        [{"value": b"", "source": "orders-3"}],
        r"row 0 of task 0 \(orders-3\): column source: .*orders-3@1041",
    ),
}


def test_batches_that_are_too_large_for_the_topic_are_made_smaller(target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic, max_message_bytes="1000")
    assert write(target_broker, [of(20) for _ in range(500)], topic=topic).written == 500
    assert len(topics.read(target_broker, topic)) == 500


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_is_refused_fails_the_task(target_broker: Broker, topic: str, name: str) -> None:
    configs, rows, message = REFUSED[name]
    topics.make(target_broker, topic, **configs)
    writer = a_writer(target_broker, rows, topic=topic) if name != "topic" else a_writer(target_broker, rows)
    with pytest.raises(PipelineError, match=message):
        writer.write(iter([batch(rows)]))


def test_a_topic_that_is_not_there_is_an_error_before_anything_is_read(target_broker: Broker) -> None:
    with pytest.raises(PipelineError, match=r"topic nowhere is not on .*tidelog topics create nowhere"):
        a_writer(target_broker, [of(1)], topic="nowhere")


def test_a_broker_that_does_not_answer_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.cluster.WAIT_S", 0.2)
    source = TidelogSource({"target": "broker:127.0.0.1:1", "topic": "t"})
    with pytest.raises(PipelineError, match=r"no broker answers at 127.0.0.1:1 .* is it running"):
        source.writer(schema_of([of(1)]), overwrite=False)


def test_tasks_share_a_rate(target_broker: Broker, topic: str) -> None:
    """Two tasks, as two processes: together they are as fast as is said, and so is one that is left alone."""
    topics.make(target_broker, topic)
    name = topic
    program = (
        "import sys; from tidelog.pipeline.writing.rate import Rate; r = Rate(sys.argv[1], 400)\n"
        "for _ in range(int(sys.argv[2])): r.wait()\n"
        "import time; print(time.monotonic()); r.close()"
    )
    begin = time.monotonic()
    tasks = [
        subprocess.Popen([sys.executable, "-c", program, name, str(count)], stdout=subprocess.PIPE)
        for count in (100, 500)
    ]
    ends = [float(task.communicate()[0]) - begin for task in tasks]
    # Of which nothing is left, on a machine that is not the driver's too.
    assert not list(Path(rate.tempfile.gettempdir()).glob(f"tidelog-rate-{name}"))
    assert 1.4 < ends[1] < 4  # 600 / 400 s; if they did not share, 1.25


def test_a_rate_that_was_not_used_is_not_made_up_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now, slept = 100.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        now, slept = now + seconds, slept + seconds

    monkeypatch.setattr(rate.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(rate, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    shared = [rate.Rate("one", 100), rate.Rate("one", 100)]
    for _ in range(100):
        shared[0].wait()
        shared[1].wait()
    assert slept == pytest.approx(1.9, abs=0.1)  # 200 records, of which the first 10 at once
    now += 60
    slept = 0
    for _ in range(100):
        shared[0].wait()
    assert slept == pytest.approx(0.95, abs=0.06)
    for each in shared:
        each.close()


def test_the_last_task_of_a_machine_removes_what_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rate.tempfile, "tempdir", str(tmp_path))
    killed = (
        "import os; from tidelog.pipeline.writing.rate import Rate; Rate('killed', 9).wait(); os._exit(0)"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", killed], check=True, env=environment)
    assert [path.name for path in tmp_path.iterdir()] == ["tidelog-rate-killed"]
    slept: list[float] = []
    monkeypatch.setattr(rate, "time", SimpleNamespace(monotonic=lambda: 100.0, sleep=slept.append))
    first, second, other = rate.Rate("one", 100), rate.Rate("one", 100), rate.Rate("other", 100)
    first.wait()
    first.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tidelog-rate-one", "tidelog-rate-other"]
    assert slept == [0]  # it need not wait: the second one knows what it has taken
    second.close()
    assert slept == [0, pytest.approx(0.05)]
    assert [path.name for path in tmp_path.iterdir()] == ["tidelog-rate-other"]
    other.close()
    assert not list(tmp_path.iterdir())


def test_a_task_that_comes_as_the_last_one_goes_has_a_file_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rate.tempfile, "tempdir", str(tmp_path))
    flock, goes = fcntl.flock, [rate.Rate("one", 100)]

    def locked_late(file: Any, how: int) -> None:
        if goes and how == fcntl.LOCK_SH:
            goes.pop().close()  # between the opening of the file and its lock
        flock(file, how)

    monkeypatch.setattr(rate.fcntl, "flock", locked_late)
    comes = rate.Rate("one", 100)
    assert [path.name for path in tmp_path.iterdir()] == ["tidelog-rate-one"]
    comes.close()
    assert not list(tmp_path.iterdir())


def test_a_write_is_no_faster_than_is_said(
    target_broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make(target_broker, topic)
    monkeypatch.setattr(rate.tempfile, "tempdir", str(tmp_path))
    rows = [{"value": b"%d" % i} for i in range(500)]
    begin = time.monotonic()
    write(target_broker, rows, topic=topic, maxRecordsPerSecond="1000")
    assert 0.45 < time.monotonic() - begin < 3.5
    assert not list(tmp_path.iterdir())  # nothing is left of it


def test_a_name_that_is_mistyped_makes_no_topic(tmp_path: Path) -> None:
    """On a broker that makes topics of whatever it is asked about."""
    with Broker(tmp_path / "data", {"auto.create.topics.enable": "true"}).start() as broker:
        rows = [{"value": b"", "topic": "mistyped"}]
        for attempt in (
            lambda: a_writer(broker, [of(1)], topic="mistyped"),
            lambda: write(broker, rows),
            lambda: write(broker, rows_of("a-0", range(3)), topic="mistyped"),
        ):
            with pytest.raises(PipelineError, match="topic mistyped is not on"):
                attempt()
        assert not list((tmp_path / "data").glob("mistyped*"))
        broker.stop()


def test_a_broker_that_is_killed_and_started_again_in_the_midst_has_each_row_once(tmp_path: Path) -> None:
    rows = [{"value": b"%d" % i, "key": b"%d" % i} for i in range(1000)]
    with Broker(tmp_path / "data").start() as broker:
        topics.make(broker, "t", 2)

        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, 1000, 100):
                if start == 500:
                    broker.kill()
                    broker.start()
                yield batch(rows[start : start + 100])

        assert a_writer(broker, rows, topic="t").write(batches()).written == 1000
        found = topics.read(broker, "t")
        assert sorted(int(one.value or b"") for one in found) == list(range(1000))
        for number in range(2):  # and in their order
            of_one = [int(one.value or b"") for one in found if one.partition == number]
            assert of_one == sorted(of_one)
        broker.stop()


def test_a_broker_that_is_gone_fails_the_task_and_nothing_is_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "DELIVERY_S", 2)
    monkeypatch.setattr(produce, "_ABANDON_S", 1)
    with Broker(tmp_path / "data").start() as broker:
        topics.make(broker, "t")
        threads = threading.active_count()

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch([of(1)])
            broker.kill()
            yield batch([of(2), of(3)])

        with pytest.raises(PipelineError, match=r"row \d of task 0: not written to t at .*is it running\?"):
            a_writer(broker, [of(1)], topic="t").write(batches())
        assert threading.active_count() == threads  # none that sends on
        broker.start()
        assert len(topics.values(broker, "t")) <= 1


def rows_of(source: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [{"value": b"%d" % i, "key": b"%d" % i, "source": f"{source}@{i}"} for i in numbers]


def test_a_write_that_resumes_leaves_out_what_is_there(target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic, 2)
    write(target_broker, rows_of("orders-1", [*range(10), *range(12, 20)]), topic=topic, job=topic)
    write(target_broker, [{"value": b"foreign"}], topic=topic)
    done = write(target_broker, rows_of("orders-1", range(30)), topic=topic, job=topic, resume="true")
    assert (done.written, done.left_out) == (12, 18)
    done = write(target_broker, rows_of("orders-2", range(5)), topic=topic, job=topic, resume="true")
    assert (done.written, done.left_out) == (5, 0)
    again = write(target_broker, rows_of("orders-1", range(30)), topic=topic, job=topic, resume="true")
    assert (again.written, again.left_out) == (0, 30)
    found = [one for one in topics.read(target_broker, topic) if one.key is not None]
    assert sorted(int(one.value or b"") for one in found) == sorted([*range(30), *range(5)])
    assert {one.headers[-1][1] for one in found if one.value == b"7"} == {b"orders-1@7"}


def test_a_copy_of_a_copy_says_both_and_is_known_by_the_last(target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic)
    first = {"key": "tidelog.source", "value": b"orders-0@7"}
    for written in (1, 0):
        rows = [{"value": b"v", "headers": [first], "source": "copy-0@3"}]
        assert write(target_broker, rows, topic=topic, job=topic, resume="true").written == written
    [one] = topics.read(target_broker, topic)
    assert one.headers == [("tidelog.source", b"orders-0@7"), ("tidelog.source", b"copy-0@3")]


def test_headers_that_others_wrote_hinder_no_write_that_resumes() -> None:
    numbers: dict[str, array[int]] = defaultdict(lambda: array("q"))
    last = (1 << 63) - 2
    for said in (
        b"o@1",
        b"o@%d" % last,
        b"o@%d" % (last + 1),
        b"o@" + b"9" * 30,
        b"o@-1",
        b"o",
        b"\xff@1",
        None,
    ):
        target._note([(target.HEADER, said)], numbers)
    assert {name: list(each) for name, each in numbers.items()} == {"o": [1, last]}
    written = target.Written(numbers)
    assert [written.has(f"o@{number}") for number in (0, 1, 2, last - 1, last)] == [
        False,
        True,
        False,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="is not of the form NAME@NUMBER"):
        target.parsed(f"o@{last + 1}")


def test_a_write_that_does_not_resume_writes_anew_and_the_next_that_does_looks_no_further_back(
    target_broker: Broker, topic: str
) -> None:
    topics.make(target_broker, topic)
    rows = rows_of("orders-0", range(5))
    for resume, written in (("true", 5), ("false", 5), ("true", 0)):
        done = write(target_broker, rows, topic=topic, job=topic, resume=resume)
        assert done.written == written
    looked = a_writer(target_broker, rows, topic=topic, job=topic, resume="true")._tasks.looked
    assert looked is not None
    assert (looked.starts, looked.ends) == ({0: 5}, {0: 10})
    # Another job has no mark: it looks at everything.
    looked = a_writer(target_broker, rows, topic=topic, job=topic + "-2", resume="true")._tasks.looked
    assert looked is not None
    assert looked.starts == {0: 0}


def test_a_mark_in_a_topic_that_was_made_anew_is_none(target_broker: Broker, topic: str) -> None:
    topics.make(target_broker, topic)
    write(target_broker, rows_of("orders-0", range(5)), topic=topic, job=topic)
    target.mark(target_broker.address, topic, topic, {0: 99})
    assert target.look(target_broker.address, topic, topic, read=True).starts == {0: 0}


def test_a_look_for_what_has_come_since_passes_over_what_retention_has_taken(
    target_broker: Broker, topic: str
) -> None:
    topics.make(target_broker, topic)
    write(target_broker, rows_of("orders-0", range(5)), topic=topic, job=topic)
    with RawClient(target_broker) as client:
        delete_before(client, topic, 3)
    since = target.look_again(target_broker.address, topic, {0: 1})
    assert [since.has(f"orders-0@{n}") for n in range(5)] == [False] * 3 + [True] * 2


class Attempt:
    def __init__(self, number: int) -> None:
        self.number = number

    def partitionId(self) -> int:
        return 4

    def attemptNumber(self) -> int:
        return self.number


def test_a_task_that_is_done_again_looks_at_what_has_come_meanwhile(
    target_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make(target_broker, topic)
    rows = rows_of("orders-0", range(10))
    write(target_broker, rows[:2], topic=topic, job=topic)
    writer = a_writer(target_broker, rows, topic=topic, job=topic, resume="true")
    monkeypatch.setattr(sink.TaskContext, "get", lambda: Attempt(0))
    bad = [*rows[:5], {"value": b"", "key": b"", "source": "nonsense"}]
    with pytest.raises(PipelineError, match="row 5 of task 4"):
        writer.write(iter([batch(rows[:5]), batch(bad[5:])]))
    # What was sent may be there or not; have it there, for certain.
    write(target_broker, rows[:5], topic=topic, job=topic, resume="true")
    monkeypatch.setattr(sink.TaskContext, "get", lambda: Attempt(1))
    done = writer.write(iter([batch(rows)]))
    assert (done.written, done.left_out) == (5, 5)
    assert topics.values(target_broker, topic) == [b"%d" % i for i in range(10)]


def test_a_batch_of_a_stream_that_is_done_again_is_left_out_and_later_ones_look_back_one_batch(
    target_broker: Broker, topic: str
) -> None:
    topics.make(target_broker, topic)
    rows = rows_of("orders-0", range(9))
    options = {"target": f"broker:{target_broker.address}", "topic": topic, "resume": "true", "job": topic}
    starts = []

    def one(part: list[dict[str, Any]], commit: int | None) -> tuple[int, int]:
        writer = TidelogSource(options).streamWriter(schema_of(rows), overwrite=False)
        assert writer._tasks.looked is not None
        starts.append(writer._tasks.looked.starts[0])
        done = writer.write(iter([batch(part)]))
        if commit is not None:
            writer.commit([done], commit)
        else:
            writer.abort([done], 0)
        return done.written, done.left_out

    # Batch 1 ends before Spark has heard of it: once before its commit, and once behind it.
    done = [one(rows[:3], 0), one(rows[3:6], None), one(rows[3:6], 1), one(rows[3:6], 1), one(rows[6:], 2)]
    assert done == [(3, 0), (3, 0), (0, 3), (0, 3), (3, 0)]
    assert one(rows[6:], 2) == (0, 3)
    assert starts == [0, 0, 0, 0, 0, 6]
    assert topics.values(target_broker, topic) == [b"%d" % i for i in range(9)]


@pytest.mark.parametrize(
    ("configs", "is_warned"),
    [
        ({"retention_ms": "3600000"}, True),
        ({"retention_ms": "3600000", "cleanup_policy": "compact,delete"}, True),
        ({"retention_ms": "10800000"}, False),
        ({"retention_ms": "-1"}, False),
        ({"retention_ms": "3600000", "cleanup_policy": "compact"}, False),
        ({"retention_ms": "3600000", "retention_clock": "append"}, False),
        ({"retention_ms": "3600000", "message_timestamp_type": "LogAppendTime"}, False),
    ],
)
def test_records_older_than_the_retention_of_their_topic_are_warned_of_once(
    target_broker: Broker,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    configs: dict[str, str],
    is_warned: bool,
) -> None:
    topics.make(target_broker, topic, **configs)
    oldest = datetime.now(UTC) - timedelta(hours=2)
    times = [None, oldest + timedelta(minutes=90), oldest, oldest + timedelta(minutes=5)]
    rows = [{"value": b"v", "key": b"k", "timestamp": at} for at in times]
    writer = a_writer(target_broker, rows, topic=topic)
    # Two tasks; the oldest record is in the second.
    writer.commit([writer.write(iter([batch(part)])) for part in (rows[:2], rows[2:])])
    lines = [record.getMessage() for record in caplog.records if record.name == sink.__name__]
    assert len(lines) == is_warned
    for line in lines:
        assert f"topic {topic} at {target_broker.address}" in line
        assert oldest.isoformat(timespec="milliseconds") in line
        assert "retention.ms=3600000 (1h)" in line


def test_a_stream_warns_of_records_that_are_too_old_and_a_broker_that_is_gone_does_not_fail_the_write(
    target_broker: Broker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make(target_broker, topic, retention_ms="3600000")
    rows = [{"value": b"v", "timestamp": datetime.now(UTC) - timedelta(hours=2)}]
    source = TidelogSource({"target": f"broker:{target_broker.address}", "topic": topic})
    writer = source.streamWriter(schema_of(rows), overwrite=False)
    done = writer.write(iter([batch(rows)]))
    writer.commit([done, None], 0)
    assert [line for line in caplog.messages if "retention.ms=3600000" in line]
    caplog.clear()

    def refuse(*_: Any) -> None:
        raise PipelineError("no broker answers")

    monkeypatch.setattr(late, "topic_options", refuse)
    writer.commit([done], 1)
    assert not caplog.messages
