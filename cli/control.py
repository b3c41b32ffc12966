"""`tidelog test-control`: the commands of the control channel. The broker checks their arguments."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click

from tidelog.broker.control_protocol import FAULT_OPTIONS
from tidelog.cli.arguments import (
    PATH,
    TIME_HELP,
    Integer,
    Verbs,
    group_option,
    json_option,
    parse_options,
    topic_argument,
    topic_option,
    topic_options_option,
    utf8,
)
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tidelog.cli.output import Column, or_dash, print_rows, to_json
from tidelog.cli.text import examples
from tidelog.cli.time_options import duration_ms, time_ms
from tidelog.config.kinds import INT_MAX, LONG_MAX
from tidelog.config.times import show

if TYPE_CHECKING:
    from tidelog.cli.control_client import ControlClient

SEEN = (
    Column("fault", "fault", is_number=True),
    Column("at_ms", "at", show),
    Column("api", "api"),
    Column("client_id", "client", or_dash),
    Column("did", "did", wraps=True),
)
# The fields of an applied fault that describe the request.
_ABOUT = ("fault", "at_ms", "api", "version", "client_id")


Arguments = dict[str, Any]


@click.group(
    cls=Verbs,
    epilog=examples(
        "tidelog test-control advance 48h --data-dir data",
        "tidelog test-control fault produce --error REQUEST_TIMED_OUT --data-dir data",
    ),
)
def test_control() -> None:
    """Move the clock of a broker, and make requests fail. The broker was started with serve --test-control."""


_data_dir_option = click.option(
    "--data-dir", type=PATH, help="The data folder of the broker. Default: as for serve."
)
_partition_option = click.option(
    "--partition", "-p", type=Integer(0, INT_MAX), default=0, help="The partition."
)


def _command(name: str, *uses: str) -> Callable[[Callable[..., Arguments]], click.Command]:
    """Make a verb of a function that returns the arguments of a command; add the options of all verbs here.

    `uses` has what its examples give besides the data folder.
    """
    verb_name = name.replace("_", "-")
    lines = [f"tidelog test-control {verb_name} {words} --data-dir data" for words in uses or ("", "--json")]

    def add(arguments_of: Callable[..., Arguments]) -> click.Command:
        @functools.wraps(arguments_of)
        def verb(data_dir: Path | None, as_json: bool, **words: Any) -> int:
            return _do(data_dir, as_json, name, **arguments_of(**words))

        epilog = examples(*(" ".join(line.split()) for line in lines))
        return test_control.command(verb_name, epilog=epilog)(_data_dir_option(json_option(verb)))

    return add


def _fault_options(function: Callable[..., Arguments]) -> Callable[..., Arguments]:
    """Give a verb the options of a fault, as the broker declares them."""
    for name, (declared, param) in reversed(FAULT_OPTIONS.items()):
        kind = str if get_origin(declared) is Literal else (get_args(declared) or (declared,))[0]
        bounded = Integer(param.at_least, param.at_most)
        function = click.option(
            *[f"--{name.replace('_', '-')}", *([param.short] if param.short else [])],
            name,
            metavar=param.metavar or ("NAME" if kind is str else None),
            type=bounded if kind is int else kind,
            is_flag=kind is bool,
            default=None,
            callback=utf8 if kind is str else None,
            help=param.help,
        )(function)
    return function


@_command("hello")
def hello() -> Arguments:
    """Show where the broker listens, and what it is."""
    return {}


@_command("now")
def now() -> Arguments:
    """Show the broker's time, after all due work is done."""
    return {}


@_command("hold", "", "2024-03-01T09:00")
@click.argument("time", required=False, help=f"{TIME_HELP}. Default: now.")
def hold(time: str | None) -> Arguments:
    """Hold the clock."""
    return {"at_ms": time}


@_command("set", "2024-03-01T09:00", "'1 hour ago'")
@click.argument("time", help=f"{TIME_HELP}.")
def set_clock(time: str) -> Arguments:
    """Move the clock to any time, and hold it."""
    return {"at_ms": time}


@_command("advance", "48h", "500ms")
@click.argument("span", help="48h, 1h30m, 500ms ...")
def advance(span: str) -> Arguments:
    """Move the clock forward, and hold it. All work due by then is done when this returns."""
    return {"ms": duration_ms("SPAN", span)}


@_command("release")
def release() -> Arguments:
    """Let the clock run again, by the system's time."""
    return {}


