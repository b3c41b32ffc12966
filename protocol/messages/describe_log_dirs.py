"""DescribeLogDirs: the size of partitions on disk (KIP-113, KIP-827)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, INT64, STRING, Array


@message
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


@message
class DescribeLogDirsRequest:
    """Ask about partitions, null for all of them."""

    topics: list[DescribableLogDirTopic] | None = field(Array(DescribableLogDirTopic), nullable="0+")


@message
class DescribeLogDirsPartition:
    """The size of a partition's log, in bytes."""

    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)


@message
class DescribeLogDirsTopic:
    """The partitions of one topic that are in a folder."""

    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(Array(DescribeLogDirsPartition))


@message
class DescribeLogDirsResult:
    """A data folder: its partitions, and the space on its disk in bytes."""

    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(Array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, "5+", default=False, ignorable=True)


@message
class DescribeLogDirsResponse:
    """Answer with each data folder."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, "3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult))


DESCRIBE_LOG_DIRS = Api(
    key=35, versions="0-5", flexible="2+", request=DescribeLogDirsRequest, response=DescribeLogDirsResponse
)
