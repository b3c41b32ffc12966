"""The batches of a range of offsets, by Fetch.

Owns what is asked of the leader of one partition, one answer ahead of what is looked at, and that no offset is left out
without a word: what retention deletes while it is read is an error, unless loss is allowed. Knows nothing of records.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tidelog.pipeline.brokers.cluster import EARLIEST, LATEST, Cluster, Passing, check
from tidelog.pipeline.brokers.connection import Connection, ConnectionLost
from tidelog.pipeline.errors import PipelineError
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.errors import CorruptBatch
from tidelog.protocol.records.legacy import MAGICS
from tidelog.protocol.wire.types import ZERO_UUID

MOST_BYTES: Final = 8 << 20
LEAST_BYTES: Final = 64 << 10
# What a record counts for where nobody knows.
RECORD_BYTES: Final = 1 << 10
_WAIT_MS: Final = 500
# So many records may a read go on past its planned end, if the plan was for fewer.
_MOST_FURTHER: Final = 1_000_000
_IDLE: Final = 20  # so many of them without anything
_BY_NAME: Final = 12  # the last version that names topics


class Partition(NamedTuple):
    """One partition, of a topic with this id."""

    topic: str
    partition: int
    topic_id: bytes = ZERO_UUID

    def __str__(self) -> str:
        """Return `topic-partition`."""
        return f"{self.topic}-{self.partition}"


class Fetched(NamedTuple):
    """Whole entries, one after another, and where each lies; the offset that was asked for, and the next to ask for."""

    start: int
    data: memoryview
    entries: list[tuple[int, BatchHeader]]
    next_offset: int


class Fetcher:
    """Fetches one partition; an answer may be under way while another is looked at."""

    def __init__(self, cluster: Cluster, partition: Partition) -> None:
        """Nothing is asked yet."""
        self._cluster = cluster
        self._partition = partition
        self._ahead: tuple[int, Connection] | None = None

    def fetch(self, offset: int, max_bytes: int) -> PartitionData:
        """Return what a broker has from an offset on; its error code is none that may pass."""
        what = f"{self._partition}@{offset}"
        return self._cluster.retried(what, lambda: self._fetched(offset, max_bytes))

    def ask_ahead(self, offset: int, max_bytes: int) -> None:
        """Ask for what `fetch` will be asked next."""
        with suppress(ConnectionLost, Passing):  # `fetch` will try again
            self._ahead = offset, self._sent(offset, max_bytes)

    def _fetched(self, offset: int, max_bytes: int) -> PartitionData:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == offset:
            connection = ahead[1]
        else:
            connection = self._sent(offset, max_bytes)
        answer = connection.receive()
        check(answer.error_code, str(self._partition))
        found: PartitionData = answer.responses[0].partitions[0]
        if found.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            check(found.error_code, f"{self._partition}@{offset}")
        return found

    def _sent(self, offset: int, max_bytes: int) -> Connection:
        topic, partition, topic_id = self._partition
        connection = self._cluster.leader(topic, partition)
        now = self._cluster.known_id(topic)
        if now != topic_id:
            raise PipelineError(
                f"{self._partition}: the topic was deleted and made anew while it was read; read again"
            )
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        by_name = topic_id == ZERO_UUID or connection.version(FETCH) <= _BY_NAME
        named: dict[str, Any] = {"topic": topic} if by_name else {"topic_id": topic_id}
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(partitions=[wanted], **named)],
        )
        connection.send(FETCH, request, _BY_NAME if by_name else None)
        return connection


def fetched(
    cluster: Cluster,
    partition: Partition,
    start: int,
    end: int,
    limit: int,
    record_bytes: int,
    may_lose: bool,
) -> Iterator[Fetched]:
    """Yield the entries that have the records of a range of offsets, which is not empty and was there when planned.

    If `limit` is larger than `end`, go on up to it until the log has nothing more. PipelineError where some of the
    range are not there any more, but if `may_lose` those that are left.
    """
    fetcher = Fetcher(cluster, partition)
    offset, idle = start, 0
    planned, most = end, end + max(end - start, _MOST_FURTHER)
    while offset < end:
        found = fetcher.fetch(offset, _bytes_for(end - offset, record_bytes))
        if found.error_code:
            asked, offset = offset, _after_loss(partition, cluster, offset, end, may_lose)
            idle = idle + 1 if offset == asked else 0
            if idle >= _IDLE:
                raise PipelineError(
                    f"{partition}@{offset}: the broker answers OFFSET_OUT_OF_RANGE, though its log is to have it"
                )
            if idle:
                time.sleep(_WAIT_MS / 1000)
            continue
        data = memoryview(found.records or b"")  # type: ignore[arg-type]
        whole = whole_entries(partition, data, offset)
        if whole.next_offset == offset:
            idle += 1
            _demand_more(partition, found, data, offset, end, idle)
            continue
        offset, idle = whole.next_offset, 0
        end = max(end, min(limit, found.high_watermark))
        if end > most:
            raise PipelineError(
                f"{partition}@{offset}: the topic grows faster than it is read: it ended at {planned:,} when the read "
                f"was planned, and ends at {end:,} now; read its segments instead (source=segments:FOLDER), or less "
                "of it (option partitions)"
            )
        if offset < end:
            fetcher.ask_ahead(offset, _bytes_for(end - offset, record_bytes))
        yield whole


def _bytes_for(count: int, record_bytes: int) -> int:
    """Return how much to fetch for so many records: a tenth more than they should take."""
    return max(LEAST_BYTES, min(count * record_bytes * 11 // 10, MOST_BYTES))


def whole_entries(partition: Partition, data: memoryview, offset: int) -> Fetched:
    """Find the entries that are whole; the last one may be cut off, as Kafka's protocol allows."""
    found: list[tuple[int, BatchHeader]] = []
    at, next_offset = 0, offset
    while len(data) - at >= entries.BYTES_MIN:
        try:
            header = entries.peek(data, at)
        except CorruptBatch:
            break  # not even its header is all there
        if header.size_bytes < entries.BYTES_MIN:
            raise PipelineError(
                f"{partition}@{next_offset}: the broker sent an entry of {header.size_bytes} bytes, which none can have"
            )
        if header.size_bytes > len(data) - at:
            break
        if header.magic in MAGICS and header.last_offset < next_offset:
            header = header._replace(
                last_offset_delta=entries.read(data, at, 1 << 30).last_offset - header.base_offset
            )
        found.append((at, header))
        next_offset = max(next_offset, header.last_offset + 1)
        at += header.size_bytes
    return Fetched(offset, data, found, next_offset)


