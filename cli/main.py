"""The `tidelog` command: its verbs, those in groups (`cli.verbs`) and the others, and how all of them end.

Each verb imports what it needs when it runs, so that `tidelog serve` starts without the client library, and
`tidelog dump` without the broker. An error is one line on stderr.

Exit codes: 0 done; 1 failed (what the broker refused, what is damaged, what a person did not confirm); 2 the command
line cannot be understood; 3 the broker cannot be reached, or stopped answering; 4 `fsck` could not
look; 130 Ctrl-C. `serve` and `tail` are meant to be ended by Ctrl-C: they exit with 0.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import tidelog
from tidelog.cli import (
    configs,
    delete_records,
    group_reset,
    groups,
    health,
    log_dirs,
    offsets,
    produce,
    tail,
    topics,
)
from tidelog.cli.arguments import TIME_HELP, Json, sent
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.text import called, drop_output, note
from tidelog.cli.verbs import audit, control, explain
from tidelog.config.kinds import INT_MAX


class _Tidelog(TyperGroup):
    """The command as a whole: it says errors in one line, and nothing when nobody reads on."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a verb and exit with its code; a device that takes no more output is an error like others."""
        extra["standalone_mode"] = False
        try:
            with _reader_may_leave():
                status = OK  # that of a reader that leaves
                status = super().main(*args, **extra)
                sys.stdout.flush()
        except typer.TyperException as error:
            # Without a message it is the help, which has been shown.
            if message := error.format_message():
                note(_with_hint(message, error))
            status = error.exit_code
        except OSError as error:
            drop_output(sys.stdout)
            note(f"{error.filename or 'standard output'}: {error.strerror or error}")
            status = FAILED
        try:
            sys.stderr.flush()
        except OSError:
            drop_output(sys.stderr)
        sys.exit(status)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Let a reader that has had enough (`| head`) be no error: typer, and rich where it shows the help, exit with 1."""
    try:
        yield
    except BrokenPipeError:
        drop_output(sys.stdout)
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        drop_output(sys.stdout)


def _with_hint(message: str, error: typer.TyperException) -> str:
    """Return what was wrong, and name the help of the verb whose command line it was."""
    message = message.rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    _, *verbs = context.command_path.split(" ")
    end = "" if message.endswith("?") else "."
    return f"{message}{end} Try: {' '.join([called(), *verbs])} --help"


HELP_NAMES = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="tidelog",
    cls=_Tidelog,
    help="A broker for Kafka clients, whose log is addressed by time as exactly as by offset.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no answer from the broker, 4 could not look, 130 Ctrl-C.",
    context_settings=HELP_NAMES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
groups.app.command("reset")(group_reset.reset)
for name, verbs in (
    ("topics", topics),
    ("configs", configs),
    ("groups", groups),
    ("audit", audit),
    ("explain", explain),
    ("test-control", control),
):
    app.add_typer(verbs.app, name=name)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidelog {tidelog.__version__}")
        raise typer.Exit


@app.callback()
def _tidelog(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    data_dir: Annotated[Path | None, typer.Option(help="The data folder; made if it is missing.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of the first listener; 0 takes a free one."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A server.properties file.")] = None,
    override: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set a broker option; may be repeated.")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write host:port to this file once the broker answers.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    test_control: Annotated[
        bool, typer.Option("--test-control", help="Let a test move the clock and set faults: DATA/.control.")
    ] = False,
    test_clock: Annotated[
        str | None,
        typer.Option(metavar="TIME", help=f"Hold the clock at this time from the start; {TIME_HELP}."),
    ] = None,
    stop_at_eof: Annotated[
        bool, typer.Option("--stop-at-eof", help="Stop when standard input ends, as with its owner.")
    ] = False,
) -> None:
    """Run the broker until SIGTERM, SIGHUP or Ctrl-C."""
    # What is imported stays: looking through it for garbage takes a twentieth of the start.
    gc.disable()
    from tidelog.cli.serve import run

    gc.enable()
    raise typer.Exit(
        run(
            config,
            override or [],
            data_dir,
            port,
            ready_file,
            log_level,
            test_control,
            test_clock,
            stop_at_eof,
        )
    )


app.command("produce")(produce.produce)
app.command("tail")(tail.tail)
app.command("offsets")(offsets.offsets)
app.command("delete-records")(delete_records.delete_records)
app.command("log-dirs")(log_dirs.log_dirs)
app.command("health")(health.health)


@app.command()
def dump(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .log, .index, .timeindex, .appendindex, .snapshot or .summary of a partition."
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "--deep", help="Show the records in each batch too.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show what a file of a partition holds, and whether it is sound. No broker is asked, nor disturbed if one runs.

    An incomplete last batch is reported but is no error, since a broker may be writing it.
    """
    from tidelog.cli.dump import run

    return run(file, records, as_json)


@app.command()
def fsck(
    folder: Annotated[
        Path | None, typer.Argument(help="A data folder, or the folder of a partition.", show_default=False)
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="A data folder, in place of FOLDER.")] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Rebuild indexes and summaries from the log. Stop the broker first."),
    ] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every record too.")] = False,
    as_json: Json = False,
) -> int:
    """Check logs and the files beside them, and print a line for each damage. Only --repair writes.

    A running broker is not disturbed. Exit codes: 0 all is sound, 1 there is damage (with --repair: that cannot be
    mended), 4 there is nothing to look at, or it cannot be read.
    """
    from tidelog.cli.fsck import run

    return run(folder, data_dir, repair, deep, as_json)


@app.command("import")
def import_folder(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a partition, written by Kafka or by Tidelog.")
    ],
    topic: Annotated[
        str, typer.Option(metavar="NAME", callback=sent, help="The topic; made if it is missing.")
    ],
    data_dir: Annotated[Path, typer.Option(help="The data folder; made if it is missing.")],
    partition: Annotated[
        int | None, typer.Option(min=0, max=INT_MAX, help="Default: the number in the folder's name.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", callback=sent, help="Set an option of a new topic; may be repeated."
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="The broker's server.properties file.")] = None,
) -> int:
    """Copy the log in a folder into a data folder, as a partition. No broker may have either open.

    Offsets and bytes stay as they are; indexes are rebuilt. Either all of it is imported or nothing. What the topic's
    retention would delete is said.
    """
    from tidelog.broker.clock import Clock
    from tidelog.cli.importing import run

    return run(folder, topic, data_dir, partition, option or [], config, Clock())


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
def pipeline(context: typer.Context) -> int:
    """Run a job over the log on Spark: backfill, ingest, upsert, audit, audit-keys, compact, latency, lag, fsck ..."""
    from tidelog.cli.pipeline import run

    return run(context.args)


def main() -> None:
    """Run the command."""
    _open_what_is_closed()
    app()


def _open_what_is_closed() -> None:
    """Have the three standard streams lead nowhere where they were closed (`>&-`): no file may get their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)  # noqa: TID251  (no file of ours: what the shell should have opened)
            assert fd == number
            setattr(sys, name, os.fdopen(fd, "r" if number == 0 else "w"))
