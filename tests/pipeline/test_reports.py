"""audit, latency, lag and fsck against a look at every record; and the page that reports are written to."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pipeline.jobs import TIMES, a_topic, commit_offsets, run
from tests.support.logs import NOW
from tidelog.config import times
from tidelog.pipeline.jobs import audit
from tidelog.pipeline.jobs.parts import report
from tidelog.pipeline.jobs.parts.charts import Bars, Chart, Timeline
from tidelog.pipeline.transforms import counting
from tidelog.protocol.coordinator import records
from tidelog.protocol.coordinator.messages import OffsetCommitValue
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage.checkpoints import save_offsets
from tidelog.storage.layout import LOG_STARTS

Captured = pytest.CaptureFixture[str]


def flags(folder: Path, *more: str) -> list[str]:
    return ["--source", f"segments:{folder}", "--topic", "t", "--json", *more]


def test_audit_counts_by_window(engine: str, capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path / "data")
    more = ("--window", "700ms", "--engine", engine, "--html", f"{tmp_path}/a.html")
    ran = run(capsys, "audit", *flags(tmp_path / "data", *more))
    counted = Counter(at // 700 * 700 for batch in TIMES for at in batch)
    assert ran.status == 0
    assert [(row["partition"], times.parse(row["window"], NOW), row["n"]) for row in ran.rows] == [
        (partition, window, counted[window]) for partition in range(2) for window in sorted(counted)
    ]
    page = (tmp_path / "a.html").read_text()
    assert page.count("<svg") == 2
    assert page.count("<rect") == 2 * len(counted)


def test_latency_by_window(spark: Any, capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path / "data", partitions=1)
    ran = run(capsys, "latency", *flags(tmp_path / "data", "--window", "2s", "--html", f"{tmp_path}/l.html"))
    delays: dict[int, list[int]] = {}
    for number, batch in enumerate(TIMES):
        append = NOW + number * 100 + 50
        delays.setdefault(append // 2000 * 2000, []).extend(append - at for at in batch)
    assert ran.status == 0
    assert [times.parse(row["window"], NOW) for row in ran.rows] == sorted(delays)
    for row, found in zip(ran.rows, (delays[window] for window in sorted(delays)), strict=True):
        assert (row["n"], row["unknown"]) == (len(found), 0)
        assert (row["min_ms"], row["max_ms"]) == (min(found), max(found))
        assert row["p50_ms"] in found
        assert sum(row["histogram"].values()) == len(found)
        assert row["histogram"]["50"] == sum(20 < delay <= 50 for delay in found)
    assert "<svg" in (tmp_path / "l.html").read_text()


def test_records_without_a_time_of_their_own(spark: Any) -> None:
    from tidelog.pipeline.transforms import windows

    rows = [
        (0, 5, 8, "CreateTime"),
        (0, 12, 9, "CreateTime"),
        (0, None, 9, "NoTimestampType"),
        (0, 9, 9, "LogAppendTime"),
        (0, -3, 9, "CreateTime"),
    ]
    made = spark.createDataFrame(rows, "partition int, c long, a long, timestamp_type string")
    frame = made.selectExpr(
        "partition",
        "timestamp_millis(c) as create_time",
        "timestamp_millis(a) as append_time",
        "timestamp_type",
    )
    (row,) = windows.delays(frame, 10).collect()
    assert (row["window"], row["n"], row["unknown"], row["min_ms"], row["max_ms"]) == (0, 3, 2, -3, 12)
    assert row["histogram"][:5] == [1, 0, 0, 1, 0]
    assert len(row["histogram"]) == len(windows.STEPS_MS) + 1


def test_counts_of_tasks_are_added_up() -> None:
    def batch(*times: int | None) -> pa.RecordBatch:
        at = pa.array([None if each is None else each * 1000 for each in times], pa.timestamp("us", "UTC"))
        columns = {"partition": pa.repeat(pa.scalar(3, pa.int32()), len(times)), "create_time": at}
        values = pa.array([b"xy", *[None] * (len(times) - 1)][: len(times)], pa.binary())
        return pa.record_batch(columns | {"key": values, "value": values})

    tables = [*counting.counted([batch(5, 12), batch(), batch(None, -3)], 10), *counting.counted([], 10)]
    tables += counting.counted([batch(9)], 10)
    found = {row["window"]: (row["n"], row["bytes"]) for row in counting.total(tables)}
    assert list(found) == [None, -10, 0, 10]
    assert found == {None: (1, 4), -10: (1, 0), 0: (2, 8), 10: (1, 0)}
    assert counting.total([]) == []


def test_lag_in_records_and_in_time(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_topic(tmp_path / "data", partitions=1)
    commit_offsets(tmp_path / "data", 0, ("g", "t", 0, 3), ("g", "gone", 0, 7))
    commit_offsets(tmp_path / "data", 0, ("g", "t", 0, 25), ("g", "other", 1, 5), ("g", "other", 1, None))
    commit_offsets(
        tmp_path / "data", 1, ("at the end", "t", 0, 400), ("from", "t", 0, 0), ("past it", "t", 0, 416)
    )
    monkeypatch.setattr("tidelog.pipeline.jobs.lag.now_ms", lambda: NOW + 60_000)
    ran = run(capsys, f"lag --source segments:{tmp_path}/data --json --html {tmp_path}/l.html")
    assert ran.status == 0
    waits = (60_000 - (TIMES[2][5] - NOW)) / 1000
    assert [tuple(row.values()) for row in ran.rows] == [
        ("at the end", "t", 0, 400, 400, 0, 0.0, 0),
        ("from", "t", 0, 0, 400, 400, 60.0, 0),
        ("g", "gone", 0, 7, None, None, None, None),
        ("g", "t", 0, 25, 400, 375, waits, 0),
        ("past it", "t", 0, 416, 400, None, None, 16),
    ]
    assert list(ran.rows[0]) == [
        "group",
        "topic",
        "partition",
        "committed",
        "end",
        "lag",
        "lag_s",
        "past_end",
    ]
    past = "lag: group past it has committed 416 of t-0, 16 past the end: the log was cut, or the topic was created"
    assert past in ran.err
    ran = run(capsys, "lag", *flags(tmp_path / "data", "--group", "g", "--clock", "append"))
    assert [row["lag_s"] for row in ran.rows] == [(60_000 - 250) / 1000]
    # What was deleted is not waited for.
    save_offsets(tmp_path / "data" / LOG_STARTS, {("t", 0): 100})
    (row,) = run(capsys, "lag", *flags(tmp_path / "data", "--group", "from")).rows
    assert (row["committed"], row["lag"], row["lag_s"]) == (0, 300, (60_000 - (TIMES[10][0] - NOW)) / 1000)
    ran = run(capsys, "lag", *flags(tmp_path / "data", "--group", "nobody"))
    assert (ran.status, ran.out) == (1, "")
    assert "group nobody has committed nothing of t" in ran.err
    ran = run(capsys, "lag", *flags(tmp_path / "data", "--dry-run"))
    sizes = [path.stat().st_size for path in (tmp_path / "data").glob("__consumer_offsets-*/*.log")]
    assert ran.rows == [{"groups": 4, "rows": 4, "segments": len(sizes), "bytes": sum(sizes)}]
    for wrong in ("segments:", "broker:", "x:y"):
        assert run(capsys, "lag --source", wrong).status == 2
    assert run(capsys, "lag", *flags(tmp_path / "data", "--clock", "wall")).status == 2


def test_offsets_of_a_transaction_count_once_it_is_committed(capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path, partitions=1)
    written: list[bytes] = []

    def write(producer_id: int, key: bytes, value: bytes, **how: bool) -> None:
        ids = {"producer_id": producer_id, "producer_epoch": 0, "leader_epoch": 0}
        record = Record(len(written), NOW, key, value)
        written.append(build_batch([record], base_sequence=-1 if how.get("control") else 0, **ids, **how))

    def end(producer_id: int, kind: int) -> None:
        write(producer_id, bytes([0, 0, 0, kind]), bytes(6), transactional=True, control=True)

    key = records.offset_key("g", "t", 0)
    for producer_id, offset in ((4, 10), (5, 20), (6, 30), (7, 40)):
        value = records.offset_value(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW))
        write(producer_id, key, value, transactional=producer_id != 4)
    end(6, 1)
    end(5, 0)
    (tmp_path / "__consumer_offsets-0").mkdir()
    (tmp_path / "__consumer_offsets-0" / f"{0:020d}.log").write_bytes(b"".join(written))
    ran = run(capsys, "lag", *flags(tmp_path))
    assert [row["committed"] for row in ran.rows] == [30], ran.err


def test_damaged_offsets_are_an_error_with_its_place(capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path, partitions=1)
    commit_offsets(tmp_path, 0, ("g", "t", 0, 1))
    (log,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)
    ran = run(capsys, "lag", *flags(tmp_path))
    assert (ran.status, ran.out) == (1, "")
    assert f"{log.name}@0" in ran.err


def test_fsck_finds_damage_in_each_partition(here: Any, capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path)
    source = f"segments:{tmp_path}"
    ran = run(capsys, "fsck --source", source, "--json")
    assert (ran.status, ran.out) == (0, "")
    assert "2 partitions" in ran.err
    for partition in range(2):
        log = sorted((tmp_path / f"t-{partition}").glob("*.log"))[partition]
        data = bytearray(log.read_bytes())
        data[80] ^= 1
        log.write_bytes(data)
    ran = run(capsys, "fsck --source", source, "--json")
    assert ran.status == 1
    assert {Path(row["file"]).parent.name for row in ran.rows if row["kind"] == "damage"} == {"t-0", "t-1"}
    sizes = [path.stat().st_size for path in tmp_path.glob("t-*/*.log")]
    assert run(capsys, "fsck --source", source, "--dry-run", "--json").rows == [
        {"partitions": 2, "segments": len(sizes), "bytes": sum(sizes)}
    ]
    assert run(capsys, "fsck --source", source, "--topic", "u").status == 1
    assert run(capsys, "fsck --source broker:h:1").status == 2


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.bars = 0
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.bars += tag == "rect"
        assert not {"src", "href"} & {name for name, _ in attrs}, "something is loaded from elsewhere"

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def page_of(path: Path, *drawn: Chart, rows: Sequence[Mapping[str, Any]] = (), columns: str = "") -> _Page:
    report.write(str(path), "<script>alert('x')</script>", columns.split(), rows, drawn)
    page = _Page()
    page.feed(path.read_text())
    assert "script" not in page.tags
    assert "<script>alert('x')</script>" in page.cells
    return page


def test_a_page_shows_text_as_text_numbers_in_groups_and_durations_in_units(tmp_path: Path) -> None:
    rows = [{"a": "<b>", "b": None, "lag": 1234567, "lag_s": 35_634_342.198, "p99_ms": 15_100}]
    page = page_of(tmp_path / "p.html", rows=rows, columns="a b lag lag_s p99_ms")
    assert "b" not in page.tags
    assert {"<b>", "-", "1,234,567", "412d 10h", "15.1s", "lag (time)", "p99 (time)"} <= set(page.cells)
    assert "width=device-width" in (tmp_path / "p.html").read_text()


def test_bars_by_name_are_few(tmp_path: Path) -> None:
    bars = [(f"<i>{number}", float(number % 97)) for number in range(1000)]
    page = page_of(tmp_path / "p.html", Bars("t", "records", bars), Bars("-", "ms", []))
    names = [cell for cell in page.cells if cell.startswith("<i>")]
    assert 30 < len(names) <= 60
    assert "96" in page.cells


def places(path: Path) -> list[tuple[float, float, float]]:
    """Return from where to where each bar of a page reaches, of 600, and how high it is, of 100."""
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" height="([\d.]+)" width="([\d.]+)"', path.read_text())
    return [(float(x), float(x) + float(width), float(height)) for x, height, width in found]


def test_bars_over_time_lie_where_their_windows_are_on_one_scale_for_all_charts(tmp_path: Path) -> None:
    hour, path = 3_600_000, tmp_path / "p.html"
    first = Timeline("p0", "records", [(at * hour, 1000) for at in (0, 1, 12)], hour)
    second = Timeline("p1", "records", [(23 * hour, 250)], hour)
    page = page_of(path, first, second, Timeline("none", "records", [], hour))
    bars = places(path)
    assert [round(left) for left, _, _ in bars] == [0, 25, 300, 575]
    assert all(20 < right - left < 25 for left, right, _ in bars)
    assert [height for _, _, height in bars] == [100, 100, 100, 25]
    assert page.cells.count("1,000") == 2
    assert {"1970-01-01 00:00", "1970-01-01 12:00", "1970-01-02 00:00"} <= set(page.cells)
    assert "records in each 1h, by time in UTC" in page.cells


def test_of_bars_that_share_a_place_the_highest_is_drawn(tmp_path: Path) -> None:
    bars = [(at * 1000, float(at % 1000)) for at in range(60_000)]
    page = page_of(tmp_path / "p.html", Timeline("t", "ms", bars, 1000))
    assert page.bars == 600
    assert max(height for _, _, height in places(tmp_path / "p.html")) == 100
    assert {"0ms", "999ms"} <= set(page.cells)


@pytest.mark.parametrize("far_ms", [NOW * 10**6, -(2**62)])
def test_a_time_that_is_far_off_can_be_drawn(tmp_path: Path, far_ms: int) -> None:
    """As of a record whose producer has sent nanoseconds."""
    page = page_of(tmp_path / "p.html", Timeline("t", "records", [(NOW, 1), (far_ms, 1)], 1000))
    assert page.bars == 2
    assert len((tmp_path / "p.html").read_text()) < 10_000


def test_a_delay_below_zero_is_a_bar_without_height(tmp_path: Path) -> None:
    page_of(tmp_path / "p.html", Timeline("p99", "ms", [(NOW, -300), (NOW + 1000, 600)], 1000))
    assert [height for _, _, height in places(tmp_path / "p.html")] == [0, 100]


def test_records_without_a_time_are_named_and_not_drawn() -> None:
    rows = [{"partition": 0, "window": window, "n": 1500} for window in (None, NOW)]
    (chart,) = audit._charts(rows, ["source"], 1000)
    assert chart == Timeline(
        "partition 0 (1,500 records without a time are not drawn)", "records", [(NOW, 1500)], 1000
    )
