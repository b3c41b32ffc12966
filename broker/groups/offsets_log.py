"""The topic `__consumer_offsets`: what groups are on disk, in Kafka's formats, and what a start makes of it.

Owns the topic's name, which of its partitions a group is in, its appends and its replay. Refuses to know what the
records mean to a group. Invariant: all records of a group are in one partition, so that the last of a key holds.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from tidelog.broker.groups.mixed import MixedGroup
from tidelog.broker.groups.offsets import GroupOffsets, restored
from tidelog.broker.maintenance import Task
from tidelog.broker.partition import Partition
from tidelog.broker.topic_rules import BrokerStops
from tidelog.broker.topics import Topic, Topics
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.consumer_group import ConsumerGroupMetadataKey
from tidelog.protocol.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.protocol.records import message_set
from tidelog.protocol.records.batch import MAGIC, BatchHeader
from tidelog.protocol.records.build import Header, Record, build_batch, read_records
from tidelog.protocol.records.errors import RecordsError
from tidelog.protocol.wire.errors import WireError
from tidelog.storage.log import Log
from tidelog.storage.log_names import OFFSETS_TOPIC
from tidelog.storage.sources import PATIENT

_log = logging.getLogger(__name__)

# The key of the record that ends a transaction says how: version, then type.
COMMIT_MARKER = 1
# So many records are replayed in a step, some microseconds each.
REPLAYED_AT_ONCE = 500


class Entry(NamedTuple):
    """A record: its key, its value, None to take it back, and what Kafka passes over."""

    key: bytes
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


@dataclass(slots=True)
class Replayed:
    """What the log says when it has been read to its end."""

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer_groups: dict[str, MixedGroup] = field(default_factory=dict)
    offsets: dict[str, GroupOffsets] = field(default_factory=dict)
    damaged: int = 0  # records that say nothing we can read, and ranges of bytes that hold no records


@lru_cache(64)  # a name may have 32,000 letters: some milliseconds for each of its batches
def partition_of(group_id: str, count: int) -> int:
    """Return the partition that a group is in, as Kafka does by Java's hash of a string."""
    code = 0
    encoded = group_id.encode("utf-16-be")
    for position in range(0, len(encoded), 2):
        code = (31 * code + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % count


class OffsetsLog:
    """The topic, as far as it is there."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    @property
    def topic(self) -> Topic | None:
        """The topic, None before its first use."""
        return self._topics.by_name.get(OFFSETS_TOPIC)

    def partition(self, group_id: str) -> Partition:
        """Return the partition that a group is in. The topic is there."""
        topic = self.topic
        assert topic is not None
        return topic.partitions[partition_of(group_id, len(topic.partitions))]

    def append(self, group_id: str, entries: Sequence[Entry], now_ms: int) -> Partition:
        """Append what is to be known of a group; return where. The topic is there. Raise RecordsError, StorageError."""
        partition = self.partition(group_id)
        made = [Record(number, now_ms, *entry) for number, entry in enumerate(entries)]
        partition.append(bytearray(build_batch(made, base_offset=0)), now_ms)
        return partition


def replay(
    logs: Sequence[Log], topic_ids: dict[str, bytes], new_group: Callable[[str], MixedGroup]
) -> Task[Replayed]:
    """Read all that the topic holds, some records a step. Maintenance thread.

    What is in a transaction counts once that was committed. An offset that does not say of which topic it is, is of the
    one that has its name in `topic_ids`, now: Kafka takes back what was committed of a topic that is deleted.
    """
    found = Replayed()
    for log in logs:
        undecided: dict[int, list[Entry]] = {}
        count = 0
        for header, batch in _batches(log):
            if count >= REPLAYED_AT_ONCE:
                count = 0
                if (yield):
                    raise BrokerStops("groups are not loaded, the broker stops")
            count += 1
            entries = list(_entries(log, header, batch, found))
            count += len(entries)
            if header.is_control:
                ended = undecided.pop(header.producer_id, [])
                if entries and int.from_bytes(entries[0][0][2:4], "big") == COMMIT_MARKER:
                    _note_all(log, ended, topic_ids, new_group, found)
            elif header.is_transactional:
                undecided.setdefault(header.producer_id, []).extend(entries)
            else:
                _note_all(log, entries, topic_ids, new_group, found)
        if log.damaged:
            found.damaged += len(log.damaged)
            _log.error(
                "groups: damaged log=%s ranges=%s: what groups have committed there is not known, and they go on from "
                "what they had committed before",
                log,
                ",".join(log.damaged),
            )
    yield
    return found


def _batches(log: Log) -> Iterator[tuple[BatchHeader, memoryview]]:
    for segment, position, header in log.headers(log.log_start_offset):
        yield header, segment.read(header.size_bytes, position, PATIENT)


def _entries(log: Log, header: BatchHeader, batch: memoryview, found: Replayed) -> Iterator[Entry]:
    read = read_records if header.magic == MAGIC else message_set.read_records
    try:
        for record in read(batch):
            if record.key is not None and record.offset >= log.log_start_offset:
                yield Entry(record.key, record.value, record.headers)
    except RecordsError as error:
        _log.error(
            "groups: a batch cannot be read log=%s offset=%d error=%r", log, header.base_offset, str(error)
        )
        found.damaged += header.record_count


def _note_all(
    log: Log,
    entries: Sequence[Entry],
    topic_ids: dict[str, bytes],
    new_group: Callable[[str], MixedGroup],
    found: Replayed,
) -> None:
    for key, value, headers in entries:
        try:
            pair = records.read(key, value)
        except WireError as error:
            if not found.damaged:
                _log.error("groups: a record cannot be read, this one first log=%s error=%r", log, str(error))
            found.damaged += 1
        else:
            if pair is not None:
                _note(pair, headers, topic_ids, new_group, found)


def _note(
    pair: records.Pair,
    headers: tuple[Header, ...],
    topic_ids: dict[str, bytes],
    new_group: Callable[[str], MixedGroup],
    found: Replayed,
) -> None:
    key, value = pair
    if isinstance(key, GroupMetadataKey):
        if value is None:
            found.groups.pop(key.group, None)
        else:
            assert isinstance(value, GroupMetadataValue)
            found.groups[key.group] = value
            # The last kind that was written is the one that the group is of.
            found.consumer_groups.pop(key.group, None)
        return
    if not isinstance(key, OffsetCommitKey):
        _note_consumers(key, value, new_group, found)
        return
    if value is not None:
        assert isinstance(value, OffsetCommitValue)
        offsets = found.offsets.get(key.group) or found.offsets.setdefault(key.group, GroupOffsets())
        offsets.put(key.topic, key.partition, restored(value, headers, topic_ids.get(key.topic)))
    elif (of_group := found.offsets.get(key.group)) is not None:
        of_group.remove(key.topic, key.partition)
        if not of_group.topics:
            del found.offsets[key.group]


def _note_consumers(
    key: records.ConsumerKey, value: Any, new_group: Callable[[str], MixedGroup], found: Replayed
) -> None:
    groups, group_id = found.consumer_groups, key.group_id
    if isinstance(key, ConsumerGroupMetadataKey):
        found.groups.pop(group_id, None)
        if value is None:
            groups.pop(group_id, None)
            return
    if group_id in groups or value is not None:
        group = groups.get(group_id) or groups.setdefault(group_id, new_group(group_id))
        group.restore(key, value)
