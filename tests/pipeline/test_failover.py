"""failover: on pairs of simulated clusters no record is missed, and few are read again."""

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.pipeline import topics
from tests.pipeline.jobs import Ran, commit_offsets, run
from tests.support.broker import Broker
from tests.support.logs import NOW, fill, open_log
from tests.support.workload import unique_topic
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.jobs import failover
from tidelog.pipeline.jobs.failover import BY_TIME, START, Found
from tidelog.pipeline.jobs.parts.committed import Reads
from tidelog.storage.append_index import HEADER_BYTES
from tidelog.storage.checkpoints import save_offsets
from tidelog.storage.layout import LOG_STARTS

Captured = pytest.CaptureFixture[str]


class Message(NamedTuple):
    create_ms: int
    on_a_ms: int
    on_b_ms: int


class Pair(NamedTuple):
    """The same messages on two clusters: numbers of messages, in the order of each, and the largest latency of A."""

    folder: Path
    messages: list[Message]
    on_a: list[int]
    on_b: list[int]
    latency_ms: int

    def missed(self, committed: int, start: int) -> int:
        place = {number: offset for offset, number in enumerate(self.on_b)}
        return sum(place[number] < start for number in self.on_a[committed:])

    def read_again(self, committed: int, start: int) -> int:
        place = {number: offset for offset, number in enumerate(self.on_b)}
        return sum(place[number] >= start for number in self.on_a[:committed])


def a_pair(folder: Path, seed: int, count: int = 1500) -> Pair:
    """Messages every 100 ms or so of five producers whose clocks differ, late by seconds, some by half a minute."""
    rng = random.Random(seed)
    skews = [rng.randrange(-3000, 3000) for _ in range(5)]
    skew_b = rng.randrange(-60_000, 60_000)

    def late() -> int:
        return int(rng.expovariate(1 / 2000)) + (rng.randrange(30_000) if rng.random() < 0.02 else 0)

    messages = []
    for number in range(count):
        at = NOW + number * 100 + rng.randrange(100)
        messages.append(Message(at + rng.choice(skews), at + late(), at + late() + skew_b))
    on_a = sorted(range(count), key=lambda number: messages[number].on_a_ms)
    on_b = sorted(range(count), key=lambda number: messages[number].on_b_ms)
    for name, order, column in (("a", on_a, 1), ("b", on_b, 2)):
        log = open_log(folder / name / "t-0", segment_bytes=6000, index_interval_bytes=500)
        for number in order:
            fill(log, [[messages[number].create_ms]], now_ms=messages[number][column])
        log.close()
    latency_ms = max(each.on_a_ms - each.create_ms for each in messages)
    return Pair(folder, messages, on_a, on_b, latency_ms)


def reads(offsets: Sequence[int]) -> dict[Reads, int]:
    return {Reads(f"g{number}", "t", 0): offset for number, offset in enumerate(offsets)}


def started(pair: Pair, wanted: dict[Reads, int]) -> dict[str, dict[str, Any]]:
    times = failover.since(str(pair.folder / "a"), "t", wanted, {0: pair.latency_ms})
    found = failover.looked_up(f"segments:{pair.folder}/b", "t", times)
    return {row["group"]: row for row in failover.starts(wanted, times, found)}


def test_three_hundred_points_miss_nothing(tmp_path: Path, record_property: Any) -> None:
    """The rule misses nothing; to search B for the create time of the last record read, on the same points, does."""
    again, naive_misses, points = 0, 0, 0
    for seed in range(6):
        pair = a_pair(tmp_path / str(seed), seed)
        rng = random.Random(seed)
        wanted = reads([rng.randrange(1, len(pair.messages)) for _ in range(50)])
        rows = started(pair, wanted)
        for group, offset in ((each.group, offset) for each, offset in wanted.items()):
            row = rows[group]
            assert row["rule"] == BY_TIME
            assert pair.missed(offset, row["offset"]) == 0
            read_again = pair.read_again(offset, row["offset"])
            assert read_again <= row["bound"] <= offset
            again, points = again + read_again, points + 1
            last = pair.messages[pair.on_a[offset - 1]].create_ms
            since = pair.messages[pair.on_a[offset - 1]].on_a_ms - pair.latency_ms
            created = [pair.messages[number].create_ms for number in pair.on_b]
            assert row["offset"] == next(place for place, at in enumerate(created) if at >= since)
            naive = next(place for place, n in enumerate(pair.on_b) if pair.messages[n].create_ms >= last)
            naive_misses += pair.missed(offset, naive) > 0
    record_property("mean_read_again", again / points)
    print(
        f"{points} points: 0 with loss, {again / points:.0f} read again in the mean, {naive_misses} naive with loss"
    )
    assert points == 300
    assert naive_misses > 100
    assert 50 < again / points < 600  # some 35 s of 10 messages a second, and not the log's beginning


