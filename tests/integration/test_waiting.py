"""Answers to come: in order, once, from any thread; fetches parked without polling."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.served import until
from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import Flusher
from tidelog.broker.partition import Partition
from tidelog.broker.quota import LITTLE_BYTES, Quota
from tidelog.broker.timers import Timers
from tidelog.broker.waiting import PLACE_BYTES, WAITER_BYTES, FetchWaiter, Parked, Waiters
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log


class Waited:
    """A partition, as far as a waiter sees it."""

    def __init__(self) -> None:
        self.waiters = Waiters()

    def grow(self, size_bytes: int) -> None:
        self.waiters.grow(size_bytes)


def new_parked(limit_bytes: int = 1 << 30, loop: Any = None, clock: Clock | None = None) -> Parked:
    """Let fetches wait; in a loop of which only the turns are looked at, nobody's time is ever up."""
    clock = clock or Clock()
    if loop is None:
        loop = asyncio.get_running_loop()
    else:
        clock.hold()
    return Parked(loop, clock, Timers(loop, clock), Quota(limit_bytes))


class Owner:
    address = "here"


async def test_an_append_looks_at_none_of_those_who_wait_for_more() -> None:
    partition, parked = Waited(), new_parked()
    waiters = [park(partition, 1_000_000, 60_000, parked) for _ in range(40_000)]
    begin_s = time.thread_time()
    for _ in range(1000):
        partition.grow(100)
    assert time.thread_time() - begin_s < 0.1, "2 us for each, and 4 ms where each is looked at"
    await asyncio.sleep(0)
    assert not any(waiter.response for waiter in waiters)
    for waiter in waiters:
        waiter.cancel()


async def test_very_many_that_are_due_leave_the_loop_to_others_in_between() -> None:
    partition, parked = Waited(), new_parked()

    def read() -> None:
        until_s = time.thread_time() + 0.0001
        while time.thread_time() < until_s:
            pass

    waiters = [park(partition, 10, 60_000, parked) for _ in range(3000)]
    for waiter in waiters:
        waiter.ready = read
    longest_s = 0.0  # of this thread: others may take the processor
    partition.grow(10)
    last_s = time.thread_time()
    while parked:
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.thread_time() - last_s)
        last_s = time.thread_time()
    assert all(waiter.response == "answer" for waiter in waiters)
    assert longest_s < 0.1, "all of them take 0.3 s"


