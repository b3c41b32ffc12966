"""ConsumerGroupDescribe: state and members of consumer groups (KIP-848, KIP-1099)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT8, INT16, INT32, STRING, UUID, Array


@message
class ConsumerGroupDescribeRequest:
    """Ask for consumer groups by their ids."""

    group_ids: list[str] = field(Array(STRING))
    include_authorized_operations: bool = field(BOOL)


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


@message
class Assignment:
    """The current or target assignment of a member."""

    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


@message
class Member:
    """A member."""

    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, default=None, nullable="0+")
    rack_id: str | None = field(STRING, default=None, nullable="0+")
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(Array(STRING))
    subscribed_topic_regex: str | None = field(STRING, default=None, nullable="0+")
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    # 0 for the classic protocol, 1 for that of consumer groups.
    member_type: int = field(INT8, "1+", default=-1, ignorable=True)


@message
class DescribedGroup:
    """A group, its epochs and its members."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default=None, nullable="0+")
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[Member] = field(Array(Member))
    authorized_operations: int = field(INT32, default=-(1 << 31))


@message
class ConsumerGroupDescribeResponse:
    """Answer with one description per group."""

    throttle_time_ms: int = field(INT32, default=0)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))


CONSUMER_GROUP_DESCRIBE = Api(
    key=69,
    versions="0-1",
    flexible="0+",
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
)
