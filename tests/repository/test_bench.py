"""The bench: its rows name what exists, its verdicts are right, and its clients and servers understand one another."""

import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import compare, consumers, groups, log, machine, plots, report, rows, suite, table
from bench.brokers import Tidelog
from bench.fill import Shape
from bench.metrics import METRICS, Measures
from bench.row import OURS, THEIRS, Contender, Goal, Row, Workload
from bench.rows.consume import Consume
from bench.rows.lookups import Lookups
from bench.rows.produce import Produce
from bench.rows.requests import Fetches, Produces, Relay
from bench.stage import Rig, Stage
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FetchResponse

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the clients are written in C")


def test_rows_have_names_of_their_own() -> None:
    names = [row.name for row in rows.ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", rows.ROWS, ids=lambda row: row.name)
def test_rows_name_metrics_and_contenders_that_exist(row: Row) -> None:
    assert set(row.shows) <= METRICS.keys()
    for goal in row.goals:
        assert goal.metric in METRICS
        assert (goal.at_most is None) != (goal.at_least is None)
        assert {goal.of, goal.than or goal.of} <= row.contenders.keys()


def test_rows_are_selected_by_name_or_a_part_of_it() -> None:
    assert [row.name for row in rows.select("on-disk-10x5", quick=False)] == ["on-disk-10x5"]
    assert {row.name for row in rows.select("growth", quick=False)} >= {"growth-log", "growth-batch"}
    assert len(rows.select("", quick=False)) == len(rows.ROWS) > len(rows.select("", quick=True)) > 5
    with pytest.raises(SystemExit, match="no row is named nonsense"):
        rows.select("nonsense", quick=False)


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("p99_us", at_most=0.5), True),
        (Goal("p99_us", at_most=0.4), False),
        (Goal("requests_s", at_least=2), True),
        (Goal("requests_s", at_least=2.1), False),
        (Goal("p99_us", at_most=20, than=None), True),
        (Goal("p99_us", at_most=19, than=None), False),
        (Goal("rss_mb", at_most=1), None),
    ],
)
def test_a_verdict_compares_medians(goal: Goal, verdict: bool | None) -> None:
    figures: dict[str, list[Measures]] = {
        OURS: [{"p99_us": us, "requests_s": 200} for us in (20, 1, 400)],
        THEIRS: [{"p99_us": us, "requests_s": 100} for us in (40, 39, 41)],
    }
    assert suite.judge(goal, figures)["is_met"] is verdict


class Scripted(Workload):
    """Fails at the second run, or gives what it was told to."""

    def __init__(self, log: list[str], name: str, fails: bool = False) -> None:
        self.log, self.name, self.fails = log, name, fails

    def measure(self, stage: Stage, _prepared: Any) -> Measures:
        self.log.append(self.name)
        if self.fails and self.log.count(self.name) == 2:
            raise RuntimeError("no luck")
        return {"requests_s": 10.0}


def test_contenders_take_turns_and_a_failure_is_told_and_stops_nobody_else(tmp_path: Path) -> None:
    log: list[str] = []
    contenders = {
        OURS: Contender("tidelog", Scripted(log, "ours")),
        THEIRS: Contender("kafka", Scripted(log, "theirs", fails=True)),
    }
    row = Row("scripted", "a row", contenders, [Goal("requests_s", at_least=1)])
    result = suite.measure(Rig(tmp_path, 1), row, runs=3, only=None)
    assert log == ["ours", "theirs", "theirs", "ours", "ours"]
    assert result["failures"] == {THEIRS: "RuntimeError: no luck"}
    assert [len(runs) for runs in result["contenders"].values()] == [3, 1]
    lines = table.lines_of(result)
    assert (lines[0].ours, lines[0].theirs, lines[0].ratio, lines[0].verdict) == (
        "10 [10-10]",
        "10",
        "1.00",
        "met",
    )
    assert (lines[-1].figure, lines[-1].beside, lines[-1].verdict) == ("failed", THEIRS, "NOT MET")
    log.clear()
    assert list(suite.measure(Rig(tmp_path, 1), row, runs=1, only="tidelog")["contenders"]) == [OURS]


def test_every_row_of_ours_can_run_beside_another_commit() -> None:
    found = list(compare.rows(rows.ROWS))
    assert {row.name for row in found} == {row.name for row in rows.ROWS if OURS in row.contenders}
    for row in found:
        assert list(row.contenders) == [OURS, compare.BEFORE]
        assert row.contenders[OURS].workload == row.contenders[compare.BEFORE].workload
        assert all(goal.metric in METRICS and goal.than == compare.BEFORE for goal in row.goals)
    assert sum(bool(row.goals) for row in found) > len(found) / 2, (
        "most rows say what a request or a record costs"
    )


def test_a_commit_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="COMPARE=no-such-commit: this repository has no such commit"):
        compare.prepare("no-such-commit")


