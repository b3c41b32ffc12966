"""DescribeAcls.

Versions: 0-3.
Behaviour: nobody is asked who they are, so there are no rules about who may do what: SECURITY_DISABLED, as a Kafka
broker without an authorizer answers, by which tools know.
"""

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(_session: Session, _request: DescribeAclsRequest, _version: int) -> DescribeAclsResponse:
    """Say that there are no rules."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="there are no ACLs: everybody may do everything here",
        resources=[],
    )
