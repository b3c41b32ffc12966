"""Counts requests, errors and the time that commits take, for the metrics.

Counters exist only if `http.port` is set, so a broker without metrics pays nothing. Counts of each request are plain
integers, or list elements, that belong to the event loop. Those of commits belong to the flusher. Errors have a lock,
because answers are encoded on several threads.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.broker.answers import Answer, Later, Streamed
from tidelog.protocol import frame
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.error_codes_in import reporting_errors

T = TypeVar("T")

# Upper bounds of the histogram's buckets: from a request that waits for nothing to the longest usual wait of a fetch.
BOUNDS_S: Final = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip

Dispatch = Callable[..., Answer | Streamed | Later | None]


class Net(NamedTuple):
    """Counts of the listeners: present connections, bytes of requests, and totals since the start."""

    connections: int
    connections_max: int
    admitted: int
    refused: int
    bad_requests: int
    request_bytes: int


class Times:
    """A histogram of times: `counts` by BOUNDS_S, with one more for longer times."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        """Add one time."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s


class ApiTally:
    """The requests for one API."""

    __slots__ = ("received_bytes", "requests", "sent_bytes", "times")

    def __init__(self) -> None:
        self.requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.times = Times()  # from before a request is decoded until its answer is encoded and may leave

    def encode(
        self,
        began_s: float,
        encode: Callable[[int, Any], Answer | Streamed],
        correlation_id: int,
        response: Any,
    ) -> Answer | Streamed:
        """Encode and count an answer that was not immediate."""
        answer = encode(correlation_id, response)
        self.sent_bytes += answer[1]
        # as `Times.add`, but calling that would double the cost
        times, took_s = self.times, perf_counter() - began_s
        times.counts[bisect_left(BOUNDS_S, took_s)] += 1
        times.sum_s += took_s
        return answer


class Tallies:
    """All counts since the start."""

    def __init__(self) -> None:
        self.apis = {key: ApiTally() for key in APIS}
        self.commits = Times()
        self._errors: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def by_name(self) -> Iterator[tuple[str, ApiTally]]:
        """Yield each API that was requested, with its counts. Event loop."""
        return ((APIS[key].name, tally) for key, tally in self.apis.items() if tally.requests)

    def errors(self) -> dict[tuple[str, int], int]:
        """Return the number of error codes in answers by (API, code). Any thread."""
        with self._lock:
            return dict(self._errors)

    def timed_dispatch(self, dispatch: Dispatch, routes: object) -> Dispatch:
        """Return a function like `dispatch` that uses these routes and counts."""
        apis, bounds_s, position_of, clock_s = self.apis, BOUNDS_S, bisect_left, perf_counter

        def timed(session: Any, view: memoryview, position: int, end: int) -> Any:
            began_s = clock_s()
            answer = dispatch(session, view, position, end, routes)
            # all served keys fit in one byte
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
        """Return an encoder as `frame.response_encoder` does, which also counts the errors in responses."""
        return reporting_errors(
            api.response, frame.response_encoder(api, version), partial(self._count_error, api.name)
        )

    def _count_error(self, api: str, code: int) -> None:
        with self._lock:
            self._errors[api, code] += 1

    def timed_flush(self, flush: Callable[[Collection[Any]], T]) -> Callable[[Collection[Any]], T]:
        """Return a function that flushes and measures the time. For one thread."""

        def timed(logs: Collection[Any]) -> T:
            began_s = perf_counter()
            try:
                return flush(logs)
            finally:
                self.commits.add(perf_counter() - began_s)

        return timed
