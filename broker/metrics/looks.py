"""Figures that take a look into a log each: found again where something changed, for so long a scrape.

Owns what was found, and whose turn it is. Where the time is not enough for all, those that were not reached keep what
was found before, and the next scrape begins with them. Reader thread.
"""

from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import NamedTuple

from tidelog.broker.work import SHORT, reader
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage.errors import StorageError, TakesLong

# A step; each takes some 50 us.
MANY = 20


class Look(NamedTuple):
    """What is looked for: found again when `state` is another. `key` names it for good."""

    key: Hashable
    state: Hashable
    find: Callable[[], float | None]


class Looks:
    """What was found of one kind."""

    def __init__(self, most_s: float) -> None:
        """Take so long for it each time."""
        self._most_s = most_s
        self._found: dict[Hashable, tuple[Hashable, float | None]] = {}
        self._first = 0

    async def look(self, wanted: Sequence[Look]) -> list[float | None]:
        """Return what is found of each, in order; None where there is nothing, or nobody has looked yet."""
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
