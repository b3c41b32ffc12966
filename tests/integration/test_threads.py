"""The broker's threads: turns for everybody, an answer to everything, and no silent death."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection
from typing import Any, cast

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW, fill
from tests.support.running import Threads, run
from tests.support.served import Serve, until
from tidelog.broker.answers import Later
from tidelog.broker.catalog import PRODUCER_ID_BLOCK
from tidelog.broker.clock import Clock
from tidelog.broker.fair_queue import FairQueue
from tidelog.broker.flusher import Flusher
from tidelog.broker.maintenance import SHORTEST_WAIT_S, Maintenance, Periodic
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.quota import Hold, Quota
from tidelog.broker.running import READERS
from tidelog.broker.threads import new_thread
from tidelog.broker.work import Coro, Stopping, step
from tidelog.storage.errors import StorageError
from tidelog.storage.group_sync import FILES_MIN
from tidelog.storage.log import Log

CLOCK = Clock()


def never(why: str) -> None:
    raise AssertionError(why)


async def outcome(later: Later) -> Any:
    await asyncio.wait_for(until(lambda: later.response is not None), 10)
    return later.response


# -- whose turn it is --------------------------------------------------------------------------------------------


def order(queue: FairQueue[str]) -> list[str]:
    """Take all work, each piece done at once."""
    taken = []
    while (found := queue.take()) is not None:
        taken.append(found[1])
        queue.done(found[0])
    return taken


def test_owners_take_turns_and_each_ones_work_stays_in_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for piece in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.put(piece[0], piece)
    assert order(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(queue) == 0


def test_an_owner_has_one_piece_under_way_at_most() -> None:
    queue: FairQueue[str] = FairQueue()
    for piece in ("a1", "a2", "b1"):
        queue.put(piece[0], piece)
    assert queue.take() == ("a", "a1")
    assert queue.take() == ("b", "b1")
    assert queue.take() is None
    queue.done("b")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == ("a", "a2")


def test_who_took_a_whole_slice_stands_behind_who_did_not_but_is_not_forgotten() -> None:
    queue: FairQueue[str] = FairQueue()
    for owner in "xyz":
        queue.put(owner, f"long {owner}")
    for owner, piece in [found for _ in "xyz" if (found := queue.take())]:
        queue.done(owner, piece)
    for owner in "abc":
        queue.put(owner, f"short {owner}")
    taken = order(queue)
    assert taken.index("short a") < 2
    assert taken.index("long x") < 3
    assert [piece for piece in taken if "short" in piece] == ["short a", "short b", "short c"]


# -- maintenance -------------------------------------------------------------------------------------------------


async def steps(count: int, make: Callable[[int], None]) -> int:
    """Make steps; return how many were made."""
    for number in range(count):
        try:
            await step()
        except Stopping:
            return number
        make(number)
    return count


def rounds_of(make: Callable[[], object], count: int = 1) -> Callable[[], Coro[float | None]]:
    """Return a periodic job of so many steps."""

    async def run() -> float | None:
        for _ in range(count):
            await step()
            make()
        return None

    return run


def new_maintenance(*periodic: Periodic, ended: Callable[[str], None] = never) -> Maintenance:
    idle = Periodic("idle", 60, rounds_of(lambda: None), CLOCK)
    started = Maintenance(asyncio.get_running_loop(), CLOCK, [*periodic, idle], ended)
    started.start()
    return started


async def test_jobs_of_one_owner_are_done_in_order_and_their_errors_handed_back() -> None:
    maintenance = new_maintenance()
    seen: list[int] = []
    laters = [maintenance.submit(steps(1, lambda _, n=n: seen.append(n)), "me") for n in range(5)]  # type: ignore[misc]
    failing = maintenance.submit(steps(1, lambda _: 1 // 0), "me")  # type: ignore[arg-type,return-value]
    assert [await outcome(later) for later in laters] == [1] * 5
    assert isinstance(await outcome(failing), ZeroDivisionError)
    assert seen == [0, 1, 2, 3, 4]
    maintenance.stop()


async def test_a_long_job_holds_up_nobody() -> None:
    maintenance = new_maintenance()
    gate = threading.Event()
    done: list[str] = []

    def slowly(_: int) -> None:
        assert gate.wait(10)
        threading.Event().wait(0.001)

    long = [maintenance.submit(steps(100_000, slowly), owner) for owner in range(20)]
    short = maintenance.submit(steps(1, lambda _: done.append("short")), "other")
    gate.set()
    assert await outcome(short) == 1
    assert all(later.response is None for later in long)
    maintenance.stop()
    assert all([(await outcome(later)) < 100_000 for later in long])


async def test_groups_take_turns_and_have_no_more_of_them_than_others_however_many_they_are() -> None:
    maintenance = Maintenance(asyncio.get_running_loop(), CLOCK, [], never)
    for group in "abcd":
        maintenance.submit(steps(1, lambda _: None), group, for_group=True)
    for client in ("me", "you"):
        maintenance.submit(steps(1, lambda _: None), client)
    turns = []
    for _ in range(20):
        taken = maintenance._take()
        assert taken is not None
        queue, owner, job = taken
        queue.done(owner, job)  # which has taken its whole time, and is not at its end
        turns.append(owner)
    assert set(turns[0::2]) == {"me", "you"}
    assert set(turns[1::2]) == set("abcd")


async def test_what_comes_round_comes_round_beside_any_number_of_jobs() -> None:
    rounds = threading.Semaphore(0)
    maintenance = new_maintenance(Periodic("round", 0.001, rounds_of(rounds.release), CLOCK))
    long = maintenance.submit(steps(1 << 40, lambda _: None), "me")
    for _ in range(3):
        assert await asyncio.to_thread(rounds.acquire, timeout=10)
    maintenance.stop()
    assert await outcome(long) < 1 << 40


async def test_a_long_round_holds_up_no_job_no_other_round_and_no_stop() -> None:
    begun, others = threading.Event(), threading.Semaphore(0)
    made: list[int] = []

    def step() -> None:
        begun.set()
        made.append(0)
        threading.Event().wait(0.001)

    endless = Periodic("endless", 0.001, rounds_of(step, 1 << 40), CLOCK)
    maintenance = new_maintenance(endless, Periodic("other", 0.001, rounds_of(others.release), CLOCK))
    assert await asyncio.to_thread(begun.wait, 10)
    assert await outcome(maintenance.submit(steps(100, lambda _: None), "me")) == 100
    for _ in range(3):
        assert await asyncio.to_thread(others.acquire, timeout=10)
    count = len(made)
    assert await asyncio.to_thread(others.acquire, timeout=10)
    assert await asyncio.to_thread(others.acquire, timeout=10)
    assert len(made) > count
    maintenance.drop()
    maintenance.stop()


def test_what_hastens_the_next_round_while_one_is_under_way_is_kept() -> None:
    periodic = Periodic("some", 1000, lambda: at_once(None), CLOCK)
    assert 999 < periodic.wait_s() <= 1000
    periodic.begin().close()
    periodic.hasten(100)
    periodic.end(500.0)
    assert 99 < periodic.wait_s() <= 100
    periodic.begin().close()
    periodic.end(500.0)
    assert 499 < periodic.wait_s() <= 500


class Somebody:
    address = "here"


async def at_once(value: Any) -> Any:
    """Return the value in one step."""
    return value


def test_what_comes_round_waits_as_long_as_it_is_told_and_never_not_at_all() -> None:
    clock = Clock()
    clock.hold()
    periodic = Periodic("a", 60.0, lambda: at_once(None), clock)
    assert periodic.wait_s() == 60
    periodic.hasten(70)
    assert periodic.wait_s() == 60
    periodic.hasten(7)
    assert periodic.wait_s() == 7
    waits = []
    for wanted_s in (None, 5.0, 90.0, -1.0):
        periodic.begin().close()
        periodic.end(wanted_s)
        waits.append(periodic.wait_s())
    assert waits == pytest.approx([60, 5, 60, SHORTEST_WAIT_S])
    again = Periodic("b", 0.0, lambda: at_once(None), clock)
    assert again.wait_s() == 0
    again.begin().close()
    again.end(None)
    assert again.wait_s() == pytest.approx(SHORTEST_WAIT_S)


def test_what_comes_round_is_due_when_the_clock_shows_that_time_and_not_a_trifle_later() -> None:
    clock = Clock()
    clock.hold()
    for _ in range(1000):
        clock.advance(milliseconds=7919)
        weekly = Periodic("weekly", 7 * 86400, lambda: at_once(None), clock)
        clock.advance(days=6, hours=23)
        assert weekly.wait_s() == 3600
        clock.advance(hours=1)
        assert weekly.wait_s() == 0


async def test_what_comes_round_goes_by_the_clock_that_can_be_held() -> None:
    clock, rounds = Clock(), threading.Semaphore(0)
    clock.hold()
    weekly = Periodic("weekly", 7 * 86400, rounds_of(rounds.release), clock)
    maintenance = Maintenance(asyncio.get_running_loop(), clock, [weekly], lambda _: None)
    maintenance.start()
    try:
        clock.advance(days=6)
        assert not rounds.acquire(timeout=0.02)
        clock.advance(days=1)
        assert rounds.acquire(timeout=10)
    finally:
        maintenance.stop()


async def test_a_job_whose_client_is_gone_ends_and_gives_back_what_it_held() -> None:
    maintenance = new_maintenance()
    quota = Quota(1000)
    begun = threading.Event()
    later = maintenance.submit(steps(1 << 40, lambda _: begun.set()), "me", held=Hold(quota, Somebody(), 400))
    assert await asyncio.to_thread(begun.wait, 10)
    assert quota.total_bytes == 400
    later.cancel()
    assert await outcome(later) < 1 << 40
    assert quota.total_bytes == 0
    maintenance.stop()


async def test_at_a_stop_jobs_are_answered_and_not_done() -> None:
    maintenance = new_maintenance()
    made: list[int] = []
    begun, gate = threading.Event(), threading.Event()
    first = maintenance.submit(steps(3, lambda _: (begun.set(), gate.wait(10))), "a")  # type: ignore[arg-type,return-value]
    others = [maintenance.submit(steps(10, made.append), owner) for owner in range(100)]
    assert await asyncio.to_thread(begun.wait, 10)
    maintenance.drop()
    gate.set()
    assert await outcome(first) == 1
    assert [await outcome(later) for later in others] == [0] * 100
    assert made == []
    assert await outcome(maintenance.submit(steps(1, made.append), "b")) == 0
    maintenance.stop()


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), StorageError("full"), KeyError("x")]
)
async def test_a_job_that_fails_each_time_is_said_once_when_it_begins_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.INFO)
    rounds = threading.Semaphore(0)
    is_well = threading.Event()

    def run() -> None:
        rounds.release()
        if not is_well.is_set():
            raise error

    maintenance = new_maintenance(Periodic("mending", 0.001, rounds_of(run), CLOCK))
    for _ in range(5):
        assert await asyncio.to_thread(rounds.acquire, timeout=10)
    is_well.set()
    for _ in range(5):
        assert await asyncio.to_thread(rounds.acquire, timeout=10)
    maintenance.stop()
    said = [record.getMessage() for record in caplog.records if "mending" in record.getMessage()]
    assert len(said) == 2
    assert "tried again" in said[0]
    assert said[1] == "maintenance job works again job=mending"


async def test_where_the_maintenance_thread_ends_all_that_waits_and_comes_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[str] = []
    begun, gate = threading.Event(), threading.Event()

    async def fails() -> None:
        begun.set()
        assert gate.wait(10)
        raise SystemExit("nobody expected this")

    maintenance = new_maintenance(ended=ended.append)
    laters = [maintenance.submit(fails(), "first")]
    laters += [maintenance.submit(steps(1, lambda _: None), owner) for owner in range(2)]
    assert await asyncio.to_thread(begun.wait, 10)
    gate.set()
    for later in (*laters, maintenance.submit(steps(1, lambda _: None), "late")):
        assert isinstance(await outcome(later), StorageError)
    await until(lambda: bool(ended))
    assert ended == ["thread maintenance was ended by SystemExit('nobody expected this')"]
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    assert "nobody expected this" in caplog.text
    maintenance.stop()


# -- readers -----------------------------------------------------------------------------------------------------


async def test_readers_hand_back_results_and_errors() -> None:
    threads = Threads()
    assert await outcome(run(threads, lambda: 7, "me")) == 7
    assert isinstance(await outcome(run(threads, lambda: 1 // 0, "me")), ZeroDivisionError)
    threads.readers.stop()


async def test_no_client_takes_both_readers() -> None:
    threads = Threads()
    gate = threading.Event()
    greedy = [run(threads, lambda: gate.wait(10), "greedy") for _ in range(50)]
    assert [await outcome(run(threads, lambda n=n: n, "modest")) for n in range(1, 4)] == [1, 2, 3]  # type: ignore[misc]
    assert all(later.response is None for later in greedy)
    gate.set()
    assert all([await outcome(later) for later in greedy])
    threads.readers.stop()


async def test_there_are_no_more_readers_than_help() -> None:
    threads = Threads()
    assert await outcome(run(threads, lambda: 1, "me")) == 1
    assert len(threads.readers._threads) == 1
    gate = threading.Event()
    held = [run(threads, lambda: gate.wait(10), owner) for owner in range(5)]
    assert len(threads.readers._threads) == READERS
    gate.set()
    assert all([await outcome(later) for later in held])
    threads.readers.stop()


async def test_what_a_client_that_is_gone_wanted_is_not_read() -> None:
    threads = Threads()
    gate, read = threading.Event(), []
    first = run(threads, lambda: gate.wait(10), "me")
    second = run(threads, lambda: read.append(2), "me")
    third = run(threads, lambda: read.append(3) or "read", "me")
    second.cancel()
    gate.set()
    await outcome(first)
    assert await outcome(third) == "read"
    assert read == [3]
    threads.readers.stop()


async def test_readers_stop_without_what_has_not_begun() -> None:
    threads = Threads()
    gate, begun, read = threading.Event(), threading.Event(), []
    run(threads, lambda: (begun.set(), gate.wait(10)), "me")
    for number in range(10):
        run(threads, lambda number=number: read.append(number), "me")  # type: ignore[misc]
    assert await asyncio.to_thread(begun.wait, 10)
    stopping = asyncio.create_task(asyncio.to_thread(threads.readers.stop))
    await until(lambda: threads.readers._is_stopping)
    gate.set()
    await stopping
    assert read == []


# -- the flusher -------------------------------------------------------------------------------------------------

LOG = cast(Log, object())


def errors_of(failures: dict[Log, StorageError]) -> list[str]:
    return [str(error) for error in failures.values()]


async def test_whatever_ends_a_flush_answers_its_commits_and_the_thread_lives_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults: list[Exception] = [OSError(24, "Too many open files")] * 3 + [MemoryError()]

    def flush(_: Collection[Log]) -> dict[Log, StorageError]:
        if faults:
            raise faults.pop(0)
        return {}

    flusher = Flusher(asyncio.get_running_loop(), flush, never)
    flusher.start()
    for _ in range(4):
        (error,) = await outcome(flusher.commit([LOG], "never", errors_of))
        assert "the flush was ended by" in error
    assert await outcome(flusher.commit([LOG], "on disk", errors_of)) == "on disk"
    flusher.stop()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["flush ended by a fault: answered as failed"] * 2, "once for each kind in a row"


async def test_a_signal_that_comes_to_the_flusher_does_not_end_it() -> None:
    """A handler that is not restarted interrupts what the thread waits in: as a profiler's, or a debugger's, does."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    ended: list[str] = []
    flusher = Flusher(asyncio.get_running_loop(), lambda _: {}, ended.append)
    try:
        flusher.start()
        for _ in range(3):
            signal.pthread_kill(flusher._worker.ident or 0, signal.SIGUSR1)
            assert await outcome(flusher.commit([LOG], "on disk", errors_of)) == "on disk"
    finally:
        signal.signal(signal.SIGUSR1, before)
        flusher.stop()
    assert ended == []


