"""What is refused or fails leaves no traceback: neither in a value that is kept, nor in a cycle.

A traceback keeps the frames that the exception passed, and with them what these held: decompressed records, a log. Here
the collector does not run, as in a broker that nobody asks for anything, so that a cycle stays as well.
"""

import asyncio
import gc
import logging
import os
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, cast

import pytest

from tests.integration.test_older_formats import fetched, looked_up
from tests.support.batches import NOW_MS, changed, some_records
from tests.support.faulty_disk import FaultyDisk
from tests.support.messages import message, wrapper
from tests.support.running import run
from tests.support.served import Client, Serve, Served, log_of, until
from tidelog.broker.answers import CutShort, Later, NotAnswered, kept, outcome_of
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import Flusher
from tidelog.broker.maintenance import Maintenance, Periodic
from tidelog.broker.work import Lane, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records import compression
from tidelog.protocol.records.build import build_batch
from tidelog.storage.errors import CorruptLog, NotInMemory, StorageError
from tidelog.storage.log import Log
from tidelog.storage.search import by_offset, by_time
from tidelog.storage.sources import WARM, Source
from tidelog.storage.summary import Damage

# More than is decompressed where a batch is appended, and more than the topics here take.
BOMB = bytes(3 << 20)
OPTIONS = {"max_decompressed_bytes": str(2 << 20)}


# Tracebacks of what failed in tests before: kept here, so that no other object gets the identity of one.
_earlier: list[TracebackType] = []


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    _earlier[:] = _all_tracebacks()
    yield
    _earlier.clear()
    gc.enable()


def _all_tracebacks() -> list[TracebackType]:
    return [each for each in gc.get_objects() if type(each) is TracebackType]


def tracebacks() -> list[str]:
    """Return the functions in tracebacks that pass through the code under test; other code has its own."""
    known = set(map(id, _earlier))
    found = [each for each in _all_tracebacks() if id(each) not in known]
    codes = [frame.f_code for each in found for frame, _ in traceback.walk_tb(each)]
    return [code.co_name for code in codes if "/tidelog/" in code.co_filename]


async def leaves_nothing(act: Callable[[], Awaitable[Any]]) -> Any:
    """Do something twice; see that no traceback is left, and return what came of it."""
    outcome = [await act() for _ in range(2)][-1]
    # A thread lets go of what it has handed back a moment later.
    with suppress(TimeoutError):
        await asyncio.wait_for(until(lambda: not tracebacks()), 10)
    assert tracebacks() == []
    return outcome


async def raised_by(awaited: Awaitable[Any]) -> type[BaseException] | None:
    """Return which exception it raises; `pytest.raises` would keep that."""
    try:
        await awaited
    except Exception as error:
        return type(error)
    return None


async def sent(client: Client, topic: str, version: int, *batches: bytes, acks: int = 1) -> list[int]:
    """Produce to one partition, as often as there are batches; return the codes."""
    partitions = [PartitionProduceData(index=0, records=memoryview(data)) for data in batches]
    request = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=partitions)]
    )
    answer = await client.ask(PRODUCE, version, request)
    return [each.error_code for each in answer.responses[0].partition_responses]


def flipped(data: bytes) -> bytes:
    """Return what does not match its checksum."""
    return data[:-1] + bytes([data[-1] ^ 1])


def bomb(magic: int) -> bytes:
    if magic == 2:
        return build_batch(some_records(1, len(BOMB)), codec=compression.GZIP)
    return wrapper(magic, compression.GZIP, message(magic, 0, BOMB))


def large(magic: int) -> bytes:
    """Return what is validated on a reader thread, and is not what it says."""
    if magic == 2:
        return bytes(changed(build_batch(some_records(20, 80_000), codec=compression.GZIP), record_count=19))
    return flipped(message(magic, 0, bytes(100_000)))


def small(magic: int) -> bytes:
    return flipped(build_batch(some_records(2)) if magic == 2 else message(magic))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("format_version", ["0.9.0", "0.10.2", "3.0"])
