"""Answers to come: in order, once, from any thread; fetches parked without polling."""

import asyncio
import threading
from collections.abc import Collection
from itertools import pairwise
from typing import Any, cast

import pytest

from tidelog.broker.clock import Clock
from tidelog.broker.flusher import Flusher
from tidelog.broker.maintenance import Maintenance, Periodic
from tidelog.broker.readers import Readers
from tidelog.broker.waiting import FetchWaiter, Later, Parked
from tidelog.storage.errors import StorageError
from tidelog.storage.log import Log


class Waited:
    """A partition, as far as a waiter sees it."""

    def __init__(self) -> None:
        self.waiters: dict[FetchWaiter, None] = {}

    def grow(self, size_bytes: int) -> None:
        for waiter in self.waiters:
            waiter.grown(size_bytes)


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
    partitions = [cast(Any, partition)]
    return FetchWaiter(parked, partitions, missing_bytes, max_wait_ms, lambda: "answer")


async def test_a_fetch_is_answered_when_enough_has_come_and_not_before() -> None:
    partition, parked = Waited(), Parked(asyncio.get_running_loop())
    waiter = park(partition, 100, 60_000, parked)
    partition.grow(99)
    await asyncio.sleep(0)
    assert waiter.response is None
    partition.grow(1)
    assert await outcome(waiter) == "answer"
    assert not parked
    assert not partition.waiters


async def test_a_fetch_is_answered_when_its_time_is_up() -> None:
    partition, parked = Waited(), Parked(asyncio.get_running_loop())
    assert await outcome(park(partition, 100, 1, parked)) == "answer"
    assert not partition.waiters
    waiter = park(partition, 100, 1, parked)
    partition.grow(99)
    assert await outcome(waiter) == "answer"


async def test_fetches_whose_time_is_up_at_nearly_the_same_moment_are_answered_together() -> None:
    loop = asyncio.get_running_loop()
    partition, parked = Waited(), Parked(loop)

    async def answered(waiter: FetchWaiter) -> float:
        assert await outcome(waiter) == "answer"
        return loop.time()

    begin_s = loop.time()
    times_s = await asyncio.gather(*(answered(park(partition, 100, 320 - n, parked)) for n in range(30)))
    assert begin_s + 0.290 <= min(times_s)
    turns = 1 + sum(later - earlier > 0.004 for earlier, later in pairwise(sorted(times_s)))
    assert turns <= 6
    assert not parked


async def test_growing_much_answers_once() -> None:
    partition, parked = Waited(), Parked(asyncio.get_running_loop())
    waiter = park(partition, 10, 60_000, parked)
    answers = []
    waiter.ready = lambda: answers.append(waiter.response)
    partition.grow(10)
    partition.grow(10)
    waiter.finish()
    await asyncio.sleep(0)
    assert answers == ["answer"]


async def test_a_cancelled_fetch_leaves_nothing_behind() -> None:
    partition, parked = Waited(), Parked(asyncio.get_running_loop())
    waiter = park(partition, 10, 1, parked)
    waiter.cancel()
    assert not parked
    assert not partition.waiters
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


def new_flusher() -> Flusher:
    return Flusher(asyncio.get_running_loop(), flush)


def unexpected(failures: dict[Log, StorageError]) -> None:
    raise AssertionError(failures)


async def test_one_flush_answers_all_that_gathered_while_the_last_one_ran() -> None:
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


async def test_maintenance_runs_jobs_in_order_and_hands_back_errors() -> None:
    maintenance = Maintenance(asyncio.get_running_loop(), [Periodic(60, lambda: None)])
    maintenance.start()
    seen: list[int] = []
    laters = [maintenance.submit(lambda number=number: seen.append(number) or number) for number in range(5)]  # type: ignore[misc]
    failing = maintenance.submit(lambda: 1 // 0)
    assert [await outcome(later) for later in laters] == [0, 1, 2, 3, 4]
    assert isinstance(await outcome(failing), ZeroDivisionError)
    assert seen == [0, 1, 2, 3, 4]
    maintenance.stop()


async def test_a_periodic_job_comes_round_even_after_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    rounds = threading.Semaphore(0)

    def fail() -> None:
        rounds.release()
        raise OSError("disk full")

    maintenance = Maintenance(asyncio.get_running_loop(), [Periodic(0.001, fail)])
    maintenance.start()
    for _ in range(3):
        assert await asyncio.to_thread(rounds.acquire, timeout=10)
    maintenance.stop()
    assert "disk full" in caplog.text


async def test_readers_hand_back_results_and_errors() -> None:
    readers = Readers(asyncio.get_running_loop())
    assert await outcome(readers.submit(lambda: 7)) == 7
    assert isinstance(await outcome(readers.submit(lambda: 1 // 0)), ZeroDivisionError)
    readers.stop()


def test_the_clock_can_be_held_and_moved() -> None:
    clock = Clock()
    clock.hold(at_ms=1_000)
    clock.advance(hours=48)
    assert clock.now_ms() == 1_000 + 48 * 3_600_000
    clock.release()
    assert clock.now_ms() > 1_700_000_000_000
