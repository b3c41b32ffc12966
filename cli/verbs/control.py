"""`tidelog test-control`: what its command lines take."""

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.arguments import TIME_HELP, Json, sent
from tidelog.config.kinds import INT_MAX, LONG_MAX

app = typer.Typer(
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
    from tidelog.cli.control import run

    return run(data_dir, as_json, "hello")


@app.command()
def now(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Show the broker's time, after it has done all work that is due."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "now")


@app.command()
def hold(
    time: Annotated[
        str | None, typer.Argument(metavar="[TIME]", help=f"{TIME_HELP}. Default: now.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> int:
    """Hold the clock."""
    from tidelog.cli.control import run, run_at

    return run(data_dir, as_json, "hold") if time is None else run_at(data_dir, as_json, "hold", time)


@app.command("set")
def set_clock(time: Time, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Move the clock to a time, on or back, and hold it there."""
    from tidelog.cli.control import run_at

    return run_at(data_dir, as_json, "set", time)


@app.command()
def advance(span: Span, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Move the clock forward and hold it there; all work due by then is done when this returns."""
    from tidelog.cli.control import run
    from tidelog.cli.time_options import duration_ms

    return run(data_dir, as_json, "advance", ms=duration_ms("SPAN", span))


@app.command()
def release(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Let the clock run again, by the system's time."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "release")


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
    from tidelog.cli.control import run

    return run(
        data_dir, as_json, "fault", api=api, error=error, topic=topic, partition=partition, client_id=client_id,
        group=group, times=None if always else times, probability=probability, seed=seed, delay_ms=delay_ms,
        drop=drop, truncate=truncate, throttle_ms=throttle_ms, unanswered=unanswered,
    )  # fmt: skip


@app.command("faults-seen")
def faults_seen(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Show each fault that was applied."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "faults_seen")


@app.command("clear-faults")
def clear_faults(
    fault: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only this one.")] = None,
    seen: Annotated[bool, typer.Option("--seen", help="Forget those that were applied, too.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> int:
    """Remove all faults, a full disk too."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "clear_faults", fault=fault, seen=seen)


@app.command("move-coordinator")
def move_coordinator(group: Group = None, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Tell each connected client once to look up the coordinator of its group again."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "move_coordinator", group=group)


@app.command("raise-leader-epoch")
def raise_leader_epoch(
    topic: Name, partition: Number = 0, data_dir: DataDir = None, as_json: Json = False
) -> int:
    """Begin a new leader epoch of a partition, as after an election."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "raise_leader_epoch", topic=topic, partition=partition)


@app.command("fill-disk")
def fill_disk(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Refuse writes as a full disk does."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "fill_disk")


@app.command("free-disk")
def free_disk(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Accept writes again after fill-disk."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "free_disk")


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
    from tidelog.cli.arguments import parse_options
    from tidelog.cli.control import run

    return run(
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
    from tidelog.cli.control import run

    return run(data_dir, as_json, "delete_topic", name=topic)


@app.command()
def roll(data_dir: DataDir = None, as_json: Json = False) -> int:
    """Begin a new segment in each log whose active segment is not empty."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "roll")


@app.command()
def offsets(topic: Name, partition: Number = 0, data_dir: DataDir = None, as_json: Json = False) -> int:
    """Show where the log of a partition begins, and where its next record goes."""
    from tidelog.cli.control import run

    return run(data_dir, as_json, "offsets", topic=topic, partition=partition)
