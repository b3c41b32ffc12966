"""ListPartitionReassignments.

Versions: 0.
Behaviour: returns an empty list: there is one node, so no partition is ever being reassigned.
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
    """Answer that there are none."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
