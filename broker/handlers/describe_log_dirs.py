"""DescribeLogDirs.

Versions: 0-5.
Behaviour: describes the one data folder, with those of the requested partitions that exist; null means all. A size is
the bytes of a partition's `.log` files, including deleted files that hard links of readers keep on the disk. If the
broker could not open a log at start-up and cannot list its folder, the size is -1. Version 4 and later have the disk's
size and free space.
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
    """Describe the folder on a reader thread, which may wait for the disk."""
    broker = session.broker
    # Copied here: the set of topics belongs to the event loop.
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
    """Yield each topic to describe once, with the numbers of the requested partitions that exist."""
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
