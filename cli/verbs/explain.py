"""`tidelog explain`: what its command lines take."""

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.arguments import TIME_HELP, Json, Topic
from tidelog.config.kinds import INT_MAX

app = typer.Typer(
    name="explain",
    help="Explain what a broker does, from its data folder. The broker may run; nothing is written.",
    no_args_is_help=True,
)
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, max=INT_MAX, help="Default: all of them.")
]
DataDir = Annotated[Path | None, typer.Option(help="The broker's data folder. Default: as the broker's.")]
Config = Annotated[
    Path | None, typer.Option(help="The broker's server.properties, for what a topic does not set.")
]
Override = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="An option that the broker was started with; may be repeated."),
]
LookupClock = Annotated[
    str | None,
    typer.Option(metavar="CLOCK", help="record or append. Default: the topic's lookup.clock."),
]


@app.command("retention")
def explain_retention(
    topic: Topic,
    partition: Partition = None,
    data_dir: DataDir = None,
    config: Config = None,
    override: Override = None,
    as_json: Json = False,
) -> int:
    """Show for each segment of a topic whether and when it expires, by which rule and clock."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.explain import Where, retained

    return retained(Where(topic, partition, data_dir, config, override or ()), as_json, Clock())


@app.command("compaction")
def explain_compaction(
    topic: Topic,
    partition: Partition = None,
    reads_keys: Annotated[
        bool, typer.Option("--keys", help="Read all keys, and estimate how much of each segment is garbage.")
    ] = False,
    data_dir: DataDir = None,
    config: Config = None,
    override: Override = None,
    as_json: Json = False,
) -> int:
    """Show how far each segment of a topic is clean, what its last pass saved, and when the next is due."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.explain import Where, compacted

    where = Where(topic, partition, data_dir, config, override or ())
    return compacted(where, reads_keys, as_json, Clock())


@app.command("offset")
def explain_offset(
    topic: Topic,
    at: Annotated[str, typer.Option(metavar="TIME", help=f"{TIME_HELP}.")],
    partition: Partition = None,
    clock: LookupClock = None,
    data_dir: DataDir = None,
    config: Config = None,
    override: Override = None,
    as_json: Json = False,
) -> int:
    """Show how the first record at or after a time is found: segments, index entries, bytes read, the answer."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.explain import Where, looked_up

    return looked_up(Where(topic, partition, data_dir, config, override or ()), at, clock, as_json, Clock())


@app.command("range")
def explain_range(
    topic: Topic,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help=f"{TIME_HELP}.")],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="Not in the range itself.")],
    partition: Partition = None,
    clock: LookupClock = None,
    data_dir: DataDir = None,
    config: Config = None,
    override: Override = None,
    as_json: Json = False,
) -> int:
    """Show the exact range of offsets that holds all records of a range of times, and what was read for that."""
    from tidelog.broker.clock import Clock
    from tidelog.cli.explain import Where, ranged

    where = Where(topic, partition, data_dir, config, override or ())
    return ranged(where, since, until, clock, as_json, Clock())
