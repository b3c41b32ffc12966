"""What every job has in common: flags, times, errors in a line, exit codes, dry runs. No Spark is started."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.jobs import TIMES, a_topic, in_range, run
from tests.support.broker import run_to_end
from tests.support.logs import NOW
from tidelog.cli import pipeline as cli_pipeline
from tidelog.cli.errors import CommandError
from tidelog.pipeline.errors import DamagedLog, PipelineError, WrongOption
from tidelog.pipeline.jobs.parts import failures
from tidelog.pipeline.jobs.parts.flags import JobFlags

JOBS = ("backfill", "ingest", "audit", "latency", "replay")
Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("job", [*JOBS, "lag", "deadletter", "fsck", "archive", "failover", "compact"])
def test_every_job_says_its_flags(capsys: Captured, job: str) -> None:
    ran = run(capsys, job, "--help")
    assert ran.status == 0
    for flag in (
        "--source",
        "--topic",
        "--from",
        "--to",
        "--clock",
        "--bad",
        "--checkpoint",
        "--dry-run",
        "--json",
    ):
        assert flag in ran.out, flag


@pytest.mark.parametrize("job", JOBS)
def test_a_dry_run_says_what_is_read_and_makes_nothing(capsys: Captured, tmp_path: Path, job: str) -> None:
    a_topic(tmp_path / "data")
    before = sorted(tmp_path.rglob("*"))
    whole = run(capsys, job, "--source", f"segments:{tmp_path}/data", "--topic", "t", "--dry-run", "--json")
    (document,) = whole.rows
    logs = list(tmp_path.rglob("*.log"))
    assert whole.status == 0
    assert document["segments"] == len(logs)
    assert document["tasks"] == 1  # so little is not shared out
    assert document["pruned"] == 0
    assert document["bytes"] == sum(path.stat().st_size for path in logs)
    assert document["records_at_most"] == 800
    first = str(NOW + 3000)
    part = run(
        capsys, job, "--source", f"segments:{tmp_path}/data", "--topic", "t", "--from", first, "--dry-run"
    )
    kept, pruned = (int(part.out.split(word)[0].split(",")[-1]) for word in (" segments kept", " pruned"))
    assert 0 < kept < len(logs)
    assert kept + pruned == len(logs)
    at_most = int(part.out.split(" records at most")[0].split(",")[-1])
    offsets = [offset for offset, _ in in_range(TIMES, NOW + 3000, NOW + 10**6)]
    assert at_most == 2 * (offsets[-1] + 1 - offsets[0]) >= 2 * len(offsets)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("", 2, "--source is missing"),
        ("--source segments:{}", 2, "--topic is missing"),
        ("--source nowhere --topic t", 2, "option source: 'nowhere' is not valid"),
        ("--source segments:{} --topic u", 1, "no topic u is in it; there are: t"),
        (
            "--source segments:{} --topic t --clock wall",
            2,
            "'wall' is none of record, append",
        ),
        (
            "--source segments:{} --topic t --from soonish",
            2,
            "--from: 'soonish' is not a time",
        ),
        ("--source segments:{} --topic t --to soonish", 2, "--to: 'soonish' is not a time"),
        ("--source segments:{} --topic t --from now --to -1h", 2, "is after --to"),
        ("--source segments:{} --topic t --bad ignore", 2, "option bad: 'ignore'"),
        ("--source segments:{} --topic t --nonsense", 2, "No such option '--nonsense'"),
        ("--source segments:{}/none --topic t", 1, "none: No such file"),
    ],
)
@pytest.mark.parametrize("job", JOBS)
def test_an_error_is_one_line_and_a_code(
    capsys: Captured, tmp_path: Path, job: str, arguments: str, status: int, said: str
) -> None:
    a_topic(tmp_path, partitions=1)
    ran = run(capsys, job, *arguments.format(tmp_path).split(), "--dry-run")
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert said in ran.err


@pytest.mark.parametrize(
    ("job", "flags", "said"),
    [
        ("backfill", "", "--out is missing"),
        ("ingest", "", "--out is missing"),
        ("backfill", "--format csv", "--format: 'csv' is none of parquet, delta"),
        ("ingest", "--format csv", "--format: 'csv' is none of parquet, delta"),
        ("audit", "--window long", "--window: 'long' is not a duration"),
        ("latency", "--window 0s", "--window: 0s is no length of time"),
        ("backfill", "--out moon://b/c", "--out: 'moon://b/c' names no place"),
        ("audit", "--conf master=local", "--conf: 'master=local' is no setting of Spark"),
        ("audit", "--conf spark.master", "--conf: 'spark.master' is no setting of Spark"),
    ],
)
def test_a_flag_that_cannot_be_understood(
    capsys: Captured, tmp_path: Path, job: str, flags: str, said: str
) -> None:
    a_topic(tmp_path, partitions=1)
    ran = run(capsys, job, "--source", f"segments:{tmp_path}", "--topic", "t", *flags.split())
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err.splitlines()[-1]


@pytest.mark.parametrize("job", [*JOBS, "lag", "deadletter", "fsck", "archive", "failover", "compact"])
def test_a_range_that_ends_before_it_begins(capsys: Captured, job: str) -> None:
    ran = run(capsys, job, "--from", "2024-03-02T00:00Z", "--to", "2024-03-01T00:00Z")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert (
        "--from: 2024-03-02T00:00Z (2024-03-02T00:00:00.000+00:00) is after --to, 2024-03-01T00:00Z"
        in ran.err
    )


@pytest.mark.parametrize("job", ["lag", "fsck", "deadletter", "archive", "failover"])
@pytest.mark.parametrize("flag", ["--from", "--to"])
def test_a_job_without_a_range_takes_no_times(capsys: Captured, tmp_path: Path, job: str, flag: str) -> None:
    a_topic(tmp_path, partitions=1)
    source = f"segments:{tmp_path}"
    own = {"deadletter": ("--folder", str(tmp_path)), "failover": ("--target", source)}.get(job, ())
    ran = run(capsys, job, "--source", source, "--topic", "t", *own, flag, "1 hour ago", "--dry-run")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "--from, --to: " in ran.err


@pytest.mark.parametrize("job", ["audit", "latency", "lag"])
@pytest.mark.parametrize("name", ["none/a.html", "t-0"])
def test_a_page_that_cannot_be_written_is_said_before_the_work(
    capsys: Captured, tmp_path: Path, job: str, name: str
) -> None:
    a_topic(tmp_path, partitions=1)
    page = f"{tmp_path}/{name}"
    ran = run(capsys, job, "--source", f"segments:{tmp_path}", "--topic", "t", "--html", page)
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"--html: no file {page} can be written" in ran.err


@pytest.mark.parametrize(
    ("job", "source", "status", "said"),
    [
        ("lag", "broker:localhost", 2, "names no HOST:PORT"),
        ("lag", "broker:localhost:kafka", 2, "names no HOST:PORT"),
        ("lag", "segments:s3://key:secret@b/c", 2, "write segments:FOLDER or broker:HOST:PORT"),
        ("lag", "segments:{}", 1, "no topic u is in it; there are: t"),
        ("fsck", "segments:s3://key:secret@b/c", 2, "is none that can be checked"),
        ("fsck", "segments:{}", 1, "no log of u is in it"),
        ("latency", "broker:localhost:kafka", 2, "names no HOST:PORT"),
    ],
)
def test_a_source_that_cannot_be_read(
    capsys: Captured, tmp_path: Path, job: str, source: str, status: int, said: str
) -> None:
    a_topic(tmp_path, partitions=1)
    ran = run(capsys, job, "--source", source.format(tmp_path), "--topic", "u")
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), ran.err
    assert said in ran.err
    assert "secret" not in ran.err


def test_of_very_many_topics_some_are_named(capsys: Captured, tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"topic.{number:02}-0").mkdir()
    ran = run(capsys, f"audit --source segments:{tmp_path} --topic topic.11s")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "topic.08, topic.09 and 2 more; did you mean topic.11?" in ran.err


def test_no_job_is_the_help_and_an_unknown_one_an_error(capsys: Captured) -> None:
    assert run(capsys, "backfil").status == 2
    listed = run(capsys)
    assert listed.status == 2
    assert "backfill    Write the records of a range of times to a table.\n" in listed.out
    assert "..." not in listed.out.partition("Commands:")[2], "a first sentence is too long for the list"


def test_times_are_fixed_when_the_job_begins() -> None:
    asked = JobFlags(source="segments:d", topic="t", from_time="2 hours ago", to_time="now").fixed(NOW)
    later = asked.chosen()
    assert (later.from_ms, later.to_ms) == (NOW - 7_200_000, NOW)
    assert dict(asked.given_times) == {"from": "2 hours ago", "to": "now"}  # a stream goes by when it began
    assert asked.options(partitions="1")["partitions"] == "1"
    assert "bad" in asked.options()
    assert "from" not in JobFlags(source="segments:d", topic="t").options()


def test_what_is_said_of_an_error() -> None:
    from pyspark.errors import PySparkException

    traceback = "Traceback:\n  File x\ntidelog.pipeline.errors.{}: 000.log@12: is damaged\n\tat java"
    assert failures.described(PySparkException(traceback.format("DamagedLog"))) == (
        "000.log@12: is damaged",
        1,
    )
    assert failures.described(PySparkException(traceback.format("WrongOption"))) == (
        "000.log@12: is damaged",
        2,
    )
    assert failures.described(PySparkException("\n out of memory\nat java")) == ("Spark: out of memory", 1)
    chained = (
        traceback.format("PipelineError") + "\n" + traceback.format("WrongOption").replace("damaged", "wrong")
    )
    assert failures.described(PySparkException(chained)) == ("000.log@12: is wrong", 2)
    other = PySparkException("Query failed: Traceback\n  File x\nKeyError: 'k'\n\nnow what")
    assert failures.described(other) == ("Spark: KeyError: 'k'", 1)
    java = "An error occurred while calling o1.start.\n: java.io.IOException: no folder\n\tat java"
    assert failures.described(PySparkException(java)) == ("Spark: java.io.IOException: no folder", 1)
    assert failures.described(DamagedLog("a")) == ("a", 1)
    assert failures.described(PipelineError("a")) == ("a", 1)
    assert failures.described(WrongOption("a")) == ("a", 2)
    assert failures.described(PermissionError(13, "Permission denied", "/x")) == ("/x: Permission denied", 1)
    assert failures.described(KeyError("a bug")) is None


def test_a_bug_is_seen_whole_and_ctrl_c_has_its_code(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(error: BaseException) -> None:
        def broken(self: JobFlags, now_ms: int) -> JobFlags:
            raise error

        monkeypatch.setattr(JobFlags, "fixed", broken)

    raising(KeyError("a bug"))
    with pytest.raises(KeyError):
        run(capsys, "audit")
    raising(KeyboardInterrupt())
    ran = run(capsys, "audit")
    assert (ran.status, ran.err) == (130, "")  # before a job began


@pytest.mark.e2e
def test_the_command_and_the_module_are_the_same(tmp_path: Path) -> None:
    a_topic(tmp_path, partitions=1)
    flags = ["audit", "--source", f"segments:{tmp_path}", "--topic", "t", "--dry-run", "--json"]
    command = run_to_end("pipeline", *flags)
    module = subprocess.run(
        [sys.executable, "-m", "tidelog.pipeline", *flags], capture_output=True, text=True, check=False
    )
    assert command.returncode == module.returncode == 0
    assert command.stdout == module.stdout != ""
    assert run_to_end("pipeline", "audit", "--sauce", "x").returncode == 2
    shown = run_to_end("pipeline", "audit", "--help")
    assert "pipeline audit" in shown.stdout


def test_what_is_said_where_spark_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_pipeline, "NEEDED", ("pyspark", "no_such_package"))
    with pytest.raises(
        CommandError, match=r"needs no_such_package: make setup-pipeline .*checkout\[pipeline\]'"
    ):
        cli_pipeline.run_job(["audit"])


def test_help_loads_no_spark(tmp_path: Path) -> None:
    code = "import sys; from tidelog.pipeline import commands; commands.run(['audit', '--help'], 'x'); "
    code += "sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
