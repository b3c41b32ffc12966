"""SyncGroup.

Versions: 0-5 (3: static members, KIP-345; 5 says which protocol the member goes by, KIP-559).
Behaviour: answered when the leader has handed in the assignment and that is on disk. While groups are loaded the answer
is REBALANCE_IN_PROGRESS, as in Kafka: members join anew.
Departures from Kafka: who syncs again while an earlier sync of its waits gets that one answered with
REBALANCE_IN_PROGRESS, where Kafka leaves it without an answer.
"""

from functools import partial

from tidelog.broker.answers import Later
from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE = 5


def handle(session: Session, request: SyncGroupRequest, version: int) -> SyncGroupResponse | Later:
    """Give a member its assignment."""
    groups = session.broker.groups
    code = groups.problem(request.group_id)
    group = groups.group(request.group_id)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    elif version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        code = code or ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    elif group is None:
        code = code or ErrorCode.UNKNOWN_MEMBER_ID
    if code or group is None:
        return SyncGroupResponse(error_code=code or ErrorCode.UNKNOWN_MEMBER_ID, assignment=b"")
    assignments = [(each.member_id, each.assignment) for each in request.assignments]
    ask = partial(
        group.sync,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        assignments,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
    )
    return groups.waiting(lambda answer: ask(answer=answer))  # type: ignore[no-any-return]
