"""`tidelog groups reset`: set the committed offsets of a group.

The plan has the new offset of each partition, and how many records that skips or repeats. The broker looks up times, by
the clock of the topic (`lookup.clock`), which the plan names. Nothing changes while the group has members, or without
being shown first.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tidelog.cli import offsets
from tidelog.cli.arguments import (
    TIME_HELP,
    Integer,
    bootstrap_option,
    group_argument,
    json_option,
    topic_option,
    yes_option,
)
from tidelog.cli.connect import (
    connected,
    existing,
    find_all_offsets,
    lookup_clock,
    partitions_of,
    unread_words,
)
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.groups import groups, in_words, no_group, refuse_members
from tidelog.cli.output import Column, or_dash, print_rows
from tidelog.cli.text import confirm, counted, examples, note, shown
from tidelog.cli.time_options import duration_ms, now_ms, time_ms
from tidelog.config import times
from tidelog.config.kinds import LONG_MAX

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition
    from tidelog.client.groups import Described
    from tidelog.client.offsets import Found

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_OFFSET_DIGITS: Final = 19
_TOPIC = re.compile(r"([^:]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?")

Row = dict[str, Any]

PLAN: Final = (
    Column("topic", "topic"),
    Column("partition", "partition", is_number=True),
    Column("old", "from", or_dash, is_number=True),
    Column("new", "to", is_number=True),
    Column("skipped", "skipped", or_dash, is_number=True),
    Column("read_again", "read again", or_dash, is_number=True),
)
# For a time: by which clock, and the time of the record that was found.
TIMED: Final = (
    *PLAN,
    Column("clock", "by time of"),
    offsets.AT[-1]._replace(title="begins at"),
)


class _Time(NamedTuple):
    at_ms: int


class _Shift(NamedTuple):
    records: int


# An offset, `earliest` or `latest`, a time, or a number of records from the committed offset.
_Wanted = int | str | _Time | _Shift


class _Partition(NamedTuple):
    """The committed offset of a partition, and its start and end."""

    old: int | None
    start: int
    end: int


@groups.command(
    "reset",
    epilog=examples(
        "tidelog groups reset shop --topic orders --to-time '1 hour ago' --dry-run",
        "tidelog groups reset shop --all-topics --to-offset earliest --yes",
    ),
)
@group_argument
@topic_option(
    "A topic, or some of its partitions; may be repeated.", "topics", metavar="NAME[:P,P]", multiple=True
)
@click.option("--all-topics", is_flag=True, help="Every partition that the group has committed an offset of.")
@click.option("--to-offset", metavar="N", help="earliest, latest, or an offset.")
@click.option("--to-time", metavar="TIME", help=f"The first record at or after a time: {TIME_HELP}.")
@click.option("--by-duration", metavar="LENGTH", help="The first record of the last 2h, '3 days' or 1h30m.")
@click.option(
    "--shift-by",
    metavar="N",
    type=Integer(-LONG_MAX, LONG_MAX),
    help="Move by this many records; a negative number moves back.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@yes_option
@json_option
@bootstrap_option
def reset(
    group: str,
    topics: Sequence[str],
    all_topics: bool,
    to_offset: str | None,
    to_time: str | None,
    by_duration: str | None,
    shift_by: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> int:
    """Set the committed offsets of a group without members. The plan is shown first: what is skipped or repeated."""
    if bool(topics) == all_topics:
        raise CommandError("give either --topic NAME (NAME:0,1 for some partitions) or --all-topics", USAGE)
    wanted = _wanted(to_offset, to_time, by_duration, shift_by)
    chosen = _parse_topics(topics)
    _check_name(group)
    with connected(bootstrap) as cluster:
        from tidelog.client.groups import committed as committed_by
        from tidelog.client.groups import describe, list_groups

        listed = list_groups(cluster).get(group)
        found = None if listed is None else describe(cluster, listed)
        _check_group(group, found, all_topics, dry_run)
        committed = committed_by(cluster, group) if found is not None else {}
        if all_topics:
            keys = _all_committed(cluster, group, committed)
        else:
            keys = [key for name in sorted(chosen) for key in partitions_of(cluster, name, chosen[name])]
        rows, plan = _plan(cluster, keys, committed, wanted)
        columns = TIMED if isinstance(wanted, _Time) else PLAN
        if not as_json:
            print(shown(f"group {group}: {_in_words(wanted)}"))
        print_rows(columns, rows, as_json=as_json)
        if dry_run:
            return OK
        if not yes and not confirm(f"Set {counted(len(plan), 'offset')} of group {shown(group)}?"):
            if not as_json:
                print(shown(f"group {group} kept"))
            return FAILED
        _commit(cluster, group, plan)
    if not as_json:
        print(shown(f"group {group} set: {counted(len(plan), 'offset')}"))
    return OK


def _commit(cluster: "Cluster", group: str, plan: "Mapping[Partition, int]") -> None:
    from tidelog.client.errors import BrokerError
    from tidelog.client.groups import commit
    from tidelog.protocol.error_codes import ErrorCode

    try:
        commit(cluster, group, plan)
    except BrokerError as error:
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            raise CommandError(f"group {group} was not reset: it has members now") from error
        raise


def _check_name(group: str) -> None:
    """Refuse the empty name, which no member can join."""
    if not group:
        raise CommandError("GROUP is empty: a group must have a name", USAGE)


def _check_group(group: str, found: "Described | None", every: bool, is_dry: bool) -> None:
    """Refuse to change a group that has members; --dry-run only notes them."""
    if found is None:
        if every:
            raise no_group(group)
        note(f"group {group} does not exist; the first offset creates it")
    elif is_dry and found.members:
        note(f"group {group} would not be reset now: {in_words(found.members)}")
    else:
        refuse_members(group, found.members, "reset")


def _wanted(
    to_offset: str | None, to_time: str | None, by_duration: str | None, shift_by: int | None
) -> _Wanted:
    if sum(each is not None for each in (to_offset, to_time, by_duration, shift_by)) != 1:
        raise CommandError(
            "give one target: --to-offset N, --to-time TIME, --by-duration LENGTH or --shift-by N", USAGE
        )
    if shift_by is not None:
        return _Shift(shift_by)
    if to_time is not None:
        return _Time(time_ms("--to-time", to_time, now_ms()))
    if by_duration is not None:
        return _Time(max(0, now_ms() - duration_ms("--by-duration", by_duration)))
    text = str(to_offset).strip().lower()
    if text in (EARLIEST, LATEST):
        return text
    if not (text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS):
        raise CommandError(f"--to-offset {to_offset}: must be earliest, latest or an offset from 0 up", USAGE)
    return int(text)


def _in_words(wanted: _Wanted) -> str:
    if isinstance(wanted, _Time):
        return f"to the first record at or after {times.show(wanted.at_ms)}"
    if isinstance(wanted, _Shift):
        return f"by {wanted.records:+} records"
    return f"to offset {wanted}" if isinstance(wanted, int) else f"to the {wanted} offset"


def _parse_topics(texts: Sequence[str]) -> dict[str, set[int]]:
    """Return the chosen partitions by topic; an empty set for all."""
    chosen: dict[str, set[int]] = {}
    whole: set[str] = set()
    for text in texts:
        parsed = _TOPIC.fullmatch(text)
        if parsed is None:
            raise CommandError(f"--topic {text}: write it as NAME, or as NAME:0,1 for some partitions", USAGE)
        numbers = chosen.setdefault(parsed[1], set())
        numbers.update(map(int, parsed[2].split(",")) if parsed[2] else ())
        if not parsed[2]:
            whole.add(parsed[1])
    return {topic: set() if topic in whole else numbers for topic, numbers in chosen.items()}


def _all_committed(cluster: "Cluster", group: str, committed: "Mapping[Partition, int]") -> "list[Partition]":
    keys = existing(cluster, committed)
    if not keys:
        raise CommandError(f"group {group} has committed nothing; name a --topic")
    return keys


def _plan(
    cluster: "Cluster", keys: "Sequence[Partition]", committed: "Mapping[Partition, int]", wanted: _Wanted
) -> "tuple[list[Row], dict[Partition, int]]":
    """Return the rows to show, and the new offset of each partition."""
    starts, ends, unread = offsets.bounds(cluster, keys)
    if unread:
        raise CommandError(unread_words(unread))
    known = {key: _Partition(committed.get(key), starts[key], ends[key]) for key in keys}
    if isinstance(wanted, _Shift) and (without := [key for key in keys if key not in committed]):
        key = without[0]
        raise CommandError(f"--shift-by: partition {key.partition} of {key.topic} has no committed offset")
    found: dict[Partition, Found] = {}
    clocks: dict[str, str] = {}
    if isinstance(wanted, _Time):
        found = find_all_offsets(cluster, dict.fromkeys(keys, wanted.at_ms))
        clocks = {topic: lookup_clock(cluster, topic) for topic in {key.topic for key in keys}}
    plan, rows = {}, []
    for key, part in known.items():
        answer = found.get(key)
        asked_for = _offset(wanted, part, answer)
        plan[key] = new = min(max(asked_for, part.start), part.end)
        if new != asked_for:
            note(f"{key}: offset {asked_for} is not in {part.start} to {part.end}; using {new}")
        timed = {} if answer is None else {"clock": clocks.get(key.topic), "timestamp": _timestamp(answer)}
        rows.append(_row(key, part, new) | timed)
    return rows, plan


def _offset(wanted: _Wanted, part: _Partition, answer: "Found | None") -> int:
    if isinstance(wanted, _Shift):
        return (part.old or 0) + wanted.records
    if isinstance(wanted, int):
        return wanted
    if answer is not None:
        return part.end if answer.offset < 0 else answer.offset
    return part.start if wanted == EARLIEST else part.end


def _timestamp(answer: "Found") -> int | None:
    return None if answer.offset < 0 else answer.timestamp


def _row(key: "Partition", part: _Partition, new: int) -> Row:
    """Return a row of the plan. It counts only offsets between the start and the end of the partition."""
    was = None if part.old is None else min(max(part.old, part.start), part.end)
    return {
        "topic": key.topic,
        "partition": key.partition,
        "old": part.old,
        "new": new,
        "skipped": None if was is None else max(0, new - was),
        "read_again": None if was is None else max(0, was - new),
    }
