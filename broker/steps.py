"""Answers that are made in steps: on a reader thread what takes long, on the event loop what belongs to it."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from tidelog.broker.answers import (
    HOLDS_UP,
    Answer,
    Elsewhere,
    Later,
    NextTurn,
    OnLoop,
    Streamed,
    outcome_of,
)
from tidelog.broker.session import Session
from tidelog.broker.turns import TURN_S
from tidelog.broker.work import Work, as_work


def unencoded(session: Session, form: Elsewhere | NextTurn | OnLoop | Later) -> "Steps":
    """Return the response to come of a form that a handler has returned, as a message."""
    return Steps(session, lambda response: response).begin(form)


class Steps(Later):
    """An answer in the making, encoded when it is there. Its connection takes no other request until what is left to do
    is to wait.
    """

    __slots__ = (
        "_broker",
        "_encode",
        "_is_hurried",
        "_is_large",
        "_is_over",
        "_is_working",
        "_session",
        "_under_way",
    )

    def __init__(
        self, session: Session, encode: Callable[..., Answer | Streamed], *, is_large: bool = False
    ) -> None:
        """Make an answer, which `encode(response)` encodes: on a reader thread where it was made there, or is large."""
        super().__init__()
        self._session = session
        self._broker = session.broker
        self._encode = encode
        self._is_large = is_large
        self._is_hurried = False
        self._is_over = False
        self._is_working = False  # and does not merely wait
        self._under_way: Later | None = None

    def begin(self, step: Elsewhere | NextTurn | OnLoop | Later) -> Self:
        """Take the first step."""
        self._take(step)
        return self

    def _work(self, is_working: bool) -> None:
        if is_working != self._is_working:
            self._is_working = is_working
            if is_working:
                self._broker.collector.hold_off()
            else:
                self._broker.collector.let_go()

    def _take(self, outcome: Any) -> None:
        """Go on from what a handler has returned, in whichever form. Event loop."""
        if type(outcome) is OnLoop and not self._is_large:
            outcome = outcome_of(outcome)
        if isinstance(outcome, OnLoop | NextTurn):
            # What a large request has to do on the loop may take long too: the others have their turn before.
            self._work(True)
            self._broker.turns.wait(partial(self._go_on, outcome), TURN_S)
        elif isinstance(outcome, Elsewhere):
            self._submit(outcome)
        elif isinstance(outcome, Later):
            # Another thread makes it, of as much as was asked for, unless it is something to wait for.
            self._work(self._is_large and outcome.weight_bytes >= HOLDS_UP)
            self._wait_for(outcome, self._take)
        elif outcome is None:
            self._hand_over(([], 0))
        elif isinstance(outcome, Exception):
            self._hand_over(outcome)
        elif self._is_large:
            self._submit(Elsewhere(lambda: outcome))
        else:
            self._hand_over(outcome_of(partial(self._encode, outcome)))

    def _go_on(self, step: OnLoop | NextTurn) -> None:
        """Take a step for which the others had to have their turn. A produce that has begun is done to its end."""
        if not self._is_over or type(step) is NextTurn:
            self._take(outcome_of(step))

    def _submit(self, step: Elsewhere) -> None:
        """Have a reader thread take a step."""
        self._work(True)
        later = self._broker.readers.submit(self._made(step), self._session)
        self._wait_for(later, self._came_encoded)

    def _made(self, step: Elsewhere) -> Work[Answer | Streamed | OnLoop]:
        """Make an answer and encode it. Reader thread."""
        made = yield from as_work(step.make)
        return made if type(made) is OnLoop else self._encode(made)

    def _wait_for(self, later: Later, came: Callable[[Any], None]) -> None:
        self._under_way = later
        later.ready = partial(self._forward, later, came)
        later.charge(self._session)
        if self._is_hurried:
            later.hurry()
        if later.weight_bytes < self.weight_bytes:
            lighter_bytes = self.weight_bytes - later.weight_bytes
            self.weight_bytes = later.weight_bytes
            if self.lightened is not None:
                self.lightened(lighter_bytes)

    def _forward(self, later: Later, came: Callable[[Any], None]) -> None:
        self._under_way = None
        came(later.response)

    def _came_encoded(self, outcome: Answer | Streamed | OnLoop | Exception) -> None:
        """Go on from what a reader thread has come to."""
        if isinstance(outcome, OnLoop):
            self._take(outcome)
        else:
            self._hand_over(outcome)

    def _hand_over(self, answer: Answer | Streamed | Exception) -> None:
        self._work(False)
        self.resolve(answer)

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
