"""Work in steps: what the event loop does of it, and how the readers share it out."""

import asyncio
import itertools
import os
import threading
import time
from typing import Any

import pytest

from tests.support.served import Client, Connect, Serve, connect, serve, until
from tidelog.broker import readers as readers_module
from tidelog.broker import work
from tidelog.broker.answers import Elsewhere, Later
from tidelog.broker.handlers import fetch as fetch_handler
from tidelog.broker.handlers import list_offsets
from tidelog.broker.readers import Readers
from tidelog.broker.work import Lane, Work, as_work, begin
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
from tidelog.protocol.messages.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records import compression
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, by_time

__all__ = ["connect", "serve"]

T0 = 1_700_000_000_000


def never(why: str) -> None:
    raise AssertionError(why)


async def outcome(later: Later) -> Any:
    if later.response is None:
        done = asyncio.Event()
        later.ready = done.set
        await asyncio.wait_for(done.wait(), 20)
    return later.response


def in_lanes(*needed: Lane, gate: threading.Event | None = None) -> Work[list[Lane]]:
    """Tell in which lanes the steps were made, the first of them behind a gate."""
    had = []
    for number, lane in enumerate(needed):
        had.append((yield lane))
        if gate is not None and not number:
            gate.wait(20)
    return had


# -- on the event loop ---------------------------------------------------------------------------------------------


def test_work_that_is_short_is_done_at_once() -> None:
    assert begin(in_lanes(Lane.LOOP, Lane.LOOP)) == [Lane.LOOP, Lane.LOOP]


def test_what_needs_a_reader_is_gone_on_with_there(monkeypatch: pytest.MonkeyPatch) -> None:
    left = begin(in_lanes(Lane.LOOP, Lane.SHORT, Lane.LOOP))
    assert isinstance(left, Elsewhere)
    rest = as_work(left.make)
    assert next(rest) is Lane.SHORT
    assert rest.send(Lane.SHORT) is Lane.LOOP
    with pytest.raises(StopIteration) as end:
        rest.send(Lane.SHORT)
    assert end.value.value == [Lane.LOOP, Lane.SHORT, Lane.SHORT]


def test_work_has_the_event_loop_for_some_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0, work.LOOP_S / 4)
    monkeypatch.setattr(work.time, "monotonic", lambda: next(ticks))
    steps = 0

    def endless() -> Work[None]:
        nonlocal steps
        while True:
            yield Lane.LOOP
            steps += 1

    assert isinstance(begin(endless()), Elsewhere)
    assert steps == 3


# -- on the readers --------------------------------------------------------------------------------------------------


async def test_long_work_leaves_a_reader_to_what_is_short() -> None:
    readers = Readers(asyncio.get_running_loop(), never)
    gate = threading.Event()
    long = [readers.submit(in_lanes(Lane.LONG, gate=gate), owner) for owner in range(50)]
    assert [await outcome(readers.submit(lambda n=n: n, "modest")) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]
    assert all(later.response is None for later in long)
    gate.set()
    assert [await outcome(later) for later in long] == [[Lane.LONG]] * 50
    readers.stop()


async def test_a_reader_that_was_idle_is_not_counted_on_while_it_does_what_takes_long() -> None:
    readers = Readers(asyncio.get_running_loop(), never)
    assert await outcome(readers.submit(lambda: "alone", "me")) == "alone"
    await until(lambda: readers._idle > 0)
    begun, gate = threading.Event(), threading.Event()

    def held() -> Work[str]:
        yield Lane.LONG
        begun.set()
        gate.wait(20)
        return "done"

    long = readers.submit(held(), "me")
    assert await asyncio.to_thread(begun.wait, 20)
    assert await outcome(readers.submit(lambda: "short", "modest")) == "short"
    assert long.response is None
    gate.set()
    assert await outcome(long) == "done"
    readers.stop()


async def test_one_thread_alone_does_what_takes_long() -> None:
    readers = Readers(asyncio.get_running_loop(), never)
    under_way, most = 0, 0

    def count() -> Work[str]:
        nonlocal under_way, most
        yield Lane.LONG
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.005)
        under_way -= 1
        return "done"

    laters = [readers.submit(count(), owner) for owner in range(10)]
    assert [await outcome(later) for later in laters] == ["done"] * 10
    assert most == 1
    readers.stop()


