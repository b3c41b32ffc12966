"""Fetch.

Versions: 0-18 (13 and later name topics by id).
Behaviour: responds at once if `min_bytes` are available, if a partition has an error, or if there is nothing to wait
for. Otherwise it waits until the partitions have grown by the missing bytes, or for `max_wait_ms`. If the broker stops,
the remaining partitions get NOT_LEADER_OR_FOLLOWER, and clients retry.

Batches are sent as they are in the log, so a response may have batches of several message formats. That happens after a
change of `message.format.version`, and in compacted topics of an older format, where a segment may end with an empty
batch of format v2. The compiled modules of aiokafka (0.14) cannot read such a response; with `AIOKAFKA_NO_EXTENSIONS=1`
in its environment, aiokafka does not use them. A fetch from the middle of a batch gets the whole batch. The first batch
of a response is always complete, whatever its size. Beyond 64 KiB, the broker reads records while the client receives
the response. A reader thread reads records that are not in memory or take long to find, so a consumer of old records
does not delay producers. If a request names a partition several times, the last entry counts, as in Kafka.

In a session (KIP-227, version 7 and later, `broker/fetch_sessions.py`), the response has only partitions with changes.

Versions below 10 do not know zstd: a topic with `compression.type=zstd` gets an error, but zstd batches that producers
sent to other topics are sent as they are. Versions below 4 get records in their own format, v0 or v1. A reader thread
converts newer formats, at most 1 MiB for a response. Each response begins with another partition, because such clients
may list their partitions in the same order each time. Zstd batches cannot be converted and get an error.
Departures from Kafka: sessions are also bounded in bytes and partitions. Beyond that a session ends, and the client
continues with full fetches. There are no followers, so no session has priority. Transactions are not supported yet:
from a log that Kafka wrote, `read_committed` also returns the records of aborted and open transactions, and lists none
as aborted. `tidelog import` and the start of the broker warn of such a log.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final, TypeVar
from zlib import crc32

from tidelog.broker.answers import AT_ONCE_BYTES, MAX_UNSENT_BYTES
from tidelog.broker.broker import Broker
from tidelog.broker.codes import error_code
from tidelog.broker.fetch_sessions import FINAL_EPOCH, FIRST_EPOCH, InSession, Opening
from tidelog.broker.partition import Partition
from tidelog.broker.session import Session
from tidelog.broker.topics import Topic, missing
from tidelog.broker.waiting import PARKED_WEIGHT_BYTES, FetchWaiter
from tidelog.broker.work import (
    LONG,
    LOOP,
    SHORT,
    SOURCES,
    Coro,
    Lane,
    MemoryInUse,
    Stopping,
    anywhere,
    in_first_lane,
    loop,
    maybe_await,
    next_to_answer,
    reader,
)
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage import converted
from tidelog.storage.errors import NotInMemory, StorageError, TakesLong
from tidelog.storage.files import FileSlice
from tidelog.storage.log import READ_COMMITTED

T = TypeVar("T")

# After this time a fetch with some records converts no more. To find the next offset of a partition, it may have to
# decompress up to max.decompressed.bytes.
CONVERTS_S: Final = 1.0

IDS_SINCE: Final = 13  # the first version that names topics by id
BATCHES_SINCE: Final = 4  # the first version whose clients know record batches
V1_SINCE: Final = 2  # the first version whose clients know messages with timestamps
# The most bytes converted for one answer, or one entry. They are held until the answer has left.
CONVERTED_BYTES_MAX: Final = 1 << 20
# The approximate memory of a fetch while it converts: these bytes, as much again as they grow, and pieces of the log.
CONVERTING_BYTES: Final = 3 << 20
ZSTD_SINCE: Final = 10  # the first version whose clients may know the codec
EMPTY: Final = b""
NO_ERROR: Final = int(ErrorCode.NONE)
# The number of partitions in one step, usually 2 to 4 us each, some tenths of a millisecond at most.
STEP_PARTITIONS: Final = 8
# The approximate memory of each partition of a parked fetch.
WANTED_BYTES: Final = 512


def keep_needed(request: FetchRequest, version: int) -> FetchRequest:
    """Drop the parts of a request that are not needed. The rest may be kept for long, while the fetch waits."""
    request.rack_id, request.cluster_id = "", None
    if request.session_epoch <= FIRST_EPOCH:
        request.forgotten_topics_data = []
    topics = request.topics
    if len(topics) > 1 or (topics and len(topics[0].partitions) != 1):
        by_id = version >= IDS_SINCE
        wanted: dict[str | bytes, tuple[FetchTopic, dict[int, FetchPartition]]] = {}
        for topic in topics:
            if topic.partitions:
                _, partitions = wanted.setdefault(topic.topic_id if by_id else topic.topic, (topic, {}))
                for each in topic.partitions:
                    partitions[each.partition] = each
        for topic, partitions in wanted.values():
            topic.partitions = list(partitions.values())
        request.topics = [topic for topic, _ in wanted.values()]
    return request


def handle(session: Session, request: FetchRequest, version: int) -> FetchResponse | Coro[FetchResponse]:
    """Answer now, or wait for more."""
    broker = session.broker
    asked: InSession | Opening | None = None
    if request.session_epoch != FINAL_EPOCH or request.session_id:
        found = _in_session(session, request, version)
        if isinstance(found, ErrorCode):
            return FetchResponse(error_code=found, responses=[])
        asked = found
    elif version < BATCHES_SINCE:
        _rotate(request)
    fetch = _Fetch(broker, request, version, asked)
    is_looked_at = fetch.looks_at_once()
    if is_looked_at and fetch.is_enough and fetch.is_in_memory():
        return fetch.answer()
    return _answer(fetch, is_looked_at)


async def _answer(fetch: "_Fetch", is_looked_at: bool) -> FetchResponse:
    """Look at all partitions, unless that is done. Answer, or wait for more records and then answer."""
    while not is_looked_at:
        await fetch.look()
        if fetch.is_enough:
            break
        await loop()
        is_looked_at = not fetch.has_more  # A waiter would not notice records that came while it looked.
        if not is_looked_at:
            fetch = fetch.again()
    if fetch.is_enough:
        return await fetch.load()
    await fetch.park()
    # Records are read only when all earlier answers have left.
    await next_to_answer()
    if fetch.has_no_news:
        return await maybe_await(fetch.answer())
    fetch = fetch.again()
    await fetch.look()
    return await fetch.load()


def _in_session(
    session: Session, request: FetchRequest, version: int
) -> InSession | Opening | ErrorCode | None:
    """Return the request's part in a session; None if it has only closed one."""
    sessions = session.broker.fetch_sessions
    by_id = version >= IDS_SINCE
    if request.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
        sessions.close(request.session_id)
        if request.session_epoch == FINAL_EPOCH:
            return None
        return Opening(sessions, session.address, request, by_id)
    resumed = sessions.resume(request, by_id)
    if isinstance(resumed, ErrorCode):
        return resumed or None
    return InSession(sessions, resumed)


