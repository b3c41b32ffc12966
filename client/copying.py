"""Copies the records of a partition to the same partition of another cluster.

Records keep their order, times, keys, values and headers. Batches are sent as they came where that is possible. Control
batches and records of aborted transactions are left out, so the copied records have consecutive offsets at the target.
The k-th record that is read from a known place is therefore the k-th at the target: that is how `resume` finds where to
continue, and it compares the records to be sure.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tidelog.client.cluster import Cluster, Partition, check
from tidelog.client.errors import BrokerError, ClientError
from tidelog.client.fetching import MOST_BYTES, Fetcher, demand_more, read_entry, whole_entries
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import CODEC_MASK, HEADER_BYTES, MAGIC, BatchHeader
from tidelog.protocol.records.build import Record, build_batch, read_records, signed
from tidelog.protocol.records.errors import RecordError, RecordsError

# A batch of this size or with so many records is sent as it came; smaller ones are collected into larger ones.
AS_IT_CAME_BYTES: Final = 8 << 10
AS_IT_CAME_RECORDS: Final = 100
BATCH_BYTES: Final = 256 << 10
_RECORD_OVERHEAD_BYTES: Final = 40
READ_COMMITTED: Final = 1
_ALL_REPLICAS: Final = -1
_ANSWER_MS: Final = 20_000
_BY_NAME: Final = 12  # the last version of Produce that names topics
_SEQUENCES: Final = 1 << 31
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class Foreign(ClientError):
    """The target has records that are not copies of those of the source."""


class Place(NamedTuple):
    """How far a partition is copied: the next offsets of source and target.

    From `since` on, the offsets of the source have no gaps.
    """

    source: int
    target: int
    since: int


class Entry(NamedTuple):
    """An entry of committed records, alone in `data`, of which those from offset `start` on are wanted."""

    header: BatchHeader
    data: memoryview
    start: int

    def records(self) -> Iterator[Record]:
        """Yield the wanted records."""
        return (each for each in read_entry(self.data, 0, self.header) if each.offset >= self.start)


def read_committed(cluster: Cluster, partition: Partition, start: int, end: int) -> Iterator[Entry]:
    """Yield the entries between two offsets; ClientError if they are damaged or deleted."""
    fetcher = Fetcher(cluster, partition, READ_COMMITTED)
    offset, idle = start, 0
    try:
        while offset < end:
            found = fetcher.fetch(offset, MOST_BYTES)
            if found.error_code:
                raise ClientError(f"{partition}@{offset}: the records were deleted while they were copied")
            whole = whole_entries(partition, memoryview(found.records or b""), offset)  # type: ignore[arg-type]
            if whole.next_offset == offset:
                idle += 1
                demand_more(partition, found, whole.data, offset, end, idle)
                continue
            offset, idle = whole.next_offset, 0
            if offset < end:
                fetcher.ask_ahead(offset, MOST_BYTES)
            aborted = [(each.first_offset, each.producer_id) for each in found.aborted_transactions or ()]
            for at, header in _without_aborted(whole.entries, aborted):
                if header.base_offset >= end:
                    return
                if not entries.check_crc(whole.data, at, header):
                    raise ClientError(f"{partition}@{header.base_offset}: the records are damaged")
                yield Entry(header, whole.data[at : at + header.size_bytes], start)
    finally:
        if offset < end:
            cluster.forget()  # a request may be unanswered


def _without_aborted(
    found: Sequence[tuple[int, BatchHeader]], aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the entries without control batches and aborted transactions (their first offset and producer id)."""
    waiting, aborting = deque(sorted(aborted)), set()
    for at, header in found:
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.popleft()[1])
        if header.is_control:
            aborting.discard(header.producer_id)
        elif header.record_count and not (header.is_transactional and header.producer_id in aborting):
            yield at, header


def _records(partition: Partition, found: Iterator[Entry]) -> Iterator[Record]:
    for entry in found:
        try:
            yield from entry.records()
        except (RecordError, RecordsError) as error:
            raise ClientError(f"{partition}@{entry.header.base_offset}: {error}") from error


def resume(
    source: Callable[[int], Iterator[Entry]],
    target: Cluster,
    partition: Partition,
    first: int,
    known: Place | None,
) -> Place:
    """Return the place after the records that the target has; Foreign if one of them is not from the source.

    `source` yields the entries of the source from an offset on, `first` is its first offset, and `known` a place that
    an earlier copy has reached.
    """
    began = list_offsets(target, {partition: EARLIEST})[partition].offset
    end = list_offsets(target, {partition: LATEST})[partition].offset
    place = known if known is not None and known.target <= end else Place(first, 0, first)
    if place.target == end:
        return place
    begin = max(began, place.target)
    if begin == end and known is None:
        raise Foreign(f"{partition}: the target had records, which are deleted; where to continue is unknown")
    read = _records(partition, source(place.source))
    since, difference, offset, at = place.since, place.source - place.target, place.source, place.target

    def copied_as(wanted: int) -> Record | None:
        nonlocal since, difference, offset, at
        for record in read:
            if record.offset - at != difference:
                difference, since = record.offset - at, record.offset
            offset, at = record.offset + 1, at + 1
            if at > wanted:
                return record
        return None

    for there in _records(partition, read_committed(target, partition, begin, end)):
        ours = copied_as(there.offset)
        if ours is None or _content(ours) != _content(there):
            raise Foreign(f"{partition}: the record at offset {there.offset} is not from the source")
    if at < end and copied_as(end - 1) is None:
        raise Foreign(f"{partition}: the target has more records than the source")
    return Place(offset, end, since)


