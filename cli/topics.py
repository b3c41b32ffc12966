"""`tidelog topics`: create, list, describe, alter and delete.

Owns the words of these verbs. Refuses to know what a topic's options mean: names and values go to the broker as they
are, and its answer comes back.
"""

from collections.abc import Sequence

from tidelog.cli import client, configs, offsets
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.named_values import parse_options
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.cli.text import confirm, counted
from tidelog.storage.log_names import OFFSETS_TOPIC

LIST = (Column("topic", "topic"), Column("partitions", "partitions", is_number=True))
DESCRIBED = (
    *offsets.RANGE,
    Column("takes_writes", "writes", lambda takes_writes: "taken" if takes_writes else "refused"),
)
BROKER_DEFAULT = -1


def create(name: str, partitions: int | None, options: Sequence[str], bootstrap: str) -> int:
    """Create a topic; return the exit code."""
    wanted = {
        "num_partitions": BROKER_DEFAULT if partitions is None else partitions,
        "replication_factor": BROKER_DEFAULT,
        "configs": parse_options(options),
    }
    with client.admin(bootstrap) as session:
        (answer,) = session.create_topics({name: wanted}, raise_errors=False)["topics"]
        client.check(f"topic {name} was not created", answer)
    count = answer.get("num_partitions", partitions)
    print(f"topic {name} created, {counted(count, 'partition')}")
    return OK


def list_all(as_json: bool, bootstrap: str) -> int:
    """Print every topic; return the exit code."""
    with client.admin(bootstrap) as session:
        found = session.describe_topics()
    rows = [
        {"topic": topic["name"], "id": str(topic["topic_id"]), "partitions": len(topic["partitions"])}
        for topic in sorted(found, key=lambda topic: topic["name"])
    ]
    print_rows(LIST, rows, as_json=as_json)
    return OK


def describe(name: str, as_json: bool, bootstrap: str) -> int:
    """Print a topic's partitions, and the options that differ from their defaults; return the exit code."""
    with client.admin(bootstrap) as session:
        topic = client.describe(session, name)
        numbers = [partition["partition_index"] for partition in topic["partitions"]]
        ranges, unread = offsets.ranges(session, client.choose(name, numbers, ()))
        options = client.own_options(session, name)
    refusing = {
        partition["partition_index"]
        for partition in topic["partitions"]
        if partition["leader_id"] in partition.get("offline_replicas", ())
    }
    rows = [row | {"takes_writes": row["partition"] not in refusing} for row in ranges]
    if as_json:
        print(to_json({"topic": name, "id": str(topic["topic_id"]), "options": options, "partitions": rows}))
        return OK if unread is None else offsets.unread(unread)
    print(f"topic {name}, id {topic['topic_id']}")
    print("options " + (" ".join(f"{key}={value}" for key, value in options.items()) or "as the broker's"))
    print_rows(DESCRIBED, rows, as_json=False)
    read_on = refusing - {key.partition for key in unread.keys} if unread else refusing
    if read_on:
        print(
            f"{len(read_on)} of {len(rows)} partitions refuse writes and are read on: {client.STORAGE_FAILS}"
        )
    return OK if unread is None else offsets.unread(unread)


def alter(
    name: str,
    partitions: int | None,
    settings: Sequence[str],
    deleted: Sequence[str],
    as_json: bool,
    bootstrap: str,
) -> int:
    """Give a topic more partitions and other options, all of that or nothing; return the exit code."""
    changes = configs.changes(settings, deleted)
    if partitions is None and not changes:
        raise CommandError(
            "nothing to change: give --partitions N, --config NAME=VALUE or --delete-config NAME", USAGE
        )
    with client.admin(bootstrap) as session:
        client.describe(session, name)
        resource = client.Resource(name)
        if changes and partitions is not None:
            client.alter_options(session, resource, changes, validate_only=True)
        if partitions is not None:
            (answer,) = session.create_partitions({name: partitions}, raise_errors=False).results
            client.check(f"topic {name} was not changed", answer.to_dict())
        if changes:
            client.alter_options(session, resource, changes)
    if as_json:
        print(to_json({"topic": name, "partitions": partitions, **configs.told(changes)}))
    else:
        told = [counted(partitions, "partition")] if partitions is not None else []
        print(f"topic {name} changed: {', '.join([*told, *configs.in_words(changes)])}")
    return OK


def delete(name: str, is_sure: bool, bootstrap: str) -> int:
    """Delete a topic, after asking unless the person is sure; return the exit code."""
    with client.admin(bootstrap) as session:
        client.describe(session, name)
        groups = (
            ", and with them all consumer groups and what they have committed"
            if name == OFFSETS_TOPIC
            else ""
        )
        if not is_sure and not confirm(f"Delete topic {name} and all its records{groups}?"):
            print(f"topic {name} kept")
            return FAILED
        (answer,) = session.delete_topics([name], raise_errors=False)["topics"]
        client.check(f"topic {name} was not deleted", answer)
    print(f"topic {name} deleted")
    return OK
