"""A job run as the command does, and logs for it: what it printed, and how it ended."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.logs import NOW, fill, open_log
from tidelog.pipeline import commands
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.options import Options, parse
from tidelog.pipeline.tables import SCHEMAS
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.messages import OffsetCommitValue
from tidelog.protocol.records.build import Record, build_batch

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


def run(capsys: pytest.CaptureFixture[str], line: str = "", *arguments: str) -> Ran:
    """Run a job by its command line: words that have no spaces, and more."""
    capsys.readouterr()
    status = commands.run([*line.split(), *arguments], "tidelog pipeline")
    captured = capsys.readouterr()
    return Ran(status, captured.out, captured.err)


def commit_offsets(
    folder: Path, partition: int, *commits: tuple[str, str, int, int | None], **options: Any
) -> None:
    """Append to the topic of committed offsets: group, topic, partition, offset; None takes one back."""
    log = open_log(folder / f"__consumer_offsets-{partition}")
    made = []
    for number, (group, topic, of, offset) in enumerate(commits):
        value = None
        if offset is not None:
            commit = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW)
            value = records.offset_value(commit)
        made.append(Record(number, NOW, records.offset_key(group, topic, of), value))
    log.append(bytearray(build_batch(made, **options)), NOW)
    log.close()


def in_range(times: list[list[int]], first: int, end: int) -> list[tuple[int, int]]:
    """Return offset and time of each record of a range, by looking at each."""
    found = enumerate(at for batch in times for at in batch)
    return [(offset, at) for offset, at in found if first <= at < end]


def chosen_of(place: object, **options: Any) -> Options:
    """Return the options of a read of topic `t` from files."""
    given = {"source": f"segments:{place}", "topic": "t"}
    return parse(given | {name: str(value) for name, value in options.items()}, NOW)


def rows_of(place: object, names: Sequence[str] = (), **options: Any) -> list[dict[str, Any]]:
    """Return the rows that the source reads of topic `t` from files."""
    chosen = chosen_of(place, **options)
    return [
        row
        for piece in from_segments.plan(chosen, NOW)
        for rows in from_segments.rows(piece, names or SCHEMAS[chosen.table].names, chosen)
        for row in rows.to_pylist()
    ]


class Here:
    """Spark's context, as far as jobs without frames use it: work is done in this process."""

    def __init__(self) -> None:
        self.defaultParallelism = 1
        self.sparkContext = self
        self.waves: list[int] = []
        self._rows: list[Any] = []

    def parallelize(self, rows: list[Any], count: int) -> "Here":
        assert len(rows) == count
        self.waves.append(count)
        self._rows = rows
        return self

    def map(self, work: Callable[[Any], Any]) -> "Here":
        self._rows = list(map(work, self._rows))
        return self

    def flatMap(self, work: Callable[[Any], Iterable[Any]]) -> "Here":
        self._rows = [row for each in self._rows for row in work(each)]
        return self

    def persist(self, _level: Any) -> "Here":
        return self

    def unpersist(self) -> None:
        pass

    def count(self) -> int:
        return len(self._rows)

    def toLocalIterator(self) -> Iterable[Any]:
        return iter(self._rows)

    def collect(self) -> list[Any]:
        return self._rows