async def test_work_goes_to_the_long_when_it_says_so_or_has_had_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers_module, "SLICES_S", {Lane.SHORT: 1000.0, Lane.LONG: 0.0})
    readers = Readers(asyncio.get_running_loop(), never)
    steps = (Lane.LOOP, Lane.SHORT, Lane.LONG, Lane.LOOP)
    assert await outcome(readers.submit(in_lanes(*steps), "me")) == [Lane.SHORT] * 2 + [Lane.LONG] * 2
    monkeypatch.setitem(readers_module.SLICES_S, Lane.SHORT, 0.0)
    assert await outcome(readers.submit(in_lanes(*steps), "me")) == [Lane.SHORT] + [Lane.LONG] * 3
    readers.stop()


async def test_long_work_stands_behind_the_others_after_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers_module, "SLICES_S", {Lane.SHORT: 0.0, Lane.LONG: 0.0})
    readers = Readers(asyncio.get_running_loop(), never)
    made: list[str] = []
    gate = threading.Event()

    def steps(name: str, count: int) -> Work[str]:
        for _ in range(count):
            yield Lane.LONG
            gate.wait(20)
            made.append(name)
        return name

    laters = [readers.submit(steps("first", 100), 1), readers.submit(steps("second", 3), 2)]
    gate.set()
    assert [await outcome(later) for later in laters] == ["first", "second"]
    assert (made.count("first"), made.count("second")) == (100, 3)
    assert "second" not in made[12:]
    readers.stop()


async def test_the_client_s_leaving_ends_long_work_at_its_next_step() -> None:
    readers = Readers(asyncio.get_running_loop(), never)
    begun, gate, closed = threading.Event(), threading.Event(), threading.Event()

    def endless() -> Work[None]:
        try:
            while True:
                yield Lane.LONG
                begun.set()
                gate.wait(20)
        finally:
            closed.set()

    later = readers.submit(endless(), "me")
    assert await asyncio.to_thread(begun.wait, 20)
    later.cancel()
    gate.set()
    assert await asyncio.to_thread(closed.wait, 20)
    assert await outcome(readers.submit(in_lanes(Lane.LONG), "me")) == [Lane.LONG]
    assert later.response is None
    readers.stop()


async def test_a_stop_has_long_work_say_what_it_can_say_at_its_next_step() -> None:
    readers = Readers(asyncio.get_running_loop(), never)
    begun, gate = threading.Event(), threading.Event()

    def until_stopped() -> Work[str]:
        while (yield Lane.LONG) is not Lane.NONE:
            begun.set()
            gate.wait(20)
        return "the broker stops"

    under_way, waiting = (readers.submit(until_stopped(), owner) for owner in range(2))
    assert await asyncio.to_thread(begun.wait, 20)
    readers.drop()
    gate.set()
    assert [await outcome(under_way), await outcome(waiting)] == ["the broker stops"] * 2
    assert await outcome(readers.submit(lambda: "short", 1)) == "short", "what is short is done all the same"
    readers.stop()


async def test_an_error_ends_work_and_the_thread_lives_on() -> None:
    readers = Readers(asyncio.get_running_loop(), never)

    def failing() -> Work[int]:
        yield Lane.LONG
        yield Lane.LONG
        return 1 // 0

    assert isinstance(await outcome(readers.submit(failing(), "me")), ZeroDivisionError)
    assert await outcome(readers.submit(in_lanes(Lane.LONG), "me")) == [Lane.LONG]
    readers.stop()


# -- handlers ----------------------------------------------------------------------------------------------------------


async def filled(client: Client, batches: int = 30, codec: int = 0, partitions: int = 1) -> None:
    await client.make_topic("t")
    for n in range(batches):
        batch = build_batch([Record(0, T0 + n, None, b"v" * 200)], codec=codec)
        for index in range(partitions):
            await produced(client, batch, index)


async def produced(client: Client, batch: bytes, index: int = 0) -> ErrorCode:
    part = PartitionProduceData(index=index, records=memoryview(batch))
    topic = TopicProduceData(name="t", partition_data=[part])
    answer = await client.ask(PRODUCE, 9, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]))
    code: ErrorCode = answer.responses[0].partition_responses[0].error_code
    return code


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
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(await serve())
    await filled(client)
    threads: list[str] = []
    find = by_time.first_at_or_after

    def found(*how: Any) -> Any:
        threads.append(threading.current_thread().name)
        return find(*how)

    monkeypatch.setattr(by_time, "first_at_or_after", found)
    expected = [(0, n) for n in range(30)]
    assert await looked_up(client, [T0 + n for n in range(30)]) == expected
    monkeypatch.setattr(work, "LOOP_S", -1.0)
    threads.clear()
    assert await looked_up(client, [T0 + n for n in range(30)]) == expected
    assert len(threads) == 30
    assert all("reader" in name for name in threads)


