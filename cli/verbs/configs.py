"""`tidelog configs`: what its command lines take."""

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.verbs.arguments import LOCAL, Bootstrap, Deleted, Json, Settings, sent
from tidelog.config.kinds import INT_MAX

app = typer.Typer(
    help="Show and change the options of topics and of the broker: while it runs, or with --data-dir while none does.",
    no_args_is_help=True,
)
OneTopic = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", callback=sent, help="The topic whose options to show or change."),
]
Node = Annotated[
    int | None, typer.Option("--broker", metavar="ID", min=0, max=INT_MAX, help="The broker, by its node.id.")
]

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="The data folder of a stopped broker: show or change the options stored there, and ask no broker.",
    ),
]
Everyone = Annotated[
    bool,
    typer.Option("--all-brokers", help="With --data-dir: the options set for all brokers, under no node.id."),
]


@app.command("describe")
def describe_configs(
    topic: OneTopic = None,
    broker: Node = None,
    every: Annotated[bool, typer.Option("--all", help="Show options that have their defaults too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
    data_dir: DataDir = None,
    all_brokers: Everyone = False,
) -> int:
    """Show the options that were set on a topic or for a broker."""
    from tidelog.cli.configs import describe, describe_stored

    if data_dir is not None or all_brokers:
        return describe_stored(topic, broker, all_brokers, as_json, data_dir)
    return describe(topic, broker, every, as_json, bootstrap)


@app.command("alter")
def alter_configs(
    topic: OneTopic = None,
    broker: Node = None,
    config: Settings = None,
    delete_config: Deleted = None,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
    data_dir: DataDir = None,
    all_brokers: Everyone = False,
) -> int:
    """Change options of a topic or of a broker, which holds at once and after a restart."""
    from tidelog.cli.configs import alter, alter_stored

    if data_dir is not None or all_brokers:
        return alter_stored(topic, broker, all_brokers, config or [], delete_config or [], as_json, data_dir)
    return alter(topic, broker, config or [], delete_config or [], as_json, bootstrap)
