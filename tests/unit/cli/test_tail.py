"""The order and the choice of records in `tail`, against a broker of a few lines."""

import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kafka.errors import UnknownTopicOrPartitionError

from tidelog.broker.clock import Clock
from tidelog.cli import tail
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, UNREACHABLE
from tidelog.cli.formats import Record


class Key(NamedTuple):
    partition: int
    topic: str = "t"


class Session:
    """Hands out records by partition, `at_once` of each per poll; a gap is an offset that no record has."""

    def __init__(self, *logs: Sequence[tuple[int, int]], at_once: int = 1) -> None:
        self.logs = {Key(number): list(log) for number, log in enumerate(logs)}
        self.ends = {key: max([offset + 1 for offset, _ in log], default=0) for key, log in self.logs.items()}
        self.at_once = at_once
        self.positions: dict[Key, int] = {}
        self.paused: set[Key] = set()
        self.polls = 0
        self.is_there = True
        self.append_ms: dict[
            Key, list[int]
        ] = {}  # by offset; without them, the broker searches by record time
        self.damaged: dict[Key, int] = {}  # where the broker answers that it cannot read
        self._fetcher = SimpleNamespace(damaged={}, refused=set())

    def assign(self, keys: Sequence[Key]) -> None:
        self.positions = dict.fromkeys(keys, 0)

    def end_offsets(self, keys: Sequence[Key]) -> dict[Key, int]:
        return {key: self.ends[key] for key in keys}

    def beginning_offsets(self, keys: Sequence[Key]) -> dict[Key, int]:
        return dict.fromkeys(keys, 0)

    def offsets_for_times(self, times: dict[Key, int]) -> dict[Key, Any]:
        return {key: self.first(key, at) for key, at in times.items()}

    def first(self, key: Key, at: int) -> Record | None:
        by_append = self.append_ms.get(key)
        for offset, record_ms in self.logs[key]:
            if (by_append[offset] if by_append else record_ms) >= at:
                return Record("t", key.partition, offset, record_ms, 0, None, None, [])
        return None

    def seek(self, key: Key, offset: int) -> None:
        self.positions[key] = offset

    def pause(self, key: Key) -> None:
        self.paused.add(key)

    def resume(self, key: Key) -> None:
        self.paused.discard(key)

    def position(self, key: Key) -> int:
        return self.positions[key]

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {key.partition for key in self.logs if key.topic == topic and self.is_there}

    def poll(self, timeout_ms: int) -> dict[Key, list[Record]]:
        self.polls += 1
        answer = {}
        for key, position in self.positions.items():
            there = [entry for entry in self.logs[key] if entry[0] >= position][: self.at_once]
            if key in self.paused:
                continue
            if position == self.damaged.get(key):
                self._fetcher.damaged[key] = position
                continue
            there = [entry for entry in there if not position < self.damaged.get(key, 0) <= entry[0]]
            if there:
                answer[key] = [
                    Record("t", key.partition, offset, ts, 0, None, b"%d" % offset, [])
                    for offset, ts in there
                ]
                self.positions[key] = there[-1][0] + 1
            else:
                self.positions[key] = self.ends[key]
        return answer


def reader(
    session: Session, since: int | None = None, follow: bool = False, until: int | None = None
) -> tail.Reader:
    clock = Clock()
    clock.hold(1000)
    return tail.Reader(session, list(session.logs), tail.Span(since, until, follow=follow), clock)


def places(session: Session, since: int | None = None) -> list[tuple[int, int]]:
    """Return (partition, offset) of what is read to the end, in order."""
    return [(r.partition, r.offset) for records in reader(session, since).read() for r in records]


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_partitions_are_merged_by_time_and_each_keeps_its_order(at_once: int) -> None:
    session = Session([(0, 10), (1, 40), (2, 20)], [(0, 15), (1, 30), (2, 50)], [], at_once=at_once)
    assert places(session) == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]


def test_gaps_and_what_is_no_record_at_the_end() -> None:
    session = Session([(0, 10), (5, 11)], [(3, 5)])
    session.ends[Key(0)] = 9
    assert places(session) == [(1, 3), (0, 0), (0, 5)]


