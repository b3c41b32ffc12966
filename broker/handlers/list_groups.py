"""ListGroups.

Versions: 0-5 (4: by state, KIP-518; 5: by type, KIP-848).
Behaviour: lists all groups, or the groups in the requested states and types. These are not case-sensitive.
"""

from tidelog.broker.session import Session
from tidelog.broker.work import loop
from tidelog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(session: Session, request: ListGroupsRequest, _version: int) -> ListGroupsResponse:
    """List groups."""
    groups = session.broker.groups
    if code := groups.problem("", is_member=False):
        return ListGroupsResponse(error_code=code, groups=[])
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    listed = []
    for group in list(groups.groups.values()):
        await loop()
        is_asked = not states or group.state.value.lower() in states
        if is_asked and (not types or group.kind.lower() in types):
            listed.append(
                ListedGroup(
                    group_id=group.id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=group.kind,
                )
            )
    return ListGroupsResponse(error_code=0, groups=listed)
