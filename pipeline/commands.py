"""The jobs as commands: flags of their own, help, and how a run ends.

An error is one line on standard error and an exit code. Each job loads what it needs when it runs.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tidelog.pipeline.jobs.parts import failures
from tidelog.pipeline.jobs.parts.exit_codes import OK
from tidelog.pipeline.jobs.parts.flags import (
    Against,
    AvailableNow,
    Bytes,
    CommitTo,
    Group,
    Html,
    JobFlags,
    MaxRecords,
    Out,
    Table,
    Window,
    job,
    one_of,
)

app = typer.Typer(
    help="Jobs over the log, on Spark: from the files of a broker's data folder, or from a broker.",
    epilog="Exit codes: 0 done, 1 less was done than was asked, 2 wrong usage, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _jobs() -> None:
    pass


@job(app, "backfill")
def backfill(flags: JobFlags, table: Table) -> int:
    """Write the records of a range of times to a table; what the table has of that range is replaced."""
    from tidelog.pipeline.jobs import backfill
    from tidelog.pipeline.jobs.parts import table_out

    return backfill.run(flags, table.out, table_out.form(table, flags.clock))


@job(app, "ingest")
def ingest(
    flags: JobFlags,
    table: Table,
    available_now: AvailableNow = False,
    group: CommitTo = "",
    max_records: MaxRecords = 0,
) -> int:
    """Write a topic to a table as it grows, each record once, also after a hard kill; Ctrl-C ends behind a batch."""
    from tidelog.pipeline.jobs import ingest
    from tidelog.pipeline.jobs.parts import table_out

    form = table_out.form(table, flags.clock)
    return ingest.run(flags, table.out, form, available_now, group, max_records)


@job(app, "audit")
def audit(
    flags: JobFlags, window: Window = "1m", against: Against = None, is_sized: Bytes = False, html: Html = ""
) -> int:
    """Count the records of each partition and window of create time, and say what other places lack or have twice."""
    from tidelog.pipeline.jobs import audit

    return audit.run(flags, window, against or (), is_sized, html)


@job(app, "audit-keys")
def audit_keys(
    flags: JobFlags,
    group: Group = "",
    committed: Annotated[
        str,
        typer.Option(
            metavar="FILE", help='What is committed, as JSON lines: {"partition": 0, "committed": 17}.'
        ),
    ] = "",
) -> int:
    """Say of each key that a group has not read to its end what was produced last, and what was delivered."""
    from tidelog.pipeline.jobs import audit_keys

    return audit_keys.run(flags, group, committed)


@job(app, "upsert")
def upsert(
    flags: JobFlags,
    out: Out = "",
    available_now: AvailableNow = False,
    group: CommitTo = "",
    max_records: Annotated[
        int, typer.Option(min=1, help="Of how many records a batch is, at most.")
    ] = 1_000_000,
    format_name: Annotated[str, typer.Option("--format", hidden=True)] = "delta",
) -> int:
    """Keep a table of Delta of the latest value of each key of a topic; a tombstone takes its key out."""
    from tidelog.pipeline.jobs import upsert

    one_of("--format", format_name, ("delta",))
    return upsert.run(flags, out, available_now, group, max_records)


@job(app, "compact")
def compact(
    flags: JobFlags,
    delete_retention: Annotated[
        str,
        typer.Option(metavar="LENGTH", help="How long tombstones stay: delete.retention.ms of the topic."),
    ] = "1d",
    memory: Annotated[
        int, typer.Option(metavar="MIB", min=1, help="For the keys, of each partition that is worked on.")
    ] = 128,
    threads: Annotated[int, typer.Option(min=1, help="How many partitions are worked on at a time.")] = 2,
    roll: Annotated[
        bool,
        typer.Option("--roll", help="Seal the segments that are written to first, to compact them, too."),
    ] = False,
) -> int:
    """Compact a topic in the data folder of a broker that is stopped: of each key the last record stays."""
    from tidelog.pipeline.jobs import compact

    return compact.run(flags, delete_retention, memory << 20, threads, roll)


@job(app, "latency")
def latency(flags: JobFlags, window: Window = "1m", html: Html = "") -> int:
    """Show how long after they were made records were appended, by window of append time."""
    from tidelog.pipeline.jobs import latency

    return latency.run(flags, window, html)


@job(app, "lag")
def lag(flags: JobFlags, group: Group = "", html: Html = "") -> int:
    """Show how far behind groups are, in records and in time: now less the time of the first record not passed."""
    from tidelog.pipeline.jobs import lag

    return lag.run(flags, group, html)


@job(app, "archive")
def archive(
    flags: JobFlags,
    out: Out = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the archive --out, and say what is not as it was written.")
    ] = False,
) -> int:
    """Ship sealed segments, with all that lies beside them, to a store: those that are not there yet."""
    from tidelog.pipeline.jobs import archive

    return archive.run(flags, out, verify)


@job(app, "replay")
def replay(
    flags: JobFlags,
    target: Annotated[
        str, typer.Option(metavar="BROKER", help="broker:HOST:PORT; that of --source, if it is one.")
    ] = "",
    target_topic: Annotated[str, typer.Option(metavar="NAME", help="The topic that is written to.")] = "",
    rate: Annotated[int, typer.Option(min=0, help="Records a second, of all tasks together.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out what is in the target already.")
    ] = False,
    keep_partition: Annotated[
        bool,
        typer.Option("--keep-partition", help="Each to the partition that it was in, not that of its key."),
    ] = False,
) -> int:
    """Send the records of a range of times to a topic, with their create times, each partition in its order."""
    from tidelog.pipeline.jobs import replay

    return replay.run(flags, target, target_topic, rate, resume, keep_partition)


@job(app, "failover")
def failover(
    flags: JobFlags,
    group: Group = "",
    target: Annotated[
        str, typer.Option(metavar="SOURCE", help="Cluster B: broker:HOST:PORT or segments:FOLDER.")
    ] = "",
    max_latency: Annotated[
        str, typer.Option(metavar="LENGTH", help="Take latencies on A for as large, if they are less.")
    ] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Commit the offsets to the groups on B.")] = False,
) -> int:
    """Show where groups that read cluster A go on reading on cluster B, so that they miss no record."""
    from tidelog.pipeline.jobs import failover

    return failover.run(flags, group, target, max_latency, apply)


@job(app, "deadletter")
def deadletter(
    flags: JobFlags,
    folder: Annotated[str, typer.Option(metavar="FOLDER", help="The folder of bad=quarantine:FOLDER.")] = "",
    inspect: Annotated[
        str, typer.Option(metavar="NAME", help="Show the batches in the bytes of one, NAME.log@POSITION.")
    ] = "",
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Send the records that can be read again to --topic.")
    ] = False,
) -> int:
    """List what a read has put into quarantine; look into it, or send what is whole of it to a topic."""
    from tidelog.pipeline.jobs import deadletter

    return deadletter.run(flags, folder, inspect, redrive)


@job(app, "fsck")
def fsck(
    flags: JobFlags,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every record too.")] = False,
) -> int:
    """Check the logs of a data folder and all that lies beside them, a task for each partition."""
    from tidelog.pipeline.jobs import fsck

    return fsck.run(flags, deep)


def run(arguments: Sequence[str], name: str) -> int:
    """Run a job by its command line; return its exit code, that of Ctrl-C too.

    `name` is what the command is called in its help.
    """
    try:
        status = app(list(arguments), prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        _complain(error.format_message())
        return error.exit_code
    except BrokenPipeError:
        raise
    except Exception as error:
        described = failures.described(error)
        if described is None:
            raise
        message, status = described
        _complain(message)
    return status if isinstance(status, int) else OK


def _complain(message: str) -> None:
    if message:
        print(f"tidelog: {' '.join(message.split())}", file=sys.stderr)
