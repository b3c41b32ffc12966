"""The `tidelog` command: its verbs, and what they have in common.

Each verb imports what it needs when it runs, so that `tidelog serve` starts without the client library, and
`tidelog dump` without the broker. Errors that a person can mend are one line on stderr and exit code 1; a command
line that cannot be understood is exit code 2.
"""

from pathlib import Path
from typing import Annotated

import typer

import tidelog

app = typer.Typer(
    name="tidelog",
    help="A broker for Kafka clients, whose log is addressed by time as exactly as by offset.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    port: Annotated[int | None, typer.Option(help="Port of the first listener; 0 takes a free one.")] = None,
    config: Annotated[Path | None, typer.Option(help="A server.properties file.")] = None,
    override: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set a broker option; may be repeated.")
    ] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write host:port to this file once the broker answers.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    from tidelog.cli.serve import run

    raise typer.Exit(run(config, override or [], data_dir, port, ready_file, log_level))


def main() -> None:
    """Run the command."""
    app()
