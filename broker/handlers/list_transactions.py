"""ListTransactions.

Versions: 0-2.
Behaviour: transactions are not built yet, so there are none to list. States that Kafka does not know are named in the
answer.
Departures from Kafka: a pattern that is no regular expression matches nothing, as any other.
"""

from collections.abc import Sequence

from tidelog.broker.answers import NO_ANSWER, Elsewhere, OnLoop
from tidelog.broker.session import Session
from tidelog.broker.work import Work, begin, made_of_many
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


def handle(
    _session: Session, request: ListTransactionsRequest, _version: int
) -> ListTransactionsResponse | Elsewhere | OnLoop:
    """Say that there are none; on a reader thread where many states are asked for."""
    return begin(_respond(request.state_filters))


def _respond(states: Sequence[str]) -> Work[ListTransactionsResponse | OnLoop]:
    found = yield from made_of_many(lambda state: None if state in STATES else state, states)
    if found is None:
        return NO_ANSWER
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=[state for state in found if state is not None],
        transaction_states=[],
    )
