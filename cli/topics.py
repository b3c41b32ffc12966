"""`tidelog topics`: create, list, describe, alter and delete.

Names and values of options go to the broker as they are, and its answer comes back.
"""

from typing import Annotated, Any

import typer

from tidelog.cli import configs, offsets
from tidelog.cli.arguments import LOCAL, Bootstrap, Deleted, Json, Settings, Topic, Yes, parse_options, sent
from tidelog.cli.connect import choose, connected, describe_topic, note_unread
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.cli.text import confirm, counted
from tidelog.config.kinds import INT_MAX

LIST = (Column("topic", "topic"), Column("partitions", "partitions", is_number=True))
DESCRIBED = (
    *offsets.RANGE,
    Column("takes_writes", "writes", lambda takes_writes: "taken" if takes_writes else "refused"),
)

app = typer.Typer(
    name="topics", help="Create, list, describe, alter and delete topics.", no_args_is_help=True
)


@app.command("create")
def create(
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
    options = parse_options(option or [])
    with connected(bootstrap) as cluster:
        from tidelog.client.admin import BROKER_DEFAULT, create_topic

        count = create_topic(cluster, name, BROKER_DEFAULT if partitions is None else partitions, options)
    print(f"topic {name} created, {counted(count, 'partition')}")
    return OK


@app.command("list")
def list_all(as_json: Json = False, bootstrap: Bootstrap = LOCAL) -> int:
    """List all topics."""
    with connected(bootstrap) as cluster:
        found = cluster.topics()
    rows = [
        {"topic": topic.name, "id": _id(topic), "partitions": len(topic.partitions)}
        for topic in sorted(found, key=lambda topic: str(topic.name))
    ]
    print_rows(LIST, rows, as_json=as_json)
    return OK


def _id(topic: Any) -> str:
    from uuid import UUID

    return str(UUID(bytes=bytes(topic.topic_id)))


@app.command("describe")
def describe(name: Topic, as_json: Json = False, bootstrap: Bootstrap = LOCAL) -> int:
    """Show a topic's partitions, and the options that were set on it."""
    with connected(bootstrap) as cluster:
        from tidelog.client.admin import Resource
        from tidelog.client.errors import STORAGE_FAILS

        topic = describe_topic(cluster, name)
        numbers = [partition.partition_index for partition in topic.partitions]
        ranges, unread = offsets.ranges(cluster, choose(name, numbers, ()))
        found = configs.options_of(cluster, Resource(name), every=False)
    options = {key: option.value for key, option in found.items() if option.config_source == configs.OF_TOPIC}
    refusing = {
        partition.partition_index
        for partition in topic.partitions
        if partition.leader_id in partition.offline_replicas
    }
    rows = [row | {"takes_writes": row["partition"] not in refusing} for row in ranges]
    if as_json:
        print(to_json({"topic": name, "id": _id(topic), "options": options, "partitions": rows}))
    else:
        print(f"topic {name}, id {_id(topic)}")
        print(
            "options " + (" ".join(f"{key}={value}" for key, value in options.items()) or "as the broker's")
        )
        print_rows(DESCRIBED, rows, as_json=False)
        if read_on := refusing - {key.partition for key in unread}:
            print(f"{len(read_on)} of {len(rows)} partitions refuse writes and are read on: {STORAGE_FAILS}")
    note_unread(unread)
    return FAILED if unread else OK


@app.command("alter")
def alter(
    name: Topic,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=INT_MAX, help="The new number of partitions; it can only grow.")
    ] = None,
    config: Settings = None,
    delete_config: Deleted = None,
    as_json: Json = False,
    bootstrap: Bootstrap = LOCAL,
) -> int:
    """Give a topic more partitions, or other options: all of that or nothing."""
    changes = configs.changes(config or [], delete_config or [])
    if partitions is None and not changes:
        raise CommandError(
            "nothing to change: give --partitions N, --config NAME=VALUE or --delete-config NAME", USAGE
        )
    with connected(bootstrap) as cluster:
        from tidelog.client.admin import Resource, create_partitions

        describe_topic(cluster, name)
        if changes and partitions is not None:
            configs.change(cluster, Resource(name), changes, validate_only=True)
        if partitions is not None:
            create_partitions(cluster, name, partitions)
        if changes:
            configs.change(cluster, Resource(name), changes)
    if as_json:
        print(to_json({"topic": name, "partitions": partitions, **configs.as_row(changes)}))
    else:
        done = [counted(partitions, "partition")] if partitions is not None else []
        print(f"topic {name} changed: {', '.join([*done, *configs.in_words(changes)])}")
    return OK


@app.command("delete")
def delete(name: Topic, yes: Yes = False, bootstrap: Bootstrap = LOCAL) -> int:
    """Delete a topic and all its records."""
    with connected(bootstrap) as cluster:
        from tidelog.client.admin import delete_topic
        from tidelog.protocol.topic_names import OFFSETS_TOPIC

        describe_topic(cluster, name)
        groups = ""
        if name == OFFSETS_TOPIC:
            groups = ", and with them all consumer groups and what they have committed"
        if not yes and not confirm(f"Delete topic {name} and all its records{groups}?"):
            print(f"topic {name} kept")
            return FAILED
        delete_topic(cluster, name)
    print(f"topic {name} deleted")
    return OK
