"""ListTransactions.

Versions: 0-2.
Behaviour: transactions are not built yet, so there are none to list. States that Kafka does not know are named in the
answer.
Departures from Kafka: a pattern that is no regular expression matches nothing, as any other.
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
    """Say that there are none; on a reader thread where many states are asked for."""
    states = request.state_filters
    found = await map_in_chunks(lambda state: None if state in STATES else state, states)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[state for state in found if state is not None],
        transaction_states=[],
    )
