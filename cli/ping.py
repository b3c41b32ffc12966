"""`tidelog ping`: whether a broker answers requests, for scripts and probes."""

import time

import click

from tidelog.cli.arguments import bootstrap_option
from tidelog.cli.connect import TooLate, connected, within
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, UNREACHABLE, USAGE
from tidelog.cli.text import examples

ANSWER_S = 5


@click.command("ping", epilog=examples("tidelog ping", "tidelog ping --bootstrap broker.example:9092"))
@bootstrap_option
def ping(bootstrap: str) -> int:
    """Ask a broker whether it answers. The exit code is 0 if it does, and 3 if not within 5 seconds."""
    began = time.monotonic()
    try:
        with within(ANSWER_S), connected(bootstrap, ANSWER_S) as cluster:
            cluster.metadata([])
    except TooLate:
        message = f"the broker at {bootstrap} does not answer within {ANSWER_S} s"
        raise CommandError(message, UNREACHABLE) from None
    except CommandError as error:
        # What is there may be no broker, or ask for TLS.
        raise CommandError(str(error), USAGE if error.exit_code == USAGE else UNREACHABLE) from error
    print(f"{bootstrap} answers, {(time.monotonic() - began) * 1000:.1f} ms")
    return OK
