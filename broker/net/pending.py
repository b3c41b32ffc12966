"""The pending answers of one connection: not ready, or behind one that is not, in the order of the requests.

Bounds their number and their weight. Knows nothing of how they are sent.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from tidelog.broker.answers import HOLDS_UP, MAX_UNSENT_BYTES, Answer, Later, Parts, Streamed
from tidelog.broker.session import Session

# Clients send 5 (Java) to a million (librdkafka's default) requests ahead; beyond this bound TCP holds them back.
MAX_REQUESTS_IN_FLIGHT: Final = 1000


def _ignore() -> None:
    """Do nothing."""


class PendingAnswers:
    """A queue of answers. An incomplete answer counts for what it may hold. Event loop only."""

    __slots__ = ("_is_hurried", "_lighter", "_ready", "_session", "answers", "size_bytes")

    def __init__(self, session: Session, ready: Callable[[], None], lighter: Callable[[], None]) -> None:
        """Begin empty. `ready` is called when answers are ready, `lighter` when an incomplete one weighs less."""
        self._session = session
        self._ready = ready
        self._lighter = lighter
        self._is_hurried = False
        self.answers: deque[Answer | Streamed | Later] = deque()
        self.size_bytes = 0

    @property
    def is_much(self) -> bool:
        """Tell whether the bound of one connection is reached, in number or in bytes."""
        return self.size_bytes >= MAX_UNSENT_BYTES or len(self.answers) >= MAX_REQUESTS_IN_FLIGHT

    def put(self, answer: Answer | Streamed | Later) -> bool:
        """Queue an answer that is not ready, or that is behind one; return `is_much`."""
        self.answers.append(answer)
        if isinstance(answer, Later):
            answer.ready = self._ready
            if answer.weight_bytes >= HOLDS_UP:
                answer.lightened = self._lighten
            answer.charge(self._session)
            if self._is_hurried:
                answer.hurry()
            self.size_bytes += answer.weight_bytes
        else:
            self.size_bytes += answer[1]
        return self.is_much

    def _lighten(self, size_bytes: int) -> None:
        """Count less for an incomplete answer."""
        self.size_bytes -= size_bytes
        self._lighter()

    def collect(self, out: Parts) -> Streamed | None:
        """Move ready answers to `out`. Return a large answer when it is next, or None at an answer that is not ready.

        An answer behind MAX_UNSENT_BYTES of others counts as large, so that what is read as it leaves does not pile up.
        """
        answers, out_bytes = self.answers, 0
        while answers:
            answer = answers[0]
            if isinstance(answer, Later):
                if answer.response is None:
                    return None
                ready = answer.encoded()
                if ready is None:
                    answer.ready = self._ready
                    return None
                self.size_bytes -= answer.weight_bytes
            else:
                ready = answer
                self.size_bytes -= answer[1]
            answers.popleft()
            if type(ready) is Streamed:
                return ready
            if out_bytes >= MAX_UNSENT_BYTES:
                return Streamed([*ready[0]], ready[1])
            out += ready[0]
            out_bytes += ready[1]
        return None

    def hurry(self) -> bool:
        """Let all present and later answers complete soon. Tell whether that pays."""
        self._is_hurried = True
        pays = True
        for answer in self.answers:
            if isinstance(answer, Later):
                pays &= answer.hurry()
        return pays

    def cancel(self) -> None:
        """Give up all answers, and forget the connection: the client has gone."""
        for answer in self.answers:
            if isinstance(answer, Later):
                answer.cancel()
        self.answers.clear()
        self._ready = self._lighter = _ignore
