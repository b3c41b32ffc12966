"""What topics hold: records, bytes and the largest record time, for all topics in a few requests."""

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.client.cluster import Cluster, Partition

# In one request to a broker.
PARTITIONS_AT_ONCE: Final = 1000


class Contents:
    """The contents of a topic."""

    __slots__ = ("max_timestamp", "records", "size_bytes")

    def __init__(self) -> None:
        self.records = 0  # the offsets from the start to the end; compaction may have removed some
        self.size_bytes = 0
        self.max_timestamp: int | None = None


def contents(cluster: "Cluster", topics: "Iterable[Any]") -> "tuple[dict[str, Contents], list[Partition]]":
    """Return the contents of topics, by their metadata, and the partitions that cannot be read.

    A topic that is deleted meanwhile has no records.
    """
    from tidelog.client.offsets import MAX_TIMESTAMP

    topics = list(topics)
    found = {str(topic.name): Contents() for topic in topics}
    for name, size_bytes in sizes(cluster).items():
        if name in found:
            found[name].size_bytes = size_bytes
    chosen = led(topics)
    starts, ends = bounds(cluster, chosen)
    for key, end in ends.items():
        found[key.topic].records += end - starts.get(key, end)
    for key, answer in _asked(cluster, chosen, MAX_TIMESTAMP).items():
        if answer.timestamp >= 0:
            of = found[key.topic]
            of.max_timestamp = max(answer.timestamp, of.max_timestamp or 0)
    return found, sorted(set(chosen) - set(starts))


def led(topics: "Iterable[Any]") -> "list[Partition]":
    """Return the partitions that have a leader, by the metadata of topics."""
    from tidelog.client.cluster import Partition

    return [
        Partition(topic.name, each.partition_index)
        for topic in topics
        for each in topic.partitions
        if each.leader_id >= 0
    ]


def sizes(cluster: "Cluster") -> "Counter[str]":
    """Return the bytes of each topic on the disks of all brokers."""
    from tidelog.client import admin

    found: Counter[str] = Counter()
    for folders in admin.log_dirs(cluster, None).values():
        for topic in (topic for folder in folders for topic in folder.topics):
            found[topic.name] += sum(max(0, each.partition_size) for each in topic.partitions)
    return found


def bounds(
    cluster: "Cluster", chosen: "list[Partition]"
) -> "tuple[Mapping[Partition, int], Mapping[Partition, int]]":
    """Return the starts and the ends of the partitions that can be read."""
    from tidelog.client.offsets import EARLIEST, LATEST

    starts, ends = (_asked(cluster, chosen, time) for time in (EARLIEST, LATEST))
    return (
        {key: each.offset for key, each in starts.items() if not each.error_code},
        {key: each.offset for key, each in ends.items() if not each.error_code},
    )


def _asked(cluster: "Cluster", chosen: "list[Partition]", time: int) -> "dict[Partition, Any]":
    from tidelog.client.offsets import list_offsets
    from tidelog.protocol.error_codes import ErrorCode

    kept = (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    found: dict[Partition, Any] = {}
    for at in range(0, len(chosen), PARTITIONS_AT_ONCE):
        found |= list_offsets(cluster, dict.fromkeys(chosen[at : at + PARTITIONS_AT_ONCE], time), kept)
    return {key: each for key, each in found.items() if each.error_code != kept[-1]}
