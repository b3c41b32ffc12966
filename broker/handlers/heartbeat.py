"""Heartbeat.

Versions: 0-4 (3: static members, KIP-345).
Behaviour: extends a member's session by its session timeout, and tells it when to rejoin. While the broker loads the
groups at start-up, every heartbeat succeeds, as in Kafka.
"""

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(session: Session, request: HeartbeatRequest, _version: int) -> HeartbeatResponse:
    """Extend the session of a member."""
    groups = session.broker.groups
    code = groups.problem(request.group_id)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE
    elif not code:
        group = groups.group(request.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            code = group.heartbeat(request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(error_code=code)