def test_the_time_is_that_of_the_last_record_read_less_the_latency(tmp_path: Path) -> None:
    pair = a_pair(tmp_path, 1, 300)
    wanted = reads([0, 1, 150, 300])
    times = failover.since(f"{tmp_path}/a", "t", wanted, {0: 1234})
    appended = [pair.messages[number].on_a_ms for number in pair.on_a]
    assert list(times.values()) == [appended[n] - 1234 for n in (0, 0, 149, 299)]
    assert set(failover.since(f"{tmp_path}/a", "t", wanted, {0: None}).values()) == {None}
    assert set(failover.since(f"{tmp_path}/a", "t", wanted, {}).values()) == {None}


def test_offsets_behind_the_end_are_of_another_log(tmp_path: Path) -> None:
    """As of a topic that was made anew, or that lost its end: its records were not read."""
    a_pair(tmp_path, 1, 300)
    times = failover.since(f"{tmp_path}/a", "t", reads([301, 10_000]), {0: 1234})
    assert list(times.values()) == [None, None]


def test_what_is_deleted_on_a(tmp_path: Path) -> None:
    pair = a_pair(tmp_path, 2, 300)
    save_offsets(tmp_path / "a" / LOG_STARTS, {("t", 0): 100})
    times = failover.since(f"{tmp_path}/a", "t", reads([99, 100, 101]), {0: 0})
    appended = [pair.messages[number].on_a_ms for number in pair.on_a]
    assert list(times.values()) == [None, appended[100], appended[100]]


def test_a_bound_of_an_append_time_proves_nothing(tmp_path: Path) -> None:
    """Where append times were lost, the last that is exact before them stands; without one nothing does."""
    pair = a_pair(tmp_path, 3, 300)
    folder = tmp_path / "a" / "t-0"
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    (folder / f"{bases[1]:020d}.appendindex").unlink()
    (folder / f"{bases[1]:020d}.summary").unlink()
    appended = [pair.messages[number].on_a_ms for number in pair.on_a]
    middle = (bases[1] + bases[2]) // 2
    times = failover.since(f"{tmp_path}/a", "t", reads([middle, bases[2] + 1, bases[1]]), {0: 0})
    assert list(times.values()) == [appended[bases[1] - 1], appended[bases[2]], appended[bases[1] - 1]]
    (folder / f"{bases[0]:020d}.appendindex").unlink()
    (folder / f"{bases[0]:020d}.summary").unlink()
    times = failover.since(f"{tmp_path}/a", "t", reads([middle, bases[2] + 1]), {0: 0})
    assert list(times.values()) == [None, appended[bases[2]]]


def test_an_append_time_that_is_lost_among_others(tmp_path: Path) -> None:
    """The last that is exact before it stands, whatever is exact behind it."""
    pair = a_pair(tmp_path, 3, 300)
    folder = tmp_path / "a" / "t-0"
    appended = [pair.messages[number].on_a_ms for number in pair.on_a]
    index = folder / f"{0:020d}.appendindex"
    entries = bytearray(index.read_bytes())
    number = next(n for n in range(20, 40) if appended[n] > appended[n - 1] and appended[n + 1] > appended[n])
    at = next(
        at
        for at in range(HEADER_BYTES, len(entries), 16)
        if entries[at : at + 8] == appended[number].to_bytes(8, "big")
    )
    entries[at + 3] ^= 1
    index.write_bytes(entries)
    (folder / f"{0:020d}.summary").unlink()
    times = failover.since(f"{tmp_path}/a", "t", reads([number, number + 1, number + 2]), {0: 0})
    assert list(times.values()) == [appended[number - 1], appended[number - 1], appended[number + 1]]


