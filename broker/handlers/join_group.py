"""JoinGroup.

Versions: 0-9.
Behaviour: answered when all members have joined, or the longest of their rebalance timeouts is over. From version 4
on who has no member id is given one, and joins with it (KIP-394); from 5 on members may be static (KIP-345); from 9
on a leader that comes back need not assign anew (KIP-814).
Departures from Kafka: memory for groups is bounded (`group.state.max.bytes`, of one address half of it); a member for
whom there is no room is answered GROUP_MAX_SIZE_REACHED, one that joins again with more to say
COORDINATOR_NOT_AVAILABLE: it stays a member, and tries again. More than 100 protocols are answered
INCONSISTENT_GROUP_PROTOCOL. One that says more than can be stored with what the others say, 768 KiB in all, is
answered UNKNOWN_SERVER_ERROR and does not join, where Kafka answers so whoever waits for an assignment. Who joins
again while an earlier join of its waits gets that one answered with REBALANCE_IN_PROGRESS, where Kafka leaves it
without an answer. A join that is refused leaves an empty consumer group what it is, where Kafka makes it a classic one
first.
"""

from tidelog.broker.groups.classic_member import ClassicMember, Joining, refused_join
from tidelog.broker.groups.coordinator import is_vacant
from tidelog.broker.groups.loading import Group
from tidelog.broker.session import Session
from tidelog.broker.work import truncate
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
PROTOCOL_MAY_BE_NULL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
# A member's id begins with what its client or its instance is called; no string has more than 32,767 bytes.
MOST_CLIENT_ID = 1000
MOST_INSTANCE_ID_BYTES = 32_767 - 37
# Clients have one for each assignor that they know. All are looked at in one turn of the event loop, and those of all
# members when a group has joined.
MOST_PROTOCOLS = 100


def without_excess(request: JoinGroupRequest, _version: int) -> JoinGroupRequest:
    """Drop what will be refused, where the request is decoded: a reader thread, if there is much of it."""
    truncate(request.protocols, MOST_PROTOCOLS + 1)
    return request


async def handle(session: Session, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
    """Let a member join."""
    groups = session.broker.groups
    joining = _joining(session, request, version)
    code = _problem(session, request, joining)
    if not code and groups.log.topic is None:
        await groups.create_log(session)
        code = _problem(session, request, joining)
    if code:
        # A member that is not to come back has no id any more.
        response = refused_join("" if code is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id, code)
    else:
        group = groups.group_to_join(request.group_id, joining.client_host)
        joined = group.join(joining)
        del request, joining  # They may be large, and the member may wait for long.
        try:
            response = await joined
        finally:
            groups.forget_if_unused(group)
    if response.protocol_name is None and version < PROTOCOL_MAY_BE_NULL_SINCE:
        response.protocol_name = ""
    return response


def _problem(session: Session, request: JoinGroupRequest, joining: Joining) -> ErrorCode:
    """Return why a member may not even try to join."""
    group = session.broker.groups.group(request.group_id)
    return _request_problem(session, request, group) or _room_problem(session, request, group, joining)


def _request_problem(session: Session, request: JoinGroupRequest, group: Group | None) -> ErrorCode:
    groups, config = session.broker.groups, session.broker.config
    if code := groups.problem(request.group_id):
        return code
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if len((request.group_instance_id or "").encode()) > MOST_INSTANCE_ID_BYTES:
        return ErrorCode.INVALID_REQUEST
    if len(request.protocols) > MOST_PROTOCOLS:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not is_vacant(group):
        return ErrorCode.NONE
    # A member that could not begin a classic group does not make one of a consumer group.
    if request.member_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    can_begin = request.protocol_type and request.protocols
    return ErrorCode.NONE if can_begin else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _room_problem(
    session: Session, request: JoinGroupRequest, group: Group | None, joining: Joining
) -> ErrorCode:
    """Return why there is no memory for a member; one that is there already stays, and asks again."""
    groups = session.broker.groups
    member = None if group is None else group.member(request.member_id, request.group_instance_id)
    member_id = request.member_id or request.group_instance_id or joining.client_id
    more = ClassicMember(member_id, joining).metadata_bytes + groups.new_group_bytes(request.group_id)
    if member is not None:
        more -= member.metadata_bytes if isinstance(member, ClassicMember) else member.size_bytes
    if groups.memory.has_room(session.address, more):
        return ErrorCode.NONE
    return ErrorCode.GROUP_MAX_SIZE_REACHED if member is None else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _joining(session: Session, request: JoinGroupRequest, version: int) -> Joining:
    has_timeout = version >= REBALANCE_TIMEOUT_SINCE
    protocols: dict[str, bytes] = {}
    for each in request.protocols:
        protocols.setdefault(each.name, each.metadata)  # of a name that is given twice the first counts
    return Joining(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=(session.client_id or "")[:MOST_CLIENT_ID],
        client_host=f"/{session.address}",
        rebalance_timeout_ms=max(
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms, 0
        ),
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=list(protocols.items()),
        must_know_its_id=version >= MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
    )
