"""SyncGroup.

Versions: 0-5 (3: static members, KIP-345; 5 says which protocol the member goes by, KIP-559).
Behaviour: answered when the leader has handed in the assignment and that is on disk. While groups are loaded the
answer is REBALANCE_IN_PROGRESS, as in Kafka: members join anew.
Departures from Kafka: memory for groups is bounded (`group.state.max.bytes`, of one address half of it); a leader who
assigns more than there is room for is answered COORDINATOR_NOT_AVAILABLE, and tries again. More than 10,000
assignments are answered INVALID_REQUEST. Who syncs again while an earlier sync of its waits gets that one answered
with REBALANCE_IN_PROGRESS, where Kafka leaves it without an answer.
"""

from tidelog.broker.groups.classic import ClassicGroup
from tidelog.broker.groups.classic_member import refused_sync
from tidelog.broker.groups.loading import Group
from tidelog.broker.session import Session
from tidelog.broker.work import Coro, truncate
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5
# A leader has one for each member. All of them are looked at in one turn of the event loop: a millisecond or two.
MOST_ASSIGNMENTS = 10_000


def without_excess(request: SyncGroupRequest, _version: int) -> SyncGroupRequest:
    """Drop what will be refused, where the request is decoded: a reader thread, if there is much of it."""
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
    # Of the request, which may be large, nothing is held while the member waits.
    return group.sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        assignments,
        request.protocol_type,
        request.protocol_name,
    )


def _more_bytes(group: Group, member_id: str, assignments: dict[str, bytes]) -> int:
    """Return how much larger the assignments of a group would become, if this member leads."""
    if not isinstance(group, ClassicGroup) or group.leader != member_id:
        return 0
    return sum(len(assignments.get(member.id, b"")) - len(member.assignment) for member in group)
