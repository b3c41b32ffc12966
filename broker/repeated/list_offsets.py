"""ListOffsets by time, of one partition."""

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.broker.answers import Answer
from tidelog.broker.dispatch import Route
from tidelog.broker.partition import Partition
from tidelog.broker.repeated.parts import (
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
from tidelog.storage.errors import NotInMemory, StorageError, TakesLong
from tidelog.storage.seek import first_at_or_after

if TYPE_CHECKING:
    from tidelog.broker.daemon import Broker

EPOCH_SINCE = 4  # the version from which an answer has a leader epoch


def partition_of(broker: "Broker", route: Route, request: ListOffsetsRequest) -> Partition | None:
    """Return the partition of a request that asks for one time; version 0 asks something else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or not route.version:
        return None
    want = request.topics[0].partitions[0]
    topic = broker.topics.by_name.get(request.topics[0].name) if want.timestamp >= 0 else None
    return topic.partition(want.partition_index) if topic else None


def learn(
    _broker: "Broker", route: Route, request: ListOffsetsRequest, raw: Request, partition: Partition
) -> Learned | None:
    """Return what serves such requests."""
    topic_name, want = request.topics[0].name, request.topics[0].partitions[0]
    position = number_position(
        route, raw, want.timestamp, lambda read: int(read.topics[0].partitions[0].timestamp)
    )
    if position is None:
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

    def serve(view: memoryview, at: int, _end: int, correlation_id: int) -> Answer | None:
        (timestamp,) = number(view, at)
        if timestamp < 0 or log.failure is not None or 0 <= expected_epoch != log.leader_epoch:
            return None
        try:
            found = first_at_or_after(log, timestamp, wait=False)
        except (StorageError, RecordsError, NotInMemory, TakesLong):
            return None
        found_time, offset, epoch = found or (-1, -1, -1)
        if has_epoch:
            return [pack(size, correlation_id, before, found_time, offset, epoch, behind)]
        return [pack(size, correlation_id, before, found_time, offset, behind)]

    return position, serve
