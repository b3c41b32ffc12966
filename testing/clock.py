"""The clock of a broker, moved by a test.

Each call returns once the broker has done all that was due by then: what expires has expired, and requests that waited
for that time are answered. A test writes a time as a `datetime`, as milliseconds since the epoch, or as ISO text.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# A moment, in any of the forms that are taken.
Moment = datetime | int | str


class Ask(Protocol):
    """Has a broker do something, and returns what it answers."""

    def __call__(self, do: str, /, **arguments: Any) -> dict[str, Any]:
        """Raise ControlError for what is refused, BrokerError where no broker is there."""


class Clock:
    """Follows the system's clock until it is held; then it moves by `advance` and `set` only."""

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

        A step back moves the time of day, and nothing that waits for some time to pass. ValueError for what is no
        moment.
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


def to_ms(moment: Moment) -> int:
    """Return milliseconds since the epoch. ValueError for what is no time, or does not say its zone."""
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    at: object = moment
    if isinstance(moment, str):
        with suppress(ValueError):
            at = datetime.fromisoformat(moment)
    if not isinstance(at, datetime):
        raise ValueError(f"{moment!r} is no time: give a datetime, milliseconds since 1970, or ISO text")
    if at.tzinfo is None:
        raise ValueError(f"{moment!r} does not say its zone: write 2026-03-01T09:00Z, or tzinfo=UTC")
    return (at - EPOCH) // _MILLISECOND


def to_datetime(at_ms: int) -> datetime:
    """Return the moment as a datetime in UTC."""
    return EPOCH + at_ms * _MILLISECOND
