"""DescribeClientQuotas.

Versions: 0-1.
Behaviour: there are no quotas of users, client ids and addresses, and none can be set: whatever is asked for, none
match. A part of an entity that stands twice or has no name is INVALID_REQUEST, one that Kafka does not know
UNSUPPORTED_VERSION. What clients may hold is bounded all the same, by the broker's options.
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
    """Say that there are none, or what is wrong with the question."""
    code, message = ErrorCode.NONE, None
    try:
        _check(request.components)
    except Refused as refused:
        code, message = refused.code, str(refused)
    # Clients of Java take null for a fault of their own.
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=[])


def _check(components: list[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        name = component.entity_type
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "an entity type has a name")
        if name not in TYPES:
            message = f"no entity type {name[:100]!r}: there are {', '.join(TYPES)}"
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, message)
        if name in seen:
            raise Refused(ErrorCode.INVALID_REQUEST, f"the entity type {name} stands twice")
        seen.add(name)