def test_where_cluster_b_has_nothing_of_it_the_end_is_it(tmp_path: Path) -> None:
    a_pair(tmp_path, 9, 20)
    save_offsets(tmp_path / "b" / LOG_STARTS, {("t", 0): 4})
    times = dict(zip(reads([0, 0, 0]), (NOW + 10**9, None, 0), strict=True))
    found = failover.looked_up(f"segments:{tmp_path}/b", "t", times)
    assert list(found.values()) == [Found(4, 20, 20), Found(4, 20, 20), Found(4, 20, 4)]


def test_rows_by_group_and_partition() -> None:
    wanted = {Reads("h", "t", 0): 30, Reads("g", "t", 1): 90, Reads("g", "t", 0): 90}
    times = {Reads("h", "t", 0): 7, Reads("g", "t", 0): 8, Reads("g", "t", 1): None}
    found = {each: Found(5, 100, 40 + each.partition) for each in wanted}
    rows = [tuple(row.values()) for row in failover.starts(wanted, times, found)]
    assert rows == [
        ("g", 0, 40, BY_TIME, 60),  # no more than B has
        ("g", 1, 5, START, 90),  # nor than it has read
        ("h", 0, 40, BY_TIME, 30),
    ]


def job(capsys: Captured, folder: Path, *more: str, target: str = "") -> Ran:
    flags = ("--source", f"segments:{folder}/a", "--topic", "t", "--json")
    return run(capsys, "failover", *flags, "--target", target or f"segments:{folder}/b", *more)


def test_the_job_on_two_folders(spark: Any, capsys: Captured, tmp_path: Path) -> None:
    pair = a_pair(tmp_path, 4, 600)
    commit_offsets(tmp_path / "a", 0, ("g0", "t", 0, 300), ("g1", "t", 0, 599), ("g1", "u", 0, 4))
    ran = job(capsys, tmp_path)
    assert ran.status == 0, ran.err
    assert ran.rows == list(started(pair, reads([300, 599])).values())
    assert list(ran.rows[0]) == ["group", "partition", "offset", "rule", "bound"]
    assert f"t-0: latency {pair.latency_ms:,} ms at most" in ran.err
    assert job(capsys, tmp_path, "--max-latency", "1ms", "--group", "g1").rows == [ran.rows[1]]
    larger = job(capsys, tmp_path, "--max-latency", "1h", "--group", "g1").rows[0]
    assert larger["offset"] == 0
    before = sorted(tmp_path.rglob("*"))
    (scanned,) = job(capsys, tmp_path, "--dry-run").rows
    assert scanned["records_at_most"] == 600
    assert sorted(tmp_path.rglob("*")) == before


def test_largest_delays_by_partition(spark: Any) -> None:
    from tidelog.pipeline.transforms.windows import largest_delays

    rows = [
        (0, 5, 8, "CreateTime"),
        (0, 9, 8, "CreateTime"),
        (1, 9, 8, "CreateTime"),
        (1, 9, 9, "LogAppendTime"),
        (2, None, 9, "NoTimestampType"),
        (2, 4, None, "CreateTime"),
    ]
    frame = spark.createDataFrame(rows, "partition int, c long, a long, timestamp_type string").selectExpr(
        "partition", "timestamp_millis(c) create_time", "timestamp_millis(a) append_time", "timestamp_type"
    )
    assert [tuple(row) for row in largest_delays(frame).collect()] == [
        (0, 2, 0, 3),
        (1, 1, 1, -1),
        (2, 0, 2, None),
    ]


