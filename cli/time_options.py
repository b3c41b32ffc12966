"""Times and lengths of time as options of the command."""

from collections.abc import Callable

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE
from tidelog.cli.text import shown
from tidelog.config import times
from tidelog.config.times import TimeError


def time_ms(name: str, text: str, now_ms: int) -> int:
    """Return the time that an option means, in ms since the epoch; CommandError if it means none."""
    return _meant(name, lambda: times.parse(text, now_ms))


def duration_ms(name: str, text: str) -> int:
    """Return the length of time that an option means; CommandError if it means none."""
    return _meant(name, lambda: times.duration_ms(text))


def now_ms() -> int:
    """Return what time it is."""
    from tidelog.broker.clock import Clock

    return Clock().now_ms()


def _meant(name: str, read: Callable[[], int]) -> int:
    try:
        return read()
    except TimeError as error:
        raise CommandError(f"{name}: {shown(str(error))}", USAGE) from None
