"""Progress of a job on standard error: rows, rows a second, what is left or how far behind it is, and an ETA."""

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
        self._job = job
        self._out = out

    def say(self, text: str) -> None:
        """Print a line."""
        print(f"{self._job}: {text}", file=self._out or sys.stderr, flush=True)

    def batch(
        self,
        rows: int,
        seconds: float,
        left: int | None = None,
        behind_s: float | None = None,
        name: str = "",
    ) -> None:
        """Print how many rows a stream has read in some seconds, and how far behind it is, in records and seconds."""
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
        """Print every few seconds how many rows are done, how many are left of `total`, and an ETA; and at the end."""
        begun, ended = monotonic(), threading.Event()

        def report(is_over: bool) -> None:
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
                report(False)

        thread = threading.Thread(target=go_on, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        report(True)


def _done(rows: int, rate: float) -> list[str]:
    return [f"{rows:,} rows", f"{rate:,.0f} rows/s"]


def _shown(seconds: float) -> str:
    """Return a duration as text, below a minute with a tenth of a second."""
    return f"{seconds:.1f} s" if seconds < 60 else show_duration(round(seconds) * 1000)


def _eta(left: int, rate: float) -> str:
    return f"ETA {show_duration(round(left / rate) * 1000 if left else 0)}"


def records_left(source: Mapping[str, Any]) -> int | None:
    """Return how many offsets the source of a stream has not read yet, by Spark's report of it; None if unknown.

    The report has offsets in the format of `pipeline.stream`: `{"partitions": {"0": 17}}`.
    """
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())


def _offsets(reported: Any) -> dict[str, int] | None:
    """Parse offsets by partition; None if Spark reports other text, as for unknown offsets."""
    try:
        found: dict[str, int] = json.loads(reported)["partitions"]
    except (TypeError, ValueError, KeyError):
        return None
    return found
