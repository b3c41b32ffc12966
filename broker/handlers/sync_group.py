"""SyncGroup.

Versions: 0-5 (3: static members, KIP-345; 5 has the protocol of the member, KIP-559).
Behaviour: responds when the leader has sent the assignments and they are on disk. While the broker loads the groups at
start-up, the error is REBALANCE_IN_PROGRESS, as in Kafka, and members rejoin.
Departures from Kafka: memory for groups is bounded (`group.state.max.bytes`, half of it for one address). A leader
whose assignments do not fit gets COORDINATOR_NOT_AVAILABLE and retries. More than 10,000 assignments get
INVALID_REQUEST. If a member syncs again while an earlier sync waits, the earlier one gets REBALANCE_IN_PROGRESS; Kafka
never responds to it.
"""

from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.classic_member import refused_sync
from tidelog.broker.groups.loading import Group
from tidelog.broker.session import Session
from tidelog.broker.work import Coro, truncate
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5
# A leader sends one assignment for each member. One turn of the event loop processes all of them, in 1 to 2 ms.
MOST_ASSIGNMENTS = 10_000


def without_excess(request: SyncGroupRequest, _version: int) -> SyncGroupRequest:
    """Drop assignments beyond the limit on the thread that decodes the request: a reader thread if it is large."""
    truncate(request.assignments, MOST_ASSIGNMENTS + 1)
    return request


def handle(
    session: Session, request: SyncGroupRequest, version: int
) -> SyncGroupResponse | Coro[SyncGroupResponse]:
    """Give a member its assignment."""
    groups = session.broker.groups
    code = groups.problem(request.group_id)
    group = groups.group(request.group_id)
    if version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    elif len(request.assignments) > MOST_ASSIGNMENTS:
        code = code or ErrorCode.INVALID_REQUEST
    if code or group is None:
        return refused_sync(code or ErrorCode.UNKNOWN_MEMBER_ID)
    assignments = {each.member_id: each.assignment for each in request.assignments}
    if not groups.memory.has_room(session.address, _more_bytes(group, request.member_id, assignments)):
        return refused_sync(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # Not a coroutine of this module: it would hold the request, which may be large, while the member waits.
    return group.sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        assignments,
        request.protocol_type,
        request.protocol_name,
    )


def _more_bytes(group: Group, member_id: str, assignments: dict[str, bytes]) -> int:
    """Return by how much the assignments of a group would grow, if this member is the leader."""
    if not isinstance(group, ClassicGroup) or group.leader != member_id:
        return 0
    return sum(len(assignments.get(member.id, b"")) - len(member.assignment) for member in group)