def _after_loss(partition: Partition, cluster: Cluster, offset: int, end: int, may_lose: bool) -> int:
    """Return the offset to go on with where one is not there any more."""
    topic, number, _ = partition
    log_start = cluster.offsets(topic, {number: EARLIEST})[number]
    if offset < log_start:
        if may_lose:
            return log_start
        raise PipelineError(
            f"{partition}@{offset}: retention has deleted offsets {offset} to {min(log_start, end) - 1} since the read "
            f"was planned; read again, or go on without them with failOnDataLoss=false"
        )
    log_end = cluster.offsets(topic, {number: LATEST})[number]
    if offset < log_end:
        return offset  # It is there after all: whoever was asked was no good leader, or is one only now.
    if may_lose:
        return end
    raise PipelineError(
        f"{partition}@{offset}: the log ends at {log_end} now, and was to be read to {end}: the broker has lost "
        f"records, or the topic was made anew; read again, or go on without them with failOnDataLoss=false"
    )


def _demand_more(
    partition: Partition, found: PartitionData, data: memoryview, offset: int, end: int, idle: int
) -> None:
    """PipelineError where nothing comes though there should be something."""
    if len(data):
        raise PipelineError(
            f"{partition}@{offset}: the broker sent {len(data)} bytes, and no entry in them is whole"
        )
    if idle >= _IDLE:
        raise PipelineError(
            f"{partition}@{offset}: the broker sends nothing, though its log is to reach {end} "
            f"(its high watermark is {found.high_watermark}); is a replica of it missing?"
        )
