"""`tidelog test-control`: commands of the control channel, and how their answers read.

Names and values go to the broker as they are, and its answer comes back.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from tidelog.broker.control_protocol import FAULT_OPTIONS, Param
from tidelog.cli.arguments import TIME_HELP, Json, parse_options, sent
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tidelog.cli.output import Column, or_dash, print_rows, to_json
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
    Column("did", "did"),
)
# What an entry of those that were applied says of the request, and not of the fault.
_ABOUT = ("fault", "at_ms", "api", "version", "client_id")


app = typer.Typer(
    name="test-control",
    help="Move the clock of a broker that was started with --test-control, and make requests to it fail.",
    no_args_is_help=True,
)

Arguments = dict[str, Any]

DataDir = Annotated[Path | None, typer.Option(help="The data folder of the broker; default: as for serve.")]
Time = Annotated[str, typer.Argument(metavar="TIME", help=f"{TIME_HELP}.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="TOPIC", callback=sent, show_default=False)]
Number = Annotated[int, typer.Option("--partition", "-p", min=0, max=INT_MAX, help="The partition.")]
Group = Annotated[str | None, typer.Option("--group", "-g", callback=sent, help="Only for this group.")]


def _command(
    name: str, options: Sequence[Parameter] = ()
) -> Callable[[Callable[..., Arguments]], Callable[..., Arguments]]:
    """Make a verb of a function: it takes these options too, and those that say which broker is asked."""

    def add(arguments_of: Callable[..., Arguments]) -> Callable[..., Arguments]:
        def verb(*, data_dir: DataDir = None, as_json: Json = False, **words: Any) -> int:
            return _do(data_dir, as_json, name, **arguments_of(**words))

        where = list(signature(verb).parameters.values())[:2]
        own = [each for each in signature(arguments_of).parameters.values() if each.kind != each.VAR_KEYWORD]
        verb.__signature__ = signature(verb).replace(parameters=[*own, *options, *where])  # type: ignore[attr-defined]
        app.command(name.replace("_", "-"), help=arguments_of.__doc__)(verb)
        return arguments_of

    return add


def _option(name: str, declared: Any, param: Param) -> Parameter:
    """Return a declared option of a fault as one of the command line."""
    kind = str if get_origin(declared) is Literal else (get_args(declared) or (declared,))[0]
    flags = [f"--{name.replace('_', '-')}", *([param.short] if param.short else [])]
    option = typer.Option(
        *flags,
        metavar=param.metavar,
        min=param.at_least,
        max=param.at_most,
        callback=sent if kind is str else None,
        help=param.help,
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


@_command("hello")
def hello() -> Arguments:
    """Show where the broker listens, and what it is."""
    return {}


@_command("now")
def now() -> Arguments:
    """Show the broker's time, after it has done all work that is due."""
    return {}


@_command("hold")
def hold(
    time: Annotated[
        str | None, typer.Argument(metavar="[TIME]", help=f"{TIME_HELP}. Default: now.", show_default=False)
    ] = None,
) -> Arguments:
    """Hold the clock."""
    return {"at_ms": time}


@_command("set")
def set_clock(time: Time) -> Arguments:
    """Move the clock to a time, on or back, and hold it there."""
    return {"at_ms": time}


@_command("advance")
def advance(
    span: Annotated[str, typer.Argument(metavar="SPAN", help="48h, 1h30m, 500ms ...", show_default=False)],
) -> Arguments:
    """Move the clock forward and hold it there; all work due by then is done when this returns."""
    return {"ms": duration_ms("SPAN", span)}


@_command("release")
def release() -> Arguments:
    """Let the clock run again, by the system's time."""
    return {}


@_command("fault", [_option(name, *declared) for name, declared in FAULT_OPTIONS.items()])
def fault(
    api: Annotated[
        list[str],
        typer.Argument(metavar="API...", help="produce, fetch, ListOffsets ...", show_default=False),
    ],
    topic: Annotated[str | None, typer.Option(callback=sent, help="Only for this topic.")] = None,
    times: Annotated[int, typer.Option(min=1, max=INT_MAX, help="How often.")] = 1,
    always: Annotated[bool, typer.Option("--always", help="Until it is cleared.")] = False,
    probability: Annotated[float, typer.Option(help="How likely, above 0 and up to 1.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LONG_MAX, help="Of chance.")] = 0,
    **options: Any,
) -> Arguments:
    """Make the next requests fail: with an error, a delay, a closed connection or a missing answer."""
    given = {name: value for name, value in options.items() if value is not None}
    when = {"times": None if always else times, "probability": probability, "seed": seed}
    return {"api": api, "topic": topic, **when, **given}


@_command("faults_seen")
def faults_seen() -> Arguments:
    """Show each fault that was applied."""
    return {}


@_command("clear_faults")
def clear_faults(
    fault: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only this one.")] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Forget those that were applied, too.")] = False,
) -> Arguments:
    """Remove all faults, a full disk too."""
    return {"fault": fault, "seen": seen}


@_command("move_coordinator")
def move_coordinator(group: Group = None) -> Arguments:
    """Tell each connected client once to look up the coordinator of its group again."""
    return {"group": group}


@_command("raise_leader_epoch")
def raise_leader_epoch(topic: Name, partition: Number = 0) -> Arguments:
    """Begin a new leader epoch of a partition, as after an election."""
    return {"topic": topic, "partition": partition}


@_command("fill_disk")
def fill_disk() -> Arguments:
    """Refuse writes as a full disk does."""
    return {}


@_command("free_disk")
def free_disk() -> Arguments:
    """Accept writes again after fill-disk."""
    return {}


@_command("create_topic")
def create_topic(
    topic: Name,
    partitions: Annotated[
        int,
        typer.Option(min=-1, max=INT_MAX, help="Default: the broker's num.partitions.", show_default=False),
    ] = -1,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", callback=sent, help="Set a topic option; may be repeated."),
    ] = None,
) -> Arguments:
    """Create a topic."""
    return {"name": topic, "partitions": partitions, "config": parse_options(option or [])}


@_command("delete_topic")
def delete_topic(topic: Name) -> Arguments:
    """Delete a topic."""
    return {"name": topic}


@_command("roll")
def roll() -> Arguments:
    """Begin a new segment in each log whose active segment is not empty."""
    return {}


@_command("offsets")
def offsets(topic: Name, partition: Number = 0) -> Arguments:
    """Show where the log of a partition begins, and where its next record goes."""
    return {"topic": topic, "partition": partition}


def _do(data_dir: Path | None, as_json: bool, command: str, **arguments: Any) -> int:
    """Have a broker do a command, and print the answer; return the exit code.

    `at_ms` may be a time in words, which is relative to the broker's.
    """
    with _connected(data_dir) as control:
        if isinstance(time := arguments.get("at_ms"), str):
            arguments["at_ms"] = time_ms("TIME", time, control.ask("now")["now_ms"])
        _print(control.ask(command, **arguments), as_json)
    return OK


@contextmanager
def _connected(data_dir: Path | None) -> Iterator["ControlClient"]:
    """Connect to the broker of a data folder; what it refuses is a CommandError."""
    from tidelog.cli.broker_options import configure
    from tidelog.cli.control_client import ControlClient, ControlError, NoControl
    from tidelog.config.errors import ConfigError

    try:
        # The folder that `serve` would take, for the same words and the same environment.
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
