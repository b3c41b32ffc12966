"""What groups write down, and when it is on disk.

Owns the way to the log of groups: the topic is made when something is first to be written, and what is to be written
until then keeps its order. Refuses to know what groups are in memory. Event loop only.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tidelog.broker.answers import Later
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import ANSWER_BYTES, Flusher
from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.consumer_parts import Changes
from tidelog.broker.groups.offsets_log import Entry, OffsetsLog
from tidelog.broker.groups.states import DEAD
from tidelog.broker.maintenance import Maintenance, Task
from tidelog.broker.partition import ACKS_ALL, Partition
from tidelog.broker.topic_rules import BrokerStops, TopicExists, TopicNamesCollide
from tidelog.broker.topics import Topic, Topics
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.consumer_forms import KEY_NUMBERS
from tidelog.protocol.coordinator.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tidelog.protocol.coordinator.group_metadata import GroupMetadataValue
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records.batch import HEADER_BYTES
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.wire.errors import EncodeError
from tidelog.storage.errors import StorageError, TakesLong
from tidelog.storage.log_names import OFFSETS_TOPIC

_log = logging.getLogger(__name__)

# What a record takes beside its key and its value in any format, at most.
RECORD_BYTES = 40
# A change of a group that is larger than a batch may be is written in this order, so that a start can mend what a crash
# has left of it: an epoch without a target has one made, and what members have is known before they are, so that nobody
# else gets it. That a classic group is no more comes first: Kafka's replay drops with it all that it has read.
_ORDER: list[tuple[int, bool] | None] = [
    (records.GROUP_KEY, False),
    (KEY_NUMBERS[ConsumerGroupMetadataKey], True),
    None,  # what is taken back, and all others
    (KEY_NUMBERS[ConsumerGroupCurrentMemberAssignmentKey], True),
    (KEY_NUMBERS[ConsumerGroupTargetAssignmentMemberKey], True),
    (KEY_NUMBERS[ConsumerGroupMemberMetadataKey], True),
    (KEY_NUMBERS[ConsumerGroupTargetAssignmentMetadataKey], True),
    (records.GROUP_KEY, True),
]
_PLACES = {kind: place for place, kind in enumerate(_ORDER)}


class Storing:
    """The writes of all groups."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        topics: Topics,
        flusher: Flusher,
        create_topic: Callable[[str, int, dict[str, str]], Task[Topic]],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._topics = topics
        self._flusher = flusher
        self._create_topic = create_topic
        self.maintenance: Maintenance
        self.log = OffsetsLog(topics)
        self._to_store: list[Callable[[], object]] = []  # while there is nowhere to write to

    async def ready(self, owner: Hashable) -> None:
        """Wait until there is somewhere to write to, or that could not be made."""
        if self.log.topic is None or self._to_store:
            await self.maintenance.submit(self._create(), owner=owner)

    def _create(self) -> Task[None]:
        if (yield):
            return
        with suppress(TopicExists):
            try:
                yield from self._create_topic(OFFSETS_TOPIC, *self._topics.on_first_use(OFFSETS_TOPIC))
            except (TopicNamesCollide, StorageError, BrokerStops) as error:
                _log.error("groups: %s could not be made error=%r", OFFSETS_TOPIC, str(error))

    def append(self, group_id: str, entries: Sequence[Entry]) -> Partition | ErrorCode:
        """Append what is to be known of a group; return where, or why not."""
        if self.log.topic is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            return self.log.append(group_id, entries, self._clock.now_ms())
        except StorageError as error:
            _log.error("groups: not written group=%r error=%r", group_id[:100], str(error))
            return ErrorCode.NOT_COORDINATOR
        except (RecordsError, TakesLong) as error:
            _log.error("groups: not written group=%r error=%r", group_id[:100], str(error))
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE

    def append_all(self, group_id: str, changes: Changes) -> Partition | ErrorCode:
        """Append what has changed of a group, as one batch wherever that is not too large; there are changes.

        A batch is there as a whole after a crash, or not at all.
        """
        if self.log.topic is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        most_bytes = self.log.partition(group_id).log.prompt_bytes
        appended: Partition | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
        for entries in _batches(changes, most_bytes):
            appended = self.append(group_id, entries)
            if not isinstance(appended, Partition):
                break
        return appended

    async def are_on_disk(self, partitions: Iterable[Partition], size_bytes: int = ANSWER_BYTES) -> bool:
        """Wait until what was appended is on disk; return false where it could not be put there."""
        logs = [partition.log for partition in partitions if partition.awaits_disk(ACKS_ALL)]
        return not logs or await self._flusher.commit(logs, True, lambda _: False, size_bytes)

    def when_on_disk(
        self, group_id: str, response: Any, failed: Callable[[], Any], size_bytes: int = ANSWER_BYTES
    ) -> Any:
        """Return a response for when all that was appended of a group is on disk, or else what `failed` returns."""
        partitions = [] if self.log.topic is None else [self.log.partition(group_id)]
        logs = [partition.log for partition in partitions if partition.awaits_disk(ACKS_ALL)]
        return self._flusher.commit(logs, response, lambda _: failed(), size_bytes) if logs else response

    def store_group(
        self, group: ClassicGroup, value: GroupMetadataValue, done: Callable[[ErrorCode], None]
    ) -> None:
        """Write down what a classic group has become; say later whether it is on disk."""
        try:
            changes: Changes = {records.group_key(group.id): records.group_value(value)}
        except EncodeError:
            self._loop.call_soon(done, ErrorCode.UNKNOWN_SERVER_ERROR)
            return

        def write() -> None:
            if group.state is DEAD:  # It was deleted while the topic was made.
                self._loop.call_soon(done, ErrorCode.NOT_COORDINATOR)
            elif self._write(group.id, {**group.former, **changes}, done):
                group.former = {}

        self._write_when_ready(write)

    def store_changes(self, group_id: str, changes: Changes, done: Callable[[ErrorCode], None]) -> None:
        """Write down what has changed of a consumer group; say later whether it is on disk."""
        self._write_when_ready(lambda: self._write(group_id, changes, done))

    def _write(self, group_id: str, changes: Changes, done: Callable[[ErrorCode], None]) -> bool:
        """Append what has changed of a group; tell whether it was taken, and later whether it is on disk."""
        outcome: Any = self.append_all(group_id, changes)
        is_taken = isinstance(outcome, Partition)
        if is_taken:
            outcome = self.when_on_disk(group_id, ErrorCode.NONE, lambda: ErrorCode.NOT_COORDINATOR)
        elif outcome is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(outcome, Later):
            outcome.ready = lambda: done(outcome.response)
        else:
            self._loop.call_soon(done, outcome)
        return is_taken

    def _write_when_ready(self, write: Callable[[], object]) -> None:
        """Write once there is somewhere to write to, in the order in which that was asked for."""
        if self.log.topic is not None and not self._to_store:
            write()
            return
        self._to_store.append(write)
        if len(self._to_store) == 1:
            self.maintenance.submit(self._create(), owner=self).ready = self._store_waiting

    def _store_waiting(self) -> None:
        waiting, self._to_store = self._to_store, []
        for write in waiting:
            write()


def _batches(changes: Changes, most_bytes: int) -> Iterator[list[Entry]]:
    """Yield records in their order as one batch, or in one that can be mended as many a batch as fit."""
    batch: list[Entry] = []
    size_bytes = HEADER_BYTES
    is_one = HEADER_BYTES + sum(_record_bytes(*change) for change in changes.items()) <= most_bytes
    for key, value in changes.items() if is_one else sorted(changes.items(), key=_place):
        record_bytes = _record_bytes(key, value)
        if batch and size_bytes + record_bytes > most_bytes:
            yield batch
            batch, size_bytes = [], HEADER_BYTES
        batch.append(Entry(key, value))
        size_bytes += record_bytes
    if batch:
        yield batch


def _record_bytes(key: bytes, value: bytes | None) -> int:
    return RECORD_BYTES + len(key) + len(value or b"")


def _place(change: tuple[bytes, bytes | None]) -> int:
    """Return where a record belongs in a change that is cut."""
    key, value = change
    kind = (int.from_bytes(key[:2], "big"), value is not None)
    return _PLACES.get(kind, _PLACES[None])
