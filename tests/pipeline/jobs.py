"""A job run as the command does, and logs for it: what it printed, and how it ended."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.logs import NOW, fill, open_log
from tidelog.pipeline import commands

# Out of order, by half a second in seven.
TIMES = [[NOW + batch * 100 + each * 3 - batch % 7 * 500 for each in range(10)] for batch in range(40)]


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def a_topic(folder: Path, *, partitions: int = 2, **options: Any) -> Path:
    """Make a topic of small segments, whose batches were appended 50 ms after their first record was due."""
    for partition in range(partitions):
        log = open_log(folder / f"t-{partition}", **{"segment_bytes": 3000, **options})
        for number, times in enumerate(TIMES):
            fill(log, [times], now_ms=NOW + number * 100 + 50)
        log.close()
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ran:
    """Run a job."""
    capsys.readouterr()
    status = commands.run(arguments, "tidelog pipeline")
    captured = capsys.readouterr()
    return Ran(status, captured.out, captured.err)


def told(times: list[list[int]], first: int, end: int) -> list[tuple[int, int]]:
    """Return offset and time of each record of a range, by looking at each."""
    found = enumerate(at for batch in times for at in batch)
    return [(offset, at) for offset, at in found if first <= at < end]
