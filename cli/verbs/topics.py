"""`tidelog topics`: what its command lines take."""

from typing import Annotated

import typer

from tidelog.cli.verbs.arguments import LOCAL, Bootstrap, Deleted, Json, Settings, Topic, Yes, sent
from tidelog.config.kinds import INT_MAX

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)


@app.command("create")
def create_topic(
    name: Topic,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=INT_MAX, help="Default: the broker's num.partitions.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", callback=sent, help="Set a topic option; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Create a topic."""
    from tidelog.cli.topics import create

    return create(name, partitions, option or [], bootstrap)


@app.command("list")
def list_topics(as_json: Json = False, bootstrap: Bootstrap = LOCAL) -> int:
    """List all topics."""
    from tidelog.cli.topics import list_all

    return list_all(as_json, bootstrap)


@app.command("describe")
def describe_topic(name: Topic, as_json: Json = False, bootstrap: Bootstrap = LOCAL) -> int:
    """Show a topic's partitions, and the options that were set on it."""
    from tidelog.cli.topics import describe

    return describe(name, as_json, bootstrap)


@app.command("alter")
def alter_topic(
    name: Topic,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=INT_MAX, help="The new number of partitions; it can only grow.")
    ] = None,
    config: Settings = None,
    delete_config: Deleted = None,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Give a topic more partitions, or other options."""
    from tidelog.cli.topics import alter

    return alter(name, partitions, config or [], delete_config or [], as_json, bootstrap)


@app.command("delete")
def delete_topic(
    name: Topic,
    yes: Yes = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Delete a topic and all its records."""
    from tidelog.cli.topics import delete

    return delete(name, yes, bootstrap)
