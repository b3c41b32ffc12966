"""ListOffsets.

Versions: 0-11 (0 asks which segments start before a time).
Behaviour: a timestamp of 0 or more finds the first record at or after that time, exactly. Negative timestamps have
special meanings:

| timestamp | since version | offset |
| --: | --- | --- |
| -1 | 0 | the end of the log |
| -2 | 0 | the start of the log |
| -3 | 7 | the first record with the largest timestamp |
| -4 | 8 | the start of the local log: the same as -2, since there is no tiered storage |
| -5 | 9 | the end of the tiered log: always -1 |
| -6 | 11 | the start of the log that is not yet tiered: always -1 |

If no record is found, offset and timestamp are -1, without an error. Topics in format v0 have no timestamps: a search
by time gets UNSUPPORTED_FOR_MESSAGE_FORMAT, unless `lookup.clock` is `append`. If a topic names a partition twice, the
partition gets one INVALID_REQUEST. If the broker stops, the remaining partitions get NOT_LEADER_OR_FOLLOWER, and
clients retry.
Departures from Kafka: where Kafka wrongly finds no record (pinned log start, empty batches), the result is exact.
"""

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Final

from tidelog.broker.broker import Broker
from tidelog.broker.codes import error_code
from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import LOOP, SOURCES, Coro, Lane, Stopping, anywhere, in_first_lane
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.records.errors import RecordsError, UnsupportedFormat
from tidelog.storage.errors import NotInMemory, StorageError, TakesLong
from tidelog.storage.log import Log
from tidelog.storage.search import by_time
from tidelog.storage.search.by_time import APPEND_TIME, RECORD_TIME, Found
from tidelog.storage.sources import Source

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
NO_ERROR: Final = int(ErrorCode.NONE)
# Topic, partition, leader epoch, timestamp, most offsets.
_Question = tuple[str, int, int, int, int]
# The first version with each special timestamp.
_SINCE: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def handle(
    session: Session, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse | Coro[ListOffsetsResponse]:
    """Answer every partition; on a reader thread if that takes long or has to wait for the disk."""
    topics = request.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        asked, want = topics[0], topics[0].partitions[0]
        topic = session.broker.topics.by_name.get(asked.name)
        try:
            answer = _answer(topic, want, request.isolation_level, version, LOOP)
        except (NotInMemory, TakesLong):
            pass
        else:
            return ListOffsetsResponse(
                topics=[ListOffsetsTopicResponse(name=asked.name, partitions=[answer])]
            )
    return _respond(session.broker, request, version)


async def _respond(broker: Broker, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    """Answer any number of partitions, in steps. Duplicate questions are looked up once."""
    by_name = broker.topics.by_name
    topics = []
    known: dict[_Question, ListOffsetsPartitionResponse] = {}
    are_asked_again = len({asked.name for asked in request.topics}) < len(request.topics)
    for asked in request.topics:
        topic = by_name.get(asked.name)
        wanted = {want.partition_index: want for want in asked.partitions}
        if len(wanted) < len(asked.partitions):
            times = Counter(want.partition_index for want in asked.partitions)
        else:
            times = None
        answers = []
        with suppress(Stopping):
            await anywhere()  # There may be many topics without partitions.
        for index, want in wanted.items():
            if times and times[index] > 1:
                answers.append(_failure(want, ErrorCode.INVALID_REQUEST))
                continue
            question = asked.name, index, want.current_leader_epoch, want.timestamp, want.max_num_offsets
            answer = known.get(question)
            if answer is None:
                look_up = partial(_answer, topic, want, request.isolation_level, version)
                try:
                    answer = (await in_first_lane(look_up, await anywhere()))[0]
                except Stopping:
                    answer = _failure(want, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if are_asked_again:
                known[question] = answer
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=asked.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _answer(
    topic: Topic | None, want: ListOffsetsPartition, isolation_level: int, version: int, lane: Lane
) -> ListOffsetsPartitionResponse:
    """Answer one partition. Raise NotInMemory or TakesLong if it cannot be done in this lane."""
    index, timestamp = want.partition_index, want.timestamp
    partition = topic.partition(index) if topic else None
    if partition is None:
        return _failure(want, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if want.current_leader_epoch >= 0 and (problem := partition.epoch_problem(want.current_leader_epoch)):
        return _failure(want, problem)
    if partition.log.unopened is not None:
        return _failure(want, ErrorCode.KAFKA_STORAGE_ERROR)
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        return _failure(want, ErrorCode.UNSUPPORTED_VERSION)
    try:
        if version == 0:
            offsets = by_time.offsets_before(partition.log, timestamp, want.max_num_offsets, SOURCES[lane])
            return ListOffsetsPartitionResponse(
                partition_index=index, error_code=NO_ERROR, old_style_offsets=offsets
            )
        found = _find(partition.log, timestamp, isolation_level, SOURCES[lane])
    except (StorageError, RecordsError) as error:
        return _failure(want, error_code(error))
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=index, error_code=NO_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=NO_ERROR,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= 4 else -1,
    )


def _find(log: Log, timestamp: int, isolation_level: int, source: Source) -> Found | None:
    by_append = log.config.lookup_clock == "append"
    if log.magic == 0 and (timestamp == MAX_TIMESTAMP or (timestamp >= 0 and not by_append)):
        raise UnsupportedFormat(f"{log}: message.format.version is 0, which has no timestamps")
    if timestamp >= 0:
        timeline = APPEND_TIME if by_append else RECORD_TIME
        return by_time.first_at_or_after(log, timestamp, timeline, source)
    if timestamp == LATEST:
        return Found(-1, log.readable_end(isolation_level), log.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Found(-1, log.log_start_offset, log.epochs.at(log.log_start_offset))
    if timestamp == MAX_TIMESTAMP:
        return by_time.largest_timestamp(log, source)
    return None


def _failure(want: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=want.partition_index, error_code=code)
