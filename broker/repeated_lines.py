"""Log lines that would repeat: the first is written, the others are counted.

A client that fails does so thousands of times. Of lines with the same event, cause and thing (an address, a partition)
the first is written at once. The number of further ones is written in one line every INTERVAL_S, as long as there are
any. Memory is bounded: beyond CAUSES_MAX causes for one thing, its other causes are counted together; beyond THINGS_MAX
lines, all other things of each event. Event loop only.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final

INTERVAL_S: Final = 60.0
THINGS_MAX: Final = 1000
# One client that fails in ever new ways must not take the room of others.
CAUSES_MAX: Final = 20
# The part of a line that is repeated beside the count.
_TEXT_MAX: Final = 500
_OTHERS: Final = "others"
# Template, thing, cause.
_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Repeated:
    """A written line, and the count of unwritten ones like it; a timer of its loop writes the count."""

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
        """Return the number of remembered lines."""
        return len(self._seen)

    def log(
        self, log: logging.Logger, level: int, about: str, template: str, *values: Any, cause: str = ""
    ) -> None:
        """Write a line, or count it if one of this template, thing and cause was written in the last interval."""
        if not log.isEnabledFor(level):
            return
        loop = asyncio.get_running_loop()
        key = self._key(template, about, cause)
        seen = self._seen.get(key)
        if seen is not None and seen.loop is loop:
            seen.unwritten += 1
            return
        if seen is not None:
            self._write_count(seen)  # its loop ended before the timer
        text = template % values
        log.log(level, "%s", text)
        seen = self._seen[key] = _Repeated(loop, log, level, text[:_TEXT_MAX])
        loop.call_later(self._interval_s, self._interval_over, key, seen)

    def _key(self, template: str, about: str, cause: str) -> _Key:
        """Return the key of a line: its own, if there is room for it."""
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
        self._write_count(seen)
        seen.loop.call_later(self._interval_s, self._interval_over, key, seen)

    def _write_count(self, seen: _Repeated) -> None:
        if seen.unwritten:
            count, seen.unwritten = seen.unwritten, 0
            seen.log.log(
                seen.level, "%s (and %s more like it in %g s)", seen.text, f"{count:,}", self._interval_s
            )

    def flush(self) -> None:
        """Write all counts, and forget everything: the broker stops."""
        for seen in self._seen.values():
            self._write_count(seen)
        self._seen.clear()


lines: Final = RepeatedLines()
