"""ListPartitionReassignments.

Versions: 0.
Behaviour: there is one node, so no partition is ever under way to another: the answer is empty.
"""

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    _session: Session, _request: ListPartitionReassignmentsRequest, _version: int
) -> ListPartitionReassignmentsResponse:
    """Say that nothing is under way."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