class Turns:
    """An event loop of which only the turns are looked at."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, *_: object) -> None:
        pass

    def turn(self) -> None:
        for _ in range(100):
            calls, self.soon = self.soon, []
            for call in calls:
                call()
        assert not self.soon


def test_a_batch_that_was_sent_again_is_nothing_new_to_who_waits() -> None:
    loop = Turns()
    appended = iter([True, False])
    log = SimpleNamespace(append=lambda *_: SimpleNamespace(duplicate=next(appended)), last_batch_bytes=10)
    partition = Partition(0, cast(Any, log))
    waiter = FetchWaiter(new_parked(loop=loop), [partition.waiters], 10, 1, "answer")
    for answer in (None, "answer"):
        partition.append(bytearray(), 0)
        loop.turn()
        assert waiter.response == answer


def test_an_append_wakes_nobody_before_a_threshold_is_reached_and_then_once() -> None:
    loop, partition = Turns(), Waited()
    parked = new_parked(loop=loop)
    waiter = park(partition, 100, 1, parked)
    partition.grow(99)
    assert not loop.soon
    for _ in range(2):
        partition.grow(1)
        assert len(parked._waking) == 1
    loop.turn()
    assert waiter.response == "answer"


def test_however_many_are_due_one_turn_of_the_loop_is_taken_at_a_time() -> None:
    loop = Turns()
    parked = new_parked(loop=loop)
    partitions = [Waited() for _ in range(5)]
    waiters = [FetchWaiter(parked, [place.waiters], 10, 1, "answer") for place in partitions]
    for place in partitions:
        place.grow(10)
    assert len(loop.soon) == 1
    loop.turn()
    assert all(waiter.response == "answer" for waiter in waiters)


@given(
    missing=st.integers(1, 300),
    others=st.lists(st.integers(1, 300), min_size=6, max_size=6),
    count=st.integers(1, 6),
    growths=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 90), st.booleans()), max_size=60),
)
@example(missing=60, others=[1] * 6, count=2, growths=[(0, 20, True), (0, 39, True), (0, 1, True)])
def test_a_fetch_is_answered_exactly_when_all_its_partitions_together_have_enough(
    missing: int, others: list[int], count: int, growths: list[tuple[int, int, bool]]
) -> None:
    loop = Turns()
    parked = new_parked(loop=loop)
    partitions = [Waited() for _ in range(count)]
    waiter = FetchWaiter(parked, [each.waiters for each in partitions * 2], missing, 1, "answer")
    alone = [
        (partition, size, park(partition, size, 1, parked))
        for partition, size in zip(partitions, others, strict=False)
    ]
    grown: Counter[Waited] = Counter()
    for number, size, is_turn_over in growths:
        partition = partitions[number % count]
        grown[partition] += size
        partition.grow(size)
        if is_turn_over:
            loop.turn()
            assert bool(waiter.response) == (grown.total() >= missing)
            assert all(bool(other.response) == (grown[place] >= size) for place, size, other in alone)
    loop.turn()
    for each in (waiter, *(other for _, _, other in alone)):
        each.cancel()
    assert not parked
    assert not any(parked._due.values()), "nor is any of them held until its time is up"
    assert not any(partition.waiters.count or partition.waiters._entries for partition in partitions)


async def test_a_parked_fetch_that_cannot_be_answered_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition, parked = Waited(), new_parked()

    def closed() -> None:
        raise RuntimeError("no such connection")

    for due in (lambda: partition.grow(10), lambda: None):
        before = park(partition, 10, 5, parked)
        unsent = park(partition, 10, 5, parked)
        unsent.ready = closed
        behind = park(partition, 10, 5, parked)
        due()
        assert [await outcome(waiter) for waiter in (before, behind)] == ["answer"] * 2
    assert [record.message for record in caplog.records] == ["a parked fetch could not be answered"] * 2


async def test_fetches_that_come_and_go_leave_little_behind_with_one_that_stays() -> None:
    partition, parked = Waited(), new_parked()
    staying = park(partition, 1000, 60_000, parked)
    for _ in range(1000):
        park(partition, 10, 60_000, parked).cancel()
    assert len(partition.waiters._entries) < 50
    partition.grow(1000)
    assert await outcome(staying) == "answer"


async def test_a_fetch_that_there_is_no_room_for_is_answered_at_once() -> None:
    partition = Waited()
    parked = new_parked(limit_bytes=2 * LITTLE_BYTES)
    first, second = Owner(), Owner()
    waiters = []
    while len(parked) < 1000 and (not waiters or waiters[-1].response is None):
        waiters.append(park(partition, 10, 60_000, parked))
        waiters[-1].charge(first)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert waiters[-1].response == "answer"
    assert 5 < len(waiters) < 20
    little = park(partition, 10, 60_000, parked)
    little.charge(second)
    await asyncio.sleep(0.01)
    assert little.response is None, "another connection has room for a little, though its address has none"
    for waiter in (*waiters, little):
        waiter.cancel()
    assert parked.quota.total_bytes == 0


async def test_a_fetch_is_charged_with_what_it_holds_while_it_waits() -> None:
    partition, parked = Waited(), new_parked()
    for places in ([partition.waiters], [partition.waiters, Waiters()]):
        waiter = FetchWaiter(parked, places, 10, 60_000, "answer")
        waiter.charge(Owner())
        assert parked.quota.total_bytes == WAITER_BYTES + PLACE_BYTES * len(places)
        waiter.cancel()
        assert not parked.quota.total_bytes


async def test_a_fetch_in_a_session_is_charged_with_the_partitions_that_it_may_come_to_wait_at() -> None:
    partition, parked = Waited(), new_parked()
    for places, missing_bytes, held in (([], 1, 0), ([partition.waiters], 1, 1), ([], 2, 3)):
        waiter = FetchWaiter(parked, places, missing_bytes, 60_000, "answer", of=3)
        waiter.charge(Owner())
        assert parked.quota.total_bytes == PLACE_BYTES * held
        waiter.cancel()
        assert not parked.quota.total_bytes


class SlowLog:
    """A log whose flush waits until it is let through, and may fail."""

    def __init__(self, error: StorageError | None = None) -> None:
        self.flushes = 0
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.error = error

    def flush(self) -> int:
        self.entered.release()
        assert self.gate.wait(10)
        self.flushes += 1
        if self.error:
            raise self.error
        return 0


async def outcome(later: Later) -> Any:
    done = asyncio.get_running_loop().create_future()
    later.ready = lambda: done.set_result(later.response)
    if later.response is not None:
        return later.response
    return await asyncio.wait_for(done, 10)


def park(partition: Waited, missing_bytes: int, max_wait_ms: int, parked: Parked) -> FetchWaiter:
    return FetchWaiter(parked, [partition.waiters], missing_bytes, max_wait_ms, "answer")


async def test_a_fetch_is_answered_when_enough_has_come_and_not_before() -> None:
    partition, parked = Waited(), new_parked()
    waiter = park(partition, 100, 60_000, parked)
    partition.grow(99)
    await asyncio.sleep(0)
    assert waiter.response is None
    partition.grow(1)
    assert await outcome(waiter) == "answer"
    assert not parked
    assert not partition.waiters.count


async def test_a_fetch_is_answered_when_its_time_is_up() -> None:
    partition, parked = Waited(), new_parked()
    assert await outcome(park(partition, 100, 1, parked)) == "answer"
    assert not partition.waiters.count
    waiter = park(partition, 100, 1, parked)
    partition.grow(99)
    assert await outcome(waiter) == "answer"


async def test_fetches_whose_time_is_up_at_nearly_the_same_moment_are_answered_together() -> None:
    clock = Clock()
    clock.hold()
    partition, parked = Waited(), new_parked(clock=clock)
    asked_ms = {}
    for _ in range(30):
        asked_ms[park(partition, 100, 320, parked)] = clock.monotonic_ms()
        clock.advance(milliseconds=1)
    turns = 0
    while asked_ms:
        clock.advance(milliseconds=1)
        for _ in range(6):  # the clock is seen, the timer, the turn that answers
            await asyncio.sleep(0)
        answered = [waiter for waiter in asked_ms if waiter.response is not None]
        turns += bool(answered)
        for waiter in answered:
            assert 320 < clock.monotonic_ms() - asked_ms.pop(waiter) <= 320 + 320 // 8
    assert turns <= 2
    assert not parked


@pytest.mark.parametrize("wait_ms", [0, 1, 7, 8, 100, 500, 512, 30_000, 2**31 - 1])
async def test_nobody_waits_less_than_asked_nor_much_longer(wait_ms: int) -> None:
    parked, clock = new_parked(), Clock()
    waiter = park(Waited(), 100, 2**31 - 1, parked)
    for _ in range(100):
        before_ms = clock.monotonic_ms()
        due = parked.add(waiter, wait_ms)
        (due_ms,) = (at_ms for at_ms, each in parked._due.items() if each is due)
        assert before_ms + wait_ms < due_ms <= clock.monotonic_ms() + wait_ms + max(min(wait_ms // 8, 64), 1)


async def test_growing_much_answers_once() -> None:
    partition, parked = Waited(), new_parked()
    waiter = park(partition, 10, 60_000, parked)
    answers = []
    waiter.ready = lambda: answers.append(waiter.response)
    partition.grow(10)
    partition.grow(10)
    waiter.finish()
    await until(lambda: bool(answers))
    await asyncio.sleep(0.01)
    assert answers == ["answer"]


async def test_a_cancelled_fetch_leaves_nothing_behind() -> None:
    partition, parked = Waited(), new_parked()
    waiter = park(partition, 10, 1, parked)
    waiter.cancel()
    assert not parked
    assert not partition.waiters.count
    waiter.finish()
    assert waiter.response is None


def flush(logs: Collection[Log]) -> dict[Log, StorageError]:
    failures = {}
    for log in logs:
        try:
            log.flush()
        except StorageError as error:
            failures[log] = error
    return failures


def never(why: str) -> None:
    raise AssertionError(why)


def new_flusher() -> Flusher:
    return Flusher(asyncio.get_running_loop(), flush, never)


def unexpected(failures: dict[Log, StorageError]) -> None:
    raise AssertionError(failures)


async def test_one_flush_answers_all_that_gathered_while_the_last_one_ran() -> None:
    """F12: the slower the disk, the larger the commits."""
    log = SlowLog()
    flusher = new_flusher()
    flusher.start()
    first = flusher.commit([cast(Any, log)], "first", unexpected)
    await asyncio.to_thread(log.entered.acquire, timeout=10)
    gathered = [flusher.commit([cast(Any, log)], number, unexpected) for number in range(50)]
    log.gate.set()
    assert await outcome(first) == "first"
    assert [await outcome(later) for later in gathered] == list(range(50))
    assert log.flushes == 2
    flusher.stop()


async def test_commits_of_one_turn_of_the_loop_wake_the_flusher_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = SlowLog()
    log.gate.set()
    wakes = []
    write = os.eventfd_write

    def count_and_write(descriptor: int, value: int) -> None:
        wakes.append(value)
        write(descriptor, value)

    monkeypatch.setattr(os, "eventfd_write", count_and_write)
    flusher = new_flusher()
    flusher.start()
    for turns in range(1, 4):
        laters = [flusher.commit([cast(Any, log)], number, unexpected) for number in range(10)]
        assert [await outcome(later) for later in laters] == list(range(10))
        assert len(wakes) == turns
    flusher.stop()


async def test_a_failed_flush_fails_its_own_answers_only() -> None:
    good, bad = SlowLog(), SlowLog(StorageError("the disk is gone"))
    good.gate.set()
    bad.gate.set()
    flusher = new_flusher()
    flusher.start()
    fine = flusher.commit([cast(Any, good)], "fine", unexpected)
    lost = flusher.commit([cast(Any, good), cast(Any, bad)], "never", lambda failures: failures)
    assert await outcome(fine) == "fine"
    failures = await outcome(lost)
    assert {log: str(error) for log, error in failures.items()} == {bad: "the disk is gone"}
    flusher.stop()


async def test_the_flusher_finishes_its_queue_before_it_stops() -> None:
    log = SlowLog()
    flusher = new_flusher()
    flusher.start()
    laters = [flusher.commit([cast(Any, log)], number, unexpected) for number in range(3)]
    log.gate.set()
    flusher.stop()
    assert [await outcome(later) for later in laters] == [0, 1, 2]


def test_the_clock_can_be_held_and_moved() -> None:
    clock = Clock()
    clock.hold(at_ms=1_000)
    clock.advance(hours=48)
    assert clock.now_ms() == 1_000 + 48 * 3_600_000
    clock.release()
    assert clock.now_ms() > 1_700_000_000_000


def test_the_monotonic_clock_stands_still_goes_on_and_never_back() -> None:
    clock = Clock()
    clock.hold(at_ms=5_000)
    held_ms = clock.monotonic_ms()
    clock.hold(at_ms=1_000)
    assert clock.monotonic_ms() == held_ms, "a step of the time of day"
    clock.advance(hours=48)
    assert clock.monotonic_ms() == held_ms + 48 * 3_600_000
    clock.advance(hours=-1)
    assert clock.monotonic_ms() == held_ms + 48 * 3_600_000
    clock.release()
    assert 0 <= clock.monotonic_ms() - (held_ms + 48 * 3_600_000) < 60_000


async def test_a_fetch_waits_by_the_clock_that_can_be_held() -> None:
    loop, clock = asyncio.get_running_loop(), Clock()
    parked, partition = Parked(loop, clock, Timers(loop, clock), Quota(1 << 30)), Waited()
    clock.hold()
    waiter = park(partition, 10, 500, parked)
    clock.advance(milliseconds=499)
    await asyncio.sleep(0.02)
    assert waiter.response is None
    clock.advance(milliseconds=64)
    assert await outcome(waiter) == "answer"
