"""Answers that are made in steps: on a reader thread what takes long, on the event loop what belongs to it."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tidelog.broker.answers import Elsewhere, NextTurn, OnLoop, Streamed
from tidelog.broker.turns import TURN_S
from tidelog.broker.waiting import Later, outcome_of
from tidelog.broker.work import Work, as_work

if TYPE_CHECKING:
    from tidelog.broker.net.connection import Connection

_NO_ANSWER: list[bytes | bytearray] = []


class Steps(Later):
    """An answer in the making. Its connection takes no other request until what is left to do is to wait."""

    __slots__ = (
        "_connection",
        "_encode",
        "_is_hurried",
        "_is_large",
        "_is_over",
        "_is_working",
        "_under_way",
    )

    def __init__(
        self, connection: "Connection", encode: Callable[[Any], Any], *, is_large: bool = False
    ) -> None:
        """Make an answer; what a reader thread makes is encoded there, and all that is large."""
        super().__init__()
        self._connection = connection
        self._encode = encode
        self._is_large = is_large
        self._is_hurried = False
        self._is_over = False
        self._is_working = False  # and does not merely wait
        self._under_way: Later | None = None

    def begin(self, step: Elsewhere | NextTurn | Later) -> Self:
        """Take the first step."""
        self._take(step)
        return self

    def _work(self, is_working: bool) -> None:
        if is_working != self._is_working:
            self._is_working = is_working
            collector = self._connection.broker.collector
            if is_working:
                collector.hold_off()
            else:
                collector.let_go()

    def _take(self, outcome: Any) -> None:
        """Go on from what a step has come to. Event loop."""
        if type(outcome) is OnLoop and not self._is_large:
            outcome = outcome_of(outcome.go_on)
        if isinstance(outcome, OnLoop | NextTurn):
            # What a large request has to do on the loop may take long too: the others have their turn before.
            self._work(True)
            self._connection.broker.turns.wait(partial(self._go_on, outcome), TURN_S)
            return
        if outcome is None:
            outcome = _NO_ANSWER
        elif self._is_large and not isinstance(outcome, Later | Elsewhere | Exception | list | Streamed):
            message = outcome
            outcome = Elsewhere(lambda: message)
        self._work(type(outcome) is Elsewhere)
        if type(outcome) is Elsewhere:
            outcome = self._submit(outcome)
        if isinstance(outcome, Later):
            self._wait_for(outcome)
        else:
            self.resolve(outcome)

    def _go_on(self, step: OnLoop | NextTurn) -> None:
        """Take a step for which the others had to have their turn. A produce that has begun is done to its end."""
        if not self._is_over or type(step) is NextTurn:
            self._take(outcome_of(step.go_on))

    def _submit(self, step: Elsewhere) -> Later:
        return self._connection.broker.readers.submit(self._made(step), self._connection)

    def _made(self, step: Elsewhere) -> Work[Any]:
        """Make an answer and encode it. Reader thread."""
        made = yield from as_work(step.make)
        return made if type(made) is OnLoop else self._encode(made)

    def _wait_for(self, later: Later) -> None:
        self._under_way = later
        later.ready = partial(self._came, later)
        later.charge(self._connection)
        if self._is_hurried:
            later.hurry()
        if later.weight_bytes < self.weight_bytes:
            self._connection.lighten(self.weight_bytes - later.weight_bytes)
            self.weight_bytes = later.weight_bytes

    def _came(self, later: Later) -> None:
        # Nothing refers to what it was made of any more, not even in a circle, which only the collector would find.
        later.ready = self._under_way = None
        self._take(later.response)

    def hurry(self) -> bool:
        """Wait for nothing that need not be waited for; large requests are not worth it."""
        self._is_hurried = True
        if self._under_way is not None:
            self._under_way.hurry()
        return not self._is_large

    def cancel(self) -> None:
        """Give up, wherever it has come to."""
        self._is_over = True
        self._work(False)
        if self._under_way is not None:
            self._under_way.ready = None
            self._under_way.cancel()
