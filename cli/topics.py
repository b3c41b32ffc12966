"""`tidelog topics`: create, list, describe, alter and delete topics. The broker checks options."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tidelog.cli import configs, offsets
from tidelog.cli.arguments import (
    Integer,
    Verbs,
    bootstrap_option,
    config_option,
    delete_config_option,
    json_option,
    parse_options,
    topic_argument,
    topic_options_option,
    utf8,
    yes_option,
)
from tidelog.cli.connect import choose, connected, describe_topic, note_unread
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import Column, duration, print_rows, size, to_json
from tidelog.cli.text import confirm, counted, examples
from tidelog.cli.time_options import now_ms
from tidelog.cli.topic_contents import contents
from tidelog.config.kinds import INT_MAX
from tidelog.config.units import readable

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster

LIST = (Column("topic", "topic"), Column("partitions", "partitions", is_number=True))
DESCRIBED = (
    *offsets.RANGE,
    Column(
        "takes_writes",
        "writes",
        lambda takes_writes: "taken" if takes_writes else "refused",
        bad=lambda takes_writes: not takes_writes,
    ),
)


@click.group(
    cls=Verbs, epilog=examples("tidelog topics list --long", "tidelog topics create orders --partitions 3")
)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command(
    "create",
    epilog=examples(
        "tidelog topics create orders --partitions 3 --config retention.ms=7d",
        "tidelog topics create orders-copy --like orders --if-not-exists",
    ),
)
@topic_argument
@click.option("--partitions", type=Integer(1, INT_MAX), help="Default: the broker's num.partitions.")
@topic_options_option
@click.option(
    "--like",
    metavar="TOPIC",
    callback=utf8,
    help="Take the partitions and own options of this topic, unless --partitions and --config set them.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@bootstrap_option
def create(
    topic: str,
    partitions: int | None,
    options: Sequence[str],
    like: str | None,
    if_not_exists: bool,
    bootstrap: str,
) -> int:
    """Create a topic."""
    wanted = parse_options(options)
    with connected(bootstrap) as cluster:
        from tidelog.client.admin import BROKER_DEFAULT, create_topic
        from tidelog.client.errors import BrokerError
        from tidelog.protocol.error_codes import ErrorCode

        if like is not None:
            described = describe_topic(cluster, like)
            if partitions is None:
                partitions = len(described.partitions)
            wanted = _own_options(cluster, like) | wanted
        try:
            count = create_topic(cluster, topic, BROKER_DEFAULT if partitions is None else partitions, wanted)
        except BrokerError as error:
            if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            print(f"topic {topic} exists")
            return OK
    print(f"topic {topic} created, {counted(count, 'partition')}")
    return OK


@topics.command("list", epilog=examples("tidelog topics list --long", "tidelog topics list --json"))
@click.option("--long", "-l", "is_long", is_flag=True, help="Show records, size and newest record too.")
@json_option
@bootstrap_option
def list_all(is_long: bool, as_json: bool, bootstrap: str) -> int:
    """List all topics."""
    with connected(bootstrap) as cluster:
        found = sorted(cluster.topics(), key=lambda topic: str(topic.name))
        held, unread = contents(cluster, found) if is_long else ({}, [])
    rows: list[dict[str, Any]] = [
        {"topic": topic.name, "id": _id(topic), "partitions": len(topic.partitions)} for topic in found
    ]
    if is_long:
        for row in rows:
            of = held[row["topic"]]
            row |= {"records": of.records, "bytes": of.size_bytes, "max_timestamp": of.max_timestamp}
    print_rows(_long(now_ms()) if is_long else LIST, rows, as_json=as_json)
    note_unread(unread)
    return FAILED if unread else OK


def _long(now: int) -> tuple[Column, ...]:
    """Return the columns of a list with contents, which fit 60 columns."""
    return (
        Column("topic", "topic"),
        Column("partitions", "parts", is_number=True),
        Column("records", "records", is_number=True),
        Column("bytes", "size", size, is_number=True),
        Column(
            "max_timestamp",
            "newest record",
            lambda time_ms: "-" if time_ms is None else f"{duration(now - time_ms)} ago",
            is_number=True,
        ),
    )


def _own_options(cluster: "Cluster", topic: str) -> dict[str, str]:
    """Return the options that were set on a topic."""
    from tidelog.client.admin import Resource

    found = configs.options_of(cluster, Resource(topic), every=False)
    return {key: option.value for key, option in found.items() if option.config_source == configs.OF_TOPIC}


def _id(topic: Any) -> str:
    from uuid import UUID

    return str(UUID(bytes=bytes(topic.topic_id)))


@topics.command(
    "describe", epilog=examples("tidelog topics describe orders", "tidelog topics describe orders --json")
)
@topic_argument
@json_option
@bootstrap_option
def describe(topic: str, as_json: bool, bootstrap: str) -> int:
    """Show a topic's partitions, and the options that were set on it."""
    with connected(bootstrap) as cluster:
        from tidelog.client.errors import STORAGE_FAILS

        described = describe_topic(cluster, topic)
        ranges, unread = offsets.ranges(cluster, choose(described))
        options = _own_options(cluster, topic)
    refusing = {
        partition.partition_index
        for partition in described.partitions
        if partition.leader_id in partition.offline_replicas
    }
    rows = [row | {"takes_writes": row["partition"] not in refusing} for row in ranges]
    if as_json:
        print(to_json({"topic": topic, "id": _id(described), "options": options, "partitions": rows}))
    else:
        print(f"topic {topic}, id {_id(described)}")
        print(
            "options "
            + (
                " ".join(f"{key}={readable(key, value)}" for key, value in options.items())
                or "as the broker's"
            )
        )
        print_rows(DESCRIBED, rows, as_json=False)
        if read_on := refusing - {key.partition for key in unread}:
            print(f"{len(read_on)} of {len(rows)} partitions refuse writes, but can be read: {STORAGE_FAILS}")
    note_unread(unread)
    return FAILED if unread else OK


