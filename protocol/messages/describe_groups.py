"""DescribeGroups: state and members of groups."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, BYTES, INT16, INT32, STRING, Array


@message
class DescribeGroupsRequest:
    """Ask for groups by their ids."""

    groups: list[str] = field(Array(STRING))
    include_authorized_operations: bool = field(BOOL, "3+", default=False)


@message
class DescribedGroupMember:
    """A member; with metadata and assignment while the group is stable."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "4+", default=None, nullable="4+", ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


@message
class DescribedGroup:
    """A group, its state and its members."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "6+", default=None, nullable="6+")
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember))
    authorized_operations: int = field(INT32, "3+", default=-2147483648)


@message
class DescribeGroupsResponse:
    """Answer with one description per group."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))


DESCRIBE_GROUPS = Api(
    key=15, versions="0-6", flexible="5+", request=DescribeGroupsRequest, response=DescribeGroupsResponse
)
