"""Heartbeat: the heartbeat of a member."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING


@message
class HeartbeatRequest:
    """Send a heartbeat."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")


@message
class HeartbeatResponse:
    """Answer whether the member may continue, or must join again."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)


HEARTBEAT = Api(key=12, versions="0-4", flexible="4+", request=HeartbeatRequest, response=HeartbeatResponse)
