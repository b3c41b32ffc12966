"""`tidelog groups`: list, describe and delete consumer groups.

A row of a description has the committed offset, the end of the partition, and its member. `client.lag` finds the lag in
time.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.cli import completion, groups_held, offsets
from tidelog.cli.arguments import (
    Verbs,
    bootstrap_option,
    group_argument,
    is_match,
    is_pattern,
    json_option,
    utf8,
    yes_option,
)
from tidelog.cli.connect import connected, existing, lookup_clock, note_unread
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.output import Column, duration, or_dash, print_rows, time_column, to_json
from tidelog.cli.text import called, confirm, counted, examples, note, shown
from tidelog.cli.time_options import now_ms

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition
    from tidelog.client.groups import Described, Listed, Member


def _assigned(partitions: Sequence[Mapping[str, Any]]) -> str:
    texts = [f"{each['topic']}:{','.join(map(str, each['partitions']))}" for each in partitions]
    return " ".join(texts) or "-"


LIST: Final = (
    Column("group", "group", shown),
    Column("state", "state", or_dash),
    Column("type", "type", or_dash),
    Column("protocol_type", "protocol", lambda kind: shown(kind) or "-"),
)
HELD: Final = (
    *LIST[:2],
    Column("offsets", "offsets", is_number=True),
    Column("held_bytes", "held bytes", is_number=True),
    Column("address", "committed by", or_dash),
    time_column("committed_ms", "last commit"),
)
PARTITIONS: Final = (
    Column("topic", "topic"),
    Column("partition", "partition", is_number=True),
    Column("committed", "committed", or_dash, is_number=True),
    Column("end", "end", or_dash, is_number=True),
    Column("lag", "lag", or_dash, is_number=True, bad=bool),
    Column("lag_ms", "behind the last", duration, is_number=True),
    Column("late_ms", "next waits", duration, is_number=True),
    Column("clock", "by time of", or_dash),
    Column("member", "member", or_dash, wraps=True),
)
MEMBERS: Final = (
    Column("member", "member", shown, wraps=True),
    Column("instance", "instance", or_dash),
    Column("client_id", "client", shown),
    Column("host", "host", shown),
    Column("assignment", "assigned", _assigned, wraps=True),
)


@click.group(cls=Verbs, epilog=examples("tidelog groups list", "tidelog groups describe shop"))
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command("list", epilog=examples("tidelog groups list", "tidelog groups list --held"))
@click.option(
    "--held",
    is_flag=True,
    help="Show which address committed, when last, and how much of the broker's memory that takes.",
)
@json_option
@bootstrap_option
def list_all(held: bool, as_json: bool, bootstrap: str) -> int:
    """List all groups."""
    with connected(bootstrap) as cluster:
        from tidelog.client.groups import list_groups

        found = list_groups(cluster)
        if not held:
            print_rows(LIST, [found[group]._asdict() for group in sorted(found)], as_json=as_json)
            return OK
        by_group = groups_held.by_group(cluster)
    rows = [
        each._asdict() | (by_group.get(group) or groups_held.Held())._asdict()
        for group, each in found.items()
    ]
    print_rows(HELD, sorted(rows, key=lambda row: (-row["held_bytes"], row["group"])), as_json=as_json)
    return OK


@groups.command(
    "describe", epilog=examples("tidelog groups describe shop", "tidelog groups describe shop --json")
)
@group_argument
@json_option
@bootstrap_option
def describe(group: str, as_json: bool, bootstrap: str) -> int:
    """Show a group's members, its committed offsets, and its lag. The lag is in records and in time."""
    with connected(bootstrap) as cluster:
        from tidelog.client.groups import committed

        listed, described = find(cluster, group)
        rows, unread = _partitions(cluster, committed(cluster, group), described.members)
    note_unread(unread)
    members = [_member_row(each) for each in described.members]
    if as_json:
        found = listed._asdict() | {"state": described.state, "assignor": described.assignor}
        print(to_json({**found, "members": members, "partitions": rows}))
        return FAILED if unread else OK
    words = [described.state, f"type {listed.type}", f"protocol {listed.protocol_type or '-'}"]
    if described.assignor:
        words.append(f"assignor {described.assignor}")
    print(shown(f"group {group}, {', '.join(words)}"))
    if rows:
        print_rows(PARTITIONS, rows, as_json=False)
    for row in rows:
        if row["past_end"]:
            print(shown(_past_end(group, row)))
    print(counted(len(members), "member"))
    if members:
        print_rows(MEMBERS, members, as_json=False)
    return FAILED if unread else OK


def find(cluster: "Cluster", group: str) -> "tuple[Listed, Described]":
    """Return a group and its members; CommandError if it does not exist."""
    from tidelog.client import groups as client_groups

    listed = client_groups.list_groups(cluster).get(group)
    described = None if listed is None else client_groups.describe(cluster, listed)
    if listed is None or described is None:
        raise no_group(group)
    return listed, described


def _member_row(member: "Member") -> dict[str, Any]:
    assignment = [
        {"topic": topic, "partitions": numbers} for topic, numbers in sorted(member.assignment.items())
    ]
    return member._asdict() | {"assignment": assignment}


