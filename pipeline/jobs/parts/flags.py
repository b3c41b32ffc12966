"""The flags that several jobs share. `job` and `JobFlags` are the flags of all jobs and what follows from them.

Neither Spark nor Arrow is imported before a job runs, so that help is fast and does not need them.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from functools import wraps
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.config import times
from tidelog.config.times import TimeError
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.jobs.parts import ctrl_c, engines, output
from tidelog.pipeline.jobs.parts.engines import AUTO, ENGINES, LOCAL, Engine, Executors, Threads
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.now import now_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipeline.jobs.parts.scan import Scan
    from tidelog.pipeline.options import Options

Job = Callable[..., int]
TIME: Final = "ISO with Z or an offset, '2 hours ago', 'yesterday 09:00', @ and epoch seconds"
# The flags of `JobFlags`, in the order of the help.
_JOB_OPTIONS: Final = (
    click.option(
        "--source",
        metavar="SOURCE",
        default="",
        help="segments:FOLDER, a broker's data folder, or broker:HOST:PORT.",
    ),
    click.option("--topic", metavar="NAME", default="", help="The topic that is read."),
    click.option("--from", "from_time", metavar="TIME", default="", help=f"Records at or after it: {TIME}."),
    click.option("--to", "to_time", metavar="TIME", default="", help="Records before it."),
    click.option(
        "--clock",
        metavar="CLOCK",
        default="record",
        show_default=True,
        help="What --from and --to compare: record or append time.",
    ),
    click.option(
        "--bad",
        metavar="HOW",
        default="fail",
        show_default=True,
        help="What to do with damaged bytes: fail, skip or quarantine:FOLDER.",
    ),
    click.option(
        "--checkpoint",
        metavar="FOLDER",
        default="",
        help="Where a stream keeps its position; default: in --out.",
    ),
    click.option(
        "--conf",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of Spark, such as spark.master; may be repeated.",
    ),
    click.option(
        "--engine",
        metavar="ENGINE",
        default=AUTO,
        show_default=True,
        help="Where the work is done: local, in this process; spark; or auto, by what there is to read.",
    ),
    click.option("--dry-run", is_flag=True, help="Print what would be read, and write nothing."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON: one document, or one for each row."),
)
out_option = click.option(
    "--out", metavar="PATH", default="", help="The folder to write to, or s3://BUCKET/PATH."
)
# The flags of `Table`, in the order of the help.
_TABLE_OPTIONS: Final = (
    out_option,
    click.option(
        "--format",
        "format_name",
        metavar="FORMAT",
        default="parquet",
        show_default=True,
        help="parquet or delta.",
    ),
    click.option(
        "--decode",
        metavar="HOW",
        default="",
        help="Add a column decoded, with the values as string or json; null if a value is not valid.",
    ),
    click.option(
        "--schema", metavar="DDL", default="", help="The fields of the JSON, such as 'id long, user string'."
    ),
    click.option(
        "--by-date", is_flag=True, help="Put rows into folders date=YYYY-MM-DD, by the time of --clock."
    ),
)
group_option = click.option("--group", metavar="GROUP", default="", help="A consumer group.")
available_now_option = click.option(
    "--available-now", is_flag=True, help="Stop at what was the end of the log at the start."
)
commit_to_option = click.option(
    "--group", metavar="GROUP", default="", help="Commit the offsets of written records to this group."
)
window_option = click.option(
    "--window",
    metavar="LENGTH",
    default="1m",
    show_default=True,
    help="The length of a window: 10s, '2 hours'.",
)
html_option = click.option("--html", metavar="FILE", default="", help="Also write a page with charts.")


@dataclasses.dataclass(frozen=True)
class JobFlags:
    """The flags of all jobs, and what a job does with them. Relative times are resolved once, when the job starts."""

    source: str = ""
    topic: str = ""
    from_time: str = ""
    to_time: str = ""
    clock: str = "record"
    bad: str = "fail"
    checkpoint: str = ""
    conf: Sequence[str] = ()
    engine: str = AUTO
    dry_run: bool = False
    as_json: bool = False
    given_times: tuple[tuple[str, str], ...] = ()  # as given: a stream resolves them as of its first start
    begun: float = dataclasses.field(default_factory=monotonic)

    def fixed(self, now_ms: int) -> JobFlags:
        """Return the flags with absolute times; WrongOption for an invalid time or engine."""
        if one_of("--engine", self.engine, ENGINES) == LOCAL and self.conf:
            raise WrongOption("--conf: its settings are for Spark, which --engine local does not start")
        given = (("from_time", "--from", self.from_time), ("to_time", "--to", self.to_time))
        found_ms = {name: _time_ms(flag, text, now_ms) for name, flag, text in given if text}
        fixed = {name: times.show(at_ms, UTC) for name, at_ms in found_ms.items()}
        first, end = fixed.get("from_time", ""), fixed.get("to_time", "")
        if first and end and found_ms["from_time"] > found_ms["to_time"]:
            raise WrongOption(f"--from: {self.from_time} ({first}) is after --to, {self.to_time} ({end})")
        given_times = tuple((flag.removeprefix("--"), text) for _, flag, text in given if text)
        return dataclasses.replace(self, from_time=first, to_time=end, given_times=given_times)

    def demand_no_times(self, why: str) -> None:
        """Raise WrongOption if a range of times is given; the message says why the job takes none."""
        if self.from_time or self.to_time:
            raise WrongOption(f"--from, --to: {why}; leave them out")

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of the source; WrongOption if the source or the topic is missing."""
        for flag, text in (("--source", self.source), ("--topic", self.topic)):
            if not text:
                raise WrongOption(f"{flag} is missing; see --help")
        given = {
            "source": self.source,
            "topic": self.topic,
            "from": self.from_time,
            "to": self.to_time,
            "clock": self.clock,
            "bad": self.bad,
        }
        return {name: text for name, text in (given | more).items() if text}

    def chosen(self, **more: str) -> Options:
        """Return the parsed options of the source; WrongOption if one is not valid."""
        from tidelog.pipeline import options

        return options.parse(self.options(**more), now_ms())

    def folder(self, use: str) -> str:
        """Return the data folder that the source names; WrongOption for any other source, which cannot be `use`."""
        from tidelog.pipeline.files import remote

        kind, _, where = self.source.partition(":")
        if kind != "segments" or not where or remote.is_remote(where):
            raise WrongOption(
                f"--source: {remote.shown(self.source)!r} is none that can be {use}; write segments:FOLDER, "
                "a broker's data folder"
            )
        return where

    def print_scan(self, found: Scan) -> None:
        """Print what would be read, for a dry run."""
        output.print_scan(found, as_json=self.as_json)

    def print_rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        """Print rows to standard output."""
        output.print_rows(columns, rows, as_json=self.as_json)

    def print_account(self, job: str, counts: Mapping[str, Any], **more: Any) -> None:
        """Print what a job did, and how long that took."""
        account = {"job": job, **counts, "seconds": round(monotonic() - self.begun, 1), **more}
        output.print_account(account, as_json=self.as_json)

    def engine_for(self, size_bytes: int) -> Engine:
        """Return the engine for tasks that read so many bytes."""
        if engines.is_local(self.engine, size_bytes, has_settings=bool(self.conf)):
            return Threads()
        return Executors(self.session())

    def demand_not_local(self, what: str) -> None:
        """Raise WrongOption if the job may not use Spark, which something needs."""
        if self.engine == LOCAL:
            raise WrongOption(f"--engine: {what} needs Spark; leave out --engine local")

    def session(self) -> SparkSession:
        """Return the session of this process, with the settings of `--conf`; WrongOption for the local engine."""
        self.demand_not_local("this job")
        from tidelog.pipeline.session import session

        handler = ctrl_c.installed()
        spark = session(_settings(self.conf))
        if handler is not None:
            handler.install(spark)
        # Errors are raised: Spark need not log them too.
        spark.sparkContext.setLogLevel("OFF")
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        return spark

    def read(self, spark: SparkSession, columns: str = "") -> DataFrame:
        """Return the log as a table, with `columns` such as "offset long, key binary", or all."""
        reader = spark.read.format("tidelog").options(**self.options())
        return (reader.schema(columns) if columns else reader).load()

    def stream(self, spark: SparkSession, columns: str = "", **more: str) -> DataFrame:
        """Return the log as a stream, with `columns` as in `read`; `more` are further options."""
        reader = spark.readStream.format("tidelog").options(**self.options(**more, **dict(self.given_times)))
        return (reader.schema(columns) if columns else reader).load()


