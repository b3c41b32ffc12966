"""`tidelog serve`: its options. `cli.serve` does the work, and is imported when a broker runs: its help is fast."""

from typing import Any

import click

from tidelog.cli.arguments import PATH, TIME_HELP, Integer
from tidelog.cli.broker_options import config_file_option, overrides_option
from tidelog.cli.imports import uncollected
from tidelog.cli.text import examples
from tidelog.config.options import LOG_LEVELS


@click.command(
    "serve",
    epilog=examples("tidelog serve --data-dir data", "tidelog serve --config-file server.properties --check"),
)
@click.option("--data-dir", type=PATH, help="The data folder; created if it is missing.")
@click.option("--port", type=Integer(0, 65535), help="Port of the first listener; 0 takes a free one.")
@config_file_option
@overrides_option
@click.option("--ready-file", type=PATH, help="Write host:port to this file once the broker answers.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="The least level to log (log.level).")
@click.option("--test-control", is_flag=True, help="Let a test move the clock and set faults: DATA/.control.")
@click.option(
    "--test-clock", metavar="TIME", help=f"Hold the clock at this time from the start: {TIME_HELP}."
)
@click.option(
    "--check", is_flag=True, help="Say whether the broker would start, and with what. Changes nothing."
)
@click.option(
    "--stop-at-eof",
    is_flag=True,
    help="Stop when standard input ends, as it does when the parent process ends.",
)
def serve(**given: Any) -> int:
    """Run the broker until SIGTERM, SIGHUP or Ctrl-C."""
    with uncollected():
        from tidelog.cli.serve import run
    return run(**given)
