"""DescribeAcls.

Versions: 0-3.
Behaviour: there is no authentication and so no ACLs. The answer is SECURITY_DISABLED, as from a Kafka broker without an
authorizer, and tools recognize it.
"""

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(_session: Session, _request: DescribeAclsRequest, _version: int) -> DescribeAclsResponse:
    """Answer that there are no ACLs."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="there are no ACLs: every client may do everything",
        resources=[],
    )
