"""The topic `__consumer_offsets`: writes the records of groups and offsets, and reads them.

Owns the topic, the choice of a partition for each group, and the wait for the disk. Does not interpret the records. All
records of a group are in one partition, so the last record of a key is the valid one.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import ANSWER_BYTES, Failed, Flusher
from tidelog.broker.maintenance import Maintenance
from tidelog.broker.partition import ACKS_ALL, Partition
from tidelog.broker.topic_rules import BrokerStops, TopicExists, TopicNamesCollide
from tidelog.broker.topics import Topic, Topics
from tidelog.broker.work import Coro, Stopping, step
from tidelog.protocol.coordinator import records
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import message_set
from tidelog.protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from tidelog.protocol.records.build import Header, Record, build_batch, read_records
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.records.validate import ValidBatch
from tidelog.protocol.topic_names import OFFSETS_TOPIC
from tidelog.protocol.wire.errors import WireError
from tidelog.storage.errors import StorageError, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.sources import PATIENT

_log = logging.getLogger(__name__)

# The most that a record takes beside its key and value, in any format.
RECORD_BYTES: Final = 40
# The type in the key of a control record that commits a transaction, after the key's version.
COMMIT_MARKER: Final = 1
# The number of records that one step reads, some microseconds each.
READ_AT_ONCE: Final = 500
# The order of records in a change that takes several batches. It lets a start complete what a crash has left: an epoch
# without a target gets a new target, and a member's assignment comes before the member, so no other member gets its
# partitions. The tombstone of a classic group comes first: Kafka's replay drops all records of the group that it has
# read before that one. Each entry is the number of a kind of record, and whether it has a value.
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

Changes = dict[bytes, bytes | None]  # values by key; None is a tombstone
Stored = Callable[[ErrorCode], None]


class Entry(NamedTuple):
    """A record. None as its value is a tombstone. Kafka ignores the headers."""

    key: bytes
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


@lru_cache(64)  # A name may have 32,000 letters, which takes some milliseconds for each batch.
def partition_of(group_id: str, count: int) -> int:
    """Return the partition of a group: as in Kafka, by Java's hash of the string."""
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
        """The topic; None before its first use."""
        return self._topics.by_name.get(OFFSETS_TOPIC)

    async def create(self, maintenance: Maintenance, owner: Hashable) -> None:
        """Create the topic if it does not exist. If that fails, appends fail."""
        if self.topic is None:
            await maintenance.submit(self._create(), owner=owner)

    async def _create(self) -> None:
        with suppress(TopicExists, Stopping):
            await step()
            try:
                await self._create_topic(OFFSETS_TOPIC, *self._topics.on_first_use(OFFSETS_TOPIC))
            except (TopicNamesCollide, StorageError, BrokerStops) as error:
                _log.error("groups: %s could not be created error=%r", OFFSETS_TOPIC, str(error))

    def partition(self, group_id: str) -> Partition | None:
        """Return the partition of a group; None before the topic's first use."""
        topic = self.topic
        return None if topic is None else topic.partitions[partition_of(group_id, len(topic.partitions))]

    def append(self, group_id: str, entries: Sequence[Entry]) -> Partition | ErrorCode:
        """Append records of a group as one batch; return its partition, or the code of the failure."""
        partition = self.partition(group_id)
        if partition is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        now_ms = self._clock.now_ms()
        made = [Record(number, now_ms, *entry) for number, entry in enumerate(entries)]
        checked = None
        try:
            data = bytearray(build_batch(made, base_offset=0))
            if partition.log.keeps(len(data)):
                checked = data, ValidBatch(read_header(data), now_ms, now_ms, 0, len(data))
            partition.append(data, now_ms, checked)
        except StorageError as error:
            _log.error("groups: not written group=%r error=%r", group_id[:100], str(error))
            return ErrorCode.NOT_COORDINATOR
        except (RecordsError, TakesLong) as error:
            _log.error("groups: not written group=%r error=%r", group_id[:100], str(error))
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return partition

    def append_all(self, group_id: str, changes: Changes) -> Partition | ErrorCode:
        """Append changes of a group, at least one: as one batch if that fits, so that a crash leaves all or nothing."""
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
        """Append changes of a group; call `done` in a later turn, when they are on disk or have failed."""
        outcome: Any = self.append_all(group_id, changes)
        if isinstance(outcome, Partition):
            outcome = self.on_disk([outcome], ErrorCode.NONE, lambda _: ErrorCode.NOT_COORDINATOR)
        elif outcome is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(outcome, Later):
            outcome.ready = lambda: done(outcome.response)
        else:
            self._loop.call_soon(done, outcome)

    def on_disk(
        self, partitions: Iterable[Partition], response: Any, failed: Failed, size_bytes: int = ANSWER_BYTES
    ) -> Any:
        """Return a Later that gets `response` when all appends to these partitions are on disk.

        If that fails, it gets the result of `failed`, which is called even if nobody waits for the answer any more.

        If everything is on disk already, return `response` itself.
        """
        logs = [partition.log for partition in partitions if partition.awaits_disk(ACKS_ALL)]
        return self._flusher.commit(logs, response, failed, size_bytes) if logs else response


def batches(changes: Changes, most_bytes: int) -> Iterator[list[Entry]]:
    """Yield the changes as one batch in their own order if that fits, otherwise as several in `_ORDER`."""
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
    """The changes of one group on their way to the log. The last change of each key wins, even if writes fail.

    Changes that could not be stored are stored with the next ones.
    """

    def __init__(self, group_id: str, store: Callable[[str, Changes, Stored], None]) -> None:
        self._group_id = group_id
        self._store = store
        self._next: Changes = {}
        self._number = 0
        self._newest: dict[bytes, int] = {}  # the last write under way that has each key
        self._under_way: dict[int, list[Stored]] = {}  # the callbacks that wait for each write

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a record with the next flush."""
        self._next.pop(key, None)
        self._next[key] = value

    def clear(self) -> None:
        """Drop all changes that have not been written."""
        self._next = {}
        self._newest = {}

    @property
    def is_idle(self) -> bool:
        """Whether all changes are on disk."""
        return not self._next and not self._under_way

    def keys(self) -> list[bytes]:
        """Return the keys of changes that are not yet written, or whose write may still fail."""
        return list(dict.fromkeys((*self._newest, *self._next)))

    def flush(self, done: Stored | None = None) -> None:
        """Write the changes; call `done` when they and all earlier ones are on disk, or have failed.

        Without changes, `done` waits for the last write under way, which may still fail.
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
        """Store the group that replaces this one; a `flush` waits for that too."""
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
    """Call `note` with each record of the topic, in order; return the number of damaged records and ranges of bytes.

    Runs on the maintenance thread, some records at a time. The records of a transaction are noted at its commit.
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
                "groups: damaged log=%s ranges=%s: the offsets committed there are lost, and groups go on from earlier "
                "ones",
                log,
                ",".join(log.damaged),
            )
    return damaged


def _entries(log: Log, header: BatchHeader, batch: memoryview) -> Iterator[Entry]:
    read_batch = read_records if header.magic == MAGIC else message_set.read_records
    for record in read_batch(batch):
        if record.key is not None and record.offset >= log.log_start_offset:
            yield Entry(record.key, record.value, record.headers)