def test_records_that_come_while_it_reads_are_not_waited_for() -> None:
    session = Session([(0, 10), (1, 11)], at_once=10)
    session.ends[Key(0)] = 1
    assert places(session) == [(0, 0)]


def test_since_beyond_every_record_reads_nothing() -> None:
    session = Session([(0, 10)], [(0, 20)])
    assert places(session, since=20) == [(1, 0)]
    assert places(Session([(0, 10)]), since=11) == []


def test_a_partition_far_ahead_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "QUEUE_MAX_RECORDS", 3)
    session = Session([(n, n) for n in range(20)], [(n, 100 + n) for n in range(20)], at_once=3)
    most = 0

    def poll(timeout_ms: int, poll: Any = session.poll) -> Any:
        nonlocal most
        most = max(most, len(session.paused))
        return poll(timeout_ms)

    monkeypatch.setattr(session, "poll", poll)
    assert places(session) == [(0, n) for n in range(20)] + [(1, n) for n in range(20)]
    assert most == 1
    assert not session.paused


def test_follow_starts_at_the_end_and_goes_on() -> None:
    session = Session([(0, 10)], [(0, 5)])
    records = reader(session, follow=True).read()
    session.logs[Key(0)].append((1, 20))
    assert [r.offset for r in next(records)] == [1]
    session.logs[Key(1)].append((1, 15))
    assert [(r.partition, r.offset) for r in next(records)] == [(1, 1)]


def test_follow_since_starts_with_what_is_there() -> None:
    session = Session([(0, 10), (1, 20)], at_once=10)
    records = reader(session, since=15, follow=True).read()
    assert [r.offset for r in next(records)] == [1]


def test_follow_until_a_time_ends_when_it_has_passed() -> None:
    session = Session([(0, 10), (1, 20)], at_once=10)
    assert [r.offset for records in reader(session, 0, True, until=1000).read() for r in records] == [0, 1]


def test_a_silent_broker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session([(0, 10)])
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(session, "poll", lambda timeout_ms: {})
    monkeypatch.setattr(tail.time, "monotonic", lambda: next(now))
    with pytest.raises(CommandError, match="has sent nothing for 30 s") as caught:
        places(session)
    assert caught.value.exit_code == UNREACHABLE


def _nothing(*_: object) -> dict[Key, list[Record]]:
    return {}


def _refused(*_: object) -> Any:
    raise UnknownTopicOrPartitionError("t")


