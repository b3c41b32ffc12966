"""InitProducerId.

Versions: 0-5.
Behaviour: gives an idempotent producer a new, unique id and epoch 0. A producer that requests a new epoch (KIP-360)
also gets a new id: without transactions, its old epoch has nothing to fence. If the broker cannot reserve an id, for
example on a full disk, the error is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, and all clients retry.
Departures from Kafka: transactions are not supported yet. Clients learn that from FindCoordinator. A request with a
transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, so every client gives up, and the broker logs it.
"""

import logging

from tidelog.broker.answers import Later
from tidelog.broker.codes import NO_TRANSACTIONS
from tidelog.broker.repeated_lines import lines
from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_log = logging.getLogger(__name__)


def handle(session: Session, request: InitProducerIdRequest, _version: int) -> InitProducerIdResponse | Later:
    """Give out a producer id."""
    if request.transactional_id is not None:
        template = NO_TRANSACTIONS + " peer=%s transactional_id=%r"
        values = session.peer, request.transactional_id
        lines.log(_log, logging.WARNING, session.address, template, *values)
        # With INVALID_REQUEST librdkafka would retry until it times out.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return session.broker.producer_ids.give(_answer)


def _answer(producer_id: int | None) -> InitProducerIdResponse:
    if producer_id is None:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
