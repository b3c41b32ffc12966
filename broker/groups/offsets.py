"""The offsets that groups have committed, by partition, and when they expire.

They are as of the end of the log. An offset is of a topic, by its id: one of a deleted topic is not one of a later
topic of that name.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.broker.groups.memory import text_bytes
from tidelog.protocol.coordinator.messages import OffsetCommitValue
from tidelog.protocol.records.build import Header
from tidelog.protocol.wire.types import ZERO_UUID

# What an offset takes in memory, about, beside its metadata.
OFFSET_BYTES: Final = 250
NEVER: Final = -1
# Headers of a record, which Kafka passes over, for what its value has no place for: the id of the topic, beside a time
# of expiry (version 1), and the host that is charged with it.
TOPIC_ID: Final = "tidelog.topic.id"
ADDRESS: Final = "tidelog.address"


class Committed(NamedTuple):
    """An offset that was committed. `topic_id` is of zeros where that is not known: it was written by an old Kafka."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int  # NEVER where the broker's own retention applies
    topic_id: bytes
    host: str = ""  # that has committed it, as far as is known

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return OFFSET_BYTES + text_bytes(self.metadata)

    def is_of(self, topic_id: bytes | None) -> bool:
        """Tell whether it is of the topic that has its name now, None if there is none."""
        return topic_id is not None and self.topic_id in (topic_id, ZERO_UUID)

    def is_expired(self, now_ms: int, unused_since_ms: int | None, retention_ms: int) -> bool:
        """Tell whether it has been of no use for so long that it is to be forgotten (KIP-211)."""
        if self.expire_ms != NEVER:
            return now_ms >= self.expire_ms
        return unused_since_ms is not None and now_ms - unused_since_ms >= retention_ms

    def is_forgettable(self, expiry: "Expiry") -> bool:
        """Tell whether it has expired, or is of a topic that is not there any more."""
        since_ms = None if expiry.unused_since_ms is None else expiry.unused_since_ms(self.commit_ms)
        is_expired = self.is_expired(expiry.now_ms, since_ms, expiry.retention_ms)
        return not self.is_of(expiry.topic_id) or is_expired

    def stored(self) -> OffsetCommitValue:
        """Return what is stored of it."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_ms,
            expire_timestamp=self.expire_ms,
            topic_id=self.topic_id,
        )

    def headers(self) -> tuple[Header, ...]:
        """Return what is stored beside it."""
        address = (ADDRESS, self.host.encode())
        return (address,) if self.expire_ms == NEVER else (address, (TOPIC_ID, self.topic_id))


class Expiry(NamedTuple):
    """What decides which offsets of a group in a topic are forgotten.

    `unused_since_ms` is asked by the time of the commit; it is None where members read the topic.
    """

    topic_id: bytes | None  # of the topic that has the name now
    now_ms: int
    retention_ms: int
    unused_since_ms: Callable[[int], int | None] | None


def restored(value: OffsetCommitValue, headers: Iterable[Header], topic_id: bytes | None) -> Committed:
    """Return an offset as it was stored; one that names no topic id is of the topic with this id."""
    beside = dict(headers)
    said = beside.get(TOPIC_ID) or value.topic_id
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        said if said != ZERO_UUID or topic_id is None else topic_id,
        (beside.get(ADDRESS) or b"").decode(errors="replace"),
    )


class GroupOffsets:
    """What one group has committed, by topic and partition."""

    __slots__ = ("size_bytes", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Committed]] = {}
        self.size_bytes = 0

    def get(self, topic: str, partition: int) -> Committed | None:
        """Return what was committed of a partition."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, committed: Committed) -> Committed | None:
        """Put a commit; return the one before."""
        partitions = self.topics.setdefault(topic, {})
        before = partitions.get(partition)
        partitions[partition] = committed
        self.size_bytes += committed.size_bytes - (0 if before is None else before.size_bytes)
        return before

    def remove(self, topic: str, partition: int) -> Committed | None:
        """Forget what was committed of a partition, and return it."""
        partitions = self.topics.get(topic, {})
        committed = partitions.pop(partition, None)
        if committed is None:
            return None
        if not partitions:
            del self.topics[topic]
        self.size_bytes -= committed.size_bytes
        return committed

    def __iter__(self) -> Iterator[tuple[str, int, Committed]]:
        """Yield all of it."""
        for topic, partitions in self.topics.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def forgettable(self, topic: str, expiry: Expiry) -> list[tuple[int, Committed]]:
        """Return the partitions of a topic whose offset `is_forgettable`."""
        found = self.topics.get(topic, {}).items()
        return [each for each in found if each[1].is_forgettable(expiry)]
