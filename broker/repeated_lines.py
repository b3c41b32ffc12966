"""Log lines that would be written again and again, told once and then counted.

A client that goes wrong does so thousands of times. Of lines that are alike (the same event of the same cause about the
same thing: an address, a partition) the first is written at once; how many came after it is told when INTERVAL_S is
over, in one line, and again as long as they come. Bounded in memory: with more than CAUSES_MAX causes about one thing
its other causes are counted together, and with more than THINGS_MAX in all the others of each event. Event loop only.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

INTERVAL_S = 60.0
THINGS_MAX = 1000
# One client that goes wrong in ever new ways must not take the room of others.
CAUSES_MAX = 20
# What is kept of a line, to be repeated beside the count.
_TEXT_MAX = 500
_OTHERS = "others"
# Template, thing, cause.
_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Repeated:
    """A line that was written, and how many like it were not since then; they are told by a timer of its loop."""

    loop: asyncio.AbstractEventLoop
    log: logging.Logger
    level: int
    text: str
    unwritten: int = 0


class RepeatedLines:
    """The lines of the last interval."""

    def __init__(self, interval_s: float = INTERVAL_S, things_max: int = THINGS_MAX) -> None:
        self._interval_s = interval_s
        self._things_max = things_max
        self._seen: dict[_Key, _Repeated] = {}

    def __len__(self) -> int:
        """Return how many lines are remembered."""
        return len(self._seen)

    def log(
        self, log: logging.Logger, level: int, about: str, template: str, *values: Any, cause: str = ""
    ) -> None:
        """Write a line, or count it if one of this template, thing and cause was written lately."""
        if not log.isEnabledFor(level):
            return
        loop = asyncio.get_running_loop()
        key = self._key(template, about, cause)
        seen = self._seen.get(key)
        if seen is not None and seen.loop is loop:
            seen.unwritten += 1
            return
        if seen is not None:
            self._tell(seen)  # Its loop ended before it could be told.
        text = template % values
        log.log(level, "%s", text)
        seen = self._seen[key] = _Repeated(loop, log, level, text[:_TEXT_MAX])
        loop.call_later(self._interval_s, self._interval_over, key, seen)

    def _key(self, template: str, about: str, cause: str) -> _Key:
        """Return what a line is counted under: itself, where there is room for it."""
        key = template, about, cause
        if key in self._seen:
            return key
        other_causes = template, about, _OTHERS
        if len(self._seen) >= self._things_max:
            return other_causes if other_causes in self._seen else (template, _OTHERS, "")
        if not cause or sum(known[:2] == key[:2] for known in self._seen) < CAUSES_MAX:
            return key
        return other_causes

    def _interval_over(self, key: _Key, seen: _Repeated) -> None:
        if self._seen.get(key) is not seen:
            return
        if not seen.unwritten:
            del self._seen[key]
            return
        self._tell(seen)
        seen.loop.call_later(self._interval_s, self._interval_over, key, seen)

    def _tell(self, seen: _Repeated) -> None:
        if seen.unwritten:
            count, seen.unwritten = seen.unwritten, 0
            seen.log.log(
                seen.level, "%s (and %s more like it in %g s)", seen.text, f"{count:,}", self._interval_s
            )

    def tell(self) -> None:
        """Write the counts that are still to be told, and forget everything: the broker stops."""
        for seen in self._seen.values():
            self._tell(seen)
        self._seen.clear()


lines = RepeatedLines()
