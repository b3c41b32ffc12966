"""`tidelog groups`: list, describe and delete consumer groups.

Owns the words of these verbs, and what a row of a description is put together of: what the group has committed, where
the partition ends, who reads it. How far behind that is in time is `cli.lag`'s. Refuses to know how a group works.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.broker.clock import Clock
from tidelog.cli import client, lag, offsets
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.cli.text import called, confirm, counted, shown
from tidelog.config import times


def _or_dash(value: object) -> str:
    return "-" if value is None else shown(str(value))


def _duration(length_ms: int | None) -> str:
    return "-" if length_ms is None else times.show_duration(length_ms)


def _assigned(partitions: Sequence[Mapping[str, Any]]) -> str:
    texts = [f"{each['topic']}:{','.join(map(str, each['partitions']))}" for each in partitions]
    return " ".join(texts) or "-"


LIST: Final = (
    Column("group", "group", shown),
    Column("state", "state", _or_dash),
    Column("type", "type", _or_dash),
    Column("protocol_type", "protocol", lambda kind: shown(kind) or "-"),
)
PARTITIONS: Final = (
    Column("topic", "topic"),
    Column("partition", "partition", is_number=True),
    Column("committed", "committed", _or_dash, is_number=True),
    Column("end", "end", _or_dash, is_number=True),
    Column("lag", "lag", _or_dash, is_number=True),
    Column("lag_ms", "behind the last", _duration, is_number=True),
    Column("late_ms", "next waits", _duration, is_number=True),
    Column("clock", "by time of", _or_dash),
    Column("member", "member", _or_dash),
)
MEMBERS: Final = (
    Column("member", "member", shown),
    Column("instance", "instance", _or_dash),
    Column("client_id", "client", shown),
    Column("host", "host", shown),
    Column("assignment", "assigned", _assigned),
)


def list_all(as_json: bool, bootstrap: str) -> int:
    """Print every group; return the exit code."""
    with client.admin(bootstrap) as session:
        found = client.groups(session)
    print_rows(LIST, [found[group] for group in sorted(found)], as_json=as_json)
    return OK


def describe(group: str, as_json: bool, bootstrap: str, clock: Clock) -> int:
    """Print what a group has committed, its lag and its members; return the exit code."""
    with client.admin(bootstrap) as session:
        found = client.group(session, group)
        if found is None:
            raise no_group(group)
        committed = client.committed(session, group)
        rows = _partitions(session, bootstrap, committed, found["members"], clock)
    if as_json:
        print(to_json({**found, "partitions": rows}))
        return OK
    told = [found["state"], f"type {found['type']}", f"protocol {found['protocol_type'] or '-'}"]
    if found["assignor"]:
        told.append(f"assignor {found['assignor']}")
    print(shown(f"group {group}, {', '.join(told)}"))
    if rows:
        print_rows(PARTITIONS, rows, as_json=False)
    for row in rows:
        if row["past_end"]:
            print(shown(_past_end(group, row)))
    print(counted(len(found["members"]), "member"))
    if found["members"]:
        print_rows(MEMBERS, found["members"], as_json=False)
    return OK


def _past_end(group: str, row: Mapping[str, Any]) -> str:
    return (
        f"{row['topic']}-{row['partition']}: the committed offset is {row['past_end']} past the end: the log was cut, "
        "or the topic was made again. Members start where their auto.offset.reset says; "
        f"{called()} groups reset {group} sets where"
    )


def _partitions(
    session: client.Client,
    bootstrap: str,
    committed: Mapping[Any, int],
    members: Sequence[Mapping[str, Any]],
    clock: Clock,
) -> list[dict[str, Any]]:
    """Return a row for each partition of which an offset is committed, or that a member reads."""
    reads = {
        client.partition(each["topic"], number): member["member"]
        for member in members
        for each in member["assignment"]
        for number in each["partitions"]
    }
    wanted = sorted(committed.keys() | reads.keys())
    there = client.existing(session, wanted)
    starts, ends = offsets.bounds(session, there)
    positions = {key: max(committed[key], starts[key]) for key in there if key in committed}
    clocks = {topic: client.lookup_clock(session, topic) for topic in {key.topic for key in positions}}
    by_append = frozenset(topic for topic, name in clocks.items() if name == "append")
    lags: dict[Any, lag.Lag] = {}
    if any(position < ends[key] for key, position in positions.items()):
        with client.consumer(bootstrap) as reader:
            lags = lag.in_time(session, reader, positions, ends, by_append, clock.now_ms())
    within = {key: position for key, position in positions.items() if position <= ends[key]}
    return [
        {
            "topic": key.topic,
            "partition": key.partition,
            "committed": committed.get(key),
            "end": ends.get(key),
            "lag": ends[key] - within[key] if key in within else None,
            "lag_ms": lags.get(key, lag.NO_LAG).behind_ms if key in within else None,
            "late_ms": lags.get(key, lag.NO_LAG).waits_ms if key in within else None,
            "past_end": max(0, positions[key] - ends[key]) if key in positions else None,
            "clock": clocks.get(key.topic),
            "member": reads.get(key),
        }
        for key in wanted
    ]


def delete(group: str, is_sure: bool, as_json: bool, bootstrap: str) -> int:
    """Delete a group, after asking unless the person is sure; return the exit code."""
    with client.admin(bootstrap) as session:
        found = client.group(session, group)
        if found is None:
            raise no_group(group)
        refuse_members(group, found, "deleted")
        if not is_sure and not confirm(f"Delete group {shown(group)} and all that it has committed?"):
            if not as_json:
                print(shown(f"group {group} kept"))
            return FAILED
        client.delete_group(session, group)
    print(to_json({"group": group, "deleted": True}) if as_json else shown(f"group {group} deleted"))
    return OK


def no_group(group: str) -> CommandError:
    """Return what is said of a group that is not there."""
    return CommandError(f"group {group} does not exist; {called()} groups list names those that do")


def refuse_members(group: str, found: Mapping[str, Any], done: str) -> None:
    """Raise CommandError where a group has members, and name them."""
    if found["members"]:
        raise CommandError(f"group {group} was not {done}: {in_words(found['members'])}; stop them first")


def in_words(members: Sequence[Mapping[str, Any]]) -> str:
    """Return who the members of a group are; of many, the first."""
    named = [f"{each['client_id']} at {each['host']} ({each['member']})" for each in members[:3]]
    more = [f"{len(members) - len(named)} more"] if len(members) > len(named) else []
    return f"it has {counted(len(members), 'member')}: {', '.join(named + more)}"
