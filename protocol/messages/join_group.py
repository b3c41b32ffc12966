"""JoinGroup: become a member of a group, or take part in its next generation."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, BYTES, INT16, INT32, STRING, Array


@message
class JoinGroupRequestProtocol:
    """A protocol that the member supports, and its metadata for it."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@message
class JoinGroupRequest:
    """Ask to join; without a member id, the broker assigns one."""

    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", default=None, nullable="5+")
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, "8+", default=None, nullable="8+", ignorable=True)


@message
class JoinGroupResponseMember:
    """The metadata of a member for the chosen protocol."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = field(BYTES)


@message
class JoinGroupResponse:
    """Answer when all members have joined; the leader gets their metadata."""

    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, "7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = field(STRING, nullable="7+")
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, "9+", default=False)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember))


JOIN_GROUP = Api(key=11, versions="0-9", flexible="6+", request=JoinGroupRequest, response=JoinGroupResponse)