async def test_a_commit_that_cannot_be_answered_takes_no_other_answer_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: dict[Log, StorageError]) -> None:
        raise KeyError("no such answer")

    def closed() -> None:
        raise RuntimeError("no such connection")

    flusher = Flusher(
        asyncio.get_running_loop(), lambda logs: dict.fromkeys(logs, StorageError("bad")), never
    )
    first = flusher.commit([LOG], "never", broken)
    second = flusher.commit([LOG], "never", errors_of)
    third = flusher.commit([LOG], "never", errors_of)
    answered = []
    first.ready, second.ready, third.ready = answered.clear, closed, lambda: answered.append(third.response)
    flusher.start()
    await until(lambda: bool(answered))
    assert isinstance(first.response, KeyError)
    assert answered == [["bad"]]
    assert "no such connection" in caplog.text
    flusher.stop()


async def test_what_a_flush_of_many_logs_could_not_prove_holds_for_the_whole_broker(
    serve: Serve, disk: FaultyDisk, telling_file_system: None
) -> None:
    served = await serve(num_partitions=str(FILES_MIN))
    await (await served.connect()).make_topic("t")
    disk.dirty_bytes = 0
    disk.fail("syncfs")
    logs = [partition.log for partition in served.broker.topics.by_name["t"].partitions]
    for log in logs:
        fill(log, [[NOW]])
    assert await outcome(served.broker.flusher.commit(logs, "on disk", errors_of)) == "on disk"
    assert served.broker.logs.trust.is_lost