@topics.command(
    "alter",
    epilog=examples(
        "tidelog topics alter orders --config retention.ms=2h",
        "tidelog topics alter orders --partitions 6 --delete-config retention.ms",
    ),
)
@topic_argument
@click.option(
    "--partitions", type=Integer(1, INT_MAX), help="The new number of partitions; it can only grow."
)
@config_option
@delete_config_option
@json_option
@bootstrap_option
def alter(
    topic: str,
    partitions: int | None,
    config: Sequence[str],
    delete_config: Sequence[str],
    as_json: bool,
    bootstrap: str,
) -> int:
    """Change a topic's options, or add partitions: all or nothing."""
    changes = configs.changes(config, delete_config)
    if partitions is None and not changes:
        raise CommandError(
            "nothing to change: give --partitions N, --config NAME=VALUE or --delete-config NAME", USAGE
        )
    with connected(bootstrap) as cluster:
        from tidelog.client.admin import Resource, create_partitions

        describe_topic(cluster, topic)
        if changes and partitions is not None:
            configs.change(cluster, Resource(topic), changes, validate_only=True)
        if partitions is not None:
            create_partitions(cluster, topic, partitions)
        if changes:
            configs.change(cluster, Resource(topic), changes)
    if as_json:
        print(to_json({"topic": topic, "partitions": partitions, **configs.as_row(changes)}))
    else:
        done = [counted(partitions, "partition")] if partitions is not None else []
        print(f"topic {topic} changed: {', '.join([*done, *configs.in_words(changes)])}")
    return OK


@topics.command(
    "delete", epilog=examples("tidelog topics delete orders", "tidelog topics delete orders --yes")
)
@topic_argument
@yes_option
@bootstrap_option
def delete(topic: str, yes: bool, bootstrap: str) -> int:
    """Delete a topic and all its records."""
    with connected(bootstrap) as cluster:
        from tidelog.client.admin import delete_topic
        from tidelog.protocol.topic_names import OFFSETS_TOPIC

        describe_topic(cluster, topic)
        groups = ""
        if topic == OFFSETS_TOPIC:
            groups = ", with all consumer groups and their committed offsets"
        if not yes and not confirm(f"Delete topic {topic} and all its records{groups}?"):
            print(f"topic {topic} kept")
            return FAILED
        delete_topic(cluster, topic)
    print(f"topic {topic} deleted")
    return OK
