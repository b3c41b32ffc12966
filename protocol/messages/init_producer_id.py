"""InitProducerId: assign an id to an idempotent or transactional producer."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING


@message
class InitProducerIdRequest:
    """Ask for a producer id, or from version 3 for a new epoch of the one given (KIP-360)."""

    transactional_id: str | None = field(STRING, nullable="0+")
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)


@message
class InitProducerIdResponse:
    """Answer with a producer id and its epoch."""

    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)


# Version 6, for two-phase commit (KIP-939), is marked as unstable in Kafka.
INIT_PRODUCER_ID = Api(
    key=22, versions="0-5", flexible="2+", request=InitProducerIdRequest, response=InitProducerIdResponse
)
