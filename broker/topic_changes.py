"""What CreateTopics and CreatePartitions share: topics are accepted one by one, and made many at a time.

Runs on the maintenance thread.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from tidelog.broker.broker import Broker
from tidelog.broker.codes import Refused, error_code
from tidelog.broker.topic_rules import BrokerStops, TopicExists, TopicIsGrowing, TopicNamesCollide
from tidelog.broker.work import Coro, Stopping, step
from tidelog.config.errors import ConfigError
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage.errors import without_frames

# The topics of a request share a sync and a change of the catalogue, up to this many partitions. The rest follows in
# further rounds, or not at all once the time is over.
MADE_AT_ONCE: Final = 2000

_CODES: dict[type[Exception], ErrorCode] = {
    ConfigError: ErrorCode.INVALID_CONFIG,
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    TopicNamesCollide: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TopicIsGrowing: ErrorCode.REQUEST_TIMED_OUT,
    BrokerStops: ErrorCode.NOT_CONTROLLER,
}
_REFUSALS: tuple[type[Exception], ...] = (Refused, *_CODES)


class Named(Protocol):
    """A topic in a request."""

    name: str


W = TypeVar("W", bound=Named)
A = TypeVar("A")
M = TypeVar("M")


async def make_many(
    broker: Broker,
    wanted: Sequence[W],
    deadline_ms: int,
    accept: Callable[[W], tuple[A, int]],
    make: Callable[[Sequence[A]], Coro[dict[str, M]]] | None,
    not_made: str,
) -> dict[str, M | Exception]:
    """Make topics or partitions: return, by topic, the result of `make` or the exception that prevented it.

    `accept` returns what to make for one topic and the number of partitions, or raises an error. Without `make`, topics
    are only accepted. `not_made` completes the message of what was not done in time, or because the broker stops.
    """
    times = Counter(each.name for each in wanted)
    outcomes: dict[str, M | Exception] = {}
    accepted: dict[str, A] = {}
    partitions = 0
    for number, each in enumerate({each.name: each for each in wanted}.values(), 1):
        try:
            await step()
            if broker.clock.monotonic_ms() >= deadline_ms:
                raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"not begun within timeout_ms, {not_made}")
            if times[each.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            accepted[each.name], count = accept(each)
            partitions += count
        except Stopping:
            outcomes[each.name] = BrokerStops(f"{not_made}, the broker stops")
        except _REFUSALS as error:
            outcomes[each.name] = without_frames(error)
        if make is not None and accepted and (partitions >= MADE_AT_ONCE or number == len(times)):
            try:
                await step()
                outcomes |= await make(list(accepted.values()))
            except Stopping:
                outcomes |= dict.fromkeys(accepted, BrokerStops(f"{not_made}, the broker stops"))
            accepted, partitions = {}, 0
    return outcomes


def answer_for(error: Exception) -> tuple[ErrorCode, str]:
    """Return the code and the message of an exception in the outcomes of `make_many`."""
    if isinstance(error, Refused):
        return error.code, str(error)
    message = error.answer if isinstance(error, ConfigError) else str(error)
    return _CODES.get(type(error)) or error_code(error), message
