"""DescribeAcls: the access rules (KIP-140, KIP-290)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT8, INT16, INT32, STRING, Array


@message
class DescribeAclsRequest:
    """Ask for the rules that match; null matches any resource, principal or host."""

    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="0+")
    # 3 is the exact name, the only kind in version 0.
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, nullable="0+")
    host_filter: str | None = field(STRING, nullable="0+")
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message
class AclDescription:
    """One rule."""

    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message
class DescribeAclsResource:
    """The rules of one resource."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, "1+", default=3)
    acls: list[AclDescription] = field(Array(AclDescription))


@message
class DescribeAclsResponse:
    """Answer with the rules, by resource."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource))


DESCRIBE_ACLS = Api(
    key=29,
    versions="0-3",
    flexible="2+",
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
)
