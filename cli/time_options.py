"""Options that take a time or a duration."""

from collections.abc import Callable

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE
from tidelog.cli.text import shown
from tidelog.config import times
from tidelog.config.times import TimeError


def time_ms(name: str, text: str, now_ms: int) -> int:
    """Return the time of an option, in ms since the epoch; CommandError."""
    return _parsed(name, lambda: times.parse(text, now_ms))


def duration_ms(name: str, text: str) -> int:
    """Return the duration of an option; CommandError."""
    return _parsed(name, lambda: times.duration_ms(text))


def clock() -> Callable[[], int]:
    """Return a function that returns the time of day."""
    from tidelog.broker.clock import Clock

    return Clock().now_ms


def now_ms() -> int:
    """Return the time of day."""
    return clock()()


def _parsed(name: str, read: Callable[[], int]) -> int:
    try:
        return read()
    except TimeError as error:
        raise CommandError(f"{name}: {shown(str(error))}", USAGE) from None
