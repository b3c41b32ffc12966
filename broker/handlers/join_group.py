"""JoinGroup.

Versions: 0-9.
Behaviour: responds when all members have joined, or after the longest of their rebalance timeouts. From version 4 on a
client without a member id first gets one, and joins with it (KIP-394). From 5 on members may be static (KIP-345). From
9 on a leader that rejoins need not assign partitions again (KIP-814).
Departures from Kafka: memory for groups is bounded (`group.state.max.bytes`, half of it for one address). A new member
that does not fit gets GROUP_MAX_SIZE_REACHED. A member that rejoins with larger metadata that does not fit gets
COORDINATOR_NOT_AVAILABLE: it stays a member, and retries. More than 100 protocols get INCONSISTENT_GROUP_PROTOCOL. The
metadata of all members together may have 768 KiB. A member that exceeds this gets UNKNOWN_SERVER_ERROR and does not
join; in Kafka all members that wait for an assignment get this error. If a member joins again while an earlier join
waits, the earlier one gets REBALANCE_IN_PROGRESS; Kafka never responds to it. A failed join leaves an empty consumer
group as it is; Kafka first converts it to a classic group.
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
# A member id begins with the client id or the instance id, and a string has 32,767 bytes at most.
MOST_CLIENT_ID = 1000
MOST_INSTANCE_ID_BYTES = 32_767 - 37
# Clients send one protocol for each of their assignors. One turn of the event loop processes all protocols of a member,
# and those of all members when a group has joined.
MOST_PROTOCOLS = 100


def without_excess(request: JoinGroupRequest, _version: int) -> JoinGroupRequest:
    """Drop protocols beyond the limit on the thread that decodes the request: a reader thread if it is large."""
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
        # As in Kafka, a member for which the group has no room loses its id.
        response = refused_join("" if code is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id, code)
    else:
        group = groups.group_to_join(request.group_id, joining.client_host)
        joined = group.join(joining)
        del request, joining  # They may be large, and the member may wait long.
        try:
            response = await joined
        finally:
            groups.forget_if_unused(group)
    if response.protocol_name is None and version < PROTOCOL_MAY_BE_NULL_SINCE:
        response.protocol_name = ""
    return response


def _problem(session: Session, request: JoinGroupRequest, joining: Joining) -> ErrorCode:
    """Return why a join is refused before it reaches the group."""
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
    # The member would be the first of a new classic group. If it cannot be, a vacant consumer group stays as it is.
    if request.member_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    can_begin = request.protocol_type and request.protocols
    return ErrorCode.NONE if can_begin else ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def _room_problem(
    session: Session, request: JoinGroupRequest, group: Group | None, joining: Joining
) -> ErrorCode:
    """Return why a member does not fit into memory. A known member gets a code on which it retries."""
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
        protocols.setdefault(each.name, each.metadata)  # The first of two with the same name counts.
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
