"""DescribeClientQuotas.

Versions: 0-1.
Behaviour: returns an empty list: there are no quotas for users, client ids and addresses, and none can be set. Options
of the broker bound what clients may use ([limits.md](limits.md)). An entity type that is empty or appears twice gets
INVALID_REQUEST; one that Kafka does not know gets UNSUPPORTED_VERSION.
"""

from tidelog.broker.codes import Refused
from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

TYPES = ("user", "client-id", "ip")


def handle(
    _session: Session, request: DescribeClientQuotasRequest, _version: int
) -> DescribeClientQuotasResponse:
    """Answer that there are none, or that the request is invalid."""
    code, message = ErrorCode.NONE, None
    try:
        _check(request.components)
    except Refused as refused:
        code, message = refused.code, str(refused)
    # Not null, which Java clients treat as an error of their own.
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=[])


def _check(components: list[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        name = component.entity_type
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "an entity type must not be empty")
        if name not in TYPES:
            message = f"unknown entity type {name[:100]!r}; the types are {', '.join(TYPES)}"
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, message)
        if name in seen:
            raise Refused(ErrorCode.INVALID_REQUEST, f"the entity type {name} appears twice")
        seen.add(name)
