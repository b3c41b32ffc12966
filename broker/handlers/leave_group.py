"""LeaveGroup.

Versions: 0-5 (3 and later name several members, by their ids or by their instances', KIP-345).
Behaviour: the others are told by their next heartbeat to join anew.
"""

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

SEVERAL_SINCE = 3


def handle(session: Session, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    """Let members go."""
    groups = session.broker.groups
    if code := groups.problem(request.group_id):
        return LeaveGroupResponse(error_code=code)
    if version < SEVERAL_SINCE:
        leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    group = groups.group(request.group_id)
    codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving) if group is None else group.leave(leaving)
    if version < SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    members = [
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        for (member_id, instance_id), code in zip(leaving, codes, strict=True)
    ]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)
