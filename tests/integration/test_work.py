"""Work in steps: what the event loop does of it, and how the readers share it out."""

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.builders import produce_request
from tests.support.faulty_disk import FaultyDisk
from tests.support.running import Threads, in_lanes, run
from tests.support.served import Client, Serve, until
from tidelog.broker import running, work
from tidelog.broker.answers import Later
from tidelog.broker.handlers import fetch as fetch_handler
from tidelog.broker.handlers import list_offsets
from tidelog.broker.running import FREE_STEPS, NO_ANSWER, Running
from tidelog.broker.turns import TURN_S
from tidelog.broker.work import Lane, Stopping, anywhere, loop, next_to_answer, reader, turn
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import PRODUCE
from tidelog.protocol.records import compression
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, by_time

T0 = 1_700_000_000_000


async def outcome(later: Later) -> Any:
    if later.response is None:
        done = asyncio.Event()
        later.ready = done.set
        await asyncio.wait_for(done.wait(), 20)
    return later.response


# -- on the event loop ---------------------------------------------------------------------------------------------


async def test_work_that_is_short_is_done_at_once() -> None:
    short = in_lanes(Lane.ANYWHERE, Lane.LOOP, Lane.ANYWHERE)
    assert Running(Threads(), "me", short).begin() == [Lane.LOOP] * 3


async def test_what_needs_a_reader_is_gone_on_with_there_and_comes_back() -> None:
    threads = Threads()
    running = run(threads, in_lanes(Lane.ANYWHERE, Lane.SHORT, Lane.ANYWHERE, Lane.LOOP), "me")
    assert await outcome(running) == [Lane.LOOP, Lane.SHORT, Lane.SHORT, Lane.LOOP]
    threads.readers.stop()


async def test_work_has_the_event_loop_for_some_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0, running.LOOP_S / 4)
    monkeypatch.setattr(running, "monotonic", lambda: next(ticks))
    threads, lanes = Threads(), []

    async def many() -> None:
        lanes.extend([await anywhere() for _ in range(10)])

    await outcome(run(threads, many(), "me"))
    assert lanes.count(Lane.LOOP) == 3
    threads.readers.stop()


async def test_a_response_that_took_more_than_a_turn_is_encoded_on_a_reader_thread() -> None:
    threads = Threads()

    async def in_two_turns() -> str:
        for _ in range(FREE_STEPS + 1):
            await loop()
        time.sleep(2 * TURN_S)  # noqa: ASYNC251  (the time of this turn)
        await loop()
        return "done"

    def encode(response: str) -> tuple[str, str]:
        return response, threading.current_thread().name

    made = Running(threads, "me", in_two_turns(), encode)
    assert made.begin() is made
    assert await outcome(made) == ("done", "reader_0")
    threads.readers.stop()


async def test_what_is_read_when_it_can_leave_is_not_read_before() -> None:
    threads, read = Threads(), []

    async def answer() -> str:
        await next_to_answer()
        read.append(1)
        await reader(Lane.SHORT)
        return "read"

    made = run(threads, answer(), "me")
    assert await outcome(made) is not None
    assert not read
    assert made.taken() is None
    assert read
    assert await outcome(made) == "read"
    threads.readers.stop()


async def test_a_client_that_leaves_has_what_waits_closed_and_what_is_due_on_the_loop_done() -> None:
    threads, ended = Threads(), []
    awaited = Later()

    async def wait(for_what: Awaitable[Any], name: str) -> None:
        try:
            await for_what
            ended.append(f"{name} done")
        finally:
            ended.append(f"{name} closed")

    waits, is_due = run(threads, wait(awaited, "waits"), "me"), run(threads, wait(turn(), "due"), "me")
    waits.cancel()
    is_due.cancel()
    assert ended == ["waits closed"]
    await until(lambda: len(ended) == 3)
    assert ended[1:] == ["due done", "due closed"]
    threads.readers.stop()


# -- on the readers --------------------------------------------------------------------------------------------------


async def test_long_work_leaves_a_reader_to_what_is_short() -> None:
    threads = Threads()
    gate = threading.Event()
    long = [run(threads, in_lanes(Lane.LONG, gate=gate), owner) for owner in range(50)]
    assert [await outcome(run(threads, lambda n=n: n, "modest")) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]
    assert all(later.response is None for later in long)
    gate.set()
    assert [await outcome(later) for later in long] == [[Lane.LONG]] * 50
    threads.readers.stop()