def _content(record: Record) -> tuple[object, ...]:
    return record.timestamp, record.key, record.value, record.headers


class Writer:
    """Appends entries to one partition of the target, and follows which offset each record gets.

    Each batch is appended once, also if it is sent twice.
    """

    def __init__(
        self,
        target: Cluster,
        partition: Partition,
        place: Place,
        wanted: Sequence[int],
        identity: tuple[int, int],
    ) -> None:
        """Continue at a place. `wanted` are source offsets to translate, `identity` a producer id and epoch."""
        self._target = target
        self._partition = partition
        self._identity = identity
        self._sequence = 0
        self._records: list[Record] = []
        self._size_bytes = 0
        self._codec = 0
        self._reached = place.source
        self._next = place.target
        self._difference = place.source - place.target
        self._wanted = deque(sorted(wanted))
        self.place = place
        self.translated: dict[int, int] = {}

    def add(self, entry: Entry) -> None:
        """Append an entry, now or with the next ones; ClientError."""
        header = entry.header
        is_whole = header.base_offset >= entry.start and header.record_count == header.last_offset_delta + 1
        is_plain = header.magic == MAGIC and not header.is_log_append_time
        is_large = header.size_bytes >= AS_IT_CAME_BYTES or header.record_count >= AS_IT_CAME_RECORDS
        if is_plain and is_whole and is_large:
            self.flush()
            self._follow(header.base_offset, header.record_count)
            self._append(self._signed(header, entry.data[HEADER_BYTES:]))
        else:
            try:
                self._collect(entry)
            except (RecordError, RecordsError) as error:
                raise ClientError(f"{self._partition}@{header.base_offset}: {error}") from error

    def flush(self) -> None:
        """Append what is collected; ClientError."""
        records, self._records, self._size_bytes = self._records, [], 0
        if records:
            self._append(self._built(records, self._codec))

    def finish(self, end: int) -> None:
        """Append what is collected, and note that the source is read to an offset; ClientError."""
        self.flush()
        self.place = self.place._replace(source=end)
        while self._wanted:
            self.translated[self._wanted.popleft()] = self.place.target

    def _collect(self, entry: Entry) -> None:
        if entry.header.codec != self._codec:
            self.flush()
            self._codec = entry.header.codec
        for record in entry.records():
            self._follow(record.offset, 1)
            self._records.append(
                Record(len(self._records), record.timestamp, record.key, record.value, record.headers)
            )
            self._size_bytes += _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
            for name, data in record.headers:
                self._size_bytes += len(name) + len(data or b"")
            if self._size_bytes >= BATCH_BYTES:
                self.flush()

    def _follow(self, offset: int, records: int) -> None:
        """Note that records of consecutive offsets are next."""
        at = self.place.target + len(self._records)
        if offset - at != self._difference:
            self._difference = offset - at
            self.place = self.place._replace(since=offset)
        self._reached = offset + records
        while self._wanted and self._wanted[0] < self._reached:
            wanted = self._wanted.popleft()
            self.translated[wanted] = at + max(0, wanted - offset)

    def _signed(self, header: BatchHeader, payload: memoryview) -> bytes:
        producer_id, epoch = self._identity
        mine = header._replace(
            base_offset=0,
            leader_epoch=-1,
            attributes=header.attributes & CODEC_MASK,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequence,
        )
        return bytes(signed(mine, payload))

    def _built(self, records: Sequence[Record], codec: int) -> bytes:
        producer_id, epoch = self._identity
        return build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequence,
        )

    def _append(self, data: bytes) -> None:
        self._send(data)
        self.place = Place(self._reached, self._next, self.place.since)

    def _send(self, data: bytes) -> None:
        """Send a batch, as two if it is too large."""
        what = f"{self._partition}@{self.place.source}"
        answer = self._target.retried(what, lambda: self._asked(what, data))
        header = entries.peek(data)
        if answer.error_code in _TOO_LARGE:
            if header.record_count == 1:
                raise BrokerError(what, answer.error_code, answer.error_message)
            records = list(read_records(data))
            half = len(records) // 2
            for some in (records[:half], records[half:]):
                self._send(
                    self._built([replace(each, offset=n) for n, each in enumerate(some)], header.codec)
                )
            return
        if answer.error_code == ErrorCode.NONE and answer.base_offset != self._next:
            raise Foreign(f"{self._partition}: another producer writes to the target, at offset {self._next}")
        self._sequence = (self._sequence + header.record_count) % _SEQUENCES
        self._next += header.record_count

    def _asked(self, what: str, data: bytes) -> Any:
        topic, partition, _ = self._partition
        part = PartitionProduceData(index=partition, records=memoryview(data))
        request = ProduceRequest(
            transactional_id=None,
            acks=_ALL_REPLICAS,
            timeout_ms=_ANSWER_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[part])],
        )
        answer = self._target.leader(topic, partition).ask(PRODUCE, request, _BY_NAME)
        found = answer.responses[0].partition_responses[0]
        if found.error_code not in (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, *_TOO_LARGE):
            check(found.error_code, what, found.error_message)
        return found
