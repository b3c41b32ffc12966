"""LeaveGroup: leave a group."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING, Array


@message
class MemberIdentity:
    """A member, by its id or its instance id."""

    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    reason: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)


@message
class LeaveGroupRequest:
    """Ask for one member to be removed, or for several."""

    group_id: str = field(STRING)
    member_id: str = field(STRING, "0-2", default="")
    members: list[MemberIdentity] = field(Array(MemberIdentity), "3+", default=[])


@message
class MemberResponse:
    """The result for one member."""

    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", default="", nullable="3+")
    error_code: int = field(INT16, "3+", default=0)


@message
class LeaveGroupResponse:
    """Answer for each member."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(Array(MemberResponse), "3+", default=[])


LEAVE_GROUP = Api(
    key=13, versions="0-5", flexible="4+", request=LeaveGroupRequest, response=LeaveGroupResponse
)
