"""The topics that match a regular expression, in time that grows with their number and nothing else.

Kafka's clients write RE2 (KIP-848, `SubscriptionPattern`), and Python's own `re` can be made to work for years by a
pattern of twenty letters. So this is RE2 itself, with a bound on the memory of a pattern, which bounds the time for a
name: one or two milliseconds at worst; and with one on its length, which bounds what it takes to compile.
"""

from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from tidelog.broker.work import step

__all__ = ["matches", "problem"]

# Of a compiled pattern: some 2,700 instructions, of 249 letters each.
MOST_BYTES: Final = 128 << 10
# That says nothing of what it takes to find out how large one is: for each \pL some tens of KB, and 0.1 ms of the loop.
MOST_LETTERS: Final = 250
# So many names are matched in a step: some milliseconds at worst.
MATCHED_AT_ONCE: Final = 5


def problem(pattern: str) -> str | None:
    """Say why a pattern cannot be taken, or None."""
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
    """Find the names that each pattern matches whole: some a step, `most` for all; None for a pattern with more.

    A pattern that cannot be taken matches none.
    """
    # The places of the names that match: many tasks may be under way, and what they hold is not counted.
    found: dict[str, array[int] | None] = {}
    for pattern in patterns:
        matching = array("I")
        # One that cannot be taken was stored by a broker that took it.
        for first in range(0, len(names) if problem(pattern) is None else 0, MATCHED_AT_ONCE):
            await step()
            # To keep one compiled for each task meanwhile may be too much.
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


# Compiled patterns of this many tasks that take turns: re2 has more, but takes long to find one.
@lru_cache(maxsize=8)
def _compiled(pattern: str) -> Any:
    import re2  # some milliseconds of a start, for what few ask for

    options = re2.Options()
    options.max_mem = MOST_BYTES
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern, options)


def _error() -> type[Exception]:
    import re2

    error: type[Exception] = re2.error
    return error
