"""Figures that need a read of each log: found again after a change, within a time limit for each scrape.

If the time is not enough for all logs, the others keep their last figure, and the next scrape begins with them. Reader
thread.
"""

from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import NamedTuple

from tidelog.broker.work import SHORT, reader
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import StorageError, TakesLong

# Looks per step: some 50 us each.
MANY = 20


class Look(NamedTuple):
    """One figure: `find` it again when `state` has changed. `key` identifies it for good."""

    key: Hashable
    state: Hashable
    find: Callable[[], float | None]


class Looks:
    """The figures of one kind that were found so far."""

    def __init__(self, most_s: float) -> None:
        """Look for at most `most_s` seconds in each scrape."""
        self._most_s = most_s
        self._found: dict[Hashable, tuple[Hashable, float | None]] = {}
        self._first = 0

    async def look(self, wanted: Sequence[Look]) -> list[float | None]:
        """Return the figures in order; None if there is none, or none was looked for yet."""
        before, self._found = self._found, {}
        count, left_s, first, looked = len(wanted), self._most_s, self._first, 0
        for number in range(count):
            place = (first + number) % count
            key, state, find = wanted[place]
            found = before.get(key)
            if (found is None or found[0] != state) and left_s > 0:
                looked += 1
                if looked % MANY == 0:
                    await reader(SHORT)
                began_s = monotonic()
                found = state, _outcome(find)
                left_s -= monotonic() - began_s
                self._first = place + 1
            if found is not None:
                self._found[key] = found
        nothing = None, None
        return [self._found.get(each.key, nothing)[1] for each in wanted]


def _outcome(find: Callable[[], float | None]) -> float | None:
    try:
        return find()
    except (StorageError, RecordsError, TakesLong):
        return None
