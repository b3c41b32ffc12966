"""Matches topic names with regular expressions, in time linear in the number of names.

Kafka's clients send RE2 syntax (KIP-848, `SubscriptionPattern`), and a pattern of twenty letters can keep Python's `re`
busy for years. So this uses RE2. A bound on the memory of a compiled pattern bounds the time for one name to one or two
milliseconds. A bound on the length of a pattern bounds the time to compile it.
"""

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from tidelog.broker.work import step

__all__ = ["matches", "problem"]

# The memory of a compiled pattern: some 2,700 instructions. A name has 249 letters at most.
MOST_BYTES: Final = 128 << 10
# The length of a pattern. Compiling takes time and memory even for one that turns out too large: each \pL takes some
# tens of KB, and 0.1 ms of the event loop.
MOST_LETTERS: Final = 250
# The names matched in one step: some milliseconds at worst.
MATCHED_AT_ONCE: Final = 5


def problem(pattern: str) -> str | None:
    """Return why a pattern is refused, or None."""
    if len(pattern) > MOST_LETTERS:
        return (
            f"a regular expression may have {MOST_LETTERS} letters, not {len(pattern)}: {pattern[:200]!r}..."
        )
    try:
        _compiled(pattern)
    except _error() as error:
        what = error.args[0] if error.args else ""
        reason = what.decode(errors="replace") if isinstance(what, bytes) else str(what)
        return f"regular expression {pattern[:200]!r} is not valid: {reason}"
    return None


async def matches(
    patterns: Iterable[str], names: Sequence[str], most: int
) -> dict[str, frozenset[str] | None]:
    """Return the names that each pattern matches as a whole, found in steps.

    `most` bounds the number of matches of all patterns together. A pattern that exceeds the rest gets None. A pattern
    that is refused matches nothing.
    """
    # Positions of matching names take little memory, which is not counted: many tasks may be under way.
    found: dict[str, array[int] | None] = {}
    for pattern in patterns:
        matching = array("I")
        # A stored pattern may be refused here: another broker has accepted it.
        for first in range(0, len(names) if problem(pattern) is None else 0, MATCHED_AT_ONCE):
            await step()
            # Not kept across steps: one compiled pattern for each task may be too much memory.
            fullmatch = _compiled(pattern).fullmatch
            some = enumerate(names[first : first + MATCHED_AT_ONCE], first)
            matching.extend(place for place, name in some if fullmatch(name))
            if len(matching) > most:
                break
        is_too_many = len(matching) > most
        found[pattern] = None if is_too_many else matching
        most -= 0 if is_too_many else len(matching)
    return {
        pattern: None if matching is None else frozenset(map(names.__getitem__, matching))
        for pattern, matching in found.items()
    }


# Compiled patterns for tasks that take turns. re2's own cache is larger, but its lookups are slow.
@lru_cache(maxsize=8)
def _compiled(pattern: str) -> Any:
    import re2  # here, because few need it and it adds some milliseconds to a start

    options = re2.Options()
    options.max_mem = MOST_BYTES
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern, options)


def _error() -> type[Exception]:
    import re2

    error: type[Exception] = re2.error
    return error
