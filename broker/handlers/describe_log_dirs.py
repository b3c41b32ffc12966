"""DescribeLogDirs.

Versions: 0-5.
Behaviour: one data folder, with the partitions that are asked for and are there; null asks for all. A size is that of
the partition's `.log` files, in bytes, with those that retention has deleted and links of readers keep on the disk.
That of a log that the start could not open is -1 where its folder cannot be listed. From version 4 on the disk's size
and free space are told.
"""

from collections.abc import Iterator

from tidelog.broker.broker import Broker
from tidelog.broker.session import Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import LONG, MANY, SHORT, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.storage import files
from tidelog.storage.log import Log

UNKNOWN = -1

_Asked = Iterator[tuple[Topic, list[int]]]


async def handle(session: Session, request: DescribeLogDirsRequest, _version: int) -> DescribeLogDirsResponse:
    """Describe the folder on a reader thread, which may wait for the disk to say how full it is."""
    broker = session.broker
    # All topics belong to the event loop: a reader thread gets them as they are now.
    every_topic = broker.topics.all()
    size = sum(1 + len(asked.partitions) for asked in request.topics or ())
    await reader(LONG if size > MANY else SHORT)
    left = MANY
    topics = []
    for topic, numbers in _asked(broker, request, every_topic):
        topics.append(DescribeLogDirsTopic(name=topic.name, partitions=_sizes(topic, numbers)))
        left -= 1 + len(numbers)
        if left <= 0:
            left = MANY
            await reader(LONG)
    folder = broker.logs.directory
    try:
        total_bytes, usable_bytes = files.space_bytes(folder)
        code = ErrorCode.NONE
    except OSError:
        total_bytes = usable_bytes = -1
        code = ErrorCode.KAFKA_STORAGE_ERROR
    result = DescribeLogDirsResult(
        error_code=code,
        log_dir=str(folder.absolute()),
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _asked(broker: Broker, request: DescribeLogDirsRequest, every_topic: tuple[Topic, ...]) -> _Asked:
    """Yield the topics to describe, each once, and the numbers of their partitions that are there."""
    if request.topics is None:
        for topic in every_topic:
            yield topic, list(range(len(topic.partitions)))
        return
    wanted: dict[str, dict[int, None]] = {}
    for asked in request.topics:
        wanted.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    for name, numbers in wanted.items():
        found = broker.topics.by_name.get(name)
        if found is not None:
            yield found, [number for number in numbers if 0 <= number < len(found.partitions)]


def _sizes(topic: Topic, numbers: list[int]) -> list[DescribeLogDirsPartition]:
    return [
        DescribeLogDirsPartition(
            partition_index=number,
            partition_size=_size_bytes(topic.partitions[number].log),
            offset_lag=0,
            is_future_key=False,
        )
        for number in numbers
    ]


def _size_bytes(log: Log) -> int:
    try:
        return log.disk_bytes()
    except OSError:
        return UNKNOWN
