"""ListOffsets by time, of one partition."""

from collections.abc import Hashable
from struct import Struct
from typing import TYPE_CHECKING

from tidelog.broker.dispatch import Answer, Route
from tidelog.broker.repeated.parts import (
    NUMBER_BYTES,
    PROBES,
    Learned,
    Request,
    number,
    number_position,
    template,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import NotInMemory, StorageError
from tidelog.storage.seek import first_at_or_after

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

EPOCH_SINCE = 4  # the version from which an answer has a leader epoch


def subject(request: ListOffsetsRequest) -> Hashable:
    """Return the partition of a request that asks for one time."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    want = request.topics[0].partitions[0]
    return (request.topics[0].name, want.partition_index) if want.timestamp >= 0 else None


def learn(broker: "Broker", route: Route, request: ListOffsetsRequest, raw: Request) -> Learned | None:
    """Return what serves such requests."""
    if not route.version:  # A question of another kind.
        return None
    topic_name, want = request.topics[0].name, request.topics[0].partitions[0]
    topic = broker.topics.by_name.get(topic_name)
    partition = topic.partition(want.partition_index) if topic else None
    position = number_position(
        route, raw, want.timestamp, lambda read: int(read.topics[0].partitions[0].timestamp)
    )
    if partition is None or position is None:
        return None
    log, has_epoch, expected_epoch = partition.log, route.version >= EPOCH_SINCE, want.current_leader_epoch
    numbers = Struct(">qqi" if has_epoch else ">qq")
    probes = (*PROBES[:2], 0x55667788)[: 3 if has_epoch else 2]
    answer = ListOffsetsPartitionResponse(
        partition_index=want.partition_index, error_code=0, timestamp=probes[0], offset=probes[1]
    )
    if has_epoch:
        answer.leader_epoch = probes[2]
    topic_answer = ListOffsetsTopicResponse(name=topic_name, partitions=[answer])
    size, before, behind = template(route, ListOffsetsResponse(topics=[topic_answer]), numbers, *probes)
    pack = Struct(f">ii{len(before)}s{numbers.format[1:]}{len(behind)}s").pack
    rest = bytes(raw.view[position + NUMBER_BYTES : raw.end])
    left_bytes = NUMBER_BYTES + len(rest)

    def serve(view: memoryview, at: int, end: int, correlation_id: int) -> Answer | None:
        if end - at != left_bytes or (rest and bytes(view[at + NUMBER_BYTES : end]) != rest):
            return None
        (timestamp,) = number(view, at)
        if timestamp < 0 or log.failure is not None or 0 <= expected_epoch != log.leader_epoch:
            return None
        try:
            found = first_at_or_after(log, timestamp, wait=False)
        except (StorageError, RecordsError, NotInMemory):
            return None
        found_time, offset, epoch = found or (-1, -1, -1)
        if has_epoch:
            return [pack(size, correlation_id, before, found_time, offset, epoch, behind)]
        return [pack(size, correlation_id, before, found_time, offset, behind)]

    return position, serve
