"""`tidelog test-control`: what its command lines take.

Each function here makes the arguments of a command of the control channel from those of the command line.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from tidelog.broker.control_protocol import FAULT_OPTIONS, Param
from tidelog.cli.arguments import TIME_HELP, Json, sent
from tidelog.config.kinds import INT_MAX, LONG_MAX

app = typer.Typer(
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
            from tidelog.cli.control import run

            return run(data_dir, as_json, name, **arguments_of(**words))

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
    from tidelog.cli.time_options import duration_ms

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
    from tidelog.cli.arguments import parse_options

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
