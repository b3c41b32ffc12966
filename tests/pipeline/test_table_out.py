"""The form of a table, whose it is, and the files of a task by date. No Spark is started."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.pipeline.jobs import a_topic, run
from tests.support.logs import NOW
from tidelog.pipeline import options
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.jobs import backfill, ingest
from tidelog.pipeline.jobs.parts import delta, landing, staging, table_out
from tidelog.pipeline.jobs.parts.flags import JobFlags, Table
from tidelog.pipeline.jobs.parts.landing import Landed
from tidelog.pipeline.jobs.parts.place import Place, place
from tidelog.pipeline.jobs.parts.table_out import Form
from tidelog.pipeline.options import Options
from tidelog.pipeline.tables import RECORDS

DAY = datetime.date(2023, 11, 14)


def test_a_form_by_flags() -> None:
    assert table_out.form(Table(), "append") == Form()
    by_append = table_out.form(Table("", "delta", "json", "id long", True), "append")
    assert by_append == Form("delta", "json", "id long", "append_time")
    assert by_append.by == ["date"]
    assert table_out.form(Table("", "delta", "string", by_date=True), "record").time == "create_time"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("csv", "", ""), "--format: 'csv' is none of parquet, delta"),
        (("delta", "avro", ""), "--decode: 'avro' is none of string, json"),
        (("delta", "json", " "), "--schema is missing; name the fields of the JSON"),
        (("delta", "", "id long"), "--schema is only for JSON; write --decode json"),
        (("delta", "string", "id long"), "--schema is only for JSON; write --decode json"),
    ],
)
def test_flags_that_mean_no_form(flags: tuple[str, str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        table_out.form(Table("", *flags), "record")


def a_delta_table(folder: Path, by: list[str] | None = None) -> Place:
    write_deltalake(str(folder), pa.table({"a": [1], "date": [DAY]}), partition_by=by)
    return place("--out", str(folder))


def test_a_table_of_another_form_is_named(tmp_path: Path) -> None:
    plain, dated = Form(), Form(time="create_time")
    fresh = place("--out", str(tmp_path / "fresh"))
    for form in (plain, dated, Form("delta"), Form("delta", time="create_time")):
        table_out.demand_form(fresh, form)
    files = place("--out", str(tmp_path / "files"))
    (tmp_path / "files" / "_ingest").mkdir(parents=True)
    (tmp_path / "files" / "a.parquet").touch()
    table_out.demand_form(files, plain)
    folders = place("--out", str(tmp_path / "folders"))
    (tmp_path / "folders" / "date=2023-11-14").mkdir(parents=True)
    (tmp_path / "folders" / "date=2023-11-14" / "a.parquet").touch()
    table_out.demand_form(folders, dated)
    delta_plain = a_delta_table(tmp_path / "delta")
    delta_dated = a_delta_table(tmp_path / "dated", ["date"])
    table_out.demand_form(delta_plain, Form("delta"))
    table_out.demand_form(delta_dated, Form("delta", time="append_time"))
    for there, form, said in (
        (files, dated, "has no folders by date; leave out --by-date"),
        (folders, plain, "has folders by date; write --by-date"),
        (files, Form("delta"), "has Parquet files, and is no Delta table"),
        (folders, Form("delta", time="create_time"), "has Parquet files, and is no Delta table"),
        (delta_plain, plain, "is a Delta table; write --format delta"),
        (delta_dated, dated, "is a Delta table; write --format delta"),
        (delta_plain, Form("delta", time="create_time"), "has no folders by date"),
        (delta_dated, Form("delta"), "has folders by date"),
    ):
        with pytest.raises(PipelineError, match=f"^{there.uri}.*{said}"):
            table_out.demand_form(there, form)


def test_a_topic_is_written_to_a_table_by_one_stream(tmp_path: Path) -> None:
    table = place("--out", str(tmp_path))
    table_out.claim(table, "t", "one", "/first")
    table_out.claim(table, "t", "one", "/moved")
    table_out.claim(table, "u", "two", "/second")
    twice = r"has records of topic t already, by the checkpoint /first; with the checkpoint /third they would"
    with pytest.raises(PipelineError, match=twice):
        table_out.claim(table, "t", "three", "/third")


def test_a_note_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half of one could not be read by the next run, nor by any."""
    table = place("--out", str(tmp_path))
    monkeypatch.setattr(table_out.json, "dumps", raising(OSError("killed")))
    with pytest.raises(OSError, match="killed"):
        table_out.claim(table, "t", "one", "/first")
    assert not table_out.is_claimed(table, "t")
    monkeypatch.undo()
    table_out.claim(table, "t", "one", "/first")
    assert table_out.is_claimed(table, "t")
    assert [path.name for path in (tmp_path / "_ingest").iterdir()] == ["t.json"]