@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_other_commit_is_compiled_if_ours_is_and_runs_on_the_same_python(
    is_compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the environment of `make bench` says, and whatever was set up before."""
    for variable, value in (("COMPILED", "1"), ("MAKEFLAGS", " -- PYTHON=python9.9 COMPILED=1")):
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(compare.build, "FOLDER", tmp_path)
    monkeypatch.setattr(compare.native, "state", lambda: "compiled" if is_compiled else "interpreted: stale")
    makefile = (
        "VENV = .venv-other\nsetup:\n\tmkdir -p $(VENV)/bin\n"
        "\tprintf '#!/bin/sh\\necho requests: compiled\\n' > $(VENV)/bin/tidelog\n\tchmod +x $(VENV)/bin/tidelog\n"
        "\techo $(COMPILED) $(PYTHON) > wanted\n"
    )
    packed = tmp_path / "packed.tar"
    with tarfile.open(packed, "w") as archive:
        file = tarfile.TarInfo("Makefile")
        file.size = len(makefile)
        archive.addfile(file, io.BytesIO(makefile.encode()))
    done = subprocess.CompletedProcess([], 0, packed.read_bytes())
    monkeypatch.setattr(compare, "_git", lambda *_: done)
    command = compare._set_up("0123456789abcdef")
    assert command.exists()
    assert (command.parents[2] / "wanted").read_text() == f"{int(is_compiled)} {sys.executable}\n"
    assert ("-compiled" in command.parents[2].name) == is_compiled
    said = (
        "" if is_compiled else "bench: 0123456789ab is compiled, and these sources are interpreted: stale\n"
    )
    assert capsys.readouterr().out.partition("first time)\n")[2] == said


def test_figures_are_written_with_three_digits() -> None:
    values = (0.01234, 1.2345, 99.94, 1234.5, 12_345, 1_234_567)
    assert [table.number(value) for value in values] == ["0.0123", "1.23", "99.9", "1234", "12.3k", "1.23M"]


def results() -> list[suite.Result]:
    """Return figures for every row, as if measured."""
    made = []
    for number, row in enumerate(rows.ROWS):
        figures: dict[str, list[Measures]] = {
            name: [dict.fromkeys(METRICS, 1.5 + number + place)] for place, name in enumerate(row.contenders)
        }
        goals = [suite.judge(goal, figures) for goal in row.goals]
        made.append(
            {
                "name": row.name,
                "title": row.title,
                "note": row.note,
                "shows": list(row.shows),
                "contenders": figures,
                "failures": {},
                "goals": goals,
            }
        )
    return made


def test_a_process_is_charged_with_those_that_it_has_started() -> None:
    with (
        ThreadPoolExecutor(1) as other,
        Popen("cat", stdin=PIPE) as running,  # until its input is closed
        other.submit(Popen, "cat", stdin=PIPE).result() as by_other,
    ):
        assert {running.pid, by_other.pid} <= set(machine.children(os.getpid()))
    assert not {running.pid, by_other.pid} & set(machine.children(os.getpid()))
    before_s, began = machine.ended_children_cpu_s(os.getpid()), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "for _ in range(3_000_000): pass"], check=True)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    assert machine.ended_children_cpu_s(os.getpid()) - before_s == pytest.approx(spent_s, abs=0.03)


def page_of(figures: list[suite.Result], drawn: Sequence[str] = ()) -> str:
    versions = {"version": "1", "commit": "c", "measured": "d", "versions": {}, "machine": {}}
    return report.document({"rows": figures, "runs": 5, **versions}, "x.json", drawn)


def test_every_plot_is_well_formed_and_the_page_has_every_row_and_plot() -> None:
    drawn = dict(report.drawings(results()))
    assert drawn.keys() == {*(picture.file for picture in report.BARS), *report.CURVES, "beside"}
    for drawing in drawn.values():
        assert ElementTree.fromstring(drawing).tag.endswith("svg")
    page = page_of(results(), list(drawn))
    assert all(f"### {row.title}\n" in page for row in rows.ROWS)
    assert all(f"(performance/{name}.svg)" in page for name in drawn)
    assert all(f"| {label} |" in page for label in report.HEADLINES.values())
    assert "None" not in page


def test_the_page_begins_with_ratios_and_lists_each_figure_in_which_kafka_is_better() -> None:
    figures = results()
    (row,) = (result for result in figures if result["name"] == "one-record-10x5")
    row["contenders"] = {
        OURS: [{"requests_s": 300.0, "cpu_us": 5.0, "p50_us": 70.0}],
        THEIRS: [{"requests_s": 200.0, "cpu_us": 20.0, "p50_us": 50.0}],
    }
    page = page_of(figures)
    assert f"| {report.HEADLINES['one-record-10x5']} | 1.50 | 0.25 |  |  |  |\n" in page
    lost = page[page.index("Kafka is better in these figures") : page.index("## How to read it")]
    assert f"| {row['title']} | us p50, kafka | 1.40 |\n" in lost
    assert lost.count(row["title"]) == 1


def test_plots_take_a_single_figure_and_nothing() -> None:
    for is_log in (False, True):
        for value in (0.0, 3.0, 1e7):
            ElementTree.fromstring(plots.bars("a", "b", {"c & d": {"tidelog": value}}, str, is_log))


WORKS = {
    "produce": Produces(2, 5),
    "produce on disk": Produces(2, 5, acks=-1, partitions=3),
    "fetch": Fetches(2, 1, batches=2000),
    "fetch 64 KiB": Fetches(1, 65_536, batches=2000),
    "relay": Relay(),
    "lookups": Lookups(Shape(late=0.01), records=20_000),
    "librdkafka produces": Produce(50_000, 100),
    "librdkafka consumes": Consume(50_000, 100),
}
OF_THE_FLOOR = ("produce", "produce on disk", "fetch", "lookups")


@needs_compiler
@pytest.mark.slow
def test_every_kind_of_work_is_done_without_an_error(tmp_path: Path) -> None:
    # Less than the usual times is enough here; a tenth of a second is too little on a machine that does other things.
    rig = Rig(tmp_path, 0.3, warms=False)
    try:
        for kind, works in (("tidelog", WORKS), ("floor", OF_THE_FLOOR), ("floor in C", OF_THE_FLOOR)):
            for name in works:
                row = Row(name, name, {OURS: Contender(kind, WORKS[name])})
                result = suite.measure(rig, row, runs=1, only=None)
                assert not result["failures"], (kind, name)
                (figures,) = result["contenders"][OURS]
                assert figures["rss_mb"] > 1
                assert figures.get("requests_s") or figures["records_s"]
    finally:
        rig.close()


@needs_compiler
@pytest.mark.slow
def test_a_disk_can_be_made_slow(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 0.5, warms=False)
    try:
        stage = Stage(rig, None, {}, "tidelog")
        work = Produces(1, 1, acks=-1)
        fast = work.measure(stage, None)
        # Longer than a request takes on a busy machine, short enough that some are answered meanwhile.
        stage.broker.delay_sync(400_000)
        assert work.measure(stage, None)["p50_us"] > 400_000 > fast["p50_us"]
    finally:
        rig.close()


@needs_compiler
@pytest.mark.slow
def test_groups_begin_and_are_restarted_and_all_that_is_asked_about_them_has_a_figure() -> None:
    small = "--members 4 --groups 2 --partitions 20 --seconds 0.3 --heartbeat 0.2"
    figures = groups.measure(Tidelog, groups.parse(small.split()))
    assert len(figures) == 26
    # Of two members one at a time leaves, whom the other has missed at its next heartbeat.
    assert 0.2 < figures["s of the rolling restart in all"] < 20
    # Neither names twenty partitions: the session is kept, and told of the one that has grown.
    assert figures["bytes a poll idle"] < 100 < figures["bytes a poll where one has grown"] < 500
    assert all(value > 0 for name, value in figures.items() if name != "kB RSS a connection")


@needs_compiler
@pytest.mark.all
def test_what_a_log_costs_has_a_figure_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert log.main(["--gb", "0.002", "--seconds", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    figures = {name.strip(): value for name, value in (line.rsplit(None, 1) for line in lines)}
    assert len(lines) == len(figures) == 16 + 2 + 3 * 2 * 4 + 4 + 6 + 2 * 2 * 4
    assert 0 < float(figures["% of the log that .appendindex adds: 1000 B, 1 a batch"]) < 2


def test_a_leader_deals_all_partitions_out_and_others_none() -> None:
    assert consumers.assigned(b"t", []) == []
    dealt = [consumers.partitions_of(each.assignment, b"t") for each in consumers.assigned(b"t", [*"abc"])]
    assert dealt == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_a_session_says_what_has_changed_only() -> None:
    session = consumers.Session("t")
    first = session.request({0: 0, 1: 0}, 500)
    assert [part.partition for part in first.topics[0].partitions] == [0, 1]
    session.take(FetchResponse(session_id=7, responses=[]))
    assert session.request({0: 0, 1: 0}, 500).topics == []
    session.take(FetchResponse(session_id=7, responses=[]))
    third = session.request({1: 5}, 500)
    assert (third.session_id, third.session_epoch) == (7, 2)
    assert [(part.partition, part.fetch_offset) for part in third.topics[0].partitions] == [(1, 5)]
    assert third.forgotten_topics_data[0].partitions == [0]
    session.take(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[]))
    assert len(session.request({0: 0, 1: 5}, 500).topics[0].partitions) == 2