def _rotate(request: FetchRequest) -> None:
    """Rotate the topics and partitions, so that the first ones do not always use up the bytes of the answer.

    The rotation is a hash of the offsets, so it changes as the reader advances, and equal requests get equal answers.
    """
    offsets = sum(want.fetch_offset for topic in request.topics for want in topic.partitions)
    rotation = crc32(b"%d" % offsets)
    request.topics = _rotated(request.topics, rotation)
    for topic in request.topics:
        topic.partitions = _rotated(topic.partitions, rotation // (len(request.topics) or 1))


def _rotated(items: list[T], rotation: int) -> list[T]:
    start = rotation % (len(items) or 1)
    return items[start:] + items[:start]


class _Converting:
    """The conversions for one fetch, on the reader thread of the lane LONG."""

    def __init__(self, held: MemoryInUse) -> None:
        """Start the clock. `held` counts the memory until `end`."""
        self._held = held
        self._holds_bytes = 0
        self._ends_s = monotonic() + CONVERTS_S

    @property
    def is_time_over(self) -> bool:
        """Whether a fetch with some records should convert no more."""
        return monotonic() > self._ends_s

    async def run(self, steps: Iterator[bytearray | FileSlice]) -> bytearray | FileSlice:
        """Return the converted records. If the broker stops, return those made by then, or raise if there are none."""
        if not self._holds_bytes:
            self._holds_bytes = CONVERTING_BYTES
            self._held.total_bytes += CONVERTING_BYTES
        data = bytearray()
        records: bytearray | FileSlice = data
        try:
            for made in steps:
                if isinstance(made, FileSlice):
                    records = made
                else:
                    data += made
                if not self._held.is_full:
                    await reader(LONG)
        except Stopping:
            if not records:
                raise
        return records

    def end(self) -> None:
        """Release the memory."""
        self._held.total_bytes -= self._holds_bytes


class _Fetch:
    """One pass over the partitions of a fetch, and its results.

    The results are slices of files. `load` reads them, unless they have many bytes: then they are read while they are
    sent.
    """

    __slots__ = (
        "_asked",
        "_broker",
        "_failed",
        "_left_bytes",
        "_pieces",
        "_request",
        "_size_bytes",
        "_topics",
        "_version",
    )

    def __init__(
        self, broker: Broker, request: FetchRequest, version: int, asked: InSession | Opening | None = None
    ) -> None:
        """Begin a pass. `asked` is the request's part in a session. Event loop."""
        if asked is not None:
            asked.wanted(request)
        self._broker = broker
        self._request = request
        self._version = version
        self._asked = asked
        self._left_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        if version < BATCHES_SINCE:
            self._left_bytes = min(self._left_bytes, CONVERTED_BYTES_MAX)
        self._topics: list[FetchableTopicResponse] = []
        # For each partition read: the end of its readable records before the read, and its answer.
        self._pieces: list[tuple[Partition, int, PartitionData]] = []
        self._size_bytes = 0
        self._failed = False

    def again(self) -> "_Fetch":
        """Begin another pass for the same request."""
        return _Fetch(self._broker, self._request, self._version, self._asked)

    def looks_at_once(self) -> bool:
        """Look at the partition of a request that has one at most; return false if that takes long, or the disk."""
        topics = self._request.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1 or self._version < BATCHES_SINCE:
            return not topics
        wanted = topics[0]
        topic = self._broker.topics.served(wanted.topic, wanted.topic_id, self._version >= IDS_SINCE)
        try:
            answer = self._look_at(topic, wanted.partitions[0], LOOP)
        except (NotInMemory, TakesLong):
            return False
        self._topics = [
            FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[answer])
        ]
        return True

    async def look(self) -> None:
        """Look at each partition of the request."""
        converting = _Converting(self._broker.held) if self._version < BATCHES_SINCE else None
        try:
            await self._look(converting)
        finally:
            if converting is not None:
                converting.end()

    async def _look(self, converting: "_Converting | None") -> None:
        count = 0
        for wanted in self._request.topics:
            topic = self._broker.topics.served(wanted.topic, wanted.topic_id, self._version >= IDS_SINCE)
            answers = []
            for want in wanted.partitions:
                try:
                    if count % STEP_PARTITIONS == 0:
                        lane = await anywhere()
                    count += 1
                    answer, lane = await in_first_lane(partial(self._look_at, topic, want), lane)
                    if converting is not None and self._was_read(answer, want.fetch_offset):
                        if lane is not LONG:
                            lane = await reader(LONG)
                        answer = await self._convert(answer, want, converting)
                except Stopping:
                    partition = topic.partition(want.partition) if topic else None
                    answer = self._failure(want.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, partition)
                answers.append(answer)
            self._topics.append(
                FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=answers)
            )

    def _look_at(self, topic: Topic | None, want: FetchPartition, lane: Lane) -> PartitionData:
        """Look at one partition. Raise NotInMemory or TakesLong if it cannot be done in this lane."""
        version = self._version
        partition = topic.partition(want.partition) if topic else None
        if partition is None or topic is None:
            return self._failure(want.partition, missing(topic, version >= IDS_SINCE))
        if version < ZSTD_SINCE and topic.config.compression_type == "zstd":
            return self._failure(want.partition, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, partition)
        if want.current_leader_epoch >= 0 and (problem := partition.epoch_problem(want.current_leader_epoch)):
            return self._failure(want.partition, problem)
        return self._read(partition, want, lane)

    def _read(self, partition: Partition, want: FetchPartition, lane: Lane) -> PartitionData:
        log = partition.log
        level = self._request.isolation_level
        answer = PartitionData(
            partition_index=want.partition,
            error_code=NO_ERROR,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if level == READ_COMMITTED else None,
            records=EMPTY,
        )
        if want.last_fetched_epoch >= 0 and log.unopened is None:
            epoch, end_offset = log.epochs.end_of(want.last_fetched_epoch, log.log_end_offset)
            if epoch < 0:
                return self._failure(want.partition, ErrorCode.OFFSET_OUT_OF_RANGE, partition)
            if epoch != want.last_fetched_epoch or end_offset < want.fetch_offset:
                # KIP-595: the records that the reader last saw are not in this log. It must truncate to this offset.
                answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                self._failed = True
                return answer
        end = log.readable_end(level)
        most_bytes, left_bytes = want.partition_max_bytes, self._left_bytes
        if most_bytes > left_bytes:
            most_bytes = left_bytes
        try:
            records = log.read(want.fetch_offset, most_bytes, not self._size_bytes, SOURCES[lane])
        except (StorageError, RecordsError) as error:
            return self._failure(want.partition, error_code(error), partition)
        length = records.length
        if length:
            answer.records = records
            self._size_bytes += length
            # Negative if the first batch is larger than the whole limit.
            self._left_bytes = left_bytes - length
        self._pieces.append((partition, end, answer))
        return answer

    def _was_read(self, answer: PartitionData, offset: int) -> bool:
        """Whether the last partition has records from an offset on, even if the limits leave out all of them.

        After conversion some may fit, because an older format can contain a part of a batch.
        """
        return bool(self._pieces) and self._pieces[-1][2] is answer and offset < self._pieces[-1][1]

    async def _convert(
        self, answer: PartitionData, want: FetchPartition, converting: "_Converting"
    ) -> PartitionData:
        """Convert the records of the last partition to an older format."""
        log, length = self._pieces[-1][0].log, len(answer.records or EMPTY)
        answer.records = EMPTY
        self._size_bytes -= length
        self._left_bytes += length
        most_bytes = min(want.partition_max_bytes, self._left_bytes)
        if self._size_bytes and (most_bytes <= 0 or converting.is_time_over):
            return answer
        magic = 1 if self._version >= V1_SINCE else 0
        steps = converted.steps(log, want.fetch_offset, magic, most_bytes, not self._size_bytes)
        try:
            answer.records = records = await converting.run(steps)
        except (StorageError, RecordsError) as error:
            return self._failure(want.partition, error_code(error), self._pieces[-1][0])
        self._size_bytes += len(records)
        self._left_bytes -= len(records)
        return answer

    def _failure(self, index: int, code: ErrorCode, partition: Partition | None = None) -> PartitionData:
        self._failed = True
        log = partition.log if partition else None
        return PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=log.high_watermark if log else -1,
            last_stable_offset=log.last_stable_offset if log else -1,
            log_start_offset=log.log_start_offset if log else -1,
            aborted_transactions=[] if self._request.isolation_level == READ_COMMITTED else None,
            records=EMPTY,
        )

    @property
    def is_enough(self) -> bool:
        """Whether the fetch can be answered: it has `min_bytes`, an error, or nothing to wait for."""
        request, asked = self._request, self._asked
        return (
            self._size_bytes >= request.min_bytes
            or self._failed
            or request.max_wait_ms <= 0
            or not (self._pieces or self.has_no_news or (asked is not None and asked.size))
        )

    @property
    def has_no_news(self) -> bool:
        """Whether this is a request in a session, and none of its partitions has news."""
        return self._asked is not None and not self._asked.news

    @property
    def has_more(self) -> bool:
        """Whether a log has grown since it was read."""
        level = self._request.isolation_level
        return any(partition.log.readable_end(level) != end for partition, end, _ in self._pieces) or (
            self._asked is not None and self._asked.has_grown
        )

    def park(self) -> FetchWaiter:
        """Drop the results and wait for more records."""
        request, asked = self._request, self._asked
        places = [partition.waiters for partition, _, _ in self._pieces]
        self._pieces, self._topics = [], []
        weight_bytes = PARKED_WEIGHT_BYTES
        if len(places) > 1:
            # Bounded, so the connection still reads requests: otherwise it would not notice that its client leaves.
            weight_bytes = min(WANTED_BYTES * len(places), MAX_UNSENT_BYTES // 2)
        size = 0 if asked is None else asked.size
        missing_bytes = request.min_bytes - self._size_bytes
        parked = self._broker.parked
        waiter = FetchWaiter(parked, places, missing_bytes, request.max_wait_ms, True, weight_bytes, size)
        if asked is not None:
            asked.wait(waiter)
        return waiter

    def is_in_memory(self) -> bool:
        """Read the slices, unless they have many bytes; return false if one of them is not in memory."""
        if self._size_bytes <= AT_ONCE_BYTES:
            for _, _, answer in self._pieces:
                records = answer.records
                if isinstance(records, FileSlice):
                    data = records.read_nowait()
                    if data is None:
                        return False
                    answer.records = data
        return True

    async def load(self) -> FetchResponse:
        """Read the slices, on a reader thread if they are not in memory; return the response."""
        is_cold = True
        with suppress(Stopping):
            if await anywhere() is LOOP:
                is_cold = not self.is_in_memory()
                if is_cold:
                    await reader(SHORT)
        if is_cold:
            self._read_cold()
        if self._asked is not None:
            await loop()
        return await maybe_await(self.answer())

    def _read_cold(self) -> None:
        if self._size_bytes <= AT_ONCE_BYTES:
            for _, _, answer in self._pieces:
                if isinstance(answer.records, FileSlice):
                    try:
                        answer.records = answer.records.read()
                    except StorageError as error:
                        answer.records, answer.error_code = EMPTY, error_code(error)

    def answer(self) -> FetchResponse | Coro[FetchResponse]:
        """Return the response, after `load` or `is_in_memory`. Event loop."""
        if self._asked is not None:
            return self._asked.answer(self._topics)
        return FetchResponse(responses=self._topics)
