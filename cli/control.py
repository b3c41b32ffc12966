"""`tidelog test-control`: commands of the control channel, and how their answers read.

Names and values go to the broker as they are, and its answer comes back.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

DataDir = Annotated[Path | None, typer.Option(help="The data folder of the broker; default: as for serve.")]
Time = Annotated[str, typer.Argument(metavar="TIME", help=f"{TIME_HELP}.", show_default=False)]
Span = Annotated[str, typer.Argument(metavar="SPAN", help="48h, 1h30m, 500ms ...", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="TOPIC", callback=sent, show_default=False)]
Number = Annotated[int, typer.Option("--partition", "-p", min=0, max=INT_MAX, help="The partition.")]
Group = Annotated[str | None, typer.Option("--group", "-g", callback=sent, help="Only for this group.")]
Milliseconds = Annotated[int, typer.Option(metavar="MS", min=0, max=LONG_MAX)]


@app.command()
def hello(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Show where the broker listens, and what it is."""
    return _do(data_dir, as_json, "hello")


@app.command()
def now(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Show the broker's time, after it has done all work that is due."""
    return _do(data_dir, as_json, "now")


@app.command()
def hold(
    time: Annotated[
        str | None, typer.Argument(metavar="[TIME]", help=f"{TIME_HELP}. Default: now.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> int:
    """Hold the clock."""
    return _do(data_dir, as_json, "hold") if time is None else _do_at(data_dir, as_json, "hold", time)


@app.command("set")
def set_clock(time: Time, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Move the clock to a time, on or back, and hold it there."""
    return _do_at(data_dir, as_json, "set", time)


@app.command()
def advance(span: Span, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Move the clock forward and hold it there; all work due by then is done when this returns."""
    return _do(data_dir, as_json, "advance", ms=duration_ms("SPAN", span))


@app.command()
def release(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Let the clock run again, by the system's time."""
    return _do(data_dir, as_json, "release")


@app.command()
def fault(
    api: Annotated[
        list[str],
        typer.Argument(metavar="API...", help="produce, fetch, ListOffsets ...", show_default=False),
    ],
    error: Annotated[str | None, typer.Option(metavar="ERROR", help="Kafka's name of an error.")] = None,
    topic: Annotated[str | None, typer.Option(callback=sent, help="Only for this topic.")] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, max=INT_MAX, help="Only for this partition of it."),
    ] = None,
    client_id: Annotated[str | None, typer.Option(callback=sent, help="Only for this client.")] = None,
    group: Group = None,
    times: Annotated[int, typer.Option(min=1, max=INT_MAX, help="How often.")] = 1,
    always: Annotated[bool, typer.Option("--always", help="Until it is cleared.")] = False,
    probability: Annotated[float, typer.Option(help="How likely, above 0 and up to 1.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LONG_MAX, help="Of chance.")] = 0,
    delay_ms: Milliseconds = 0,
    drop: Annotated[
        str, typer.Option(metavar="WHEN", help="The connection: before or after the request is carried out.")
    ] = "",
    truncate: Annotated[bool, typer.Option("--truncate", help="Send half the answer.")] = False,
    throttle_ms: Milliseconds = 0,
    unanswered: Annotated[bool, typer.Option("--unanswered", help="Send no answer.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> int:
    """Make the next requests fail: with an error, a delay, a closed connection or a missing answer."""
    return _do(
        data_dir, as_json, "fault", api=api, error=error, topic=topic, partition=partition, client_id=client_id,
        group=group, times=None if always else times, probability=probability, seed=seed, delay_ms=delay_ms,
        drop=drop, truncate=truncate, throttle_ms=throttle_ms, unanswered=unanswered,
    )  # fmt: skip


@app.command("faults-seen")
def faults_seen(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Show each fault that was applied."""
    return _do(data_dir, as_json, "faults_seen")


@app.command("clear-faults")
def clear_faults(
    fault: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only this one.")] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Forget those that were applied, too.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> int:
    """Remove all faults, a full disk too."""
    return _do(data_dir, as_json, "clear_faults", fault=fault, seen=seen)


@app.command("move-coordinator")
def move_coordinator(group: Group = None, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Tell each connected client once to look up the coordinator of its group again."""
    return _do(data_dir, as_json, "move_coordinator", group=group)


@app.command("raise-leader-epoch")
def raise_leader_epoch(
    topic: Name, partition: Number = 0, data_dir: DataDir = None, as_json: Json = False
) -> int:
    """Begin a new leader epoch of a partition, as after an election."""
    return _do(data_dir, as_json, "raise_leader_epoch", topic=topic, partition=partition)


@app.command("fill-disk")
def fill_disk(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Refuse writes as a full disk does."""
    return _do(data_dir, as_json, "fill_disk")


@app.command("free-disk")
def free_disk(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Accept writes again after fill-disk."""
    return _do(data_dir, as_json, "free_disk")


@app.command("create-topic")
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
    data_dir: DataDir = None,
    as_json: Json = False,
) -> int:
    """Create a topic."""

    return _do(
        data_dir,
        as_json,
        "create_topic",
        name=topic,
        partitions=partitions,
        config=parse_options(option or []),
    )


@app.command("delete-topic")
def delete_topic(topic: Name, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Delete a topic."""
    return _do(data_dir, as_json, "delete_topic", name=topic)


@app.command()
def roll(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Begin a new segment in each log whose active segment is not empty."""
    return _do(data_dir, as_json, "roll")


@app.command()
def offsets(topic: Name, partition: Number = 0, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Show where the log of a partition begins, and where its next record goes."""
    return _do(data_dir, as_json, "offsets", topic=topic, partition=partition)


def _do(data_dir: Path | None, as_json: bool, command: str, **arguments: Any) -> int:
    """Have a broker do a command, and print the answer."""
    with _connected(data_dir) as control:
        _print(control.ask(command, **arguments), as_json)
    return OK


def _do_at(data_dir: Path | None, as_json: bool, command: str, time: str) -> int:
    """Do as `_do` does, at a time that may be relative to what time it is at the broker."""
    with _connected(data_dir) as control:
        at_ms = time_ms("TIME", time, control.ask("now")["now_ms"])
        _print(control.ask(command, at_ms=at_ms), as_json)
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
    except ControlError as error:
        raise CommandError(str(error), FAILED) from error
    except NoControl as error:
        raise CommandError(str(error), UNREACHABLE) from error


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
