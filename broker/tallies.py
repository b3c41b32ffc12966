"""What was asked and how it went, and how long commits took: counted where it passes, for whoever wants figures.

Owns the counters and knows nothing of who reads them. There are some only where `http.port` is set: what is not counted
costs nothing. What passes for every request is a plain integer, or an element of a list, of the event loop's; that of
commits is the flusher's; errors have a lock, as answers are encoded on several threads.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from tidelog.broker.answers import Answer, Later, Streamed
from tidelog.protocol import frame
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.error_codes_in import reporting_errors

T = TypeVar("T")

# Upper bounds of the times that are counted together, from what a request takes that waits for nothing up to the
# longest that fetches wait, as a rule.
BOUNDS_S = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip

Dispatch = Callable[..., Answer | Streamed | Later | None]


class Net(NamedTuple):
    """What the sockets know: connections that are there, bytes of requests, and counts since the start."""

    connections: int
    connections_max: int
    admitted: int
    refused: int
    bad_requests: int
    request_bytes: int


class Times:
    """How often something took how long: `counts` by BOUNDS_S, the last for what took longer."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


class ApiTally:
    """The requests for one API."""

    __slots__ = ("received_bytes", "requests", "sent_bytes", "times")

    def __init__(self) -> None:
        self.requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.times = Times()  # from when a request is decoded until its answer is encoded and may leave

    def encode(
        self,
        began_s: float,
        encode: Callable[[int, Any], Answer | Streamed],
        correlation_id: int,
        response: Any,
    ) -> Answer | Streamed:
        """Encode an answer that was waited for, and count it."""
        answer = encode(correlation_id, response)
        self.sent_bytes += answer[1]
        # As `Times.add`, which would cost as much again to call.
        times, took_s = self.times, perf_counter() - began_s
        times.counts[bisect_left(BOUNDS_S, took_s)] += 1
        times.sum_s += took_s
        return answer


class Tallies:
    """All that is counted since the start."""

    def __init__(self) -> None:
        self.apis = {key: ApiTally() for key in APIS}
        self.commits = Times()
        self._errors: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def by_name(self) -> Iterator[tuple[str, ApiTally]]:
        """Yield each API that was asked for, and its counts. Event loop."""
        return ((APIS[key].name, tally) for key, tally in self.apis.items() if tally.requests)

    def errors(self) -> dict[tuple[str, int], int]:
        """Return how often an answer of which API held which error code. Any thread."""
        with self._lock:
            return dict(self._errors)

    def timed_dispatch(self, dispatch: Dispatch, routes: object) -> Dispatch:
        """Return what dispatches by these routes, and counts; it takes and returns what `dispatch` does."""
        apis, bounds_s, position_of, clock_s = self.apis, BOUNDS_S, bisect_left, perf_counter

        def timed(session: Any, view: memoryview, position: int, end: int) -> Any:
            began_s = clock_s()
            answer = dispatch(session, view, position, end, routes)
            # No key that is served has more than one byte.
            tally = apis[view[position + 1]]
            tally.requests += 1
            tally.received_bytes += end - position
            if isinstance(answer, Later):
                answer.encode = partial(tally.encode, began_s, answer.encode)
                return answer
            if answer is not None:
                tally.sent_bytes += answer[1]
            times, took_s = tally.times, clock_s() - began_s
            times.counts[position_of(bounds_s, took_s)] += 1
            times.sum_s += took_s
            return answer

        return timed

    def encoder_of(self, api: Api, version: int) -> frame.ResponseEncoder:
        """Return what encodes responses as `frame.response_encoder`'s does, and counts the errors in them."""
        return reporting_errors(
            api.response, frame.response_encoder(api, version), partial(self._count_error, api.name)
        )

    def _count_error(self, api: str, code: int) -> None:
        with self._lock:
            self._errors[api, code] += 1

    def timed_flush(self, flush: Callable[[Collection[Any]], T]) -> Callable[[Collection[Any]], T]:
        """Return what flushes, and takes the time of it. For one thread."""

        def timed(logs: Collection[Any]) -> T:
            began_s = perf_counter()
            try:
                return flush(logs)
            finally:
                self.commits.add(perf_counter() - began_s)

        return timed
