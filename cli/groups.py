"""`tidelog groups`: list, describe and delete consumer groups.

Owns the words of these verbs, and what a row of a description is put together of: what the group has committed, where
the partition ends, who reads it. How far behind that is in time is `cli.lag`'s. Refuses to know how a group works.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from tidelog.broker.clock import Clock
from tidelog.cli import client, groups_held, lag, offsets
from tidelog.cli.errors import CommandError, PartitionsRefused
from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.output import Column, print_rows, to_json
from tidelog.cli.text import called, confirm, counted, note, shown
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
HELD: Final = (
    *LIST[:2],
    Column("offsets", "offsets", is_number=True),
    Column("held_bytes", "held bytes", is_number=True),
    Column("address", "committed by", _or_dash),
    Column("committed_ms", "last commit", lambda at: "-" if at is None else times.show(at)),
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


def list_all(is_held: bool, as_json: bool, bootstrap: str, clock: Clock) -> int:
    """Print every group, or what each has committed, the largest first; return the exit code."""
    with client.admin(bootstrap) as session:
        found = client.groups(session)
    if not is_held:
        print_rows(LIST, [found[group] for group in sorted(found)], as_json=as_json)
        return OK
    held = groups_held.by_group(bootstrap, clock)
    rows = [each | (held.get(group) or groups_held.Held())._asdict() for group, each in found.items()]
    print_rows(HELD, sorted(rows, key=lambda row: (-row["held_bytes"], row["group"])), as_json=as_json)
    return OK


def describe(group: str, as_json: bool, bootstrap: str, clock: Clock) -> int:
    """Print what a group has committed, its lag and its members; return the exit code."""
    with client.admin(bootstrap) as session:
        found = client.group(session, group)
        if found is None:
            raise no_group(group)
        committed = client.committed(session, group)
        rows, refused = _partitions(session, bootstrap, committed, found["members"], clock)
    code = OK if refused is None else offsets.unread(refused)
    if as_json:
        print(to_json({**found, "partitions": rows}))
        return code
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
    return code


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
) -> tuple[list[dict[str, Any]], PartitionsRefused | None]:
    """Return a row for each partition of which an offset is committed, or that a member reads.

    The ends of those that the error names are not known.
    """
    reads = {
        client.partition(each["topic"], number): member["member"]
        for member in members
        for each in member["assignment"]
        for number in each["partitions"]
    }
    wanted = sorted(committed.keys() | reads.keys())
    there = client.existing(session, wanted)
    (starts, ends), refused = client.without_refused(partial(offsets.bounds, session), there)
    positions = {key: max(committed[key], starts[key]) for key in ends if key in committed}
    clocks = {topic: client.lookup_clock(session, topic) for topic in {key.topic for key in positions}}
    by_append = frozenset(topic for topic, name in clocks.items() if name == "append")
    lags: dict[Any, lag.Lag] = {}
    if any(position < ends[key] for key, position in positions.items()):
        with client.consumer(bootstrap) as reader:
            lags = lag.in_time(session, reader, positions, ends, by_append, clock.now_ms())
    within = {key: position for key, position in positions.items() if position <= ends[key]}
    rows = [
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
    return rows, refused


def delete(
    names: Sequence[str], address: str | None, is_sure: bool, as_json: bool, bootstrap: str, clock: Clock
) -> int:
    """Delete groups without members, after asking unless the person is sure; return the exit code.

    A name may be a pattern with * and ?. With an address, only groups that it has committed for are meant.
    """
    with client.admin(bootstrap) as session:
        if len(names) == 1 and address is None and not _is_pattern(names[0]):
            found = client.group(session, names[0])
            if found is None:
                raise no_group(names[0])
            refuse_members(names[0], found, "deleted")
            chosen, busy = [names[0]], 0
            question = f"Delete group {shown(names[0])} and all that it has committed?"
        else:
            chosen, busy = _chosen(session, names, address, bootstrap, clock)
            first = ", ".join(map(shown, chosen[:3])) + ", ..." * (len(chosen) > 3)
            question = f"Delete {counted(len(chosen), 'group')} and all that they have committed ({first})?"
        if busy:
            note(f"{counted(busy, 'group')} with members not deleted; stop them first")
        if not chosen:
            raise CommandError(f"no group without members matches; {called()} groups list shows all groups")
        if not is_sure and not confirm(question):
            if not as_json:
                print(shown(f"group {chosen[0]} kept") if len(chosen) == 1 else f"{len(chosen)} groups kept")
            return FAILED
        for group in chosen:
            client.delete_group(session, group)
            print(to_json({"group": group, "deleted": True}) if as_json else shown(f"group {group} deleted"))
    return OK


def _is_pattern(name: str) -> bool:
    return not {"*", "?"}.isdisjoint(name)


def _chosen(
    session: client.Client, names: Sequence[str], address: str | None, bootstrap: str, clock: Clock
) -> tuple[list[str], int]:
    """Return the groups that are meant and have no members, and how many have some; CommandError for a missing one."""
    there = client.groups(session)
    for name in names:
        if not _is_pattern(name) and name not in there:
            raise no_group(name)
    meant = [group for group in sorted(there) if group in names or any(map(partial(_matches, group), names))]
    if address is not None:
        held = groups_held.by_group(bootstrap, clock)
        meant = [group for group in meant if group in held and held[group].address == address]
    idle = [group for group in meant if there[group]["state"] in (None, "Empty")]
    return idle, len(meant) - len(idle)


def _matches(group: str, pattern: str) -> bool:
    return _is_pattern(pattern) and fnmatchcase(group, pattern.replace("[", "[[]"))


def no_group(group: str) -> CommandError:
    """Return what is said of a group that is not there."""
    return CommandError(f"group {group} does not exist; {called()} groups list shows all groups")


def refuse_members(group: str, found: Mapping[str, Any], done: str) -> None:
    """Raise CommandError where a group has members, and name them."""
    if found["members"]:
        raise CommandError(f"group {group} was not {done}: {in_words(found['members'])}; stop them first")


def in_words(members: Sequence[Mapping[str, Any]]) -> str:
    """Return who the members of a group are; of many, the first."""
    named = [f"{each['client_id']} at {each['host']} ({each['member']})" for each in members[:3]]
    more = [f"{len(members) - len(named)} more"] if len(members) > len(named) else []
    return f"it has {counted(len(members), 'member')}: {', '.join(named + more)}"