def raising(error: Exception) -> Any:
    def raises(*_: Any) -> Any:
        raise error

    return raises


def test_ingest_and_backfill_do_not_share_a_folder_of_parquet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(JobFlags, "session", None)
    flags = (
        "--source",
        f"segments:{a_topic(tmp_path / 'data')}",
        "--topic",
        "t",
        "--out",
        str(tmp_path / "out"),
    )
    table = place("--out", str(tmp_path / "out"))
    table_out.claim(table, "t", "one", "/first")
    ran = run(capsys, "backfill", *flags)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert f"{tmp_path}/out has records of topic t by ingest" in ran.err
    (tmp_path / "out" / "t-by-record-0-9-00000.parquet").touch()
    ran = run(capsys, "ingest", *flags)
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert f"{tmp_path}/out has records of topic t by backfill" in ran.err


def test_the_longest_topics_are_not_shared_either(tmp_path: Path) -> None:
    table, chosen = place("--out", str(tmp_path)), Options("segments", "d", "t" * 248)
    ingest.demand_no_backfill(table, chosen, Form())
    (tmp_path / f"{backfill._prefix(chosen)}-00000.parquet").touch()
    ingest.demand_no_backfill(table, chosen._replace(topic="t" * 247 + "u"), Form())
    with pytest.raises(PipelineError, match=r"has records of topic t+ by backfill"):
        ingest.demand_no_backfill(table, chosen, Form())


def a_stage(table: Place, *offsets: int) -> list[Landed]:
    """Stage records of topic t, each of the ms of its offset."""
    columns: dict[str, pa.Array] = {each.name: pa.nulls(len(offsets), each.type) for each in RECORDS}
    columns |= {
        "topic": pa.array(["t"] * len(offsets)),
        "partition": pa.array([0] * len(offsets), pa.int32()),
        "offset": pa.array(offsets),
        "create_time": pa.array([(NOW + each) * 1000 for each in offsets], pa.timestamp("us", "UTC")),
    }
    table.files.create_dir(table.under("_staged"))
    pq.write_table(pa.table(columns, schema=RECORDS), table.under("_staged/a.parquet"))
    return [Landed("a.parquet", 0, len(offsets), 1, None)]


def test_a_stream_does_not_begin_on_rows_of_a_table_of_delta(tmp_path: Path) -> None:
    table, chosen = place("--out", str(tmp_path)), Options("segments", "d", "t")
    form = Form("delta")
    ingest.demand_no_backfill(table, chosen, form)
    delta.replace(table, "_staged", a_stage(table, 5, 6, 7), "topic = 't'")
    for more in ({"topic": "u"}, {"from_ms": NOW + 8}, {"to_ms": NOW + 5}):
        ingest.demand_no_backfill(table, chosen._replace(**more), form)
    for more in ({}, {"from_ms": NOW + 7}, {"to_ms": NOW + 6}):
        with pytest.raises(PipelineError, match="has records of topic t that no stream wrote"):
            ingest.demand_no_backfill(table, chosen._replace(**more), form)
    table_out.claim(table, "t", "one", "/first")
    ingest.demand_no_backfill(table, chosen, form)


def test_backfill_does_not_overtake_a_stream(tmp_path: Path) -> None:
    """What the stream is still to write would be there twice."""
    table = place("--out", str(tmp_path))
    backfill._demand_ingested(table, "_staged", a_stage(table, 1), "t")
    table_out.claim(table, "t", "one", "/first")
    with pytest.raises(PipelineError, match="by ingest, which has not reached t-0@1 yet"):
        backfill._demand_ingested(table, "_staged", a_stage(table, 1), "t")
    delta.append_once(table, "_staged", a_stage(table, 0, 1, 2), "one", 0)
    backfill._demand_ingested(table, "_staged", a_stage(table, 0, 2), "t")
    backfill._demand_ingested(table, "_staged", [], "t")
    with pytest.raises(PipelineError, match="by ingest, which has not reached t-0@3 yet"):
        backfill._demand_ingested(table, "_staged", a_stage(table, 2, 3), "t")


def rows_of(*days: datetime.date | None) -> pa.RecordBatch:
    times = pa.array([(NOW + number) * 1000 for number in range(len(days))], pa.timestamp("us", "UTC"))
    return pa.record_batch({"create_time": times, "date": pa.array(days, pa.date32())})


