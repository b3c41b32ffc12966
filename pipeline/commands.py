"""The jobs as commands: flags of their own, help, and how a run ends.

An error is one line on standard error and an exit code. Each job loads what it needs when it runs.
"""

import sys
from collections.abc import Sequence

import click
from click.exceptions import Exit, NoArgsIsHelpError

from tidelog.pipeline.jobs.parts import failures
from tidelog.pipeline.jobs.parts.exit_codes import INTERRUPTED
from tidelog.pipeline.jobs.parts.flags import (
    JobFlags,
    Table,
    available_now_option,
    commit_to_option,
    group_option,
    html_option,
    job,
    one_of,
    out_option,
    table_options,
    window_option,
)


class _Job(click.Command):
    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002  (click gives it)
        """Return the whole line: click would cut it off."""
        return self.help or ""


class _Jobs(click.Group):
    """Jobs, listed in the order in which they are declared."""

    command_class = _Job

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click gives it)
        """Return the names of the jobs."""
        return list(self.commands)


app = _Jobs(
    help="Jobs over the log, on Spark: from the files of a broker's data folder, or from a broker.",
    epilog="Exit codes: 0 done, 1 less was done than was asked, 2 wrong usage, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("backfill")
@table_options
@job
def backfill(flags: JobFlags, table: Table) -> int:
    """Write the records of a range of times to a table; what the table has of that range is replaced."""
    from tidelog.pipeline.jobs import backfill
    from tidelog.pipeline.jobs.parts import table_out

    return backfill.run(flags, table.out, table_out.form(table, flags.clock))


@app.command("ingest")
@table_options
@available_now_option
@commit_to_option
@click.option(
    "--max-records",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of how many records a batch is, at most; 0: what takes a second or so.",
)
@job
def ingest(flags: JobFlags, table: Table, available_now: bool, group: str, max_records: int) -> int:
    """Write a topic to a table as it grows, each record once, also after a hard kill; Ctrl-C ends after a batch."""
    from tidelog.pipeline.jobs import ingest
    from tidelog.pipeline.jobs.parts import table_out

    form = table_out.form(table, flags.clock)
    return ingest.run(flags, table.out, form, available_now, group, max_records)


@app.command("audit")
@window_option
@click.option(
    "--against",
    metavar="TIER",
    multiple=True,
    help="Compare with what should have the same records: segments:FOLDER, broker:HOST:PORT, parquet:PATH or "
    "delta:PATH; may be repeated.",
)
@click.option(
    "--bytes",
    "is_sized",
    is_flag=True,
    help="Add up the bytes of keys and values, too: they are read for it.",
)
@html_option
@job
def audit(flags: JobFlags, window: str, against: Sequence[str], is_sized: bool, html: str) -> int:
    """Count the records of each partition and window of create time, and say what other places lack or have twice."""
    from tidelog.pipeline.jobs import audit

    return audit.run(flags, window, against, is_sized, html)


@app.command("audit-keys")
@group_option
@click.option(
    "--committed",
    metavar="FILE",
    default="",
    help='What is committed, as JSON lines: {"partition": 0, "committed": 17}.',
)
@job
def audit_keys(flags: JobFlags, group: str, committed: str) -> int:
    """Say of each key that a group has not read to its end what was produced last, and what was delivered."""
    from tidelog.pipeline.jobs import audit_keys

    return audit_keys.run(flags, group, committed)


@app.command("upsert")
@out_option
@available_now_option
@commit_to_option
@click.option(
    "--max-records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Of how many records a batch is, at most.",
)
@click.option("--format", "format_name", default="delta", hidden=True)
@job
def upsert(
    flags: JobFlags, out: str, available_now: bool, group: str, max_records: int, format_name: str
) -> int:
    """Keep a table of Delta of the latest value of each key of a topic; a tombstone takes its key out."""
    from tidelog.pipeline.jobs import upsert

    one_of("--format", format_name, ("delta",))
    return upsert.run(flags, out, available_now, group, max_records)


@app.command("compact")
@click.option(
    "--delete-retention",
    metavar="LENGTH",
    default="1d",
    show_default=True,
    help="How long tombstones stay: delete.retention.ms of the topic.",
)
@click.option(
    "--memory",
    metavar="MIB",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="For the keys, of each partition that is worked on.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many partitions are worked on at a time.",
)
@click.option(
    "--roll", is_flag=True, help="Seal the segments that are written to first, to compact them, too."
)
@job
def compact(flags: JobFlags, delete_retention: str, memory: int, threads: int, roll: bool) -> int:
    """Compact a topic in the data folder of a broker that is stopped: of each key the last record stays."""
    from tidelog.pipeline.jobs import compact

    return compact.run(flags, delete_retention, memory << 20, threads, roll)


@app.command("latency")
@window_option
@html_option
@job
def latency(flags: JobFlags, window: str, html: str) -> int:
    """Show how long after they were made records were appended, by window of append time."""
    from tidelog.pipeline.jobs import latency

    return latency.run(flags, window, html)


@app.command("lag")
@group_option
@html_option
@job
def lag(flags: JobFlags, group: str, html: str) -> int:
    """Show how far behind groups are, in records and in time: now less the time of the first record not passed."""
    from tidelog.pipeline.jobs import lag

    return lag.run(flags, group, html)


@app.command("archive")
@out_option
@click.option("--verify", is_flag=True, help="Read the archive --out, and say what is not as it was written.")
@job
def archive(flags: JobFlags, out: str, verify: bool) -> int:
    """Ship sealed segments, with all that lies beside them, to a store: those that are not there yet."""
    from tidelog.pipeline.jobs import archive

    return archive.run(flags, out, verify)


@app.command("replay")
@click.option(
    "--target", metavar="BROKER", default="", help="broker:HOST:PORT; that of --source, if it is one."
)
@click.option("--target-topic", metavar="NAME", default="", help="The topic that is written to.")
@click.option(
    "--rate",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Records a second, of all tasks together.",
)
@click.option("--resume", is_flag=True, help="Leave out what is in the target already.")
@click.option(
    "--keep-partition", is_flag=True, help="Each to the partition that it was in, not that of its key."
)
@job
def replay(
    flags: JobFlags, target: str, target_topic: str, rate: int, resume: bool, keep_partition: bool
) -> int:
    """Send the records of a range of times to a topic, with their create times, each partition in its order."""
    from tidelog.pipeline.jobs import replay

    return replay.run(flags, target, target_topic, rate, resume, keep_partition)


@app.command("failover")
@group_option
@click.option(
    "--target", metavar="SOURCE", default="", help="Cluster B: broker:HOST:PORT or segments:FOLDER."
)
@click.option(
    "--max-latency", metavar="LENGTH", default="", help="Take latencies on A for as large, if they are less."
)
@click.option("--apply", is_flag=True, help="Commit the offsets to the groups on B.")
@job
def failover(flags: JobFlags, group: str, target: str, max_latency: str, apply: bool) -> int:
    """Show where groups that read cluster A go on reading on cluster B, so that they miss no record."""
    from tidelog.pipeline.jobs import failover

    return failover.run(flags, group, target, max_latency, apply)


@app.command("deadletter")
@click.option("--folder", metavar="FOLDER", default="", help="The folder of bad=quarantine:FOLDER.")
@click.option(
    "--inspect",
    metavar="NAME",
    default="",
    help="Show the batches in the bytes of one, NAME.log@POSITION.",
)
@click.option("--redrive", is_flag=True, help="Send the records that can be read again to --topic.")
@job
def deadletter(flags: JobFlags, folder: str, inspect: str, redrive: bool) -> int:
    """List what a read has put into quarantine; look into it, or send what is whole of it to a topic."""
    from tidelog.pipeline.jobs import deadletter

    return deadletter.run(flags, folder, inspect, redrive)


@app.command("fsck")
@click.option("--deep", is_flag=True, help="Decode every record too.")
@job
def fsck(flags: JobFlags, deep: bool) -> int:
    """Check the logs of a data folder and all that lies beside them, a task for each partition."""
    from tidelog.pipeline.jobs import fsck

    return fsck.run(flags, deep)


def run(arguments: Sequence[str], name: str) -> int:
    """Run a job by its command line; return its exit code, that of Ctrl-C too.

    `name` is what the command is called in its help.
    """
    try:
        with app.make_context(name, list(arguments)) as context:
            status: int = app.invoke(context)
            return status
    except Exit as end:
        return end.exit_code
    except NoArgsIsHelpError as error:
        print(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        described = failures.described(error)
        if described is None:
            raise
        message, status = described
        _complain(message)
        return status


def _complain(message: str) -> None:
    if message:
        print(f"tidelog: {' '.join(message.split())}", file=sys.stderr)
