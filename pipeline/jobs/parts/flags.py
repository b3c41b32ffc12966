"""The flags that all jobs have, declared once (`job`), and what a job does with them.

Neither Spark nor Arrow is loaded before a job runs, so that help comes at once and without them.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, get_origin

import typer

from tidelog.config import times
from tidelog.config.times import TimeError
from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.jobs.parts import ctrl_c, output
from tidelog.pipeline.jobs.parts.progress import Progress
from tidelog.pipeline.now import now_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipeline.jobs.parts.scan import Scan
    from tidelog.pipeline.options import Options

TIME: Final = "ISO with Z or an offset, '2 hours ago', 'yesterday 09:00', @ and epoch seconds"
Source = Annotated[
    str, typer.Option(metavar="SOURCE", help="segments:FOLDER, a broker's data folder, or broker:HOST:PORT.")
]
Topic = Annotated[str, typer.Option(metavar="NAME", help="The topic that is read.")]
From = Annotated[str, typer.Option("--from", metavar="TIME", help=f"Records at or after it: {TIME}.")]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Records before it.")]
Clock = Annotated[
    str, typer.Option(metavar="CLOCK", help="record or append: the time that --from and --to are of.")
]
Bad = Annotated[
    str, typer.Option(metavar="HOW", help="What damaged bytes are for: fail, skip or quarantine:FOLDER.")
]
Checkpoint = Annotated[
    str, typer.Option(metavar="FOLDER", help="Where a stream keeps how far it is; default: in --out.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="A setting of Spark's, spark.master among them; may be repeated."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be read, and make nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one a row.")]
Out = Annotated[str, typer.Option(metavar="PATH", help="The folder that is written, or s3://BUCKET/PATH.")]
Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="parquet or delta.")]
Decode = Annotated[
    str,
    typer.Option(
        metavar="HOW", help="Add a column decoded, of values as string or json; null where they are none."
    ),
]
Schema = Annotated[str, typer.Option(metavar="DDL", help="What the JSON has, as in 'id long, user string'.")]
ByDate = Annotated[
    bool, typer.Option("--by-date", help="Put rows into folders date=YYYY-MM-DD, by the time of --clock.")
]
Group = Annotated[str, typer.Option(metavar="GROUP", help="A consumer group.")]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="Stop when all is read that was there at the start.")
]
CommitTo = Annotated[
    str, typer.Option("--group", metavar="GROUP", help="Commit to this group what has been written.")
]
MaxRecords = Annotated[
    int, typer.Option(min=0, help="Of how many records a batch is, at most; 0: what takes a second or so.")
]
Window = Annotated[str, typer.Option(metavar="LENGTH", help="How long a window is: 10s, '2 hours'.")]
Html = Annotated[str, typer.Option(metavar="FILE", help="Write a page with charts, too.")]
Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TIER",
        help="Compare with what should have the same records: segments:FOLDER, broker:HOST:PORT, parquet:PATH or "
        "delta:PATH; may be repeated.",
    ),
]
Bytes = Annotated[
    bool, typer.Option("--bytes", help="Add up the bytes of keys and values, too: they are read for it.")
]


@dataclasses.dataclass(frozen=True)
class JobFlags:
    """The flags that all jobs have, and what a job does with them. Times are fixed once, when the job begins."""

    source: Source = ""
    topic: Topic = ""
    from_time: From = ""
    to_time: To = ""
    clock: Clock = "record"
    bad: Bad = "fail"
    checkpoint: Checkpoint = ""
    conf: Conf = None
    dry_run: DryRun = False
    as_json: Json = False
    given_times: tuple[tuple[str, str], ...] = ()  # the times, for a stream: it knows when it began
    begun: float = dataclasses.field(default_factory=monotonic)

    def fixed(self, now_ms: int) -> JobFlags:
        """Return the same with times that mean the same whenever they are read; WrongOption for what is no time."""
        given = (("from_time", "--from", self.from_time), ("to_time", "--to", self.to_time))
        found_ms = {name: _time_ms(flag, text, now_ms) for name, flag, text in given if text}
        fixed = {name: times.show(at_ms, UTC) for name, at_ms in found_ms.items()}
        first, end = fixed.get("from_time", ""), fixed.get("to_time", "")
        if first and end and found_ms["from_time"] > found_ms["to_time"]:
            raise WrongOption(f"--from: {self.from_time} ({first}) is after to, {self.to_time} ({end})")
        given_times = tuple((flag.removeprefix("--"), text) for _, flag, text in given if text)
        return dataclasses.replace(self, from_time=first, to_time=end, given_times=given_times)

    def demand_no_times(self, why: str) -> None:
        """Raise WrongOption where a range of times is given to a job that has no use for it, and say why."""
        if self.from_time or self.to_time:
            raise WrongOption(f"--from, --to: {why}; leave them out")

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of the source; WrongOption where the source or the topic is not named."""
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
        """Return the options of the source as values; WrongOption says what cannot be understood."""
        from tidelog.pipeline import options

        return options.parse(self.options(**more), now_ms())

    def folder(self, use: str) -> str:
        """Return the data folder that the source names; WrongOption for any other source, which has no such use."""
        from tidelog.pipeline.files import remote

        kind, _, where = self.source.partition(":")
        if kind != "segments" or not where or remote.is_remote(where):
            raise WrongOption(
                f"--source: {remote.shown(self.source)!r} is none that can be {use}; write segments:FOLDER, "
                "a broker's data folder"
            )
        return where

    def print_scan(self, found: Scan) -> None:
        """Print what would be read: all that a dry run does."""
        output.print_scan(found, as_json=self.as_json)

    def print_rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        """Print rows to standard output."""
        output.print_rows(columns, rows, as_json=self.as_json)

    def print_account(self, job: str, counts: Mapping[str, Any], **more: Any) -> None:
        """Print what a job did, and how long it took."""
        account = {"job": job, **counts, "seconds": round(monotonic() - self.begun, 1), **more}
        output.print_account(account, as_json=self.as_json)

    def session(self) -> SparkSession:
        """Return the session of this process, with the settings of `--conf`."""
        from tidelog.pipeline.session import session

        handler = ctrl_c.installed()
        spark = session(_settings(self.conf or ()))
        if handler is not None:
            handler.install(spark)
        # What fails is raised, and said once.
        spark.sparkContext.setLogLevel("OFF")
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        return spark

    def read(self, spark: SparkSession, columns: str = "") -> DataFrame:
        """Return the log as a table; of `columns`, "offset long, key binary", if they are named."""
        reader = spark.read.format("tidelog").options(**self.options())
        return (reader.schema(columns) if columns else reader).load()

    def stream(self, spark: SparkSession, **more: str) -> DataFrame:
        """Return the log as a stream; `more` are options of a stream."""
        return (
            spark.readStream.format("tidelog")
            .options(**self.options(**more, **dict(self.given_times)))
            .load()
        )