async def test_a_reader_that_was_idle_is_not_counted_on_while_it_does_what_takes_long() -> None:
    threads = Threads()
    assert await outcome(run(threads, lambda: "alone", "me")) == "alone"
    await until(lambda: threads.readers._idle > 0)
    begun, gate = threading.Event(), threading.Event()

    async def held() -> str:
        await reader(Lane.LONG)
        begun.set()
        gate.wait(20)
        return "done"

    long = run(threads, held(), "me")
    assert await asyncio.to_thread(begun.wait, 20)
    assert await outcome(run(threads, lambda: "short", "modest")) == "short"
    assert long.response is None
    gate.set()
    assert await outcome(long) == "done"
    threads.readers.stop()


async def test_one_thread_alone_does_what_takes_long() -> None:
    threads = Threads()
    under_way, most = 0, 0

    async def count() -> str:
        nonlocal under_way, most
        await reader(Lane.LONG)
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.005)  # noqa: ASYNC251  (on a reader thread)
        under_way -= 1
        return "done"

    laters = [run(threads, count(), owner) for owner in range(10)]
    assert [await outcome(later) for later in laters] == ["done"] * 10
    assert most == 1
    threads.readers.stop()


async def test_work_goes_to_the_long_when_it_says_so_or_has_had_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "SLICES_S", {Lane.SHORT: 1000.0, Lane.LONG: 0.0})
    threads = Threads()
    steps = (Lane.SHORT, Lane.ANYWHERE, Lane.LONG, Lane.ANYWHERE)
    assert await outcome(run(threads, in_lanes(*steps), "me")) == [Lane.SHORT] * 2 + [Lane.LONG] * 2
    monkeypatch.setitem(running.SLICES_S, Lane.SHORT, 0.0)
    assert await outcome(run(threads, in_lanes(*steps), "me")) == [Lane.SHORT] + [Lane.LONG] * 3
    threads.readers.stop()


async def test_long_work_stands_behind_the_others_after_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SLICES_S", {Lane.SHORT: 0.0, Lane.LONG: 0.0})
    threads = Threads()
    made: list[str] = []
    gate = threading.Event()

    async def steps(name: str, count: int) -> str:
        for _ in range(count):
            await reader(Lane.LONG)
            gate.wait(20)
            made.append(name)
        return name

    laters = [run(threads, steps("first", 100), "1"), run(threads, steps("second", 3), "2")]
    gate.set()
    assert [await outcome(later) for later in laters] == ["first", "second"]
    assert (made.count("first"), made.count("second")) == (100, 3)
    assert "second" not in made[12:]
    threads.readers.stop()


async def test_the_client_s_leaving_ends_long_work_at_its_next_step() -> None:
    threads = Threads()
    begun, gate, closed = threading.Event(), threading.Event(), threading.Event()

    async def endless() -> None:
        try:
            while True:
                await reader(Lane.LONG)
                begun.set()
                gate.wait(20)
        finally:
            closed.set()

    later = run(threads, endless(), "me")
    assert await asyncio.to_thread(begun.wait, 20)
    later.cancel()
    gate.set()
    assert await asyncio.to_thread(closed.wait, 20)
    assert await outcome(run(threads, in_lanes(Lane.LONG), "me")) == [Lane.LONG]
    assert later.response is None
    threads.readers.stop()


async def test_a_stop_has_long_work_say_what_it_can_say_at_its_next_step() -> None:
    threads = Threads()
    begun, gate = threading.Event(), threading.Event()

    async def until_stopped() -> str:
        with suppress(Stopping):
            while True:
                await reader(Lane.LONG)
                begun.set()
                gate.wait(20)
        return "the broker stops"

    under_way, waiting = (run(threads, until_stopped(), owner) for owner in range(2))
    assert await asyncio.to_thread(begun.wait, 20)
    threads.readers.drop()
    gate.set()
    assert [await outcome(under_way), await outcome(waiting)] == ["the broker stops"] * 2
    assert await outcome(run(threads, lambda: "short", "1")) == NO_ANSWER
    threads.readers.stop()


async def test_an_error_ends_work_and_the_thread_lives_on() -> None:
    threads = Threads()

    async def failing() -> int:
        await reader(Lane.LONG)
        await reader(Lane.LONG)
        return 1 // 0

    assert isinstance(await outcome(run(threads, failing(), "me")), ZeroDivisionError)
    assert await outcome(run(threads, in_lanes(Lane.LONG), "me")) == [Lane.LONG]
    threads.readers.stop()


# -- handlers ----------------------------------------------------------------------------------------------------------


