"""ListTransactions: list transactions (KIP-664, KIP-994, KIP-1152)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING, Array


@message
class ListTransactionsRequest:
    """Ask for transactions, filtered by state, producer, duration and id."""

    state_filters: list[str] = field(Array(STRING))
    producer_id_filters: list[int] = field(Array(INT64))
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", default=None, nullable="2+")


@message
class TransactionState:
    """The current or last transaction of an id."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message
class ListTransactionsResponse:
    """Answer with the transactions, and the unknown states of the request."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(Array(STRING))
    transaction_states: list[TransactionState] = field(Array(TransactionState))


LIST_TRANSACTIONS = Api(
    key=66,
    versions="0-2",
    flexible="0+",
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
)
