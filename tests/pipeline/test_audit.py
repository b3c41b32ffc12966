"""audit against other tiers: what is missing, double and unknown in each, against a look at every record."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.pipeline import topics
from tests.pipeline.jobs import TIMES, Ran, a_topic, run
from tests.support.broker import Broker
from tests.support.logs import NOW, fill, open_log
from tidelog.config import times
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.files import from_segments
from tidelog.pipeline.jobs.parts import tier_files, tiers
from tidelog.pipeline.jobs.parts.flags import JobFlags
from tidelog.pipeline.jobs.parts.place import place
from tidelog.pipeline.tables import RECORDS

Captured = pytest.CaptureFixture[str]
Row = tuple[int, int, int | None, int | None]  # partition, offset, create time, append time
Counts = dict[tuple[int, int | None, int], tuple[int, int, int, int]]
WINDOW_MS = 100


def flags(folder: Path, *more: str) -> list[str]:
    return ["--source", f"segments:{folder}", "--topic", "t", "--json", *more]


def audit(capsys: Captured, folder: Path, *more: str) -> Ran:
    return run(capsys, "audit", *flags(folder, "--window", "1s", *more))


def sums(ran: Ran, tier: str) -> tuple[int, ...]:
    rows = [row for row in ran.rows if row["tier"].startswith(tier)]
    return tuple(sum(row[name] for row in rows) for name in ("n", "missing", "duplicate", "extra"))


def window_of(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms // WINDOW_MS * WINDOW_MS


def by_hand(tiers: list[list[Row]]) -> Counts:
    """Compare tiers with the first, offset by offset."""
    found: Counts = {}
    for partition, offset in {row[:2] for rows in tiers for row in rows}:
        made = [[row[2] for row in rows if row[:2] == (partition, offset)] for rows in tiers]
        known = [at for each in made for at in each if at is not None]
        window = window_of(made[0][0] if made[0] else min(known, default=None))
        for number, each in enumerate(made):
            is_there = bool(made[0]) and made[0][0] in each
            more = (
                len(each),
                bool(made[0]) and not is_there,
                max(0, len(each) - 1),
                bool(each) and not is_there,
            )
            before = found.get((partition, window, number), (0, 0, 0, 0))
            found[partition, window, number] = (
                before[0] + more[0],
                before[1] + more[1],
                before[2] + more[2],
                before[3] + more[3],
            )
    return {key: known for key, known in found.items() if known[0] or known[1]}


def drawn(random_: random.Random) -> list[list[Row]]:
    """Draw what three tiers have of some offsets, most of which are as they should be."""
    tiers: list[list[Row]] = [[(3, 0, NOW + 9000, None)], [], []]  # a window that two of them lack
    for offset in range(600):
        at = random_.choice([None, *[NOW + random_.randrange(1000) for _ in range(9)]])
        row = (offset % 3, offset // 3, at, None if at is None else at + offset)
        if random_.random() < 0.9:
            tiers[0].append(row)
        for tier in tiers[1:]:
            match random_.choice(
                ("same", "same", "same", "none", "twice", "other", "both", "otherwise twice")
            ):
                case "same":
                    tier.append(row)
                case "twice":
                    tier += [row, row]
                case "other":
                    tier.append((*row[:2], NOW + 777, None))
                case "both":
                    tier += [row, (*row[:2], NOW + 777, None)]
                case "otherwise twice":
                    tier += [(*row[:2], NOW + 777, None), (*row[:2], NOW + 888, NOW)]
    return tiers


def a_frame(spark: Any, rows: list[Row]) -> Any:
    made = spark.createDataFrame(rows, "partition int, offset long, c long, a long")
    return made.selectExpr(
        "partition",
        "offset",
        "timestamp_millis(c) as create_time",
        "timestamp_millis(a) as append_time",
        "'CreateTime' as timestamp_type",
        "offset as bytes",
    )


def test_tiers_are_compared_offset_by_offset(spark: Any) -> None:
    from tidelog.pipeline.transforms.tiers import compared

    tiers = drawn(random.Random(7))
    rows = compared([a_frame(spark, each) for each in tiers], WINDOW_MS).collect()
    found = {(row["partition"], row["window"], row["tier"]): row for row in rows}
    names = ("n", "missing", "duplicate", "extra")
    assert {key: tuple(row[name] for name in names) for key, row in found.items()} == by_hand(tiers)
    in_order = [(row["partition"], row["window"] or 0, row["tier"]) for row in rows]
    assert in_order == sorted(in_order)
    for number, each in enumerate(tiers):
        sizes = [row["bytes"] for row in rows if row["tier"] == number]
        assert sum(sizes) == sum(offset for _, offset, _, _ in each)
    for (partition, window, tier), row in found.items():
        first = found.get((partition, window, 0))
        ours = 0 if first is None else first["n"]
        assert row["n"] == ours - row["missing"] + row["duplicate"] + row["extra"]
        if not tier:
            of = [each for each in tiers[0] if (each[0], window_of(each[2])) == (partition, window)]
            delays = sorted(each[3] - each[2] for each in of if each[2] is not None and each[3] is not None)
            assert row["bytes"] == sum(offset for _, offset, _, _ in of)
            assert (row["p50_ms"] in delays, row["p99_ms"] in delays) == (bool(delays),) * 2
            if delays:
                assert row["p99_ms"] == delays[-1]
                assert row["p50_ms"] == delays[(len(delays) - 1) // 2]


@pytest.fixture
def written(spark: Any, capsys: Captured, tmp_path: Path) -> Path:
    """A topic in `data`, a copy of it, and what `backfill` writes of it as Parquet, in two files; the same as Delta."""
    a_topic(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert run(capsys, "backfill", *flags(tmp_path / "data", "--out", f"{tmp_path}/parquet")).status == 0
    (path,) = (tmp_path / "parquet").glob("*.parquet")
    table = pq.read_table(path)
    write_deltalake(f"{tmp_path}/delta", table)
    for partition in range(2):
        part = table.filter(pc.field("partition") == partition)
        pq.write_table(part, path.with_stem(path.stem.replace("-00000", f"-0000{partition}")))
    return tmp_path


def against(folder: Path) -> list[str]:
    words = ("segments:{}/copy", "parquet:{}/parquet", "delta:{}/delta")
    return [part for word in words for part in ("--against", word.format(folder))]


def rewritten(path: Path, *parts: tuple[int, int]) -> None:
    """Have a file of Parquet have these ranges of its rows."""
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables(table.slice(first, end - first) for first, end in parts), path)


def test_what_a_tier_lacks_or_has_twice(capsys: Captured, written: Path) -> None:
    ran = audit(capsys, written / "data", *against(written), "--bytes")
    assert ran.status == 0, ran.err
    counted = Counter(at // 1000 * 1000 for batch in TIMES for at in batch)
    expected = [(partition, at, counted[at]) for partition in range(2) for at in sorted(counted)]
    for tier in [f"segments:{written}/data", *against(written)[1::2]]:
        rows = [row for row in ran.rows if row["tier"] == tier]
        assert [(row["partition"], times.parse(row["window"], NOW), row["n"]) for row in rows] == expected
        assert [row["bytes"] for row in rows] == [2 * row["n"] for row in rows]
        assert all(row["p99_ms"] >= row["p50_ms"] for row in rows)
        assert sums(ran, tier) == (800, 0, 0, 0)

    # Ten offsets are lost of the table, five are in it twice; of the other one partition's file is there once more.
    first, second = sorted((written / "parquet").glob("*.parquet"))[:2]
    rewritten(first, (0, 20), (30, 35), (30, pq.read_metadata(first).num_rows))
    shutil.copy(second, second.with_name("_staged.parquet"))  # is none of the table's
    write_deltalake(str(written / "delta"), pq.read_table(second), mode="append")
    shutil.rmtree(written / "copy" / "t-1")
    page = str(written / "a.html")
    ran = audit(capsys, written / "data", *against(written), "--html", page)
    assert (ran.status, len(ran.rows) > 0) == (1, True), ran.err
    twice = pq.read_metadata(second).num_rows
    assert sums(ran, "parquet:") == (795, 10, 5, 0)
    assert sums(ran, "delta:") == (800 + twice, 0, twice, 0)
    assert sums(ran, f"segments:{written}/copy") == (400, 400, 0, 0)
    assert f"parquet:{written}/parquet: 795 n, 10 missing, 5 duplicate, 0 extra" in ran.err
    text = Path(page).read_text()
    assert "partition 1, segments:" in text
    assert text.count(": missing <small>") == 2
    assert text.count(": duplicate <small>") == 2
    names = ["partition", "window", "n", "tier", "missing", "duplicate", "extra", "p50_ms", "p99_ms"]
    assert list(ran.rows[0]) == names

    # A range of times that does not meet what is wrong.
    late = ("--from", str(NOW + 3500), "--clock", "append")
    ran = audit(capsys, written / "data", "--against", f"parquet:{written}/parquet", *late)
    assert (ran.status, sums(ran, "parquet:")) == (0, (100, 0, 0, 0)), ran.err


def test_what_the_source_gains_meanwhile_is_neither_missing_nor_extra(
    spark: Any, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_topic(tmp_path / "data", partitions=1)
    for name in ("as it was", "ahead"):
        shutil.copytree(tmp_path / "data", tmp_path / name)
    topic_offsets = from_segments.topic_offsets

    def grow(folder: Path, batches: int) -> None:
        log = open_log(folder / "t-0", segment_bytes=3000)
        fill(log, TIMES[:batches], now_ms=NOW + 10_000)
        log.close()

    def and_then_grow(*arguments: Any) -> Any:
        found = topic_offsets(*arguments)
        grow(tmp_path / "data", 3)
        grow(tmp_path / "ahead", 6)
        return found

    monkeypatch.setattr(from_segments, "topic_offsets", and_then_grow)
    tiers = [f"segments:{tmp_path}/{name}" for name in ("as it was", "ahead")]
    ran = audit(capsys, tmp_path / "data", "--against", tiers[0], "--against", tiers[1])
    assert ran.status == 0, ran.err
    assert [sums(ran, tier) for tier in (f"segments:{tmp_path}/data", *tiers)] == [(400, 0, 0, 0)] * 3


@pytest.mark.e2e
def test_a_broker_is_compared_with_its_own_files(spark: Any, capsys: Captured, target_broker: Broker) -> None:
    topic = topics.make(target_broker, "audited.by-its_files")
    topics.send(target_broker, topic, [NOW + each * 10 for each in range(200)])
    files = f"segments:{target_broker.data_dir}"
    asked = ("--topic", topic, "--json", "--window", "1s")
    ran = run(capsys, f"audit --source broker:{target_broker.address} --against", files, *asked)
    assert (ran.status, sums(ran, files)) == (0, (200, 0, 0, 0)), ran.err
    assert [row["p99_ms"] is None for row in ran.rows] == [True, False] * 2
    live = f"broker:{target_broker.address}"
    ran = run(capsys, "audit --source", files, "--against", live, *asked)
    assert (ran.status, sums(ran, live)) == (0, (200, 0, 0, 0)), ran.err


@pytest.mark.parametrize(
    ("word", "status", "said"),
    [
        ("copy", 2, "--against: 'copy' is not valid; write segments:FOLDER"),
        ("csv:{}/copy", 2, "is not valid; write segments:FOLDER"),
        ("parquet:", 2, "is not valid; write segments:FOLDER"),
        ("segments:{}/data", 2, "is named twice; compare with another place"),
        ("segments:{}/none", 1, "none: No such file"),
        ("segments:{}/empty", 1, "no topic t is in it; there are: none"),
        ("broker:nowhere", 2, "names no HOST:PORT"),
        ("parquet:{}/none", 1, "none: no Parquet file is in it"),
        ("parquet:{}/empty", 1, "empty: no Parquet file is in it"),
        ("parquet:{}/lake", 1, "lake: it is a Delta table; write delta:PATH"),
        ("parquet:moon://key:secret@b/c", 2, "names no place"),
        ("delta:{}/empty", 1, "empty: it is no Delta table"),
    ],
)
def test_a_tier_that_is_none(capsys: Captured, tmp_path: Path, word: str, status: int, said: str) -> None:
    a_topic(tmp_path / "data", partitions=1)
    (tmp_path / "empty").mkdir()
    write_deltalake(str(tmp_path / "lake"), a_table([(0, 0, NOW, NOW)]))
    ran = audit(capsys, tmp_path / "data", "--against", word.format(tmp_path), "--dry-run")
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), ran.err
    assert said in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize(("bad", "kept"), [("skip", "skip"), ("quarantine:q", "quarantine:q/against-2")])
def test_what_is_damaged_of_a_tier_is_kept_apart(bad: str, kept: str) -> None:
    asked = JobFlags(source="segments:a", topic="t", bad=bad)
    table, log = tiers.named(asked, ["delta:a", "segments:b"])
    assert (table.name, table.flags) == ("delta:a", asked)
    assert (log.name, log.flags.source, log.flags.bad) == ("segments:b", "segments:b", kept)
    assert tiers.source(asked).name == "segments:a"
    assert tiers.named(asked, ["parquet:s3://key:secret@b/c?x=y"])[0].name == "parquet:s3://b/c"


def test_a_dry_run_says_what_is_read_of_each_tier(capsys: Captured, tmp_path: Path) -> None:
    a_topic(tmp_path / "data")
    shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "copy" / "t-0")
    (tmp_path / "lake").mkdir()
    pq.write_table(a_table([(0, 0, NOW, NOW)]), tmp_path / "lake" / "a.parquet")
    tiers = ("--against", f"segments:{tmp_path}/copy", "--against", f"parquet:{tmp_path}/lake")
    before = sorted(tmp_path.rglob("*"))
    ((document),) = audit(capsys, tmp_path / "data", *tiers, "--dry-run").rows
    logs = list((tmp_path / "data").rglob("*.log"))
    assert document["segments"] == len(logs)
    assert [each["tier"] for each in document["against"]] == [tiers[1], tiers[3]]
    assert [each["segments"] for each in document["against"]] == [len(logs) // 2, None]
    assert document["against"][1]["bytes"] == (tmp_path / "lake" / "a.parquet").stat().st_size
    out = run(capsys, "audit", *flags(tmp_path / "data", *tiers, "--dry-run")[:4], *tiers, "--dry-run").out
    assert [line.rpartition(": ")[0] for line in out.splitlines()] == [
        f"segments:{tmp_path}/data",
        tiers[1],
        tiers[3],
    ]
    assert sorted(tmp_path.rglob("*")) == before


def a_table(rows: list[Row], **more: Any) -> pa.Table:
    columns = {
        "topic": ["t"] * len(rows),
        "partition": [row[0] for row in rows],
        "offset": [row[1] for row in rows],
        "create_time": [None if row[2] is None else row[2] * 1000 for row in rows],
        "append_time": [None if row[3] is None else row[3] * 1000 for row in rows],
    }
    schema = pa.schema([RECORDS.field(name) for name in columns])
    return pa.table({name: pa.array(each, schema.field(name).type) for name, each in columns.items()} | more)


def offsets(
    folder: Path, topic: str = "t", clock: str = "record", first: int | None = None, end: int | None = None
) -> Iterator[int]:
    options = {"uri": str(folder), "place": str(folder), "kind": "parquet"}
    wanted = json.dumps([topic, clock, first, end])
    reader = tier_files._Reader({**options, "wanted": wanted}, ("offset", "timestamp_type"))
    for task in reader.partitions():
        for rows in reader.read(task):
            assert rows.schema.names == ["offset", "timestamp_type"]
            yield from rows["offset"].to_pylist()


def test_rows_of_a_table_by_topic_and_times(tmp_path: Path) -> None:
    rows: list[Row] = [
        (0, 0, None, NOW),
        (0, 1, NOW, NOW + 9),
        (0, 2, NOW + 1, NOW + 8),
        (0, 3, NOW + 2, None),
    ]
    inner = tmp_path / "date=2023-11-14"
    inner.mkdir()
    pq.write_table(a_table(rows), inner / "a.parquet")
    others = a_table([(0, 4, NOW, NOW)]).set_column(0, "topic", pa.array(["t.2"]))
    pq.write_table(others, tmp_path / "b.parquet")
    for hidden in ("_staged-1/c.parquet", "_d.parquet", ".e.parquet"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        pq.write_table(a_table(rows), tmp_path / hidden)
    (tmp_path / "f.txt").write_text("no Parquet")
    assert list(offsets(tmp_path)) == [0, 1, 2, 3]
    assert list(offsets(tmp_path, topic="t.2")) == [4]
    assert list(offsets(tmp_path, first=NOW)) == [1, 2, 3]
    assert list(offsets(tmp_path, first=NOW + 1, end=NOW + 2)) == [2]
    assert list(offsets(tmp_path, end=NOW + 9, clock="append")) == [0, 2]
    (tmp_path / "g.parquet").write_bytes(b"none")
    with pytest.raises(PipelineError, match=r"g\.parquet: it cannot be read as Parquet: .+"):
        list(offsets(tmp_path))
    pq.write_table(a_table(rows).drop_columns(["offset"]), tmp_path / "g.parquet")
    with pytest.raises(
        PipelineError, match=r"g\.parquet: it has no column offset; rows are identified by topic, part"
    ):
        list(offsets(tmp_path))


def test_the_files_of_a_table_of_delta_are_those_of_its_last_version(tmp_path: Path) -> None:
    where = place("--against", str(tmp_path))
    for number in range(2):
        table = a_table([(0, number, NOW, NOW)])
        write_deltalake(str(tmp_path), table, mode="overwrite", partition_by=["topic"])
    (kept,) = tier_files.table_files(where, "delta")
    assert kept.size == Path(kept.path).stat().st_size
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