async def filled(client: Client, batches: int = 30, codec: int = 0, partitions: int = 1) -> None:
    await client.make_topic("t")
    for n in range(batches):
        batch = build_batch([Record(0, T0 + n, None, b"v" * 200)], codec=codec)
        for index in range(partitions):
            await produced(client, batch, index)


async def produced(client: Client, batch: bytes, index: int = 0) -> int:
    return int((await client.produce("t", batch, index)).error_code)


def lookups(times: list[int]) -> ListOffsetsRequest:
    """Ask for the same partition several times: a topic may be named again, a partition of it not."""
    wants = [ListOffsetsPartition(partition_index=0, timestamp=time) for time in times]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[want]) for want in wants]
    )


def fetches(offsets: list[int], **more: int) -> FetchRequest:
    """Ask for as many partitions, each from its offset on."""
    wants = [
        FetchPartition(partition=n, fetch_offset=at, partition_max_bytes=1) for n, at in enumerate(offsets)
    ]
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more}
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=wants)], **options)


async def looked_up(client: Client, times: list[int]) -> list[tuple[ErrorCode, int]]:
    answer = await client.ask(LIST_OFFSETS, 7, lookups(times))
    return [(topic.partitions[0].error_code, topic.partitions[0].offset) for topic in answer.topics]


async def test_lookups_go_on_where_their_time_on_the_loop_was_over(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(client)
    threads: list[str] = []
    find = by_time.first_at_or_after

    def found(*how: Any) -> Any:
        threads.append(threading.current_thread().name)
        return find(*how)

    monkeypatch.setattr(by_time, "first_at_or_after", found)
    expected = [(0, n) for n in range(30)]
    assert await looked_up(client, [T0 + n for n in range(30)]) == expected
    monkeypatch.setattr(running, "LOOP_S", -1.0)
    threads.clear()
    assert await looked_up(client, [T0 + n for n in range(30)]) == expected
    assert len(threads) == 30
    assert all("reader" in name for name in threads)


async def test_equal_lookups_of_a_request_are_made_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(client)
    asked: list[int] = []
    find = by_time.first_at_or_after

    def found(log: Log, at: int, *how: Any) -> Any:
        asked.append(at)
        return find(log, at, *how)

    monkeypatch.setattr(by_time, "first_at_or_after", found)
    assert await looked_up(client, [T0 + 3, T0 + 99, T0 + 3, T0 + 4, T0 + 99]) == [
        (0, 3), (0, -1), (0, 3), (0, 4), (0, -1),
    ]  # fmt: skip
    assert asked == [T0 + 3, T0 + 99, T0 + 4]


async def test_a_lookup_in_a_large_batch_is_not_made_on_the_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.protocol.records.validate._TIMED_RECORDS_MAX", 0)
    monkeypatch.setattr("tidelog.storage.search.in_batch.PROMPT_BYTES", 1000)
    monkeypatch.setattr(running, "LOOP_S", 60.0)
    client = await (await serve()).connect()
    await filled(client, 0)
    assert not await produced(
        client, build_batch([Record(n, T0 + n, None, b"v" * 1000) for n in range(9)], codec=4)
    )
    decompress, threads = compression.decompress, []

    def decompressed(codec: int, data: Any, limit: int) -> Any:
        threads.append((threading.current_thread().name, limit > 1000))
        return decompress(codec, data, limit)

    monkeypatch.setattr(compression, "decompress", decompressed)
    assert await looked_up(client, [T0 + 8, T0 + 2]) == [(0, 8), (0, 2)]
    assert [is_whole for name, is_whole in threads if "reader" not in name] == [False]
    assert any(is_whole for name, is_whole in threads if "reader" in name)


async def test_fetches_go_on_where_their_time_on_the_loop_was_over(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await (await serve(num_partitions="30")).connect()
    await filled(client, 2, partitions=30)
    before = await client.ask(FETCH, 12, fetches([1] * 30))
    monkeypatch.setattr(running, "LOOP_S", -1.0)
    assert await client.ask(FETCH, 12, fetches([1] * 30)) == before
    assert len(before.responses[0].partitions) == 30
    assert before.responses[0].partitions[0].records


async def test_questions_about_epochs_go_on_where_their_time_on_the_loop_was_over(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(client, 2)
    want = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[want] * 5)])
    threads: list[str] = []
    end_of = LeaderEpochs.end_of

    def epoch_end(epochs: LeaderEpochs, epoch: int, log_end_offset: int) -> tuple[int, int]:
        threads.append(threading.current_thread().name)
        return end_of(epochs, epoch, log_end_offset)

    monkeypatch.setattr(LeaderEpochs, "end_of", epoch_end)
    monkeypatch.setattr(running, "LOOP_S", 60.0)
    before = await client.ask(OFFSET_FOR_LEADER_EPOCH, 3, request)
    assert [part.end_offset for part in before.topics[0].partitions] == [2] * 5
    assert not any("reader" in name for name in threads)
    monkeypatch.setattr(running, "LOOP_S", -1.0)
    assert await client.ask(OFFSET_FOR_LEADER_EPOCH, 3, request) == before
    assert ["reader" in name for name in threads] == [False] * 5 + [True] * 5


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_a_fetch_that_walks_far_is_made_on_a_reader_and_parks_there_too(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, isolation_level: int
) -> None:
    # What is not decided yet, though it is in the log, is nothing new to who does not read it.
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda _: 1))
    monkeypatch.setattr(running, "LOOP_S", 60.0)
    monkeypatch.setattr(by_offset, "PROMPT_WALK_BYTES", 8192)
    monkeypatch.setattr(by_offset, "BRIEF_WALK_BYTES", 8192)
    served = await serve(log_index_interval_bytes="2147483647", num_partitions="2")
    client, other = await served.connect(), await served.connect()
    await filled(client, 60, partitions=2)
    lanes: list[Lane] = []
    read = fetch_handler._Fetch._read

    def reads(self: Any, partition: Any, want: Any, lane: Lane) -> Any:
        lanes.append(lane)
        return read(self, partition, want, lane)

    monkeypatch.setattr(fetch_handler._Fetch, "_read", reads)
    answer = await client.ask(FETCH, 12, fetches([59, 58]))
    assert [bool(part.records) for part in answer.responses[0].partitions] == [True, False]
    assert lanes == [Lane.LOOP, Lane.LONG, Lane.LONG]
    client.send(
        FETCH, 12, 1, fetches([59, 60], min_bytes=600, max_wait_ms=60_000, isolation_level=isolation_level)
    )
    await until(lambda: len(served.broker.parked) == 1)
    assert not await produced(other, build_batch([Record(0, T0, None, b"v" * 400)]))
    _, answer = await client.receive(FETCH, 12)
    assert all(not part.error_code for part in answer.responses[0].partitions)


