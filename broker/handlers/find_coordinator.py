"""FindCoordinator.

Versions: 0-6 (4 and later ask for several keys at once, KIP-699).
Behaviour: this broker coordinates every group.
Departures from Kafka: share groups are not supported yet and get INVALID_REQUEST. Transactions are not supported
either: a request for their coordinator gets CLUSTER_AUTHORIZATION_FAILED with a message that says so, and the broker
logs it. With this code every client gives up, and shows the message if it can. With INVALID_REQUEST librdkafka retries
for 121 seconds; with TRANSACTIONAL_ID_AUTHORIZATION_FAILED Java clients show no message. Errors by client, and seconds
until they appear:

| client | seconds | error of a producer with a transactional id |
| --- | --: | --- |
| librdkafka 2.16 | 1 | Failed to find transaction coordinator: ... Cluster authorization failed: (the message); fatal |
| Java 3.9, 4.4 | 2 | Could not find a coordinator with type TRANSACTION ...: (the message) |
| kafka-python 3.0 | 2 | Could not find a coordinator with type 1 ... ClusterAuthorizationFailedError |
| aiokafka 0.14 | 1 | ClusterAuthorizationFailedError() |
| franz-go 1.22 | 0 | unable to initialize a producer ID due to request failures: CLUSTER_AUTHORIZATION_FAILED |
| kafkajs 2.2 | 0 | Failed to find group coordinator |
"""

import logging
from collections.abc import Sequence

from tidelog.broker.codes import NO_TRANSACTIONS
from tidelog.broker.repeated_lines import lines
from tidelog.broker.session import Session
from tidelog.broker.work import Coro, map_in_chunks
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_log = logging.getLogger(__name__)

GROUP, TRANSACTION = 0, 1
SEVERAL_SINCE = 4


def handle(
    session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse | Coro[FindCoordinatorResponse]:
    """Answer that this broker coordinates groups."""
    if request.key_type == TRANSACTION:
        lines.log(_log, logging.WARNING, session.address, NO_TRANSACTIONS + " peer=%s", session.peer)
    if version >= SEVERAL_SINCE:
        return _all(session, request.coordinator_keys, request.key_type)
    found = _find(session, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _all(session: Session, keys: Sequence[str], key_type: int) -> FindCoordinatorResponse:
    found = await map_in_chunks(lambda key: _find(session, key, key_type), keys)
    return FindCoordinatorResponse(coordinators=found)


def _find(session: Session, key: str, key_type: int) -> Coordinator:
    if key_type == TRANSACTION:
        return _refusal(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if key_type != GROUP:
        message = f"key type {key_type}: only groups (0) have a coordinator"
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
