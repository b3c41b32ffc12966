"""The `tidelog` command with all its verbs.

The verbs of a data folder are declared here, and import what they do when they run: so `tidelog serve` starts without
the client, and `tidelog dump` without the broker.
"""

import gc
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli import (
    configs,
    control,
    delete_records,
    group_reset,
    health,
    log_dirs,
    offsets,
    pipeline,
    produce,
    tail,
    topics,
)
from tidelog.cli.arguments import TIME_HELP, Json, sent
from tidelog.cli.command import new_app
from tidelog.cli.verbs import audit, explain
from tidelog.config.kinds import INT_MAX

app = new_app()


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


for module in (produce, tail, offsets, delete_records, log_dirs, health):
    app.add_typer(module.app)


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


for module in (pipeline, topics, configs, group_reset, audit, explain, control):
    app.add_typer(module.app)
