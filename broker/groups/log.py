"""The topic `__consumer_offsets`: how groups and offsets are written to it and read from it, in Kafka's formats.

Owns the topic, which of its partitions a group is in, and when what was appended is on disk. Knows nothing of what the
records mean to a group. All records of a group are in one partition, so the last record of a key holds.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import ANSWER_BYTES, Flusher
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.partition import ACKS_ALL, Partition
from tidelog.broker.topic_rules import BrokerStops, TopicExists, TopicNamesCollide
from tidelog.broker.topics import Topic, Topics
from tidelog.broker.work import Coro, Stopping, step
from tidelog.protocol.coordinator import records
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import message_set
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader
from tidelog.protocol.records.build import Header, Record, build_batch, read_records
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.protocol.wire.errors import WireError
from tidelog.storage.errors import StorageError, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

_log = logging.getLogger(__name__)

# What a record takes beside its key and its value in any format, at most.
RECORD_BYTES: Final = 40
# The key of the record that ends a transaction says how: version, then type.
COMMIT_MARKER: Final = 1
# So many records are read in a step, some microseconds each.
READ_AT_ONCE: Final = 500
# A change of a group that is larger than a batch may be is written in this order, so that a start can complete what a
# crash has left of it: an epoch without a target gets a new one, and the assignment of a member is known before the
# member is, so that nobody else gets its partitions. That a classic group is gone comes first: Kafka's replay drops all
# that it has read of the group at that record. A kind of record is its number, and whether it has a value.
_ORDER: Final[list[tuple[int, bool] | None]] = [
    (records.GROUP, False),
    (records.CONSUMER_GROUP, True),
    None,  # tombstones, and all others
    (records.CURRENT_ASSIGNMENT, True),
    (records.TARGET_ASSIGNMENT, True),
    (records.MEMBER, True),
    (records.TARGET_EPOCH, True),
    (records.GROUP, True),
]
_PLACES: Final = {kind: place for place, kind in enumerate(_ORDER)}

Changes = dict[bytes, bytes | None]  # records by key; None is a tombstone
Stored = Callable[[ErrorCode], None]


class Entry(NamedTuple):
    """A record. A value of None is a tombstone; Kafka ignores the headers."""

    key: bytes
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


@lru_cache(64)  # a name may have 32,000 letters: some milliseconds for each of its batches
def partition_of(group_id: str, count: int) -> int:
    """Return the partition that a group is in, as Kafka does by Java's hash of a string."""
    code = 0
    encoded = group_id.encode("utf-16-be")
    for position in range(0, len(encoded), 2):
        code = (31 * code + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % count


class GroupLog:
    """Writes to the topic. Event loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        topics: Topics,
        flusher: Flusher,
        create_topic: Callable[[str, int, dict[str, str]], Coro[Topic]],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._topics = topics
        self._flusher = flusher
        self._create_topic = create_topic

    @property
    def topic(self) -> Topic | None:
        """The topic, None before its first use."""
        return self._topics.by_name.get(OFFSETS_TOPIC)

    async def create(self, maintenance: Maintenance, owner: Hashable) -> None:
        """Create the topic if it is not there. It may be missing afterwards: then nothing can be appended."""
        if self.topic is None:
            await maintenance.submit(self._create(), owner=owner)

    async def _create(self) -> None:
        with suppress(TopicExists, Stopping):
            await step()
            try:
                await self._create_topic(OFFSETS_TOPIC, *self._topics.on_first_use(OFFSETS_TOPIC))
            except (TopicNamesCollide, StorageError, BrokerStops) as error:
                _log.error("groups: %s could not be made error=%r", OFFSETS_TOPIC, str(error))

    def partition(self, group_id: str) -> Partition | None:
        """Return the partition that a group is in, None before the topic's first use."""
        topic = self.topic
        return None if topic is None else topic.partitions[partition_of(group_id, len(topic.partitions))]

    def append(self, group_id: str, entries: Sequence[Entry]) -> Partition | ErrorCode:
        """Append records of a group as one batch; return where, or why not."""
        partition = self.partition(group_id)
        if partition is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        now_ms = self._clock.now_ms()
        made = [Record(number, now_ms, *entry) for number, entry in enumerate(entries)]
        try:
            partition.append(bytearray(build_batch(made, base_offset=0)), now_ms)
        except StorageError as error:
            _log.error("groups: not written group=%r error=%r", group_id[:100], str(error))
            return ErrorCode.NOT_COORDINATOR
        except (RecordsError, TakesLong) as error:
            _log.error("groups: not written group=%r error=%r", group_id[:100], str(error))
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return partition

    def append_all(self, group_id: str, changes: Changes) -> Partition | ErrorCode:
        """Append changes of a group, of which there are some, as one batch if that is not too large.

        A batch is there as a whole after a crash, or not at all.
        """
        partition = self.partition(group_id)
        if partition is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        appended: Partition | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
        for entries in batches(changes, partition.log.prompt_bytes):
            appended = self.append(group_id, entries)
            if not isinstance(appended, Partition):
                break
        return appended

    def store(self, group_id: str, changes: Changes, done: Stored) -> None:
        """Append changes of a group; call `done` in a later turn, when they are on disk or could not be put there."""
        outcome: Any = self.append_all(group_id, changes)
        if isinstance(outcome, Partition):
            outcome = self.on_disk([outcome], ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
        elif outcome is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(outcome, Later):
            outcome.ready = lambda: done(outcome.response)
        else:
            self._loop.call_soon(done, outcome)

    def on_disk(
        self, partitions: Iterable[Partition], response: Any, failed: Any, size_bytes: int = ANSWER_BYTES
    ) -> Any:
        """Return a response once all that was appended to partitions is on disk, or `failed` if it cannot be put there.

        It is a Later, unless that is so by now.
        """
        logs = [partition.log for partition in partitions if partition.awaits_disk(ACKS_ALL)]
        return self._flusher.commit(logs, response, lambda _: failed, size_bytes) if logs else response


def batches(changes: Changes, most_bytes: int) -> Iterator[list[Entry]]:
    """Yield records in their order as one batch, or in `_ORDER` as so many batches that each of them fits."""
    batch: list[Entry] = []
    size_bytes = HEADER_BYTES
    is_one = HEADER_BYTES + sum(_record_bytes(*change) for change in changes.items()) <= most_bytes
    for key, value in changes.items() if is_one else sorted(changes.items(), key=place_of):
        record_bytes = _record_bytes(key, value)
        if batch and size_bytes + record_bytes > most_bytes:
            yield batch
            batch, size_bytes = [], HEADER_BYTES
        batch.append(Entry(key, value))
        size_bytes += record_bytes
    if batch:
        yield batch


def place_of(change: tuple[bytes, bytes | None]) -> int:
    """Return the place of a record in a change that takes several batches."""
    key, value = change
    kind = int.from_bytes(key[:2], "big")
    return _PLACES.get((kind, value is not None), _PLACES[None])


def _record_bytes(key: bytes, value: bytes | None) -> int:
    return RECORD_BYTES + len(key) + len(value or b"")


class WriteBehind:
    """The changes of one group on their way to the log: of each key the last one holds, also if writes fail.

    What could not be stored is stored with the next change.
    """

    def __init__(self, group_id: str, store: Callable[[str, Changes, Stored], None]) -> None:
        self._group_id = group_id
        self._store = store
        self._next: Changes = {}
        self._number = 0
        self._newest: dict[bytes, int] = {}  # by key under way, the last write that has it
        self._under_way: dict[int, list[Stored]] = {}  # by write, the callbacks that wait for it

    def put(self, key: bytes, value: bytes | None) -> None:
        """Have a record written with the next flush."""
        self._next.pop(key, None)
        self._next[key] = value

    def clear(self) -> None:
        """Write nothing any more."""
        self._next = {}
        self._newest = {}

    @property
    def is_idle(self) -> bool:
        """Whether all is on disk."""
        return not self._next and not self._under_way

    def keys(self) -> list[bytes]:
        """Return the keys of what is still to be written, and of what may fail yet."""
        return list(dict.fromkeys((*self._newest, *self._next)))

    def flush(self, done: Stored | None = None) -> None:
        """Write what has changed; call `done` when that, and all before it, is on disk or could not be put there.

        Where nothing has changed, what is under way may still fail: an answer that depends on it waits for it.
        """
        waiting = [] if done is None else [done]
        if self._next:
            changes, self._next = self._next, {}
            self._number += 1
            self._newest.update(dict.fromkeys(changes, self._number))
            self._under_way[self._number] = waiting
            self._store(self._group_id, changes, partial(self._stored, self._number, changes))
        elif self._under_way:
            self._under_way[next(reversed(self._under_way))] += waiting
        elif done is not None:
            done(ErrorCode.NONE)

    def flush_by(self, store: Callable[[Stored], None]) -> None:
        """Have another group stored that takes the place of this one; `flush` waits for that too."""
        self._number += 1
        self._under_way[self._number] = []
        store(partial(self._stored, self._number, {}))

    def _stored(self, number: int, changes: Changes, code: ErrorCode) -> None:
        newest = [key for key in changes if self._newest.get(key) == number]
        for key in newest:
            del self._newest[key]
        if code:
            self._next = {key: changes[key] for key in newest if key not in self._next} | self._next
        for done in self._under_way.pop(number):
            done(code)


async def read(logs: Sequence[Log], note: Callable[[Entry], None]) -> int:
    """Hand all records of the topic to `note`, in order; return how many of them, or ranges of bytes, are damaged.

    Some records a step, on the maintenance thread. Records of a transaction are noted when it is committed.
    """
    damaged = 0
    for log in logs:
        undecided: dict[int, list[Entry]] = {}
        count = 0
        for segment, position, header in log.headers(log.log_start_offset):
            if count >= READ_AT_ONCE:
                count = 0
                await step()
            entries: list[Entry] = []
            try:
                entries.extend(_entries(log, header, segment.read(header.size_bytes, position, PATIENT)))
            except RecordsError as error:
                _log.error(
                    "groups: a batch cannot be read log=%s offset=%d error=%r",
                    log,
                    header.base_offset,
                    str(error),
                )
                damaged += header.record_count
            count += 1 + len(entries)
            if header.is_control:
                is_commit = bool(entries) and int.from_bytes(entries[0].key[2:4], "big") == COMMIT_MARKER
                ended = undecided.pop(header.producer_id, [])
                entries = ended if is_commit else []
            elif header.is_transactional:
                undecided.setdefault(header.producer_id, []).extend(entries)
                entries = []
            for entry in entries:
                try:
                    note(entry)
                except WireError as error:
                    if not damaged:
                        _log.error(
                            "groups: a record cannot be read, this one first log=%s error=%r", log, str(error)
                        )
                    damaged += 1
        if log.damaged:
            damaged += len(log.damaged)
            _log.error(
                "groups: damaged log=%s ranges=%s: what groups have committed there is not known, and they go on from "
                "what they had committed before",
                log,
                ",".join(log.damaged),
            )
    return damaged


def _entries(log: Log, header: BatchHeader, batch: memoryview) -> Iterator[Entry]:
    read_batch = read_records if header.magic == MAGIC else message_set.read_records
    for record in read_batch(batch):
        if record.key is not None and record.offset >= log.log_start_offset:
            yield Entry(record.key, record.value, record.headers)
