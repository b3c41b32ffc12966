"""LeaveGroup.

Versions: 0-5 (3 and later name several members, by member id or instance id, KIP-345).
Behaviour: removes members. The others learn from their next heartbeat that they must rejoin. The response is sent when
the stored changes are on disk. A classic group with remaining members is stored with their next assignment. After a
crash before that, a member that has left is a member again until its session expires, as in Kafka.
Departures from Kafka: the response waits for the disk, not only for the page cache. More than 10,000 members in a
request get INVALID_REQUEST.
"""

from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.session import Session
from tidelog.broker.work import truncate
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

SEVERAL_SINCE = 3
# One turn of the event loop removes all of them.
MOST_LEAVING = 10_000


def without_excess(request: LeaveGroupRequest, _version: int) -> LeaveGroupRequest:
    """Drop members beyond the limit on the thread that decodes the request: a reader thread if it is large."""
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