async def test_equal_lookups_of_a_request_are_made_once(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(await serve())
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
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.protocol.records.validate._TIMED_RECORDS_MAX", 0)
    monkeypatch.setattr("tidelog.storage.search.in_batch.PROMPT_BYTES", 1000)
    monkeypatch.setattr(work, "LOOP_S", 60.0)
    client = await connect(await serve())
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
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(await serve(num_partitions="30"))
    await filled(client, 2, partitions=30)
    before = await client.ask(FETCH, 12, fetches([1] * 30))
    monkeypatch.setattr(work, "LOOP_S", -1.0)
    assert await client.ask(FETCH, 12, fetches([1] * 30)) == before
    assert len(before.responses[0].partitions) == 30
    assert before.responses[0].partitions[0].records


async def test_questions_about_epochs_go_on_where_their_time_on_the_loop_was_over(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(await serve())
    await filled(client, 2)
    want = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[want] * 5)])
    threads: list[str] = []
    end_of = LeaderEpochs.end_of

    def epoch_end(epochs: LeaderEpochs, epoch: int, log_end_offset: int) -> tuple[int, int]:
        threads.append(threading.current_thread().name)
        return end_of(epochs, epoch, log_end_offset)

    monkeypatch.setattr(LeaderEpochs, "end_of", epoch_end)
    monkeypatch.setattr(work, "LOOP_S", 60.0)
    before = await client.ask(OFFSET_FOR_LEADER_EPOCH, 3, request)
    assert [part.end_offset for part in before.topics[0].partitions] == [2] * 5
    assert not any("reader" in name for name in threads)
    monkeypatch.setattr(work, "LOOP_S", -1.0)
    assert await client.ask(OFFSET_FOR_LEADER_EPOCH, 3, request) == before
    assert ["reader" in name for name in threads] == [False] * 5 + [True] * 5


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_a_fetch_that_walks_far_is_made_on_a_reader_and_parks_there_too(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch, isolation_level: int
) -> None:
    # What is not decided yet, though it is in the log, is nothing new to who does not read it.
    monkeypatch.setattr(Log, "last_stable_offset", property(lambda _: 1))
    monkeypatch.setattr(by_offset, "PROMPT_WALK_BYTES", 8192)
    monkeypatch.setattr(by_offset, "BRIEF_WALK_BYTES", 8192)
    served = await serve(log_index_interval_bytes="2147483647", num_partitions="2")
    client, other = await connect(served), await connect(served)
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
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_offset, "PROMPT_WALK_BYTES", 8192)
    monkeypatch.setattr(by_offset, "BRIEF_WALK_BYTES", 8192)
    client = await connect(await serve(log_index_interval_bytes="2147483647"))
    await filled(client, 60)

    def cold(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", cold)
    lanes: list[Lane] = []
    find = list_offsets._find

    def found(*how: Any) -> Any:
        lanes.append(next(lane for lane, source in work.SOURCES.items() if source is how[-1]))
        return find(*how)

    monkeypatch.setattr(list_offsets, "_find", found)
    assert await looked_up(client, [T0 + 59]) == [(0, 59)]
    assert list(dict.fromkeys(lanes)) == [Lane.LOOP, Lane.SHORT, Lane.LONG]


async def test_what_was_not_looked_at_when_the_broker_stops_is_answered(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await serve(num_partitions="2")
    looking, fetching, producing = [await connect(served) for _ in range(3)]
    await filled(looking, partitions=2)
    monkeypatch.setattr(work, "LOOP_S", -1.0)
    gate = threading.Event()
    blocking = [served.broker.readers.submit(lambda: gate.wait(20), "one")]
    blocking.append(served.broker.readers.submit(in_lanes(Lane.LONG, gate=gate), "two"))
    looking.send(LIST_OFFSETS, 7, 1, lookups([T0, T0 + 1]))
    fetching.send(FETCH, 12, 1, fetches([0, 1]))
    large = build_batch([Record(0, T0, None, b"v" * (2 << 20))], codec=4)
    part = PartitionProduceData(index=0, records=memoryview(large))
    topics = [TopicProduceData(name="t", partition_data=[part])]
    producing.send(PRODUCE, 9, 1, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics))
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