def test_the_job_on_a_broker_commits_what_it_shows(
    spark: Any, capsys: Captured, tmp_path: Path, target_broker: Broker
) -> None:
    """The same answers of the broker that has cluster B's topic; and a consumer of the group begins there."""
    topic = topics.make(target_broker, unique_topic("failover"), 2)
    rng = random.Random(6)
    created = [NOW + number * 100 - rng.randrange(5000) for number in range(200)]
    topics.send(target_broker, topic, created)
    for partition in range(2):
        log = open_log(tmp_path / "a" / f"{topic}-{partition}")
        for number, at in enumerate(created):
            fill(log, [[at]], now_ms=NOW + number * 100 + 50)
        log.close()
    group = f"group-of-{topic}"
    commit_offsets(tmp_path / "a", 0, (group, topic, 0, 120), (group, topic, 1, 120))
    flags = ("--source", f"segments:{tmp_path}/a", "--topic", topic, "--json")
    target = ("--target", f"broker:{target_broker.address}")
    latency = max(NOW + number * 100 + 50 - at for number, at in enumerate(created))
    first = next(offset for offset, at in enumerate(created) if at >= NOW + 119 * 100 + 50 - latency)

    def committed() -> list[int | None]:
        with closing(KafkaConsumer(bootstrap_servers=target_broker.address, group_id=group)) as consumer:
            return [consumer.committed(TopicPartition(topic, number)) for number in range(2)]

    ran = run(capsys, "failover", *flags, *target)
    assert [tuple(row.values()) for row in ran.rows] == [
        (group, 0, first, BY_TIME, 120),
        (group, 1, 0, BY_TIME, 0),  # B has nothing there: its end
    ]
    assert committed() == [None, None]
    applied = run(capsys, "failover", *flags, *target, "--apply")
    assert (applied.status, applied.rows) == (0, ran.rows)
    assert committed() == [first, 0]
    wrong = [
        {"lookup_clock": "append"},
        {"lookup_clock": "record", "message_timestamp_type": "LogAppendTime"},
    ]
    for options, said in zip(
        wrong, ("lookup.clock=append", "message.timestamp.type=LogAppendTime"), strict=True
    ):
        topics.alter(target_broker, topic, **options)
        refused = run(capsys, "failover", *flags, *target)
        assert (refused.status, refused.out) == (1, "")
        assert f"has {said}" in refused.err


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        ("--source segments:{}/a", 2, "--target: it is missing"),
        ("--source segments:{}/a --target x:y", 2, "--target: x:y"),
        (
            "--source broker:h:1 --target broker:h:2",
            2,
            "is none that can be searched by append time",
        ),
        (
            "--source segments:s3://b/p --target broker:h:2",
            2,
            "is none that can be searched by append time",
        ),
        ("--source segments:{}/a --target segments:{}/b --apply", 2, "--apply: only a broker"),
        ("--source segments:{}/a --target segments:{}/b --to now", 2, "--from, --to"),
        ("--source segments:{}/a --target segments:{}/b --bad skip", 2, "--bad skip"),
        (
            "--source segments:{}/a --target segments:{}/b --max-latency x",
            2,
            "--max-latency: 'x'",
        ),
        (
            "--source segments:{}/a --target segments:{}/b --group g",
            1,
            "group g has committed nothing",
        ),
        (
            "--source segments:{}/a --target segments:{}/b",
            1,
            "no group has committed offsets of t; name the data folder of the broker that has the groups",
        ),
    ],
)
def test_what_failover_refuses(capsys: Captured, tmp_path: Path, flags: str, status: int, said: str) -> None:
    a_pair(tmp_path, 7, 10)
    ran = run(capsys, "failover --topic t", *flags.replace("{}", str(tmp_path)).split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert said in ran.err


def test_other_partitions_than_on_a_are_refused(capsys: Captured, tmp_path: Path) -> None:
    a_pair(tmp_path, 8, 10)
    open_log(tmp_path / "b" / "t-1").close()
    said = r"it has partitions \[0, 1\] of t, and A has \[0\]"
    with pytest.raises(PipelineError, match=said):
        failover.demand_searchable(f"segments:{tmp_path}/b", "t", [0])
    commit_offsets(tmp_path / "a", 0, ("g", "t", 3, 1))
    ran = job(capsys, tmp_path)
    assert (ran.status, "group g has read t-3, which is not there any more" in ran.err) == (1, True)
