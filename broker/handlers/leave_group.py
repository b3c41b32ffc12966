"""LeaveGroup.

Versions: 0-5 (3 and later name several members, by their ids or by their instances', KIP-345).
Behaviour: the others are told by their next heartbeat to join anew. Answered when what has become of the group is on
disk. Of a classic group in which others stay that is so with their next assignment: after a crash before that, who has
left is a member again until its session ends, as in Kafka.
Departures from Kafka: on disk, not in the page cache. More than 10,000 members that are to go are answered
INVALID_REQUEST.
"""

from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.session import Session
from tidelog.broker.work import truncate
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

SEVERAL_SINCE = 3
# All of them go in one turn of the event loop.
MOST_LEAVING = 10_000


def without_excess(request: LeaveGroupRequest, _version: int) -> LeaveGroupRequest:
    """Drop what will be refused, where the request is decoded: a reader thread, if there is much of it."""
    truncate(request.members, MOST_LEAVING + 1)
    return request


async def handle(session: Session, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    """Remove members."""
    groups = session.broker.groups
    if code := groups.problem(request.group_id):
        return LeaveGroupResponse(error_code=code)
    if len(request.members) > MOST_LEAVING:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_REQUEST)
    if version < SEVERAL_SINCE:
        leaving: list[tuple[str, str | None]] = [(request.member_id, None)]
    else:
        leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    group = groups.group(request.group_id)
    codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving) if group is None else group.leave(leaving)
    if ErrorCode.NONE not in codes:
        return _response(leaving, codes, version)
    partition = groups.log.partition(request.group_id)
    partitions = [] if partition is None else [partition]
    if not await groups.are_on_disk(partitions, ANSWER_BYTES * len(leaving)):
        return LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    return _response(leaving, codes, version)


def _response(
    leaving: list[tuple[str, str | None]], codes: list[ErrorCode], version: int
) -> LeaveGroupResponse:
    if version < SEVERAL_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    members = [
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        for (member_id, instance_id), code in zip(leaving, codes, strict=True)
    ]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)
