"""Ranges by append time where append times are bounds: exact, or an error that says where and what to do."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.jobs import TIMES, a_topic, rows_of, run
from tests.pipeline.test_segments import NAMES, OUT_OF_ORDER, Row, a_log, closed, model, offsets, read
from tests.support.logs import NOW, batch, open_log
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.jobs.parts.scan import scan
from tidelog.pipeline.options import parse
from tidelog.storage.append_index import HEADER_BYTES

Captured = pytest.CaptureFixture[str]
ROWS = model(OUT_OF_ORDER)
LAST = NOW + 10 * len(OUT_OF_ORDER)


def indexes(data: Path) -> list[Path]:
    return sorted(data.glob("t-0/*.appendindex"))


def span(data: Path, number: int) -> tuple[int, int]:
    """Return the offsets of a segment."""
    bases = [int(path.stem) for path in sorted(data.glob("t-0/*.log"))] + [len(ROWS)]
    return bases[number], bases[number + 1]


def appended(from_ms: int, to_ms: int) -> dict[str, Any]:
    return {"from": from_ms, "to": to_ms, "clock": "append"}


def wanted(from_ms: int, to_ms: int) -> list[Row]:
    return [row for row in ROWS if from_ms <= row[2] < to_ms]


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def scrambled(path: Path) -> None:
    path.write_bytes(bytes((7 * n + 41) % 251 for n in range(path.stat().st_size)))


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: HEADER_BYTES + path.stat().st_size // 32 * 16])


def one_of_many(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + len(data) // 32 * 16] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", [Path.unlink, zeroed, scrambled, halved, one_of_many])
@pytest.mark.parametrize("lost", [(0,), (1, 2), tuple(range(10))])
def test_a_range_of_append_times_is_exact_or_an_error(
    tmp_path: Path, how: Callable[[Path], None], lost: tuple[int, ...]
) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    paths = [path for number, path in enumerate(indexes(data)) if number in lost]
    for path in paths:
        how(path)
    exact, refused = 0, 0
    for first in range(NOW - 25, LAST + 30, 10):
        asked = {**appended(first, first + 15), "taskBytes": 300}
        right = wanted(first, first + 15)
        skipped = read(data, bad="skip", **asked)
        assert set(offsets(skipped)) <= set(offsets(right))
        try:
            found = read(data, **asked)
        except PipelineError as error:
            refused += 1
            named = re.match(r"(\S+)@(\d+): ", str(error))
            assert named is not None
            assert Path(named[1]) in paths
            assert (int(named[2]) - HEADER_BYTES) % 16 == 0
        else:
            exact += 1
            assert offsets(found) == offsets(right) == offsets(skipped)
    assert exact
    assert refused


def test_the_error_says_what_is_not_known_and_what_to_do(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    path = indexes(data)[1]
    path.unlink()
    first, end = span(data, 1)
    bound = "2023-11-14T22:13:20"  # and some milliseconds
    with pytest.raises(PipelineError) as raised:
        read(data, **appended(ROWS[first][2], ROWS[first][2] + 1))
    said = str(raised.value)
    assert said.startswith(
        f"{path}@{HEADER_BYTES}: the append time of the batches at offsets {first} to {end - 1} is not known, "
        f"except that it is {bound}"
    )
    assert said.endswith(
        f"check it with `tidelog fsck --data-dir {data}`, read by record time (clock=record), or leave such batches "
        "out with bad=skip"
    )


def test_what_bounds_decide_is_no_error(tmp_path: Path) -> None:
    """All of a segment lies between the exact times around it, on one side of a range or within it."""
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    indexes(data)[1].unlink()
    first, end = span(data, 1)
    before, after = ROWS[first - 1][2], ROWS[end][2]
    last = ROWS[end - 1][2]
    for times in (
        (NOW, before),
        (last + 1, LAST),
        (after, LAST),
        (before, last + 1),
        (NOW, LAST),
        (NOW - 1, LAST),
    ):
        assert offsets(read(data, **appended(*times))) == offsets(wanted(*times))
    for times in ((NOW, before + 1), (last, LAST), (before + 1, last + 1), (before, last)):
        with pytest.raises(PipelineError, match="the append time of the batches at offsets"):
            read(data, **appended(*times))
    assert read(data, clock="append", to=LAST) == read(data)


def test_a_log_that_came_without_append_times_is_read_as_far_as_bounds_decide(tmp_path: Path) -> None:
    """S51: they are bounds legitimately; its summaries say of the first what may be one, too."""
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    for path in [*indexes(data), *data.glob("t-0/*.summary")]:
        path.unlink()
    for _ in range(2):
        with pytest.raises(PipelineError, match="is not known, except that it is"):
            read(data, **appended(NOW, NOW + 100))
        assert offsets(read(data, clock="append", to=1 << 45)) == offsets(ROWS)
        assert read(data, clock="append", **{"from": 1 << 45}) == []
        assert offsets(read(data)) == offsets(ROWS)
        open_log(data / "t-0", index_interval_bytes=200, segment_bytes=1500, now_ms=LAST).close()
    assert data.glob("t-0/*.summary")


def test_offsets_narrow_what_is_to_be_known(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    indexes(data)[1].unlink()
    first, end = span(data, 1)
    whole = appended(NOW, ROWS[end - 1][2])
    assert offsets(read(data, (0, first), **whole)) == list(range(first))
    assert read(data, (end, len(ROWS)), **whole) == []
    with pytest.raises(PipelineError, match="the append time of the batches at offsets"):
        read(data, (0, first + 1), **whole)


def test_what_is_left_out_is_said_and_noted_in_a_quarantine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = closed(a_log(tmp_path / "data", OUT_OF_ORDER))
    path = indexes(data)[1]
    path.unlink()
    first, end = span(data, 1)
    asked = appended(NOW, ROWS[end - 1][2])
    given = {"source": f"segments:{data}", "topic": "t", **{k: str(v) for k, v in asked.items()}}
    chosen = parse({**given, "bad": "skip"}, NOW)
    found = from_segments.plan(chosen, NOW)
    rows = [n for piece in found for each in from_segments.rows(piece, NAMES, chosen) for n in each.column(0)]
    assert [n.as_py() for n in rows] == list(range(first))
    assert (
        f"left out file={path}@{HEADER_BYTES} bytes=0 reason=the append time of the batches at offsets {first} to "
        f"{end - 1} is not known" in caplog.text
    )
    assert scan(chosen).undated_at_most == end - first
    assert f"{end - first} left out at most, as their append time is unknown" in scan(chosen).words
    assert read(data, bad=f"quarantine:{tmp_path}/q", **asked) == ROWS[:first]
    note = json.loads((tmp_path / "q" / "t-0" / f"{path.name}@{HEADER_BYTES}.json").read_bytes())
    assert (note["file"], note["bytes"]) == (str(path), 0)
    assert f"offsets {first} to {end - 1} is not known" in note["reason"]
    shutil.rmtree(tmp_path / "q")
    with pytest.raises(PipelineError, match="the append time of the batches at offsets"):
        scan(parse(given, NOW))


def test_batches_of_a_range_and_segments_that_may_be_of_it(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    for path in indexes(data):
        path.unlink()
    with pytest.raises(PipelineError, match="the append time of the batches at offsets"):
        rows_of(data, table="batches", **appended(NOW, NOW + 100))
    rows = rows_of(data, ("base_offset",), table="segments", **appended(NOW, NOW + 1))
    assert len(rows) == len(list(data.glob("t-0/*.log")))


@pytest.mark.parametrize("is_lost", [False, True])
def test_records_tell_which_append_times_are_bounds_where_that_is_asked_for(
    tmp_path: Path, is_lost: bool
) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch([NOW, NOW]), NOW)
    closed(log)
    if is_lost:
        indexes(tmp_path)[0].unlink()
    chosen = parse({"source": f"segments:{tmp_path}", "topic": "t"}, NOW)
    (piece,) = from_segments.plan(chosen, NOW)
    (rows,) = from_segments.rows(piece, ("is_append_bound",), chosen)
    assert rows.column(0).to_pylist() == [is_lost] * 2


def test_latency_counts_bounds_as_unknown(spark: Any, capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path / "data", partitions=1)
    bases = [int(path.stem) for path in indexes(tmp_path / "data")]
    indexes(tmp_path / "data")[1].unlink()
    flags = ["--source", f"segments:{tmp_path}/data", "--topic", "t", "--json"]
    ran = run(capsys, "latency", *flags, "--window", "2s")
    count = bases[2] - bases[1]
    assert [(row["n"], row["unknown"]) for row in ran.rows if row["window"] is None] == [(0, count)]
    assert sum(row["n"] for row in ran.rows) == sum(map(len, TIMES)) - count
    assert f"{count} records have only one of the two times" in ran.err
    ran = run(capsys, "audit", *flags, "--against", f"segments:{tmp_path}/data/../data")
    assert ran.status == 0
