"""Times as tests write them: a `datetime`, milliseconds since the epoch, or ISO text; the same on any machine."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# A moment, in any of the forms that are taken.
Moment = datetime | int | str


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