@pytest.mark.parametrize(("poll", "look"), [(_nothing, None), (_refused, None), (_nothing, _refused)])
@pytest.mark.parametrize("follow", [True, False])
def test_a_topic_that_is_deleted_while_it_is_read_is_an_error(
    follow: bool, poll: Any, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However that is learned: kafka-python raises what the broker says of a topic that it alone asked for."""
    session = Session([(0, 10)])
    session.ends[Key(0)] = 2  # there is one more, that does not come
    records = reader(session, 0, follow).read()
    assert [r.offset for r in next(records)] == [0]
    session.is_there = False
    monkeypatch.setattr(session, "poll", poll)
    monkeypatch.setattr(session, "partitions_for_topic", look or session.partitions_for_topic)
    with pytest.raises(
        CommandError, match="topic t is gone: it was deleted while it was being read"
    ) as caught:
        next(records)
    assert caught.value.exit_code == FAILED


def value_of(record: Record) -> bytes:
    return (record.value or b"") + b" "


class Output:
    def __init__(self) -> None:
        self.buffer = io.BytesIO()


@pytest.mark.parametrize(
    ("since", "until", "limit", "expected"),
    [
        (None, None, None, "0 1 2 3 4 5"),
        (
            20,
            None,
            None,
            "1 2 4",
        ),  # 3 (ts 15) and 5 (no timestamp) lie behind the first record at or after 20
        (20, 30, None, "1 4"),
        (None, 30, None, "0 1 3 4"),
        (20, 30, 1, "1"),
        (None, None, 3, "0 1 2"),
    ],
)
def test_a_range_of_times_is_exact_out_of_order(
    since: int | None, until: int | None, limit: int | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session([(0, 10), (1, 20), (2, 30), (3, 15), (4, 29), (5, -1)], at_once=2)
    out = Output()
    monkeypatch.setattr(tail.sys, "stdout", out)
    span = tail.Span(since, until)
    tail._print(reader(session, since), span, limit, value_of, lambda count: None)
    assert out.buffer.getvalue().decode().strip() == expected


def offsets_in(session: Session, span: tail.Span, now_ms: int = 1000) -> list[int]:
    clock = Clock()
    clock.hold(now_ms)
    reader = tail.Reader(session, list(session.logs), span, clock)
    return [r.offset for records in reader.read() for r in records if span.has(r.timestamp)]


@pytest.mark.parametrize("at_once", [1, 2, 10])
def test_I6_a_range_by_append_time_has_what_was_appended_in_it_whatever_its_record_times(
    at_once: int,
) -> None:
    session = Session([(0, 900), (1, 10), (2, -1), (3, 50), (4, 20)], at_once=at_once)
    session.append_ms[Key(0)] = [10, 20, 20, 30, 40]
    assert offsets_in(session, tail.Span(20, 40, by_append=True)) == [1, 2, 3]
    assert offsets_in(session, tail.Span(15, None, by_append=True)) == [1, 2, 3, 4]
    assert offsets_in(session, tail.Span(None, 30, by_append=True)) == [0, 1, 2]
    assert offsets_in(session, tail.Span(20, 20, by_append=True)) == []
    assert offsets_in(session, tail.Span(50, 60, by_append=True)) == []
    # What a poll brings after the end has passed was appended later.
    assert offsets_in(session, tail.Span(20, 40, by_append=True, follow=True)) == [1, 2, 3]


def test_V10_reading_goes_on_beside_damage_and_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session([(n, n) for n in range(6)], [(n, n) for n in range(6)])
    session.damaged[Key(0)] = 2
    session.ends = {Key(0): 6, Key(1): 6}
    read = reader(session)
    found = [(r.partition, r.offset) for records in read.read() for r in records]
    assert sorted(found) == [(0, 0), (0, 1)] + [(1, n) for n in range(6)]
    assert read.damaged == [Key(0)]
    assert session.paused == {Key(0)}  # the broker would be asked for it again and again
    error = capsys.readouterr().err
    assert error.startswith("tidelog: partition 0 of t is damaged at offset 2, and read no further; ")
    assert error.endswith("read on from there with --partition 0 --offset N\n")
    alone = Session([(n, n) for n in range(6)])
    alone.damaged[Key(0)] = 2
    assert offsets_in(alone, tail.Span(from_offset=4)) == [4, 5]
    assert capsys.readouterr().err == ""


def test_damage_after_the_end_of_a_range_is_nobodys_concern(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session([(n, n) for n in range(6)], [(n, 100 + n) for n in range(9)])
    session.append_ms = {Key(0): list(range(6)), Key(1): [0] * 9}
    session.damaged[Key(0)] = 3
    assert offsets_in(session, tail.Span(None, 3, by_append=True)) == [*range(3), *range(9)]
    assert capsys.readouterr().err == ""


def test_what_is_followed_ends_where_all_of_it_is_damaged() -> None:
    session = Session([(0, 10), (1, 20)])
    session.damaged[Key(0)] = 1
    assert [r.offset for records in reader(session, 0, follow=True).read() for r in records] == [0]


def test_a_partition_that_the_broker_cannot_read_is_named_once_and_as_the_reason_of_a_stall(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tail, "STALLED_S", 0.01)
    session = Session([(0, 10)])

    def poll(_timeout_ms: int) -> dict[Key, list[Record]]:
        session._fetcher.refused.add(("t", 0))
        return {}

    monkeypatch.setattr(session, "poll", poll)
    named = "partition 0 of t: the broker cannot use its files"
    with pytest.raises(CommandError, match=f"has sent nothing for 0.01 s: {named}"):
        list(reader(session).read())
    assert capsys.readouterr().err.count(named) == 1


def test_an_offset_that_a_partition_does_not_have_is_refused() -> None:
    session = Session([(0, 10), (1, 20)])
    with pytest.raises(CommandError, match=r"--offset 3: partition 0 of t starts at 0 and ends before 2"):
        offsets_in(session, tail.Span(from_offset=3))
    assert offsets_in(session, tail.Span(from_offset=2)) == []