async def test_a_refused_batch_is_gone_once_that_is_answered(
    client: Client, magic: int, format_version: str
) -> None:
    await client.make_topic("t", message_format_version=format_version, **OPTIONS)
    version = 9 if magic == 2 else 2
    wrong = ErrorCode.INVALID_RECORD if magic == 2 else ErrorCode.CORRUPT_MESSAGE
    for data, code in (
        (bomb(magic), ErrorCode.MESSAGE_TOO_LARGE),
        (large(magic), wrong),
        (small(magic), ErrorCode.CORRUPT_MESSAGE),
    ):
        for batches in ([data], [data, data]):
            codes = await leaves_nothing(partial(sent, client, "t", version, *batches))
            assert codes == [code] * len(batches)


@pytest.mark.parametrize(
    ("data", "version", "code"),
    [
        (build_batch(some_records(1)), 9, ErrorCode.INVALID_TIMESTAMP),
        (build_batch(some_records(1), codec=compression.ZSTD), 3, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (build_batch(some_records(1), transactional=True, producer_id=7), 9, ErrorCode.INVALID_TXN_STATE),
        (build_batch(some_records(20, 100_000)), 9, ErrorCode.MESSAGE_TOO_LARGE),
        (b"", 9, ErrorCode.INVALID_RECORD),
    ],
)
async def test_so_is_one_that_breaks_another_rule(
    client: Client, data: bytes, version: int, code: int
) -> None:
    await client.make_topic("t", message_timestamp_before_max_ms="1000")
    for batches in ([data], [data, data]):
        assert await leaves_nothing(partial(sent, client, "t", version, *batches)) == [code] * len(batches)


async def test_what_waits_for_a_reader_thread_keeps_no_traceback_meanwhile(served: Served) -> None:
    client, other = await served.connect(), await served.connect()
    await client.make_topic("t", **OPTIONS)
    begun, gate = threading.Event(), threading.Event()

    async def holds_the_lane() -> str:
        await reader(Lane.LONG)
        begun.set()
        assert gate.wait(20)
        return "done"

    held = run(served.broker, holds_the_lane(), "me")
    await until(begun.is_set)
    waiting = asyncio.create_task(sent(client, "t", 9, bomb(2)))
    while (await fetched(other, "t", 0, 4)).error_code or not is_waiting(served):
        pass
    assert not tracebacks()
    gate.set()
    assert await waiting == [ErrorCode.MESSAGE_TOO_LARGE]
    assert held.response == "done"


def is_waiting(served: Served) -> bool:
    """Tell whether a connection waits for an answer."""
    return any(connection.owes_answers for connection in served.server.connections)


async def test_a_partition_that_cannot_be_read_leaves_nothing(
    served: Served, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.make_topic("t", index_interval_bytes="0")
    assert await sent(client, "t", 9, build_batch(some_records(100))) == [0]
    assert (await leaves_nothing(lambda: fetched(client, "t", 1000, 12))).error_code == (
        ErrorCode.OFFSET_OUT_OF_RANGE
    )
    log = log_of(served.broker, "t")
    position = log.active.size
    assert await sent(client, "t", 9, *2 * [build_batch(some_records(100, timestamp=NOW_MS + 1000))]) == [
        0,
        0,
    ]
    log.active.summary.damage = (Damage(position, position + 1, 200),)
    assert (await leaves_nothing(lambda: fetched(client, "t", 150, 12))).error_code == (
        ErrorCode.CORRUPT_MESSAGE
    )

    def damaged(_log: Log, _timestamp: int, _timeline: object, source: Source) -> None:
        raise NotInMemory if source is WARM else CorruptLog("damaged")

    monkeypatch.setattr(by_time, "first_at_or_after", damaged)
    assert (await leaves_nothing(lambda: looked_up(client, "t", NOW_MS)))[0] == ErrorCode.CORRUPT_MESSAGE


async def test_a_disk_that_refuses_leaves_nothing(client: Client, disk: FaultyDisk) -> None:
    await client.make_topic("t")
    batch = build_batch(some_records(3))
    disk.fill()
    for batches in ([batch], [batch, batch]):
        codes = await leaves_nothing(partial(sent, client, "t", 9, *batches))
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * len(batches)
    assert await leaves_nothing(lambda: created(client, "more")) == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    assert await sent(client, "t", 9, batch) == [0]

    disk.fail("sync", "syncfs")
    for _ in range(2):
        codes = await leaves_nothing(partial(sent, client, "t", 9, batch, batch, acks=-1))
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


async def created(client: Client, name: str) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = await client.ask(CREATE_TOPICS, 0, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    return int(answer.topics[0].error_code)


def as_text(record: logging.LogRecord) -> bool:
    """Write out a traceback before pytest keeps the record, which would keep it."""
    if record.exc_info:
        record.exc_text = logging.Formatter().formatException(cast(Any, record.exc_info))
        record.exc_info = None
    return True


def fault(*_: object, **__: object) -> None:
    raise ZeroDivisionError("nobody expected this")


async def test_a_fault_leaves_nothing_and_the_log_says_by_which_way_it_came(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("tidelog.broker.net.connection"), "filters", [as_text])
    served = await serve()
    client = await served.connect()
    await client.make_topic("t", **OPTIONS)
    assert await sent(client, "t", 9, build_batch(some_records(3))) == [0]

    async def closes(ask: Callable[[Client], Awaitable[Any]]) -> None:
        client = await served.connect()
        assert await raised_by(ask(client)) is asyncio.IncompleteReadError
        assert "ZeroDivisionError: nobody expected this" in caplog.text
        assert ", in fault\n" in caplog.text
        caplog.clear()

    with monkeypatch.context() as patch:  # on a reader thread
        patch.setattr(compression, "decompress", fault)
        data = wrapper(1, compression.GZIP, message(1, 0, os.urandom(50_000)))
        await leaves_nothing(lambda: closes(lambda client: sent(client, "t", 2, data)))
    with monkeypatch.context() as patch:  # on the event loop
        patch.setattr(by_offset, "read", fault)
        await leaves_nothing(lambda: closes(lambda client: fetched(client, "t", 0, 4)))
    with monkeypatch.context() as patch:  # on the maintenance thread
        patch.setattr(served.broker.logs, "create", fault)
        names = iter(("more", "others"))
        await leaves_nothing(lambda: closes(lambda client: created(client, next(names))))


async def test_a_client_that_is_told_by_closing_leaves_nothing(served: Served) -> None:
    await (await served.connect()).make_topic("t", **OPTIONS)

    async def closes(data: bytes) -> None:
        closed = await raised_by(sent(await served.connect(), "t", 9, data, acks=0))
        assert closed is asyncio.IncompleteReadError

    await leaves_nothing(lambda: closes(small(2)))
    await leaves_nothing(lambda: closes(bomb(2)))


async def test_the_loop_and_a_thread_that_wait_for_another_keep_no_traceback() -> None:
    loop = asyncio.get_running_loop()

    def flush(logs: Any) -> Any:
        return dict.fromkeys(logs, StorageError("no"))

    flusher = Flusher(loop, flush, print)
    flusher.start()
    clock = Clock()
    maintenance = Maintenance(loop, clock, [Periodic("idle", 60, fault, clock)], print)
    maintenance.start()

    async def unanswered() -> None:
        later = flusher.commit([cast(Log, object())], "answer", cast(Any, fault))
        await until(lambda: later.response is not None)
        assert isinstance(later.response, ZeroDivisionError)
        with suppress(NotAnswered):
            later.answering(7, cast(Any, fault), "Produce v9").encoded()

    await leaves_nothing(unanswered)

    def runs() -> str:
        try:
            maintenance.call(fault)
        except ZeroDivisionError as error:
            return str(error)
        return "none"

    assert await leaves_nothing(lambda: asyncio.to_thread(runs)) == "nobody expected this"
    assert isinstance(await leaves_nothing(lambda: asyncio.to_thread(outcome_of, fault)), ZeroDivisionError)
    flusher.stop()
    maintenance.stop()


def test_what_is_kept_of_a_fault_is_its_text_and_its_way() -> None:
    error = outcome_of(lambda: outcome_of(cast(Any, None)) or fault())
    assert isinstance(error, TypeError)
    assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)
    assert "in outcome_of" in error.__notes__[0]
    expected = kept(StorageError("the disk is full"))
    assert not hasattr(expected, "__notes__")


def test_an_answer_that_was_cut_short_is_so_each_time() -> None:
    later = Later()
    later.response = CutShort(b"half")
    for _ in range(2):
        with pytest.raises(CutShort) as caught:
            later.answering(7, cast(Any, fault), "Fetch v12").encoded()
        assert caught.value.sent == b"half"
        assert later.response.__traceback__ is None
