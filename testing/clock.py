"""The clock of a broker, in the hand of a test.

Each call returns once the broker has done all that was due by then: what expires has expired, who waited has his
answer.
"""

from datetime import datetime, timedelta
from typing import Any, Protocol

from tidelog.testing.times import Moment, to_datetime, to_ms

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True


class Ask(Protocol):
    """Has a broker do something, and returns what it answers."""

    def __call__(self, do: str, /, **arguments: Any) -> dict[str, Any]:
        """Raise ControlError for what is refused, BrokerError where no broker is there."""


class Clock:
    """Follows the system's clock until it is held; then it moves as it is told."""

    def __init__(self, ask: Ask) -> None:
        """Ask nothing yet."""
        self._ask = ask
        self._held_ms: int | None = None

    @property
    def now_ms(self) -> int:
        """The time of day at the broker, in milliseconds since the epoch."""
        return self.follow(self._ask("now"))

    def now(self) -> datetime:
        """Return the time of day at the broker, in UTC."""
        return to_datetime(self.now_ms)

    @property
    def held_ms(self) -> int | None:
        """Where this object has last held the clock; None while it goes."""
        return self._held_ms

    def hold(self) -> datetime:
        """Stop the clock at the present moment, and return that."""
        return self._moved("hold")

    def advance(self, **span: float) -> datetime:
        """Move the clock on by a span in the words of `timedelta`, as in `advance(hours=48)`; return where it is.

        It is held there. ControlError for a span that goes back.
        """
        return self._moved("advance", ms=timedelta(**span) // timedelta(milliseconds=1))

    def set(self, moment: Moment) -> datetime:
        """Move the clock to a moment, on or back, and hold it there.

        Whoever waits for some time to pass goes by another clock, which a step back leaves where it is. ValueError for
        what is no moment.
        """
        return self._moved("set", at_ms=to_ms(moment))

    def release(self) -> datetime:
        """Let the clock go, by the system's time from now on."""
        return self._moved("release")

    def _moved(self, do: str, **arguments: Any) -> datetime:
        return to_datetime(self.follow(self._ask(do, **arguments)))

    def follow(self, answer: dict[str, Any]) -> int:
        """Take note of what the broker says of its clock, and return the time of day in ms."""
        now_ms: int = answer["now_ms"]
        self._held_ms = now_ms if answer["held"] else None
        return now_ms
