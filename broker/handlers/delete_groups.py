"""DeleteGroups.

Versions: 0-3 (the error message of version 3 is always null).
Behaviour: deletes groups without members, with their committed offsets. Responds when the deletion is on disk. A group
with members gets NON_EMPTY_GROUP.
"""

from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.groups.classic import Operation
from tidelog.broker.partition import Partition
from tidelog.broker.session import Session
from tidelog.broker.work import loop
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(session: Session, request: DeleteGroupsRequest, _version: int) -> DeleteGroupsResponse:
    """Delete groups."""
    groups = session.broker.groups
    results = []
    partitions: set[Partition] = set()
    for group_id in dict.fromkeys(request.groups_names):
        await loop()
        code = groups.problem(group_id, is_member=False)
        group = groups.group(group_id)
        if not code:
            missing = ErrorCode.GROUP_ID_NOT_FOUND
            code = missing if group is None else group.deletion_problem(Operation.DELETE)
        if group is not None and not code:
            deleted = await groups.delete(group)
            if isinstance(deleted, Partition):
                partitions.add(deleted)
            else:
                code = deleted
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    if not await groups.are_on_disk(partitions, ANSWER_BYTES * len(results)):
        for result in results:
            result.error_code = result.error_code or ErrorCode.NOT_COORDINATOR
    return DeleteGroupsResponse(results=results)
