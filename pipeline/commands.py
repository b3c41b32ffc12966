"""The jobs as commands: their flags, their help, and how a run ends.

An error is one line on standard error, and an exit code. Help lists the first sentence of each docstring, which click
cuts off at about 60 characters. A job imports what it needs when it runs.
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


def _examples(job: str, *uses: str) -> str:
    """Return the epilog of a job: command lines, by what follows the name of the job."""
    return "\n".join(["\b", "Examples:", *(f"  tidelog pipeline {job} \\\n    {words}" for words in uses)])


app = click.Group(
    help="Jobs over the log: from the files of a broker's data folder, or from a broker.",
    epilog=_examples("backfill", "--source segments:data --topic orders --out table")
    + "\n  tidelog pipeline lag --source segments:data --topic orders\n\n"
    "Exit codes: 0 done, 1 failed or incomplete, 2 wrong usage, 130 Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(
    "backfill",
    epilog=_examples(
        "backfill",
        "--source segments:data --topic orders --out table",
        "--source segments:data --topic orders --from -1h --out table",
    ),
)
@table_options
@job
def backfill(flags: JobFlags, table: Table) -> int:
    """Write the records of a range of times to a table.

    They replace what the table has of that range.
    """
    from tidelog.pipeline.jobs import backfill
    from tidelog.pipeline.jobs.parts import table_out

    return backfill.run(flags, table.out, table_out.form(table, flags.clock))


@app.command(
    "ingest",
    epilog=_examples(
        "ingest",
        "--source broker:[::1] --topic orders --out table",
        "--source segments:data --topic orders --out table --available-now",
    ),
)
@table_options
@available_now_option
@commit_to_option
@click.option(
    "--max-records",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The most records in a batch; 0: as many as take about a second.",
)
@job
def ingest(flags: JobFlags, table: Table, available_now: bool, group: str, max_records: int) -> int:
    """Write a topic to a table as it grows.

    Each record is written once, even if the job is killed. Ctrl-C ends the job after the current batch.
    """
    from tidelog.pipeline.jobs import ingest
    from tidelog.pipeline.jobs.parts import table_out

    form = table_out.form(table, flags.clock)
    return ingest.run(flags, table.out, form, available_now, group, max_records)


@app.command(
    "audit",
    epilog=_examples(
        "audit",
        "--source segments:data --topic orders --window 1h",
        "--source segments:data --topic orders --against broker:127.0.0.1:9092",
    ),
)
@window_option
@click.option(
    "--against",
    metavar="TIER",
    multiple=True,
    help="Compare with a copy of the records: segments:FOLDER, broker:HOST:PORT, parquet:PATH or delta:PATH; "
    "may be repeated.",
)
@click.option(
    "--bytes",
    "is_sized",
    is_flag=True,
    help="Add up the bytes of keys and values too, which have to be read for it.",
)
@html_option
@job
def audit(flags: JobFlags, window: str, against: Sequence[str], is_sized: bool, html: str) -> int:
    """Count the records of each partition and window of time.

    The window is one of create time. With --against, show which records a copy lacks or has twice.
    """
    from tidelog.pipeline.jobs import audit

    return audit.run(flags, window, against, is_sized, html)


@app.command(
    "audit-keys",
    epilog=_examples(
        "audit-keys",
        "--source segments:data --topic orders --group shop",
        "--source segments:data --topic orders --group shop --json",
    ),
)
@group_option
@click.option(
    "--committed",
    metavar="FILE",
    default="",
    help='The committed offsets, as JSON lines: {"partition": 0, "committed": 17}.',
)
@job
def audit_keys(flags: JobFlags, group: str, committed: str) -> int:
    """List the keys that a group has not read to their end.

    A row has the last record of the key, and the last one delivered.
    """
    from tidelog.pipeline.jobs import audit_keys

    return audit_keys.run(flags, group, committed)


@app.command(
    "upsert",
    epilog=_examples(
        "upsert",
        "--source broker:[::1] --topic orders --out table",
        "--source segments:data --topic orders --out table --available-now",
    ),
)
@out_option
@available_now_option
@commit_to_option
@click.option(
    "--max-records",
    metavar="N",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="The most records in a batch.",
)
@click.option("--format", "format_name", default="delta", hidden=True)
@job
def upsert(
    flags: JobFlags, out: str, available_now: bool, group: str, max_records: int, format_name: str
) -> int:
    """Keep the latest value of each key in a Delta table.

    A tombstone deletes its key from the table.
    """
    from tidelog.pipeline.jobs import upsert

    one_of("--format", format_name, ("delta",))
    return upsert.run(flags, out, available_now, group, max_records)


@app.command(
    "compact",
    epilog=_examples(
        "compact",
        "--source segments:data --topic orders",
        "--source segments:data --topic orders --roll --threads 1",
    ),
)
@click.option(
    "--delete-retention",
    metavar="LENGTH",
    default="1d",
    show_default=True,
    help="How long tombstones stay, as delete.retention.ms.",
)
@click.option(
    "--memory",
    metavar="MIB",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="The memory for the keys of a partition.",
)
@click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="The number of partitions to compact at the same time.",
)
@click.option("--roll", is_flag=True, help="Seal the active segments first, to compact them too.")
@job
def compact(flags: JobFlags, delete_retention: str, memory: int, threads: int, roll: bool) -> int:
    """Compact a topic in the data folder of a stopped broker.

    The last record of each key stays.
    """
    from tidelog.pipeline.jobs import compact

    return compact.run(flags, delete_retention, memory << 20, threads, roll)


@app.command(
    "latency",
    epilog=_examples(
        "latency",
        "--source segments:data --topic orders --window 10s",
        "--source segments:data --topic orders --from -1h --html latency.html",
    ),
)
@window_option
@html_option
@job
def latency(flags: JobFlags, window: str, html: str) -> int:
    """Show the time from creation to append of records.

    It is given by window of append time.
    """
    from tidelog.pipeline.jobs import latency

    return latency.run(flags, window, html)


@app.command(
    "lag",
    epilog=_examples(
        "lag",
        "--source segments:data --topic orders --group shop",
        "--source segments:data --topic orders --group shop --json",
    ),
)
@group_option
@html_option
@job
def lag(flags: JobFlags, group: str, html: str) -> int:
    """Show the lag of groups, in records and in time.

    The lag in time is the age of the first record that the group has not passed.
    """
    from tidelog.pipeline.jobs import lag

    return lag.run(flags, group, html)


@app.command(
    "archive",
    epilog=_examples(
        "archive",
        "--source segments:data --topic orders --out archive",
        "--source segments:data --topic orders --out archive --verify",
    ),
)
@out_option
@click.option(
    "--verify", is_flag=True, help="Read the archive --out, and list files that are not as they were written."
)
@job
def archive(flags: JobFlags, out: str, verify: bool) -> int:
    """Copy sealed segments and the files beside them to a store.

    Segments that are there already are left out.
    """
    from tidelog.pipeline.jobs import archive

    return archive.run(flags, out, verify)


@app.command(
    "replay",
    epilog=_examples(
        "replay",
        "--source segments:data --topic orders --target-topic copy",
        "--source segments:data --topic orders --target broker:[::1] --rate 500",
    ),
)
@click.option(
    "--target", metavar="BROKER", default="", help="broker:HOST:PORT. Default: the broker of --source."
)
@click.option("--target-topic", metavar="NAME", default="", help="The topic to write to.")
@click.option(
    "--rate",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Records per second of all tasks together; 0: no limit.",
)
@click.option("--resume", is_flag=True, help="Leave out records that are in the target already.")
@click.option(
    "--keep-partition", is_flag=True, help="Keep the number of the partition, instead of choosing by key."
)
@job
def replay(
    flags: JobFlags, target: str, target_topic: str, rate: int, resume: bool, keep_partition: bool
) -> int:
    """Send the records of a range of times to a topic.

    They keep their create times, and the order of each partition.
    """
    from tidelog.pipeline.jobs import replay

    return replay.run(flags, target, target_topic, rate, resume, keep_partition)


@app.command(
    "failover",
    epilog=_examples(
        "failover",
        "--source broker:[::1] --topic orders --group shop --target segments:b",
        "--source segments:a --topic t --group shop --target segments:b --apply",
    ),
)
@group_option
@click.option(
    "--target", metavar="SOURCE", default="", help="Cluster B: broker:HOST:PORT or segments:FOLDER."
)
@click.option("--max-latency", metavar="LENGTH", default="", help="Assume at least this latency on A.")
@click.option("--apply", is_flag=True, help="Commit the offsets to the groups on B.")
@job
def failover(flags: JobFlags, group: str, target: str, max_latency: str, apply: bool) -> int:
    """Show where groups of cluster A continue on cluster B.

    From these offsets on they miss no record.
    """
    from tidelog.pipeline.jobs import failover

    return failover.run(flags, group, target, max_latency, apply)


@app.command(
    "deadletter",
    epilog=_examples(
        "deadletter",
        "--folder quarantine",
        "--folder quarantine --source segments:data --topic orders --redrive",
    ),
)
@click.option("--folder", metavar="FOLDER", default="", help="The folder of bad=quarantine:FOLDER.")
@click.option(
    "--inspect",
    metavar="NAME",
    default="",
    help="Show the batches in an entry, NAME.log@POSITION.",
)
@click.option("--redrive", is_flag=True, help="Send the records that can be read to --topic.")
@job
def deadletter(flags: JobFlags, folder: str, inspect: str, redrive: bool) -> int:
    """List what reads have put into quarantine.

    Show what is in an entry, or send the records that can be read to a topic.
    """
    from tidelog.pipeline.jobs import deadletter

    return deadletter.run(flags, folder, inspect, redrive)


@app.command(
    "fsck", epilog=_examples("fsck", "--source segments:data", "--source segments:data --topic orders --deep")
)
@click.option("--deep", is_flag=True, help="Decode every record too.")
@job
def fsck(flags: JobFlags, deep: bool) -> int:
    """Check the files of a data folder.

    Each partition is a task.
    """
    from tidelog.pipeline.jobs import fsck

    return fsck.run(flags, deep)


def run(arguments: Sequence[str], name: str) -> int:
    """Run a job by its command line; return its exit code, also after Ctrl-C.

    `name` is the name of the command in its help.
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
