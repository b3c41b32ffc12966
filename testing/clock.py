"""The clock of a broker, which a test can hold and move.

Each call returns after the broker has done all work that is due: records have expired, and requests that waited for
that time are answered. A time is a `datetime`, milliseconds since the epoch, or ISO text.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tidelog.config import times

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# A time, in any accepted form.
Moment = datetime | int | str


class Ask(Protocol):
    """Sends a command to a broker, and returns the answer."""

    def __call__(self, do: str, /, **arguments: Any) -> dict[str, Any]:
        """Raise ControlError if the command is refused, BrokerError if there is no broker."""


class Clock:
    """Follows the system's clock until it is held; then it moves only by `advance` and `set`."""

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
        """The time at which the clock is held, as far as this object knows; None while it runs."""
        return self._held_ms

    def hold(self) -> datetime:
        """Hold the clock at the current time, and return that."""
        return self._moved("hold")

    def advance(self, length: str = "", **span: float) -> datetime:
        """Move the clock forward, hold it, and return the time.

        Takes a duration, as in `advance("1h 30m")`, or the arguments of `timedelta`, as in `advance(hours=48)`.
        ValueError for another text, ControlError if the span is negative.
        """
        length_ms = times.duration_ms(length) if length else 0
        return self._moved("advance", ms=length_ms + timedelta(**span) // timedelta(milliseconds=1))

    def set(self, moment: Moment) -> datetime:
        """Move the clock to a time, forward or back, and hold it there.

        A step back changes the time of day, but not timers that wait for a span of time. ValueError for an invalid
        time.
        """
        return self._moved("set", at_ms=to_ms(moment))

    def release(self) -> datetime:
        """Let the clock follow the system's time again."""
        return self._moved("release")

    def _moved(self, do: str, **arguments: Any) -> datetime:
        return to_datetime(self.follow(self._ask(do, **arguments)))

    def follow(self, answer: dict[str, Any]) -> int:
        """Update `held_ms` from an answer of the broker, and return the time of day in ms."""
        now_ms: int = answer["now_ms"]
        self._held_ms = now_ms if answer["held"] else None
        return now_ms


def to_ms(moment: Moment) -> int:
    """Return milliseconds since the epoch. ValueError for an invalid time, or one without a zone."""
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    at: object = moment
    if isinstance(moment, str):
        with suppress(ValueError):
            at = datetime.fromisoformat(moment)
    if not isinstance(at, datetime):
        raise ValueError(f"{moment!r} is not a time: give a datetime, milliseconds since 1970, or ISO text")
    if at.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone: write 2026-03-01T09:00Z, or tzinfo=UTC")
    return (at - EPOCH) // _MILLISECOND


def to_datetime(at_ms: int) -> datetime:
    """Return a datetime in UTC."""
    return EPOCH + at_ms * _MILLISECOND
