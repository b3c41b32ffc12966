"""DescribeGroups.

Versions: 0-6 (for a missing group, 6 returns GROUP_ID_NOT_FOUND, older versions the state "Dead").
Behaviour: describes classic groups. As in Kafka, the metadata of members is included only while the group is stable.
During a rebalance the response has their last assignments, unless another rebalance begins before the leader has
assigned. A consumer group counts as missing, as in Kafka: use ConsumerGroupDescribe. If a request names a group several
times, it is described once.
"""

from tidelog.broker.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from tidelog.broker.groups.classic import DEAD, STABLE, ClassicGroup
from tidelog.broker.session import Session
from tidelog.broker.work import loop
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6


async def handle(session: Session, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
    """Describe groups."""
    groups = session.broker.groups
    described = []
    # Each group once: a request of a few bytes must not get the same large description many times.
    for group_id in dict.fromkeys(request.groups):
        await loop()
        code = groups.problem(group_id, is_member=False)
        group = groups.group(group_id)
        if code:
            answer = _missing(group_id, code, "")
        elif not isinstance(group, ClassicGroup):
            has_error = version >= NOT_FOUND_SINCE
            code = ErrorCode.GROUP_ID_NOT_FOUND if has_error else ErrorCode.NONE
            answer = _missing(group_id, code, DEAD.value)
            why = "not found" if group is None else "is not a classic group"
            answer.error_message = f"Group {group_id} {why}." if has_error else None
        else:
            answer = await _describe(group)
        if request.include_authorized_operations and not answer.error_code:
            answer.authorized_operations = GROUP_OPERATIONS
        described.append(answer)
    return DescribeGroupsResponse(groups=described)


def _missing(group_id: str, code: ErrorCode, state: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=NOT_ASKED,
    )


async def _describe(group: ClassicGroup) -> DescribedGroup:
    is_stable, protocol = group.state is STABLE, group.protocol
    answer = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(protocol or "") if is_stable else "",
        members=[],
        authorized_operations=NOT_ASKED,
    )
    for member in list(group):
        await loop()
        answer.members.append(
            DescribedGroupMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
        )
    return answer