def duration_ms(flag: str, text: str) -> int:
    """Return the length of time that a flag means; WrongOption if it means none, or none at all."""
    try:
        found_ms = times.duration_ms(text)
    except TimeError as error:
        raise WrongOption(f"{flag}: {error}") from None
    if not found_ms:
        raise WrongOption(f"{flag}: {text} is nothing; name a length of time from 1ms on")
    return found_ms


def one_of(flag: str, text: str, known: Sequence[str]) -> str:
    """Return what a flag says; WrongOption if it is none of what is known."""
    if text not in known:
        raise WrongOption(f"{flag}: {text!r} is none of {', '.join(known)}")
    return text


@dataclasses.dataclass(frozen=True)
class Table:
    """The flags of the table that a job writes."""

    out: Out = ""
    format_name: Format = "parquet"
    decode: Decode = ""
    schema: Schema = ""
    by_date: ByDate = False


def job(app: typer.Typer, name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a job: a function of flags, and of groups of them, `JobFlags` first, becomes a command that has all."""

    def register(function: Callable[..., int]) -> Callable[..., int]:
        taken = inspect.signature(function, eval_str=True).parameters
        groups = {
            each: taken[each].annotation for each in taken if taken[each].annotation in (JobFlags, Table)
        }
        fields = {each: _flags(group) for each, group in groups.items()}
        own = [_by_name(taken[each]) for each in taken if each not in groups]

        def run(**given: Any) -> int:
            for each, group in groups.items():
                given[each] = group(**{flag.name: given.pop(flag.name) for flag in fields[each]})
            given["flags"] = given["flags"].fixed(now_ms())
            try:
                with ctrl_c.handled():
                    return function(**given)
            except KeyboardInterrupt:
                Progress(name).say("ended by Ctrl-C, before it was done")
                raise

        common = fields["flags"]
        special = [flag for each, group in fields.items() if each != "flags" for flag in group]
        every = [*special, *own, *common]
        run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in every}
        run.__doc__ = function.__doc__
        app.command(name)(run)
        return function

    return register


def _flags(group: type) -> list[inspect.Parameter]:
    """Return the flags of a group: the fields that are annotated as such."""
    fields = inspect.signature(group, eval_str=True).parameters.values()
    return [_by_name(each) for each in fields if get_origin(each.annotation) is Annotated]


def _by_name(flag: inspect.Parameter) -> inspect.Parameter:
    return flag.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _time_ms(flag: str, text: str, now_ms: int) -> int:
    try:
        return times.parse(text, now_ms)
    except TimeError as error:
        raise WrongOption(f"{flag}: {error}") from None


def _settings(words: Sequence[str]) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in words)
    for word in words:
        if "=" not in word or not word.startswith("spark."):
            raise WrongOption(f"--conf: {word!r} is no setting of Spark's; write spark.NAME=VALUE")
    return found
