"""DescribeAcls.

Versions: 0-3.
Behaviour: responds SECURITY_DISABLED, as a Kafka broker without an authorizer does, because there is no authentication
and so there are no ACLs. Tools recognize this error.
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
