"""The files of a deleted topic are closed, and their space is back, whatever was done with it.

The collector does not run here, as in a broker that nobody asks for anything: what only a cycle holds stays open.
"""

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from weakref import ref

import pytest

from tests.integration.test_older_formats import fetched, looked_up
from tests.support.batches import NOW_MS
from tests.support.broker import Broker, wait_until
from tests.support.builders import delete_request, produce_request
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import held_open
from tests.support.raw_client import RawClient
from tests.support.served import Client, Serve, Served, log_of, until
from tests.support.small_disk import small_disk
from tidelog.broker import cleaners
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.errors import StorageError
from tidelog.storage.sources import PATIENT

__all__ = ["small_disk"]  # fixtures

DELETE = 20
VALUE = bytes(1000)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def batch(**of_producer: int) -> bytes:
    return build_batch([Record(n, NOW_MS + n, b"k%d" % (n % 3), VALUE) for n in range(10)], **of_producer)


async def sent(client: Client, version: int = 9, acks: int = -1, **of_producer: int) -> int:
    answer = await client.produce("t", batch(**of_producer), acks=acks, version=version)
    return int(answer.error_code)


async def deleted(client: Client) -> None:
    assert await client.delete("t") == 0


async def in_session(client: Client, session_id: int, epoch: int, offset: int) -> None:
    want = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[want])]
    client.send(
        FETCH, 12, 1,
        FetchRequest(max_wait_ms=60_000, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics),
    )  # fmt: skip


async def is_parked(client: Client) -> None:
    """Have a fetch in a session wait for the topic to grow."""
    await in_session(client, 0, 0, 0)
    _, answer = await client.receive(FETCH, 12)
    assert answer.session_id
    await in_session(client, answer.session_id, 1, 50)


async def use(served: Served, client: Client, how: str, disk: FaultyDisk) -> None:
    """Do with a topic of some segments what the name says."""
    if how == "fetched":
        assert (await fetched(client, "t", 0, 12)).records
    elif how == "searched by time":
        assert (await looked_up(client, "t", NOW_MS + 5))[1] == 5
    elif how == "idempotent producer":
        assert await sent(client, producer_id=7, producer_epoch=0, base_sequence=0) == 0
        assert await sent(client, producer_id=7, producer_epoch=0, base_sequence=20) == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
    elif how == "compacted":
        await until(lambda: served.broker.cleaners.figures().passes["done"] > 0)
    elif how == "refused":
        disk.fill()
        assert await sent(client) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.heal()
    elif how == "older format":
        assert (await fetched(client, "t", 0, 2)).records
    else:
        assert how == "produced"


USES = [
    "produced",
    "fetched",
    "searched by time",
    "idempotent producer",
    "compacted",
    "refused",
    "older format",
]


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("waits", [False, True], ids=["", "beside a fetch that waits"])
async def test_no_file_of_a_deleted_topic_stays_open(
    serve: Serve,
    disk: FaultyDisk,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    waits: bool,
) -> None:
    monkeypatch.setattr(cleaners, "SHORTEST_WAIT_MS", 1)
    served = await serve(log_cleaner_backoff_ms="1")
    client, other = await served.connect(), await served.connect()
    folder = served.broker.logs.directory
    before = held_open(folder)
    policy = "compact" if how == "compacted" else "delete"
    await client.make_topic("t", cleanup_policy=policy, segment_bytes="25000", min_cleanable_dirty_ratio="0")
    for _ in range(5):
        assert await sent(client) == 0
    if waits:
        await is_parked(other)
    await use(served, client, how, disk)
    assert held_open(folder) > before
    log = ref(log_of(served.broker, "t"))
    await deleted(client)
    await asyncio.wait_for(until(lambda: held_open(folder) == before and log() is None), 20)
    if waits:
        await other.receive(FETCH, 12)


async def test_what_holds_a_deleted_log_holds_none_of_its_files_and_a_reader_keeps_its_own(
    served: Served, client: Client
) -> None:
    await client.make_topic("t", segment_bytes="25000")
    folder = served.broker.logs.directory
    before = held_open(folder)
    for _ in range(5):
        assert await sent(client) == 0
    await looked_up(client, "t", NOW_MS + 5)
    log = log_of(served.broker, "t")
    slices = [segment.slice(0, 100, None, PATIENT) for segment in log.segments]
    expected = [each.read() for each in slices]
    await deleted(client)
    await asyncio.wait_for(until(lambda: held_open(folder) == before + len(slices)), 20)
    assert [each.read() for each in slices] == expected
    slices.clear()
    assert held_open(folder) == before
    with pytest.raises(StorageError):
        log.read(0, 100, at_least_one=True, source=PATIENT)


def test_a_full_disk_takes_writes_again_once_a_topic_is_deleted(small_disk: Path) -> None:
    with (
        Broker(small_disk / "data", {"log.segment.bytes": "500000"}).start() as broker,
        RawClient(broker) as client,
    ):
        client.metadata("t", "small")
        produced = partial(produce_once, client)
        while produced("t") == 0:
            pass
        assert produced("t") == ErrorCode.KAFKA_STORAGE_ERROR
        client.ask(DELETE, 1, delete_request("t"))
        wait_until(lambda: produced("small") == 0)
        for _ in range(100):
            assert produced("small") == 0


def produce_once(client: RawClient, topic: str) -> int:
    answer = client.ask(0, 9, produce_request(topic, batch()))
    return int(answer.responses[0].partition_responses[0].error_code)