async def test_where_the_flusher_ends_all_that_waits_and_comes_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[str] = []

    def flush(_: Collection[Log]) -> dict[Log, StorageError]:
        return {}

    flusher = Flusher(asyncio.get_running_loop(), flush, ended.append)
    flusher._troubles = cast(Any, None)  # what nobody expects
    flusher._failed = cast(Any, None)
    flusher.start()
    under_way = flusher.commit([LOG], "never", errors_of)
    await until(lambda: bool(ended))
    for commit in (under_way, flusher.commit([LOG], "never", errors_of)):
        (error,) = await outcome(commit)
        assert "thread flusher was ended by" in error
    (error,) = await outcome(flusher.commit([LOG], "never", errors_of))
    assert "thread flusher was ended by" in error, "it came when the others had been answered"
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    flusher.stop()


async def test_what_was_answered_before_the_flusher_ended_stays_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []
    answered: list[Any] = []
    flusher = Flusher(asyncio.get_running_loop(), lambda _: {}, ended.append)
    read, wakes = os.read, iter([True, False])

    def read_once(descriptor: int, count: int) -> bytes:
        if descriptor == flusher._wake and not next(wakes):
            raise OSError(5, "Input/output error")
        return read(descriptor, count)

    monkeypatch.setattr(os, "read", read_once)
    done = flusher.commit([LOG], "on disk", errors_of)
    done.ready = lambda: answered.append(done.response)
    flusher.start()
    await until(lambda: bool(ended))
    (error,) = await outcome(flusher.commit([LOG], "never", errors_of))
    assert "thread flusher was ended by" in error
    assert answered == ["on disk"]
    flusher.stop()