def _past_end(group: str, row: Mapping[str, Any]) -> str:
    return (
        f"{row['topic']}-{row['partition']}: the committed offset is {row['past_end']} past the end: the log was cut, "
        "or the topic was created again. Members start as their auto.offset.reset says; "
        f"{called()} groups reset {group} sets an offset"
    )


def _partitions(
    cluster: "Cluster", committed: "Mapping[Partition, int]", members: "Sequence[Member]"
) -> "tuple[list[dict[str, Any]], list[Partition]]":
    """Return a row for each partition with a committed offset or a member.

    Also return the partitions that the broker cannot read, so that their end is unknown.
    """
    from tidelog.client import lag
    from tidelog.client.cluster import Partition

    reads = {
        Partition(topic, number): member.member
        for member in members
        for topic, numbers in member.assignment.items()
        for number in numbers
    }
    wanted = sorted(committed.keys() | reads.keys())
    starts, ends, unread = offsets.bounds(cluster, existing(cluster, wanted))
    positions = {key: max(committed[key], starts[key]) for key in ends if key in committed}
    clocks = {topic: lookup_clock(cluster, topic) for topic in {key.topic for key in positions}}
    by_append = frozenset(topic for topic, name in clocks.items() if name == "append")
    lags = lag.in_time(cluster, positions, ends, by_append, now_ms())
    within = {key: position for key, position in positions.items() if position <= ends[key]}
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "committed": committed.get(key),
            "end": ends.get(key),
            "lag": ends[key] - within[key] if key in within else None,
            "lag_ms": lags[key].behind_ms if key in within else None,
            "late_ms": lags[key].waits_ms if key in within else None,
            "past_end": max(0, positions[key] - ends[key]) if key in positions else None,
            "clock": clocks.get(key.topic),
            "member": reads.get(key),
        }
        for key in wanted
    ]
    return rows, unread


@groups.command(
    "delete", epilog=examples("tidelog groups delete shop", "tidelog groups delete 'test-*' --yes")
)
@click.argument(
    "names",
    metavar="GROUP...",
    nargs=-1,
    required=True,
    callback=utf8,
    shell_complete=completion.groups,
    help="Names, or patterns such as 'test-*'.",
)
@click.option(
    "--address", metavar="ADDRESS", help="Only groups whose offsets were committed from this address."
)
@yes_option
@json_option
@bootstrap_option
def delete(names: Sequence[str], address: str | None, yes: bool, as_json: bool, bootstrap: str) -> int:
    """Delete groups and their committed offsets. A group with members is kept."""
    with connected(bootstrap) as cluster:
        from tidelog.client import groups as client_groups

        if len(names) == 1 and address is None and not is_pattern(names[0]):
            _, described = find(cluster, names[0])
            refuse_members(names[0], described.members, "deleted")
            chosen, busy = [names[0]], 0
            question = f"Delete group {shown(names[0])} and its committed offsets?"
        else:
            chosen, busy = _chosen(cluster, names, address)
            first = ", ".join(map(shown, chosen[:3])) + ", ..." * (len(chosen) > 3)
            question = f"Delete {counted(len(chosen), 'group')} and their committed offsets ({first})?"
        if busy:
            note(f"{counted(busy, 'group')} with members not deleted; stop them first")
        if not chosen:
            raise CommandError(f"no group without members matches; {called()} groups list shows all groups")
        if not yes and not confirm(question):
            if not as_json:
                print(shown(f"group {chosen[0]} kept") if len(chosen) == 1 else f"{len(chosen)} groups kept")
            return FAILED
        for group in chosen:
            client_groups.delete(cluster, group)
            print(to_json({"group": group, "deleted": True}) if as_json else shown(f"group {group} deleted"))
    return OK


def _chosen(cluster: "Cluster", names: Sequence[str], address: str | None) -> tuple[list[str], int]:
    """Return the matching groups without members, and the number of those with members; CommandError."""
    from tidelog.client.groups import list_groups

    there = list_groups(cluster)
    for name in names:
        if not is_pattern(name) and name not in there:
            raise no_group(name)
    meant = [
        group for group in sorted(there) if group in names or any(is_match(group, name) for name in names)
    ]
    if address is not None:
        held = groups_held.by_group(cluster)
        meant = [group for group in meant if group in held and held[group].address == address]
    idle = [group for group in meant if there[group].state in (None, "Empty")]
    return idle, len(meant) - len(idle)


def no_group(group: str) -> CommandError:
    """Return the error for a group that does not exist."""
    return CommandError(f"group {group} does not exist; {called()} groups list shows all groups")


def refuse_members(group: str, members: "Sequence[Member]", done: str) -> None:
    """Raise CommandError if a group has members, and name them."""
    if members:
        raise CommandError(f"group {group} was not {done}: {in_words(members)}; stop them first")


def in_words(members: "Sequence[Member]") -> str:
    """Return the number of members, and the names of the first."""
    named = [f"{each.client_id} at {each.host} ({each.member})" for each in members[:3]]
    more = [f"{len(members) - len(named)} more"] if len(members) > len(named) else []
    return f"it has {counted(len(members), 'member')}: {', '.join(named + more)}"
