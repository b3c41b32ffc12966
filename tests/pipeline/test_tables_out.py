"""backfill: exactly the records of a range, once, whatever was there before."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.jobs import TIMES, a_topic, in_range, run
from tests.support.logs import NOW, open_log
from tidelog.pipeline.jobs.parts import landing
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import pins

Captured = pytest.CaptureFixture[str]
FIRST, END = NOW + 1000, NOW + 2500


def read(out: Path, format_name: str) -> list[tuple[int, int, int]]:
    """Return partition, offset and create time of each row, in order; all columns of records are there."""
    from deltalake import DeltaTable

    from tidelog.pipeline.tables import RECORDS

    table: pa.Table = DeltaTable(out).to_pyarrow_table() if format_name == "delta" else pq.read_table(out)
    assert set(RECORDS.names) <= set(table.column_names)
    assert pa.types.is_binary(table.schema.field("value").type)
    columns = [table[name] for name in ("partition", "offset")] + [table["create_time"].cast(pa.int64())]
    return sorted(
        (partition, offset, us // 1000)
        for partition, offset, us in zip(*(column.to_pylist() for column in columns), strict=True)
    )


def expected(first: int = 0, end: int = NOW + 10**9) -> list[tuple[int, int, int]]:
    return [(partition, *each) for partition in range(2) for each in in_range(TIMES, first, end)]


def backfill(capsys: Captured, source: Path, out: Path, *flags: str) -> Any:
    return run(
        capsys,
        f"backfill --source segments:{source} --topic t --out",
        str(out),
        "--json",
        *flags,
    )


@pytest.mark.parametrize("format_name", ["parquet", "delta"])
def test_a_range_is_written_exactly_and_once(
    engine: str, capsys: Captured, tmp_path: Path, format_name: str
) -> None:
    source, out = a_topic(tmp_path / "data"), tmp_path / "out"
    flags = ("--engine", engine, "--format", format_name, "--from", str(FIRST), "--to", str(END))
    for _ in range(2):
        ran = backfill(capsys, source, out, *flags)
        assert ran.status == 0
        assert ran.rows[0]["rows"] == len(expected(FIRST, END))
        assert read(out, format_name) == expected(FIRST, END)
    # The next range comes beside it; the engine is chosen.
    backfill(capsys, source, out, "--format", format_name, "--from", str(END), "--to", str(END + 500))
    assert read(out, format_name) == expected(FIRST, END + 500)
    assert not list(out.glob("_staged*"))
    assert "rows/s\n" in ran.err
    assert "behind" not in ran.err


def test_no_reader_takes_what_is_staged_and_the_next_run_removes_what_a_kill_left(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = a_topic(tmp_path / "data"), tmp_path / "out"
    flags = ("--from", str(FIRST), "--to", str(END), "--by-date")
    backfill(capsys, source, out, *flags)
    put, killed = landing.put, out / f"_staged-{pins.process_of(999999999)}1"
    whole = sorted(out.rglob("*.parquet"))

    def looked_at(*arguments: Any) -> list[str]:
        (staged,) = out.glob("_staged-*")
        assert len([path for path in staged.rglob("*") if path.suffix == ".staged"]) == len(whole)
        assert sorted(out.rglob("*.parquet")) == whole
        shutil.copytree(staged, killed)
        return put(*arguments)

    monkeypatch.setattr(landing, "put", looked_at)
    assert backfill(capsys, source, out, *flags).status == 0
    monkeypatch.undo()
    assert killed.exists()
    ran = backfill(capsys, source, out, *flags)
    assert f"removed {killed.name}, which a killed run had left" in ran.err
    assert not list(out.glob("_staged-*"))
    assert sum(pq.ParquetFile(path).metadata.num_rows for path in out.rglob("*.parquet")) == len(
        expected(FIRST, END)
    )


def test_rows_have_all_columns_as_the_source_of_spark_gives_them(
    spark: Any, capsys: Captured, tmp_path: Path
) -> None:
    source = a_topic(tmp_path / "data")
    log = open_log(source / "t-2")
    records = [Record(0, NOW, b"k", None, (("h", b"1"), ("g", None))), Record(1, -1, None, b"\xff")]
    log.append(bytearray(build_batch(records)), NOW)
    log.close()
    assert backfill(capsys, source, tmp_path / "local", "--engine", "local").status == 0
    by_spark = (
        spark.read.format("tidelog")
        .option("source", f"segments:{source}")
        .option("topic", "t")
        .load()
        .toArrow()
    )
    by = [("partition", "ascending"), ("offset", "ascending")]
    ours, theirs = pq.read_table(tmp_path / "local").sort_by(by), by_spark.sort_by(by)
    assert ours.column_names == theirs.column_names
    for name in ours.column_names:
        assert ours[name].to_pylist() == theirs[name].to_pylist(), name
        assert ours[name].type == theirs[name].type, name


_KILLED = """
import os, signal, sys
from tidelog.pipeline import commands
from tidelog.pipeline.jobs.parts import landing
landing.put = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
commands.run(sys.argv[1:], "x")
"""


def test_a_run_that_was_killed_is_finished_on_either_engine(
    engine: str, capsys: Captured, tmp_path: Path
) -> None:
    source, out = a_topic(tmp_path / "data"), tmp_path / "out"
    flags = ("--from", str(FIRST), "--to", str(END))
    line = ["backfill", "--source", f"segments:{source}", "--topic", "t", "--out", str(out), *flags]
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, *line], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = out.iterdir()
    assert list(left.glob("*.staged"))
    ran = backfill(capsys, source, out, "--engine", engine, *flags)
    assert f"removed {left.name}, which a killed run had left" in ran.err
    assert read(out, "parquet") == expected(FIRST, END)
    assert not list(out.glob("_staged-*"))
    assert not list(source.rglob(".snapshot"))


def test_a_range_by_append_time(capsys: Captured, tmp_path: Path) -> None:
    source, out = a_topic(tmp_path / "data"), tmp_path / "out"
    flags = ("--clock", "append", "--from", str(NOW + 1000), "--to", str(NOW + 2000))
    assert backfill(capsys, source, out, *flags, "--format", "delta").status == 0
    rows = read(out, "delta")
    assert sorted({offset // 10 for _, offset, _ in rows}) == list(range(10, 20))
    assert len(rows) == 2 * 10 * 10


def test_ranges_that_meet_are_refused_in_parquet_and_replaced_in_delta(
    capsys: Captured, tmp_path: Path
) -> None:
    source, out = a_topic(tmp_path / "data"), tmp_path / "out"
    wide, narrow = (
        ("--from", str(FIRST), "--to", str(END)),
        ("--from", str(FIRST + 500), "--to", str(FIRST + 900)),
    )
    for format_name in ("parquet", "delta"):
        backfill(capsys, source, out / format_name, "--format", format_name, *wide)
        ran = backfill(capsys, source, out / format_name, "--format", format_name, *narrow)
        assert ran.status == (1 if format_name == "parquet" else 0)
        assert read(out / format_name, format_name) == expected(FIRST, END)
    ran = backfill(capsys, source, out / "parquet")
    assert ran.status == 1
    assert "may have some of the same records" in ran.err
    ran = backfill(capsys, source, out / "parquet", "--clock", "append", "--from", str(END + 10**6))
    assert ran.status == 1


def test_a_range_without_records(capsys: Captured, tmp_path: Path) -> None:
    source, out = a_topic(tmp_path / "data"), tmp_path / "out"
    for format_name in ("parquet", "delta"):
        flags = ("--format", format_name, "--from", str(NOW + 10**7), "--to", str(NOW + 10**7 + 1))
        ran = backfill(capsys, source, out / format_name, *flags)
        assert (ran.status, ran.rows[0]["rows"]) == (0, 0)


def test_damage_fails_with_its_place_and_leaves_nothing(capsys: Captured, tmp_path: Path) -> None:
    source, out = a_topic(tmp_path / "data"), tmp_path / "out"
    log = sorted((source / "t-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[80] ^= 1
    log.write_bytes(data)
    ran = backfill(capsys, source, out)
    assert (ran.status, ran.out) == (1, "")
    assert f"{log.name}@0" in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err
    assert not list(out.rglob("*.parquet"))
    assert not list(out.glob("_staged*"))
    ran = backfill(capsys, source, out, "--bad", f"quarantine:{tmp_path}/bad")
    assert ran.status == 0
    ran = run(capsys, f"deadletter --folder {tmp_path}/bad --json")
    assert [(row["topic"], row["partition"], row["position"]) for row in ran.rows] == [("t", 0, 0)]
