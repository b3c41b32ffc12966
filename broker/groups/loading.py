"""Loads the groups and their committed offsets from `__consumer_offsets` at a start."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.consumer import ConsumerGroup
from tidelog.broker.groups.log import Entry, read
from tidelog.broker.groups.offsets import GroupOffsets, restored
from tidelog.broker.groups.services import Services
from tidelog.broker.topics import Topic
from tidelog.broker.work import step
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.messages import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
)
from tidelog.storage.log import Log

Group = ClassicGroup | ConsumerGroup


class Loaded:
    """The state after the records read so far. An offset without a topic id belongs to the topic with its name now."""

    def __init__(self, topic_ids: Mapping[str, bytes], services: Services) -> None:
        self._topic_ids = topic_ids
        self._services = services
        self.classic: dict[str, GroupMetadataValue] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.damaged = 0  # unreadable records, and ranges of bytes without records
        # Set at the end: the groups, the number of offsets, and their memory by host.
        self.groups: list[Group] = []
        self.count = 0
        self.held: Counter[str] = Counter()

    def note(self, entry: Entry) -> None:
        """Apply the next record. Raise WireError if it cannot be read."""
        pair = records.read(entry.key, entry.value)
        if pair is None:
            return
        key, value = pair
        if isinstance(key, OffsetCommitKey):
            self._note_offset(key, value, entry)
        elif isinstance(key, GroupMetadataKey):
            self.classic.pop(key.group, None)
            if value is not None:
                self.classic[key.group] = value
                # The group is of the kind that was written last.
                self.consumer.pop(key.group, None)
        else:
            self._note_consumer_group(key, value)

    def _note_offset(self, key: OffsetCommitKey, value: Any, entry: Entry) -> None:
        offsets = self.offsets.get(key.group)
        if value is not None:
            offsets = offsets or self.offsets.setdefault(key.group, GroupOffsets())
            committed = restored(value, entry.headers, self._topic_ids.get(key.topic))
            offsets.put(key.topic, key.partition, committed)
        elif offsets is not None:
            offsets.remove(key.topic, key.partition)
            if not offsets.topics:
                del self.offsets[key.group]

    def _note_consumer_group(self, key: Any, value: Any) -> None:
        group_id = key.group_id
        if isinstance(key, ConsumerGroupMetadataKey):
            self.classic.pop(group_id, None)
            if value is None:
                self.consumer.pop(group_id, None)
                return
        group = self.consumer.get(group_id)
        if group is None and value is not None:
            group = self.consumer[group_id] = ConsumerGroup(group_id, self._services)
        if group is not None:
            group.restore(key, value)


async def replay(logs: Sequence[Log], topic_ids: Mapping[str, bytes], services: Services) -> Loaded:
    """Read the logs, some records at a time. Maintenance thread."""
    loaded = Loaded(topic_ids, services)
    loaded.damaged = await read(logs, loaded.note)
    return loaded


async def load(topic: Topic, topic_ids: Mapping[str, bytes], services: Services) -> Loaded:
    """Read the topic and create the groups, in steps of some milliseconds. Maintenance thread."""
    loaded = await replay([partition.log for partition in topic.partitions], topic_ids, services)
    loaded.groups.extend(loaded.consumer.values())
    for group_id in (loaded.classic.keys() | loaded.offsets.keys()) - loaded.consumer.keys():
        await step()
        classic = ClassicGroup(group_id, services)
        if (value := loaded.classic.get(group_id)) is not None:
            classic.restore(value)
        loaded.groups.append(classic)
    for group in loaded.groups:
        await step()
        offsets = loaded.offsets.get(group.id) or GroupOffsets()
        group.memory.made_by(_host_of(group, offsets))
        for _, _, committed in offsets:
            loaded.held[committed.host] += committed.size_bytes
            loaded.count += 1
    return loaded


def _host_of(group: Group, offsets: GroupOffsets) -> str:
    """Return the host to charge for a group: one that has committed, or a member's; empty if none is known."""
    members = (member.subscription for member in group) if isinstance(group, ConsumerGroup) else group
    hosts = chain((committed.host for _, _, committed in offsets), (each.client_host for each in members))
    return next(filter(None, hosts), "")