def test_the_rows_of_a_task_lie_in_files_by_date(tmp_path: Path) -> None:
    later = DAY + datetime.timedelta(days=1)
    batches = [rows_of(DAY, later, DAY, None), rows_of(), rows_of(None)]
    landed = landing.written(iter(batches), place("--out", str(tmp_path)), "00003-7.parquet", 3, "date")
    found = {each.name: (each.task, each.rows, each.newest_ms, each.bytes) for each in landed}
    files = {name: tmp_path / name for name in found}
    assert found == {
        f"date={value}/00003-7.parquet": (
            3,
            rows,
            NOW + newest,
            (tmp_path / f"date={value}/00003-7.parquet").stat().st_size,
        )
        for value, rows, newest in (
            ("2023-11-14", 2, 2),
            ("2023-11-15", 1, 1),
            ("__HIVE_DEFAULT_PARTITION__", 2, 3),
        )
    }
    assert {pq.read_schema(path).names[0] for path in files.values()} == {"create_time"}
    assert all(len(pq.read_schema(path).names) == 1 for path in files.values())
    assert landing.rows_staged(place("--out", str(tmp_path)), "") == 5


def test_the_newest_record_may_be_in_any_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(landing, "GROUP_ROWS", 1)
    batches = [rows_of(DAY), rows_of(DAY, DAY), rows_of(DAY)]
    (landed,) = landing.written(iter(batches), place("--out", str(tmp_path)), "x", 0, "")
    assert (landed.rows, landed.newest_ms) == (4, NOW + 1)
    assert landing.rows_staged(place("--out", str(tmp_path)), "") == 4


def test_values_without_a_meaning_are_counted_and_missing_ones_are_not(tmp_path: Path) -> None:
    values = pa.array([b"a", b"b", None, b"c"])
    batch = pa.record_batch({"value": values, "decoded": pa.array(["a", None, None, None])})
    (landed,) = landing.written(iter([batch]), place("--out", str(tmp_path)), "x", 0, "")
    assert (landed.rows, landed.undecoded, landed.newest_ms) == (4, 2, None)
    assert landing.written(iter([]), place("--out", str(tmp_path)), "y", 0, "") == []


def test_files_by_date_take_the_place_of_those_with_the_same_prefix_alone(tmp_path: Path) -> None:
    table = place("--out", str(tmp_path))
    old = (
        "date=a/p-1-00000.parquet",
        "date=b/p-1-00001.parquet",
        "date=b/p-11-00000.parquet",
        "_x/p-1-0.parquet",
    )
    new = ("_staged/date=b/00000-1.parquet", "_staged/date=c/00000-1.parquet")
    for name in (*old, *new):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    landed = [Landed(name.removeprefix("_staged/"), 0, 1, 1, None) for name in new]
    names = landing.put(table, "_staged", landed, "p-1")
    assert names == ["date=b/p-1-00002.parquet", "date=c/p-1-00003.parquet"]
    assert landing.files_of(table, "") == {*names, "date=b/p-11-00000.parquet"}
    assert landing.files_of(table, "p-11") == {"date=b/p-11-00000.parquet"}
    assert (tmp_path / "_x/p-1-0.parquet").exists()


def test_only_the_first_batch_of_a_run_may_have_been_begun_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(staging, "stage", lambda *_: [Landed("a", 0, 3, 9, None, 1)])
    monkeypatch.setattr(landing, "put", lambda *given, is_new: done.append((given[3], is_new)))
    written = ingest.Written(place("--out", str(tmp_path)), Form())
    for number, may_be_there in ((7, True), (8, False)):
        written.batch(None, number, "s", may_be_there)  # type: ignore[arg-type]
    assert done == [("s-0000000007", False), ("s-0000000008", True)]
    assert (written.rows, written.batches, written.undecoded) == (6, 2, 2)
    done.clear()
    monkeypatch.setattr(delta, "last_batch", lambda *_: 7)
    monkeypatch.setattr(delta, "append_once", lambda *given: done.append(given[4]))
    written = ingest.Written(place("--out", str(tmp_path)), Form("delta"))
    for number, may_be_there in ((7, True), (8, False)):
        written.batch(None, number, "s", may_be_there)  # type: ignore[arg-type]
    assert done == [8]


def test_a_batch_is_of_so_many_records_that_it_takes_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen = options.parse({"source": f"segments:{a_topic(tmp_path)}", "topic": "t"}, NOW)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    monkeypatch.setattr(ingest, "BATCH_BYTES", 50 * (size // 800))
    assert ingest.records_a_batch(chosen) == 50
    monkeypatch.setattr(ingest, "BATCH_BYTES", 1)
    assert ingest.records_a_batch(chosen) == 1
    monkeypatch.setattr(ingest, "BATCH_BYTES", 1 << 40)
    assert ingest.records_a_batch(chosen) == ingest.RECORDS_A_BATCH
