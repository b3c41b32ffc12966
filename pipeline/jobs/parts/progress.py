"""Progress of a job on standard error: rows, rows a second, what is left or how far behind, and an ETA."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final, TextIO

from tidelog.config.times import show_duration

EVERY_S: Final = 2.0


class Progress:
    """The lines of one job."""

    def __init__(self, job: str, out: TextIO | None = None) -> None:
        """Write to standard error, or elsewhere."""
        self._job = job
        self._out = out

    def say(self, text: str) -> None:
        """Write a line."""
        print(f"{self._job}: {text}", file=self._out or sys.stderr, flush=True)

    def batch(
        self,
        rows: int,
        seconds: float,
        left: int | None = None,
        behind_s: float | None = None,
        name: str = "",
    ) -> None:
        """Say what a stream has done in so many seconds, and how far behind it is: records, and seconds of the log."""
        rate = rows / seconds if seconds > 0 else 0.0
        parts = _done(rows, rate)
        behind = [f"{left:,} records"] if left is not None else []
        behind += [_shown(behind_s)] if behind_s is not None else []
        if behind:
            parts.append(f"{' and '.join(behind)} behind")
        if left is not None and (rate or not left):
            parts.append(_eta(left, rate))
        self.say(f"{name}{', '.join(parts)}")

    @contextmanager
    def watching(
        self, count: Callable[[], int], total: int | None, every_s: float = EVERY_S
    ) -> Iterator[None]:
        """Say every few seconds how many rows are done, of so many at most; and once more at the end.

        What reads a range once is not behind anything: it says what is left, and how long that takes.
        """
        begun, ended = monotonic(), threading.Event()

        def tell(is_over: bool) -> None:
            rows, seconds = count(), monotonic() - begun
            rate = rows / seconds if seconds > 0 else 0.0
            parts = _done(rows, rate)
            if total is not None and not is_over:
                left = max(0, total - rows)
                parts.append(f"{left:,} left at most")
                parts += [_eta(left, rate)] if rate else []
            self.say(", ".join(parts))

        def go_on() -> None:
            while not ended.wait(every_s):
                tell(False)

        thread = threading.Thread(target=go_on, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        tell(True)


def _done(rows: int, rate: float) -> list[str]:
    return [f"{rows:,} rows", f"{rate:,.0f} rows/s"]


def _shown(seconds: float) -> str:
    """Return a duration in its two largest units, at most; short ones with a tenth of a second."""
    return f"{seconds:.1f} s" if seconds < 60 else show_duration(round(seconds) * 1000)


def _eta(left: int, rate: float) -> str:
    return f"ETA {show_duration(round(left / rate) * 1000 if left else 0)}"


def records_left(source: Mapping[str, Any]) -> int | None:
    """Return how many records the source of a stream has that are not read yet, by what Spark reports; None if unknown.

    Offsets are as `stream` has them: `{"partitions": {"0": 17}}`. Offsets that no record has are counted, too.
    """
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())


def _offsets(reported: Any) -> dict[str, int] | None:
    """Return offsets by partition, if that is what Spark reports: it has text for unknown ones."""
    try:
        found: dict[str, int] = json.loads(reported)["partitions"]
    except (TypeError, ValueError, KeyError):
        return None
    return found
