"""ListTransactions: which transactions there are (KIP-664, KIP-994, KIP-1152)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, INT64, STRING, Array


@message
class ListTransactionsRequest:
    """Ask for transactions in some states, of some producers, that last for longer, whose ids match; or for all."""

    state_filters: list[str] = field(Array(STRING))
    producer_id_filters: list[int] = field(Array(INT64))
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", default=None, nullable="2+")


@message
class TransactionState:
    """A transaction, or what became of the last one of its id."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message
class ListTransactionsResponse:
    """Answer with the transactions, and with the names of states that there are not."""

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
