"""ListOffsets: where partitions start and end, and the first record at or after a time."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from tidelog.client.cluster import Cluster, Partition, by_topic, check
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

# In place of a time.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_MAX_TIMESTAMP_VERSION: Final = 7


class Found(NamedTuple):
    """An offset and the time of its record, -1 for none; or the error code of a partition that cannot be searched."""

    offset: int
    timestamp: int
    error_code: int = 0


def list_offsets(
    cluster: Cluster, wanted: Mapping[Partition, int], kept: Collection[int] = (), isolation_level: int = 0
) -> dict[Partition, Found]:
    """Return the first record at or after a time in ms of each partition, or EARLIEST, LATEST or MAX_TIMESTAMP.

    The error codes in `kept` are returned; others are a ClientError. An older broker does not know
    MAX_TIMESTAMP, and finds no record. With isolation level 1, LATEST is the start of the first open transaction.
    """
    topics = ", ".join(sorted({each.topic for each in wanted}))
    return cluster.retried(f"offsets of {topics}", lambda: _listed(cluster, wanted, kept, isolation_level))


def offsets_of(cluster: Cluster, topic: str, times: Mapping[int, int]) -> dict[int, int]:
    """Return the offsets that `list_offsets` finds, by partition of one topic."""
    found = list_offsets(cluster, {Partition(topic, number): time_ms for number, time_ms in times.items()})
    return {each.partition: answer.offset for each, answer in found.items()}


def bounds(cluster: Cluster, partitions: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
    """Return the first offset of each partition, and the offset of its next record."""
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {each: (starts[each].offset, ends[each].offset) for each in partitions}


def _listed(
    cluster: Cluster, wanted: Mapping[Partition, int], kept: Collection[int], isolation_level: int
) -> dict[Partition, Found]:
    found: dict[Partition, Found] = {}
    for connection, partitions in cluster.by_leader(wanted).items():
        knows_max = connection.version(LIST_OFFSETS) >= _MAX_TIMESTAMP_VERSION
        if not knows_max:
            found |= {each: Found(-1, -1) for each in partitions if wanted[each] == MAX_TIMESTAMP}
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=each.partition, timestamp=wanted[each])
                    for each in some
                ],
            )
            for name, some in by_topic(each for each in partitions if each not in found).items()
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        for topic in connection.ask(LIST_OFFSETS, request).topics:
            for answer in topic.partitions:
                key = Partition(topic.name, answer.partition_index)
                if answer.error_code not in kept:
                    check(answer.error_code, str(key))
                offset = next(iter(answer.old_style_offsets), answer.offset)
                found[key] = Found(offset, answer.timestamp, answer.error_code)
    return found
