"""ListTransactions.

Versions: 0-2.
Behaviour: returns an empty list, because transactions are not supported yet. The response names the requested states
that Kafka does not know.
Departures from Kafka: an invalid regular expression is no error.
"""

from tidelog.broker.session import Session
from tidelog.broker.work import map_in_chunks
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

STATES = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)


async def handle(
    _session: Session, request: ListTransactionsRequest, _version: int
) -> ListTransactionsResponse:
    """Answer that there are none; on a reader thread if the request has many states."""
    states = request.state_filters
    found = await map_in_chunks(lambda state: None if state in STATES else state, states)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[state for state in found if state is not None],
        transaction_states=[],
    )