@_command("fault", "produce --error REQUEST_TIMED_OUT", "fetch --delay-ms 500 --always")
@click.argument("api", metavar="API...", nargs=-1, required=True, help="produce, fetch, ListOffsets ...")
@topic_option("Only for this topic.", shell_complete=None)
@click.option("--times", type=Integer(1, INT_MAX), default=1, help="How often to apply it.")
@click.option("--always", is_flag=True, help="Apply it until it is cleared.")
@click.option(
    "--probability",
    metavar="P",
    type=float,
    default=1.0,
    help="Apply it with this probability, above 0 and up to 1.",
)
@click.option("--seed", type=Integer(0, LONG_MAX), default=0, help="The seed of --probability.")
@_fault_options
def fault(
    api: Sequence[str],
    topic: str | None,
    times: int,
    always: bool,
    probability: float,
    seed: int,
    **options: Any,
) -> Arguments:
    """Make the next requests fail. They get an error, a delay, a closed connection or no answer."""
    given = {name: value for name, value in options.items() if value is not None}
    when = {"times": None if always else times, "probability": probability, "seed": seed}
    return {"api": list(api), "topic": topic, **when, **given}


@_command("faults_seen")
def faults_seen() -> Arguments:
    """Show each fault that was applied."""
    return {}


@_command("clear_faults", "", "--fault 1")
@click.option("--fault", metavar="N", type=Integer(1), help="Only this fault.")
@click.option("--seen", is_flag=True, help="Forget the applied faults too.")
def clear_faults(fault: int | None, seen: bool) -> Arguments:
    """Remove all faults, and a full disk."""
    return {"fault": fault, "seen": seen}


@_command("move_coordinator", "", "--group shop")
@group_option("Only for this group.", shell_complete=None)
def move_coordinator(group: str | None) -> Arguments:
    """Make each client look up its group's coordinator. Each connected client gets NOT_COORDINATOR once."""
    return {"group": group}


@_command("raise_leader_epoch", "orders", "orders --partition 2")
@topic_argument
@_partition_option
def raise_leader_epoch(topic: str, partition: int) -> Arguments:
    """Begin a new leader epoch, as after an election."""
    return {"topic": topic, "partition": partition}


@_command("fill_disk")
def fill_disk() -> Arguments:
    """Refuse writes as a full disk does."""
    return {}


@_command("free_disk")
def free_disk() -> Arguments:
    """Accept writes again after fill-disk."""
    return {}


@_command("create_topic", "orders", "orders --partitions 3")
@topic_argument
@click.option(
    "--partitions",
    type=Integer(-1, INT_MAX),
    default=-1,
    show_default=False,
    help="Default: the broker's num.partitions.",
)
@topic_options_option
def create_topic(topic: str, partitions: int, options: Sequence[str]) -> Arguments:
    """Create a topic."""
    return {"name": topic, "partitions": partitions, "config": parse_options(options)}


@_command("delete_topic", "orders", "orders --json")
@topic_argument
def delete_topic(topic: str) -> Arguments:
    """Delete a topic."""
    return {"name": topic}


@_command("roll")
def roll() -> Arguments:
    """Begin a new segment in each log. A log whose active segment is empty keeps it."""
    return {}


@_command("offsets", "orders", "orders --partition 2 --json")
@topic_argument
@_partition_option
def offsets(topic: str, partition: int) -> Arguments:
    """Show where the log of a partition begins and ends. The end is the offset of the next record."""
    return {"topic": topic, "partition": partition}


def _do(data_dir: Path | None, as_json: bool, command: str, **arguments: Any) -> int:
    """Send a command to a broker, and print the answer; return the exit code.

    `at_ms` may be a time in words, relative to the broker's clock.
    """
    with _connected(data_dir) as control:
        if isinstance(time := arguments.get("at_ms"), str):
            arguments["at_ms"] = time_ms("TIME", time, control.ask("now")["now_ms"])
        _print(control.ask(command, **arguments), as_json)
    return OK


@contextmanager
def _connected(data_dir: Path | None) -> Iterator["ControlClient"]:
    """Connect to the broker of a data folder; its errors become CommandError."""
    from tidelog.cli.broker_options import configure
    from tidelog.cli.control_client import ControlClient, ControlError, NoControl
    from tidelog.config.errors import ConfigError

    try:
        # The same folder as `serve` with this option and environment.
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
    """Return a row of the table: what the fault did is one column."""
    did = [f"{name}={value}" for name, value in seen.items() if name not in _ABOUT]
    return {**{name: seen.get(name) for name in _ABOUT}, "did": " ".join(did)}
