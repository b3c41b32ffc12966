"""FindCoordinator.

Versions: 0-6 (4 and later ask for several keys at once, KIP-699).
Behaviour: this broker looks after every group.
Departures from Kafka: transactions and share groups are not built yet: who asks for their coordinator is answered
INVALID_REQUEST, at which clients give up and say so; Kafka's code for a coordinator that is not there yet has them ask
again until they time out.
"""

from collections.abc import Sequence

from tidelog.broker.answers import NO_ANSWER, Elsewhere, OnLoop
from tidelog.broker.session import Session
from tidelog.broker.work import Work, begin, made_of_many
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION = 0, 1
SEVERAL_SINCE = 4


def handle(
    session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse | Elsewhere | OnLoop:
    """Say who looks after groups."""
    if version >= SEVERAL_SINCE:
        return begin(_all(session, request.coordinator_keys, request.key_type))
    found = _find(session, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _all(session: Session, keys: Sequence[str], key_type: int) -> Work[FindCoordinatorResponse | OnLoop]:
    found = yield from made_of_many(lambda key: _find(session, key, key_type), keys)
    return NO_ANSWER if found is None else FindCoordinatorResponse(coordinators=found)


def _find(session: Session, key: str, key_type: int) -> Coordinator:
    if key_type == TRANSACTION:
        return _refusal(key, ErrorCode.INVALID_REQUEST, "transactions are not supported yet")
    if key_type != GROUP:
        message = f"key type {key_type}: only groups (0) have a coordinator here"
        return _refusal(key, ErrorCode.INVALID_REQUEST, message)
    host, port = session.advertised
    return Coordinator(
        key=key,
        node_id=session.broker.node_id,
        host=host,
        port=port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _refusal(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
