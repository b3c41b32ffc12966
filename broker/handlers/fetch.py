"""Fetch.

Versions: 0-18 (13 and later name topics by id).
Behaviour: answers at once when there are `min_bytes`, an error, or nothing to wait for; otherwise the fetch
is parked until its partitions have grown by what is missing, or `max_wait_ms` is over. Records leave as
they lie in the log: a fetch into the middle of a batch gets the whole batch, and the first batch of a
response is always whole, however large. Records beyond 64 KiB are read while the client takes its answer. What is
not in memory is read by a reader thread, so a consumer of old records does not hold up the producers; so is what takes
long to find. What was not looked at when the broker stops is answered NOT_LEADER_OR_FOLLOWER, and clients ask again. A
topic that is kept as zstd is refused below version 10, whose clients know no such codec; what producers sent as zstd
leaves as it is.
Below version 4 records leave in the format that clients of that version know, v0 or v1: what is newer is converted, on
a reader thread, 1 MiB at most for an answer. Such clients may name their partitions in the same order each time, so
another comes first as they read on. zstd, which these formats do not have, is refused.
Of a partition that is named again the last entry counts, and there is one answer, as in Kafka, whose requests are maps.
Sessions (KIP-227, version 7 and later) are those of `fetch_sessions`: each request in one becomes a list of partitions
to look at, and what was found an answer that holds only what is new.
Departures from Kafka: a session is bounded in bytes too, and in partitions, beyond which it ends and its client goes on
with full fetches; nobody is a follower, whose sessions would go before others. Transactions are not built yet: of a log
that Kafka wrote, `read_committed` gives the records of aborted and open transactions, too, and lists none as aborted.
The import and the start of the broker warn of such a log.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TypeVar
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

# After that time a fetch that has something to answer converts no more: to come to where another partition is read on,
# up to max.decompressed.bytes may have to be stepped over.
CONVERTS_S = 1.0

IDS_SINCE = 13  # the version from which topics are named by id
BATCHES_SINCE = 4  # the version from which a consumer knows batches
V1_SINCE = 2  # the version from which it knows messages with timestamps
CONVERTED_BYTES_MAX = (
    1 << 20
)  # what is converted for one answer, or one entry: it is held until the answer has left
# What a fetch that converts holds meanwhile, about: that, as much again where it grew, and pieces of the log.
CONVERTING_BYTES = 3 << 20
ZSTD_SINCE = 10  # the version from which a consumer may know that codec
EMPTY = b""
NO_ERROR = int(ErrorCode.NONE)
# Partitions, 2 to 4 us each, and some tenths of a millisecond at most, that are looked through in one step.
STEP_PARTITIONS = 8
# What a parked fetch holds for each.
WANTED_BYTES = 512


def keep_needed(request: FetchRequest, version: int) -> FetchRequest:
    """Drop from a request what no answer depends on: it may be kept for long, while the fetch waits."""
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
        _turn(request)
    fetch = _Fetch(broker, request, version, asked)
    is_looked_at = fetch.looks_at_once()
    if is_looked_at and fetch.is_enough and fetch.is_in_memory():
        return fetch.answer()
    return _answer(fetch, is_looked_at)


async def _answer(fetch: "_Fetch", is_looked_at: bool) -> FetchResponse:
    """Look at all partitions unless that is done; answer what they have, or wait for more and answer that."""
    while not is_looked_at:
        await fetch.look()
        if fetch.is_enough:
            break
        await loop()
        is_looked_at = not fetch.has_more  # since: a waiter would not be told of that
        if not is_looked_at:
            fetch = fetch.again()
    if fetch.is_enough:
        return await fetch.load()
    await fetch.park()
    # What there is then is read when the answers before it have left.
    await next_to_answer()
    if fetch.has_no_news:
        return await maybe_await(fetch.answer())
    fetch = fetch.again()
    await fetch.look()
    return await fetch.load()


def _in_session(
    session: Session, request: FetchRequest, version: int
) -> InSession | Opening | ErrorCode | None:
    """Return what a request asks of a session: None where that was to close it."""
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


def _turn(request: FetchRequest) -> None:
    """Begin with any partition of any topic: where the first always have more to give, the others come too.

    Which it is depends on how far the reader has come, as by chance, so that the same request has the same answer.
    """
    come = sum(want.fetch_offset for topic in request.topics for want in topic.partitions)
    chance = crc32(b"%d" % come)
    request.topics = _turned(request.topics, chance)
    for topic in request.topics:
        topic.partitions = _turned(topic.partitions, chance // (len(request.topics) or 1))


def _turned(items: list[T], chance: int) -> list[T]:
    start = chance % (len(items) or 1)
    return items[start:] + items[:start]


class _Converting:
    """The conversions for one fetch. The reader thread of the lane LONG."""

    def __init__(self, held: MemoryInUse) -> None:
        """Begin; `held` counts what is held meanwhile."""
        self._held = held
        self._holds_bytes = 0
        self._ends_s = monotonic() + CONVERTS_S

    @property
    def is_time_over(self) -> bool:
        """Whether a fetch that has something to answer is to convert no more."""
        return monotonic() > self._ends_s

    async def run(self, steps: Iterator[bytearray | FileSlice]) -> bytearray | FileSlice:
        """Return the records that the steps make; where the broker stops, those made by then, if any."""
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
        """Hold nothing any more."""
        self._held.total_bytes -= self._holds_bytes


class _Fetch:
    """One pass over the partitions of a fetch: what it found, which makes its response.

    What it found are slices, which `load` has read unless they are many bytes: those are read when they are sent.
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
        """Begin a pass; `asked` says what is looked at in a session, and what becomes of it. Event loop."""
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
        # Of each partition that was read: the end of what could be, before it was, and the answer for it.
        self._pieces: list[tuple[Partition, int, PartitionData]] = []
        self._size_bytes = 0
        self._failed = False

    def again(self) -> "_Fetch":
        """Begin another pass for the same request."""
        return _Fetch(self._broker, self._request, self._version, self._asked)

    def looks_at_once(self) -> bool:
        """Look at one partition at most, if that takes neither the disk nor long; tell whether it was done."""
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
        """Look at one partition. Raise NotInMemory or TakesLong for what is not done in that lane."""
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
                # KIP-595: what the reader last saw is not in this log; it must cut back to here.
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
            # Below 0 where the first batch is larger than all that was asked for.
            self._left_bytes = left_bytes - length
        self._pieces.append((partition, end, answer))
        return answer

    def _was_read(self, answer: PartitionData, offset: int) -> bool:
        """Whether the last partition has records from an offset on, though the limits may leave out all of them.

        Converted, they may be fewer bytes: an older format can hold a part of a batch.
        """
        return bool(self._pieces) and self._pieces[-1][2] is answer and offset < self._pieces[-1][1]

    async def _convert(
        self, answer: PartitionData, want: FetchPartition, converting: "_Converting"
    ) -> PartitionData:
        """Put the records of the last partition into its answer in an older format."""
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
        """Whether there is something to answer, or nothing to wait for."""
        request, asked = self._request, self._asked
        return (
            self._size_bytes >= request.min_bytes
            or self._failed
            or request.max_wait_ms <= 0
            or not (self._pieces or self.has_no_news or (asked is not None and asked.size))
        )

    @property
    def has_no_news(self) -> bool:
        """Whether this is a request in a session none of whose partitions has anything new."""
        return self._asked is not None and not self._asked.news

    @property
    def has_more(self) -> bool:
        """Whether a log has grown since it was read."""
        level = self._request.isolation_level
        return any(partition.log.readable_end(level) != end for partition, end, _ in self._pieces) or (
            self._asked is not None and self._asked.has_grown
        )

    def park(self) -> FetchWaiter:
        """Wait for more than was found; what was found is let go of."""
        request, asked = self._request, self._asked
        places = [partition.waiters for partition, _, _ in self._pieces]
        self._pieces, self._topics = [], []
        weight_bytes = PARKED_WEIGHT_BYTES
        if len(places) > 1:
            # The largest leaves room for another request: a connection that takes none does not see its client leave.
            weight_bytes = min(WANTED_BYTES * len(places), MAX_UNSENT_BYTES // 2)
        size = 0 if asked is None else asked.size
        missing_bytes = request.min_bytes - self._size_bytes
        parked = self._broker.parked
        waiter = FetchWaiter(parked, places, missing_bytes, request.max_wait_ms, True, weight_bytes, size)
        if asked is not None:
            asked.wait(waiter)
        return waiter

    def is_in_memory(self) -> bool:
        """Read the bytes of the slices, unless they are many; tell whether none of them has to come from the disk."""
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
        """Return the response with the bytes of its slices; what is not in memory is read by a reader thread."""
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
        """Return the response, once its bytes are in memory. Event loop."""
        if self._asked is not None:
            return self._asked.answer(self._topics)
        return FetchResponse(responses=self._topics)
