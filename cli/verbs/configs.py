"""`tidelog configs`: what its command lines take."""

from typing import Annotated

import typer

from tidelog.cli.verbs.arguments import LOCAL, Bootstrap, Deleted, Json, Settings, sent
from tidelog.config.kinds import INT_MAX

app = typer.Typer(
    help="Show and change the options of topics and of the broker while it runs.", no_args_is_help=True
)
OneTopic = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", callback=sent, help="The topic whose options are meant."),
]
Node = Annotated[
    int | None, typer.Option("--broker", metavar="ID", min=0, max=INT_MAX, help="The broker, by its node.id.")
]


@app.command("describe")
def describe_configs(
    topic: OneTopic = None,
    broker: Node = None,
    every: Annotated[bool, typer.Option("--all", help="Show those that have their defaults, too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Show the options that were set on a topic or for a broker."""
    from tidelog.cli.configs import describe

    return describe(topic, broker, every, as_json, bootstrap)


@app.command("alter")
def alter_configs(
    topic: OneTopic = None,
    broker: Node = None,
    config: Settings = None,
    delete_config: Deleted = None,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Change options of a topic or of a broker, which holds at once and after a restart."""
    from tidelog.cli.configs import alter

    return alter(topic, broker, config or [], delete_config or [], as_json, bootstrap)
