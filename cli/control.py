"""`tidelog test-control`: a command of the control channel, and how its answer reads.

Refuses to know what a command does: names and values go to the broker as they are, and its answer comes back.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tidelog.cli.broker_options import configure
from tidelog.cli.control_client import ControlClient, ControlError, NoControl
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.cli.time_options import time_ms
from tidelog.config.errors import ConfigError
from tidelog.config.times import show

SEEN = (
    Column("fault", "fault", is_number=True),
    Column("at_ms", "at", show),
    Column("api", "api"),
    Column("client_id", "client", lambda name: "-" if name is None else str(name)),
    Column("did", "did"),
)
# What an entry of `faults_seen` says of the request, and not of the fault.
_ABOUT = ("fault", "at_ms", "api", "version", "client_id")


def run(data_dir: Path | None, as_json: bool, command: str, **arguments: Any) -> int:
    """Have a broker do a command, and print the answer; return the exit code.

    `at_ms` may be a time in words, which is relative to the broker's.
    """
    with _connected(data_dir) as control:
        if isinstance(time := arguments.get("at_ms"), str):
            arguments["at_ms"] = time_ms("TIME", time, control.ask("now")["now_ms"])
        _print(control.ask(command, **arguments), as_json)
    return OK


@contextmanager
def _connected(data_dir: Path | None) -> Iterator[ControlClient]:
    """Connect to the broker of a data folder, the one that `serve` would use; what it refuses is a CommandError."""
    try:
        with closing(ControlClient(configure(None, (), data_dir).log_dir)) as client:
            yield client
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from error
    except NoControl as error:
        raise CommandError(str(error), UNREACHABLE) from error
    except ControlError as error:
        raise CommandError(str(error), FAILED) from error


def _print(answer: dict[str, Any], as_json: bool) -> None:
    if "seen" in answer:
        rows = answer["seen"] if as_json else map(_row, answer["seen"])
        print_rows(SEEN, rows, as_json=as_json)
    elif as_json:
        print(to_json(answer))
    elif "now_ms" in answer:
        if "bootstrap" in answer:
            print(f"Tidelog {answer['version']} at {answer['bootstrap']}, process {answer['pid']}")
        print(f"{show(answer['now_ms'])}{' (held)' if answer['held'] else ''}")
    elif answer:
        print(" ".join(f"{name}={'-' if value is None else value}" for name, value in answer.items()))


def _row(seen: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with what the fault did in one column."""
    did = [f"{name}={value}" for name, value in seen.items() if name not in _ABOUT]
    return {**{name: seen.get(name) for name in _ABOUT}, "did": " ".join(did)}
