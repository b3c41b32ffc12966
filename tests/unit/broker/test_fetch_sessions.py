"""Fetch sessions by themselves: logs that are numbers, a loop whose turns are made here, a clock that is moved."""

import gc
import tracemalloc
from collections.abc import Callable, Coroutine, Iterable
from sys import getsizeof
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker import fetch_sessions
from tidelog.broker.answers import Later
from tidelog.broker.broker import Broker
from tidelog.broker.clock import Clock
from tidelog.broker.fetch_sessions import (
    PARTITION_BYTES,
    PARTITIONS_A_TURN,
    PARTITIONS_MAX,
    SESSION_BYTES,
    TOPIC_BYTES,
    FetchSession,
    FetchSessions,
    InSession,
    Opening,
)
from tidelog.broker.partition import Partition
from tidelog.broker.quota import LITTLE_BYTES, Quota
from tidelog.broker.running import Running
from tidelog.broker.timers import Timers
from tidelog.broker.turns import Turns
from tidelog.broker.waiting import FetchWaiter, Parked
from tidelog.broker.work import Coro
from tidelog.config.load import load
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

RECORD_BYTES = 10


class Loop:
    """An event loop of which only the turns are looked at."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> "Loop":
        self.soon.append(call)
        return self

    def call_soon_threadsafe(self, call: Callable[[], None]) -> "Loop":
        return self.call_soon(call)

    def call_later(self, *_: object) -> "Loop":
        return self

    def cancel(self) -> None:
        pass

    def turn(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def run(self) -> None:
        for _ in range(1000):
            self.turn()
        assert not self.soon


class NumberedLog:
    """A log, as far as a session sees one: its ends."""

    def __init__(self) -> None:
        self.log_start_offset = self.high_watermark = self.last_stable_offset = 0

    def readable_end(self, isolation_level: int) -> int:
        return self.last_stable_offset if isolation_level else self.high_watermark


class World:
    """Topics and sessions, and a fetch that reads as the handler does: RECORD_BYTES each, so many in all."""

    def __init__(self, partitions: int = 3, **options: str) -> None:
        self.loop, self.clock = Loop(), Clock()
        self.clock.hold(1_700_000_000_000)
        loop = cast(Any, self.loop)
        self.parked = Parked(loop, self.clock, Timers(loop, self.clock), Quota(1 << 30))
        self.turns = Turns(loop)
        self.topics = cast(Any, SimpleNamespace(changes=0, by_name={}, by_id={}))
        self.shared = cast(Any, SimpleNamespace(start_moves=0))
        named = {name.replace("_", "."): value for name, value in options.items()}
        self.sessions = FetchSessions(
            load(None, {}, named),
            self.clock,
            self.topics,
            cast(Any, SimpleNamespace(shared=self.shared)),
            self.parked,
        )
        self.make("t", partitions)

    def make(self, name: str, partitions: int) -> None:
        made = [Partition(index, cast(Any, NumberedLog())) for index in range(partitions)]
        topic = SimpleNamespace(
            name=name, partition=lambda index: made[index] if 0 <= index < len(made) else None
        )
        self.topics.by_name[name] = topic
        self.topics.by_id[name.encode().ljust(16)] = topic
        self.topics.changes += 1

    def partition(self, index: int, name: str = "t") -> Partition:
        found = self.topics.by_name[name].partition(index)
        assert found is not None
        return cast(Partition, found)

    def grow(self, index: int, name: str = "t", records: int = 1) -> None:
        partition = self.partition(index, name)
        log = cast(NumberedLog, partition.log)
        log.high_watermark += records
        log.last_stable_offset += records
        if partition.waiters.count:
            partition.waiters.grow(RECORD_BYTES * records)

    def read(self, request: FetchRequest, by_id: bool, most: int) -> list[FetchableTopicResponse]:
        topics = []
        for wanted in request.topics:
            answers = []
            for want in wanted.partitions:
                known = self.topics.by_id if by_id else self.topics.by_name
                topic = known.get(wanted.topic_id if by_id else wanted.topic)
                partition = topic and topic.partition(want.partition)
                if partition is None:
                    answers.append(failed(want.partition))
                    continue
                log = partition.log
                count = max(0, min(log.readable_end(request.isolation_level) - want.fetch_offset, most))
                most -= count
                answers.append(
                    PartitionData(
                        partition_index=want.partition,
                        error_code=0,
                        high_watermark=log.high_watermark,
                        last_stable_offset=log.last_stable_offset,
                        log_start_offset=log.log_start_offset,
                        aborted_transactions=None,
                        records=b"r" * RECORD_BYTES * count,
                    )
                )
            topics.append(
                FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=answers)
            )
        return topics

    def open(
        self, wanted: dict[int, int], address: str = "here", by_id: bool = False, most: int = 1000
    ) -> Any:
        """Answer a full fetch that asks for a session."""
        request = fetch("t", wanted, by_id=by_id)
        asked = Opening(self.sessions, address, request, by_id)
        asked.wanted(request)
        return self.made(asked.answer(self.read(request, by_id, most)))

    def begin(self, session_id: int, epoch: int, wanted: dict[int, int] | None = None, **more: Any) -> Any:
        """Begin with an incremental request; return what it asks for, or the error."""
        by_id = more.pop("by_id", False)
        request = fetch("t", wanted or {}, session_id=session_id, session_epoch=epoch, by_id=by_id, **more)
        resumed = self.sessions.resume(request, by_id)
        if not isinstance(resumed, FetchSession):
            return resumed
        asked = InSession(self.sessions, resumed)
        asked.wanted(request)
        return asked, request

    def poll(self, session_id: int, epoch: int, wanted: dict[int, int] | None = None, **more: Any) -> Any:
        """Answer an incremental fetch."""
        by_id, most = more.get("by_id", False), more.pop("most", 1000)
        begun = self.begin(session_id, epoch, wanted, **more)
        if isinstance(begun, ErrorCode):
            return begun
        asked, request = begun
        return self.made(asked.answer(self.read(request, by_id, most)))

    def begun(self, answer: FetchResponse | Coro[FetchResponse]) -> Later:
        """Begin with an answer that takes several turns."""
        assert isinstance(answer, Coroutine)
        broker = SimpleNamespace(loop=self.loop, turns=self.turns)
        running = Running(cast(Broker, broker), "me", answer)
        assert running.begin() is running
        return running

    def made(self, answer: FetchResponse | Coro[FetchResponse]) -> Any:
        if not isinstance(answer, Coroutine):
            return answer
        later = self.begun(answer)
        self.loop.run()
        return later.response


def fetch(topic: str, wanted: dict[int, int], by_id: bool = False, **more: Any) -> FetchRequest:
    wants = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in wanted.items()
    ]
    named: dict[str, Any] = {"topic_id": topic.encode().ljust(16)} if by_id else {"topic": topic}
    topics = [FetchTopic(**named, partitions=wants)] if wants else []
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, **more)


def failed(index: int) -> PartitionData:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def partitions_in(response: FetchResponse) -> list[int]:
    """Return the partitions in a response, in its order."""
    assert not response.error_code
    return [part.partition_index for topic in response.responses for part in topic.partitions]


def with_records(response: FetchResponse) -> list[int]:
    return [part.partition_index for topic in response.responses for part in topic.partitions if part.records]


def forgotten(*indexes: int) -> list[ForgottenTopic]:
    return [ForgottenTopic(topic="t", partitions=list(indexes))]


EVERY = {0: 0, 1: 0, 2: 0}


def test_the_id_of_a_session_is_positive_and_fits_its_field() -> None:
    world = World()
    assert all(0 < world.open(EVERY).session_id < 1 << 31 for _ in range(50))


def test_a_watched_partition_costs_a_poll_nothing() -> None:
    world = World(2000)
    session = world.open(dict.fromkeys(range(2000), 0)).session_id
    asked, request = world.begin(session, 1)
    assert request.topics == []
    world.grow(7)
    asked, request = world.begin(session, 2)
    assert [want.partition for want in request.topics[0].partitions] == [7]
    assert asked.size == 2000


def test_what_was_appended_is_in_the_next_answer_though_nobody_was_told_yet() -> None:
    """Whoever produced, got an answer and fetches at once must get it, also before the loop has had its next turn."""
    world = World()
    session = world.open(EVERY).session_id
    world.grow(2)
    assert world.parked.growing
    assert with_records(world.poll(session, 1)) == [2]
    world.loop.run()
    assert not world.parked.growing
    world.poll(session, 2, {2: 1})
    world.grow(2)
    next(world.parked._waking[0])  # half notified
    assert with_records(world.poll(session, 3)) == [2]


def test_the_order_is_kept_between_topics() -> None:
    world = World()
    world.make("u", 1)
    session = world.open({0: 0, 1: 0}, most=0).session_id
    more = fetch("u", {0: 0}, session_id=session, session_epoch=1)
    resumed = world.sessions.resume(more, False)
    assert isinstance(resumed, FetchSession)
    for index, name in ((0, "t"), (0, "u"), (1, "t")):
        world.grow(index, name, records=9)
    world.loop.run()
    asked, request = world.begin(session, 2)
    named = [(topic.topic, [want.partition for want in topic.partitions]) for topic in request.topics]
    assert named == [("u", [0]), ("t", [0, 1])], "what was new first; then as they have grown"
    asked.answer(world.read(request, False, 10))
    _, request = world.begin(session, 3)
    named = [(topic.topic, [want.partition for want in topic.partitions]) for topic in request.topics]
    assert named == [("t", [1]), ("u", [0]), ("t", [0])]


def test_an_error_is_told_each_time() -> None:
    world = World()
    session = world.open({0: 0, 9: 0}).session_id
    for epoch in (1, 2):
        assert partitions_in(world.poll(session, epoch)) == [9]
    world.make("t", 10)
    assert partitions_in(world.poll(session, 3)) == [9]
    assert partitions_in(world.poll(session, 4)) == []


def test_open_transactions_have_one_who_reads_what_is_committed_wait_for_their_end() -> None:
    world = World()
    session = world.open(EVERY).session_id
    log = cast(Any, world.partition(1).log)
    world.grow(1)
    log.last_stable_offset = 0
    assert partitions_in(world.poll(session, 1, isolation_level=1)) == [1]
    assert world.partition(1).waiters.count == 1, "all that it may have it has"
    request = fetch("t", {1: 0}, isolation_level=1)
    assert partitions_in(
        world.made(Opening(world.sessions, "here", request, False).answer(world.read(request, False, 1)))
    )
    assert world.partition(1).waiters.count == 2, "from its first answer on"


def test_a_partition_that_is_there_and_fails_is_looked_at_again() -> None:
    world = World()
    session = world.open(EVERY).session_id
    asked, request = world.begin(session, 1, {1: 0})
    answers = world.read(request, False, 0)
    answers[0].partitions = [failed(1)]
    assert partitions_in(world.made(asked.answer(answers))) == [1]
    assert world.partition(1).waiters.count == 0
    assert partitions_in(world.poll(session, 2)) == [1], "that it does not any more"


def test_where_a_reader_parts_from_the_log_it_is_told_each_time() -> None:
    world = World()
    session = world.open(EVERY).session_id
    for epoch in (1, 2):
        asked, request = world.begin(session, epoch, {1: 0})
        answers = world.read(request, False, 0)
        answers[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=0, end_offset=0)
        assert partitions_in(asked.answer(answers)) == [1]
    _, request = world.begin(session, 3)
    assert len(request.topics) == 1


def test_a_partition_that_is_named_twice_is_kept_once() -> None:
    world = World()
    request = fetch("t", {0: 0})
    request.topics *= 2
    answers = world.read(request, False, 1)
    opened = world.made(Opening(world.sessions, "here", request, False).answer(answers))
    assert partitions_in(opened) == [0]
    assert world.partition(0).waiters.count == 1
    assert partitions_in(world.poll(opened.session_id, 1)) == []


# -- who waits --------------------------------------------------------------------------------------------------


def park(world: World, asked: InSession, places: Iterable[int] = (), missing_bytes: int = 1) -> FetchWaiter:
    waiters = [world.partition(index).waiters for index in places]
    waiter = FetchWaiter(world.parked, waiters, missing_bytes, 60_000, "answer", of=asked.size)
    asked.wait(waiter)
    return waiter


@given(
    missing=st.integers(1, 40),
    waits_at=st.sets(st.integers(0, 5)),
    growths=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.booleans()), max_size=40),
)
def test_a_fetch_is_answered_exactly_when_watched_and_other_partitions_together_have_enough(
    missing: int, waits_at: set[int], growths: list[tuple[int, int, bool]]
) -> None:
    world = World(6)
    session = world.open(dict.fromkeys(range(6), 0)).session_id
    asked, _ = world.begin(session, 1, dict.fromkeys(waits_at, 0))
    waiter = park(world, asked, waits_at, missing * RECORD_BYTES)
    grown = 0
    for index, records, is_turn_over in growths:
        world.grow(index, records=records)
        grown += records
        if is_turn_over:
            world.loop.run()
            assert bool(waiter.response) == (grown >= missing)
    world.loop.run()
    assert bool(waiter.response) == (grown >= missing)
    waiter.cancel()
    world.sessions.close(session)
    assert not any(world.partition(index).waiters.count for index in range(6))
    assert not any(world.partition(index).waiters._entries for index in range(6))


def test_a_request_does_not_wait_in_a_session_that_has_ended() -> None:
    world = World()
    session = world.open(EVERY).session_id
    asked, _ = world.begin(session, 1)
    world.sessions.close(session)
    waiter = park(world, asked)
    world.loop.run()
    assert waiter.response == "answer", "nobody would wake it"


def test_what_a_partition_had_grown_by_before_it_was_watched_is_not_counted() -> None:
    world = World()
    session = world.open(EVERY).session_id
    world.grow(1, records=5)
    world.loop.run()
    assert partitions_in(world.poll(session, 1)) == [1]
    assert partitions_in(world.poll(session, 2, {1: 5})) == []
    asked, _ = world.begin(session, 3)
    waiter = park(world, asked, missing_bytes=2 * RECORD_BYTES)
    world.grow(1)
    world.loop.run()
    assert waiter.response is None
    world.grow(1)
    world.loop.run()
    assert waiter.response == "answer"


def test_what_changes_while_others_are_looked_at_is_noticed() -> None:
    world = World()
    session = world.open(EVERY).session_id
    asked, _ = world.begin(session, 1)
    assert not asked.has_grown
    world.grow(1)
    world.loop.run()
    assert asked.has_grown
    asked, _ = world.begin(session, 2)
    assert not asked.has_grown, "that is of the one before"


# -- thousands ---------------------------------------------------------------------------------------------------


def test_thousands_are_told_in_turns_and_a_request_in_between_ends_that() -> None:
    world = World(3 * PARTITIONS_A_TURN)
    wanted = dict.fromkeys(range(3 * PARTITIONS_A_TURN), 0)
    request = fetch("t", wanted)
    opening = Opening(world.sessions, "here", request, False)
    later = world.begun(opening.answer(world.read(request, False, 0)))
    turns = 0
    while later.response is None:
        world.loop.turn()
        turns += 1
    assert turns >= 5
    response = later.response
    assert len(partitions_in(response)) == 3 * PARTITIONS_A_TURN
    asked, request = world.begin(response.session_id, 1, wanted)
    later = world.begun(asked.answer(world.read(request, False, 0)))
    assert world.begin(response.session_id, 2)
    world.loop.run()
    assert later.response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    asked, request = world.begin(response.session_id, 3, wanted)
    later = world.begun(asked.answer(world.read(request, False, 0)))
    world.sessions.close(response.session_id)
    world.loop.run()
    assert cast(Any, later).response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not any(world.partition(index).waiters.count for index in wanted)


def test_one_that_goes_while_it_begins_leaves_nothing_behind() -> None:
    world = World(3 * PARTITIONS_A_TURN)
    request = fetch("t", dict.fromkeys(range(3 * PARTITIONS_A_TURN), 0))
    later = world.begun(Opening(world.sessions, "here", request, False).answer(world.read(request, False, 0)))
    world.loop.turn()
    (begun,) = world.sessions._sessions
    world.sessions.close(begun)
    world.loop.run()
    assert later.response is not None
    assert not any(world.partition(index).waiters.count for index in range(3 * PARTITIONS_A_TURN))


# -- room ---------------------------------------------------------------------------------------------------------


def slots(number: int) -> World:
    return World(max_incremental_fetch_session_cache_slots=str(number))


def test_without_slots_nobody_has_a_session() -> None:
    opened = slots(0).open(EVERY)
    assert (partitions_in(opened), opened.session_id) == ([0, 1, 2], 0)


def test_a_larger_one_takes_the_place_of_the_smallest_that_is_not_new() -> None:
    world = slots(2)
    large = world.open({0: 0, 1: 0}).session_id
    small = world.open({0: 0}).session_id
    assert world.open(EVERY).session_id == 0, "both are new"
    world.clock.advance(seconds=121)
    world.poll(large, 1)
    world.poll(small, 1)
    assert world.open({0: 0}).session_id == 0, "no larger than that one"
    assert world.open(EVERY).session_id
    assert world.poll(small, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert partitions_in(world.poll(large, 2)) == []


LIMIT_BYTES = 20 * LITTLE_BYTES
NAMED_BYTES = SESSION_BYTES + TOPIC_BYTES + getsizeof("t")
MOST = (LIMIT_BYTES // 2 - NAMED_BYTES) // PARTITION_BYTES  # in one session: half is for one address


def small_world() -> World:
    return World(2 * MOST, fetch_session_max_bytes=str(LIMIT_BYTES))


def test_what_sessions_hold_is_bounded_in_bytes() -> None:
    world = small_world()
    assert world.open(dict.fromkeys(range(MOST + 1), 0)).session_id == 0
    held = world.open(dict.fromkeys(range(MOST), 0)).session_id
    assert held
    assert world.sessions.held_bytes == NAMED_BYTES + MOST * PARTITION_BYTES
    assert world.open(dict.fromkeys(range(30), 0)).session_id == 0, "the half of an address is taken"
    assert world.open(EVERY).session_id, "there is always room for little"
    assert world.open(dict.fromkeys(range(30), 0), address="there").session_id
    world.clock.advance(seconds=121)
    assert world.open(dict.fromkeys(range(MOST), 0)).session_id, "the unused of this address has gone"
    assert world.poll(held, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_nobody_goes_whose_end_makes_no_room() -> None:
    world = small_world()
    other = world.open(EVERY, address="there").session_id
    world.clock.advance(seconds=121)
    assert world.open(dict.fromkeys(range(MOST + 1), 0)).session_id == 0
    assert partitions_in(world.poll(other, 1)) == []


def test_one_that_grows_beyond_its_room_ends() -> None:
    world = small_world()
    session = world.open(EVERY).session_id
    assert partitions_in(world.poll(session, 1, dict.fromkeys(range(3, MOST), 0))) == list(range(3, MOST))
    assert world.sessions.held_bytes == NAMED_BYTES + MOST * PARTITION_BYTES
    shrunk = world.poll(session, 2, forgotten_topics_data=forgotten(0, 1))
    assert partitions_in(shrunk) == []
    assert world.sessions.held_bytes == NAMED_BYTES + (MOST - 2) * PARTITION_BYTES
    too_many = world.poll(session, 3, dict.fromkeys(range(MOST + 1), 0))
    assert too_many == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.sessions.held_bytes == 0
    assert not any(world.partition(index).waiters.count for index in range(2 * MOST))


def test_one_that_asks_for_no_more_goes_on_where_there_is_no_room() -> None:
    world = small_world()
    session = world.open(dict.fromkeys(range(MOST), 0)).session_id
    assert world.open(dict.fromkeys(range(MOST), 0), address="there").session_id
    while world.sessions._quota.total_bytes <= LIMIT_BYTES:
        assert world.open(EVERY, address="elsewhere").session_id, "there is always room for little"
    assert world.sessions._quota.room_bytes(world.sessions._sessions[session]) < 0
    assert partitions_in(world.poll(session, 1, {0: 0})) == []


def test_where_all_is_held_the_unused_of_other_addresses_go() -> None:
    world = small_world()
    for address in ("here", "there"):
        assert world.open(dict.fromkeys(range(MOST), 0), address=address).session_id
    while not world.sessions._quota.is_full:
        assert world.open(EVERY, address="elsewhere").session_id
    world.clock.advance(seconds=121)
    assert world.open(dict.fromkeys(range(MOST // 2), 0), address="new").session_id


def test_one_request_names_no_more_partitions_than_a_session_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PARTITIONS_MAX == 10_000
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    world = World(20)
    assert world.open(dict.fromkeys(range(11), 0)).session_id == 0
    for wanted, more in (
        (dict.fromkeys(range(11), 0), {}),
        (None, {"forgotten_topics_data": forgotten(*range(11))}),
        (dict.fromkeys(range(10, 20), 0), {}),
    ):
        session = world.open(dict.fromkeys(range(10), 0)).session_id
        assert session
        assert world.poll(session, 1, wanted, **more) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(world.sessions) == 0
    session = world.open({0: 0}).session_id
    assert partitions_in(world.poll(session, 1, dict.fromkeys(range(10), 0))) == list(range(1, 10)), (
        "as many it may"
    )


def test_names_are_counted_too_however_long() -> None:
    world = small_world()
    session = world.open({0: 0}).session_id
    held = world.sessions.held_bytes
    long = "n" * 5000
    request = fetch(long, {0: 0}, session_id=session, session_epoch=1)
    assert isinstance(world.sessions.resume(request, False), FetchSession)
    assert world.sessions.held_bytes == held + PARTITION_BYTES + TOPIC_BYTES + getsizeof(long)
    gone = [ForgottenTopic(topic=long, partitions=[0])]
    assert partitions_in(world.poll(session, 2, forgotten_topics_data=gone)) == []
    assert world.sessions.held_bytes == held
    request = fetch(long, {0: 0}, session_id=session, session_epoch=3)
    assert isinstance(world.sessions.resume(request, False), FetchSession)
    assert world.sessions.held_bytes == held + PARTITION_BYTES + TOPIC_BYTES + getsizeof(long), "again"
    request = fetch("n" * LIMIT_BYTES, {0: 0})
    opened = world.made(Opening(world.sessions, "here", request, False).answer([]))
    assert (opened.error_code, opened.session_id) == (0, 0)


@pytest.mark.parametrize("topics", [1, 2000])
def test_a_session_holds_about_what_is_counted(topics: int) -> None:
    world = World(2000)
    for index in range(2000):
        cast(Any, world.partition(index).log).high_watermark = 10**6 + index
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        # As off the wire: numbers of their own.
        if topics == 1:
            assert world.open({n: 10**6 + n for n in range(2000)}).session_id
        else:
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, topics=[fetch(f"u{n}", {0: n}).topics[0] for n in range(2000)]
            )
            made = Opening(world.sessions, "here", request, False).answer(world.read(request, False, 0))
            assert world.made(made).session_id
            del request, made
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.4 * world.sessions.held_bytes < held < world.sessions.held_bytes