async def test_what_waits_for_the_disk_and_takes_long_is_made_by_who_has_the_time_for_it(
    serve: Serve, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LOOP_S", 60.0)
    monkeypatch.setattr(by_offset, "PROMPT_WALK_BYTES", 8192)
    monkeypatch.setattr(by_offset, "BRIEF_WALK_BYTES", 8192)
    client = await (await serve(log_index_interval_bytes="2147483647")).connect()
    await filled(client, 60)

    disk.is_cold = True
    lanes: list[Lane] = []
    find = list_offsets._find

    def found(*how: Any) -> Any:
        lanes.append(next(lane for lane, source in work.SOURCES.items() if source is how[-1]))
        return find(*how)

    monkeypatch.setattr(list_offsets, "_find", found)
    assert await looked_up(client, [T0 + 59]) == [(0, 59)]
    assert list(dict.fromkeys(lanes)) == [Lane.LOOP, Lane.SHORT, Lane.LONG]


async def test_what_was_not_looked_at_when_the_broker_stops_is_answered(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(num_partitions="2")
    looking, fetching, producing = [await served.connect() for _ in range(3)]
    await filled(looking, partitions=2)
    monkeypatch.setattr(running, "LOOP_S", -1.0)
    monkeypatch.setattr(running, "READERS", 2)
    gate = threading.Event()
    blocking = [run(served.broker, lambda: gate.wait(20), "one")]
    blocking.append(run(served.broker, in_lanes(Lane.LONG, gate=gate), "two"))
    looking.send(LIST_OFFSETS, 7, 1, lookups([T0, T0 + 1]))
    fetching.send(FETCH, 12, 1, fetches([0, 1]))
    large = build_batch([Record(0, T0, None, b"v" * (2 << 20))], codec=4)
    producing.send(PRODUCE, 9, 1, produce_request("t", large, acks=1))
    waiting = served.broker.readers._queues.values()
    await until(lambda: sum(map(len, waiting)) == 3)
    stopping = asyncio.create_task(served.stop())
    await until(lambda: served.broker.readers._drops)
    gate.set()
    _, found = await looking.receive(LIST_OFFSETS, 7)
    assert [t.partitions[0].error_code for t in found.topics] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    _, fetched = await fetching.receive(FETCH, 12)
    codes = [part.error_code for part in fetched.responses[0].partitions]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    _, refused = await producing.receive(PRODUCE, 9)
    answer = refused.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "the broker stops" in answer.error_message
    await stopping
