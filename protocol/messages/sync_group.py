"""SyncGroup: send the assignment, as the leader, and get the member's own."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BYTES, INT16, INT32, STRING, Array


@message
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


@message
class SyncGroupRequest:
    """Send the assignments of all members, or none, and wait for the member's own."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    protocol_type: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment))


@message
class SyncGroupResponse:
    """Answer with the member's assignment."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = field(BYTES)


SYNC_GROUP = Api(key=14, versions="0-5", flexible="4+", request=SyncGroupRequest, response=SyncGroupResponse)