def test_a_thread_that_ends_as_it_should_tells_nobody() -> None:
    thread = new_thread("quiet", lambda: None, never)
    assert thread.daemon, "one that hangs must not keep the process from ending"
    thread.start()
    thread.join()


# -- producer ids ------------------------------------------------------------------------------------------------


class Blocks:
    """Reserves blocks when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[range | Exception], None]] = []
        self.end = 0

    def reserve(self, reserved: Callable[[range | Exception], None]) -> None:
        self.asked.append(reserved)

    def grant(self) -> None:
        self.end += PRODUCER_ID_BLOCK
        self.asked.pop(0)(range(self.end - PRODUCER_ID_BLOCK, self.end))


def taken(given: object) -> object:
    return given.response if isinstance(given, Later) else given


def test_producer_ids_are_given_once_and_in_time() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.reserve)
    first = [ids.give(lambda id_: id_) for _ in range(3)]
    assert len(blocks.asked) == 1
    blocks.grant()
    assert [taken(given) for given in first] == [0, 1, 2]
    half = PRODUCER_ID_BLOCK // 2
    given = [ids.give(lambda id_: id_) for _ in range(half - 3)]
    assert not blocks.asked
    given.append(ids.give(lambda id_: id_))
    assert len(blocks.asked) == 1, "the next block is asked for once half of this one is gone"
    given += [ids.give(lambda id_: id_) for _ in range(half - 1)]
    assert given == list(range(3, PRODUCER_ID_BLOCK)), "nobody waits while there are some"
    assert len(blocks.asked) == 1
    blocks.grant()
    assert ids.give(lambda id_: id_) == PRODUCER_ID_BLOCK


def test_more_may_wait_for_a_producer_id_than_a_block_has() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.reserve)
    given = [ids.give(lambda id_: id_) for _ in range(2 * PRODUCER_ID_BLOCK + 1)]
    while blocks.asked:
        blocks.grant()
    assert sorted(map(taken, given)) == list(range(2 * PRODUCER_ID_BLOCK + 1))  # type: ignore[type-var]


def test_where_no_producer_id_can_be_reserved_who_waits_is_told_and_the_next_one_tries_again() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.reserve)
    waiting = [ids.give(lambda id_: "none" if id_ is None else id_) for _ in range(3)]
    blocks.asked.pop()(StorageError("the disk is full"))
    assert [taken(given) for given in waiting] == ["none"] * 3
    again = ids.give(lambda id_: id_)
    blocks.grant()
    assert taken(again) == 0
