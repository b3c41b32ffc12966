"""The committed offsets of groups, and when they expire.

They reflect the end of the log. An offset belongs to a topic by id: an offset of a deleted topic does not apply to a
later topic with the same name.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.broker.groups.memory import text_bytes
from tidelog.protocol.coordinator.messages import OffsetCommitValue
from tidelog.protocol.records.build import Header
from tidelog.protocol.wire.types import ZERO_UUID

# The approximate memory of an offset without its metadata.
OFFSET_BYTES: Final = 250
NEVER: Final = -1
# Record headers, which Kafka ignores. They hold what the value has no field for: the topic id, if the value has a time
# of expiry (version 1), and the host to charge.
TOPIC_ID: Final = "tidelog.topic.id"
ADDRESS: Final = "tidelog.address"


class Committed(NamedTuple):
    """A committed offset. `topic_id` is zero if it is unknown: an older Kafka has written the record."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int  # NEVER if the broker's retention applies
    topic_id: bytes
    host: str = ""  # the committing host; empty if unknown

    @property
    def size_bytes(self) -> int:
        """The approximate memory."""
        return OFFSET_BYTES + text_bytes(self.metadata)

    def is_of(self, topic_id: bytes | None) -> bool:
        """Tell whether the offset belongs to the topic with this id. None is no topic."""
        return topic_id is not None and self.topic_id in (topic_id, ZERO_UUID)

    def is_expired(self, expiry: "Expiry") -> bool:
        """Tell whether the offset has expired (KIP-211), or its topic was deleted."""
        if not self.is_of(expiry.topic_id):
            return True
        if self.expire_ms != NEVER:
            return expiry.now_ms >= self.expire_ms
        since_ms = None if expiry.unused_since_ms is None else expiry.unused_since_ms(self.commit_ms)
        return since_ms is not None and expiry.now_ms - since_ms >= expiry.retention_ms

    def stored(self) -> OffsetCommitValue:
        """Return the value of its record."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_ms,
            expire_timestamp=self.expire_ms,
            topic_id=self.topic_id,
        )

    def headers(self) -> tuple[Header, ...]:
        """Return the headers of its record."""
        address = (ADDRESS, self.host.encode())
        return (address,) if self.expire_ms == NEVER else (address, (TOPIC_ID, self.topic_id))


class Expiry(NamedTuple):
    """The conditions for the expiry of a group's offsets in a topic.

    `unused_since_ms` takes the time of a commit. It is None if members read the topic.
    """

    topic_id: bytes | None  # of the current topic with the name
    now_ms: int
    retention_ms: int
    unused_since_ms: Callable[[int], int | None] | None


def restored(value: OffsetCommitValue, headers: Iterable[Header], topic_id: bytes | None) -> Committed:
    """Return an offset from its record. `topic_id` is used if the record has none."""
    by_name = dict(headers)
    stored_id = by_name.get(TOPIC_ID) or value.topic_id
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        stored_id if stored_id != ZERO_UUID or topic_id is None else topic_id,
        (by_name.get(ADDRESS) or b"").decode(errors="replace"),
    )


class GroupOffsets:
    """The offsets of one group, by topic and partition."""

    __slots__ = ("topics",)

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Committed]] = {}

    def get(self, topic: str, partition: int) -> Committed | None:
        """Return the offset of a partition."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, committed: Committed) -> Committed | None:
        """Set the offset of a partition; return the one before."""
        partitions = self.topics.setdefault(topic, {})
        before = partitions.get(partition)
        partitions[partition] = committed
        return before

    def remove(self, topic: str, partition: int) -> Committed | None:
        """Remove and return the offset of a partition."""
        partitions = self.topics.get(topic, {})
        committed = partitions.pop(partition, None)
        if committed is None:
            return None
        if not partitions:
            del self.topics[topic]
        return committed

    def __iter__(self) -> Iterator[tuple[str, int, Committed]]:
        """Yield topic, partition and offset."""
        for topic, partitions in self.topics.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def expired(self, topic: str, expiry: Expiry) -> list[tuple[int, Committed]]:
        """Return the expired offsets in a topic, with their partitions."""
        found = self.topics.get(topic, {}).items()
        return [each for each in found if each[1].is_expired(expiry)]