def duration_ms(flag: str, text: str) -> int:
    """Parse a length of time; WrongOption if it is not valid, or 0."""
    try:
        found_ms = times.duration_ms(text)
    except TimeError as error:
        raise WrongOption(f"{flag}: {error}") from None
    if not found_ms:
        raise WrongOption(f"{flag}: {text} is no length of time; name at least 1ms")
    return found_ms


def one_of(flag: str, text: str, known: Sequence[str]) -> str:
    """Return the value of a flag; WrongOption unless it is one of the known values."""
    if text not in known:
        raise WrongOption(f"{flag}: {text!r} is none of {', '.join(known)}")
    return text


@dataclasses.dataclass(frozen=True)
class Table:
    """The flags for the table that a job writes."""

    out: str = ""
    format_name: str = "parquet"
    decode: str = ""
    schema: str = ""
    by_date: bool = False


def _grouped(name: str, group: type, options: Sequence[Callable[[Job], Job]]) -> Callable[[Job], Job]:
    """Return a decorator that adds options to a command, and passes their values as one argument."""
    fields = [each.name for each in dataclasses.fields(group)]

    def decorate(function: Job) -> Job:
        @wraps(function)
        def run(**given: Any) -> int:
            values = {each: given.pop(each) for each in fields if each in given}
            return function(**{name: group(**values)}, **given)

        for option in reversed(options):
            option(run)
        return run

    return decorate


table_options = _grouped("table", Table, _TABLE_OPTIONS)


def job(function: Job) -> Job:
    """Decorate the function of a job: it gets the flags of all jobs, and Ctrl-C ends it.

    Must be the innermost decorator: help then shows the job's own flags first.
    """

    @_grouped("flags", JobFlags, _JOB_OPTIONS)
    @wraps(function)
    def run(flags: JobFlags, **given: Any) -> int:
        name = str(click.get_current_context().info_name)
        fixed = flags.fixed(now_ms())
        try:
            with ctrl_c.handled():
                return function(flags=fixed, **given)
        except KeyboardInterrupt:
            Progress(name).say("ended by Ctrl-C before it was done")
            raise

    return run


def _time_ms(flag: str, text: str, now_ms: int) -> int:
    try:
        return times.parse(text, now_ms)
    except TimeError as error:
        raise WrongOption(f"{flag}: {error}") from None


def _settings(words: Sequence[str]) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in words)
    for word in words:
        if "=" not in word or not word.startswith("spark."):
            raise WrongOption(f"--conf: {word!r} is no setting of Spark; write spark.NAME=VALUE")
    return found
