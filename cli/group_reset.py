"""`tidelog groups reset`: set where a group reads on.

Owns the plan: which offset each partition gets, and what that skips or has read again. A time is the broker's to look
up, exactly, by the clock that it searches the topic by (`lookup.clock`); the plan says which. Invariant: nothing is
changed while the group has members, and nothing that was not shown.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog.broker.clock import Clock
from tidelog.cli import client, groups, offsets, time_options
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import Column, print_rows
from tidelog.cli.text import confirm, counted, note, shown
from tidelog.config import times

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
# What the protocol has room for, of a group's name.
NAME_MAX_BYTES: Final = 2**15 - 1
_OFFSET_DIGITS: Final = 19
_TOPIC = re.compile(r"([^:]+)(?::([0-9]{1,9}(?:,[0-9]{1,9})*))?")

Row = dict[str, Any]


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


PLAN: Final = (
    Column("topic", "topic"),
    Column("partition", "partition", is_number=True),
    Column("old", "from", _or_dash, is_number=True),
    Column("new", "to", is_number=True),
    Column("skipped", "skipped", _or_dash, is_number=True),
    Column("read_again", "read again", _or_dash, is_number=True),
)
# Where a time was asked for: by which clock, and the time of the record that was found.
TIMED: Final = (
    *PLAN,
    Column("clock", "by time of"),
    Column("timestamp", "begins at", lambda at: offsets.NONE if at is None else times.show(at)),
)


class Target(NamedTuple):
    """Where a group is to read on, as the command line has it: exactly one of these."""

    to_offset: str | None
    to_time: str | None
    by_duration: str | None
    shift_by: int | None


class _Time(NamedTuple):
    at_ms: int


class _Shift(NamedTuple):
    records: int


_Wanted = (
    int | str | _Time | _Shift
)  # an offset, `earliest` or `latest`, a time, a step from what is committed


class _Partition(NamedTuple):
    """What is known of a partition before the plan is made."""

    old: int | None
    start: int
    end: int


def run(
    group: str,
    topics: Sequence[str],
    every: bool,
    target: Target,
    is_dry: bool,
    is_sure: bool,
    as_json: bool,
    bootstrap: str,
    clock: Clock,
) -> int:
    """Show the plan, ask unless the person is sure, and carry it out; return the exit code."""
    if bool(topics) == every:
        raise CommandError("give either --topic NAME (NAME:0,1 for some partitions) or --all-topics", USAGE)
    wanted = _wanted(target, clock.now_ms())
    chosen = _parse_topics(topics)
    _check_name(group)
    with client.admin(bootstrap) as session:
        found = client.group(session, group)
        _look_at(group, found, every, is_dry)
        committed = client.committed(session, group) if found is not None else {}
        keys = _all_committed(session, group, committed) if every else _named(session, chosen)
        rows, plan = _plan(session, keys, committed, wanted)
        columns = TIMED if isinstance(wanted, _Time) else PLAN
        if not as_json:
            print(shown(f"group {group}: {_in_words(wanted)}"))
        print_rows(columns, rows, as_json=as_json)
        if is_dry:
            return OK
        if not is_sure and not confirm(f"Set {counted(len(plan), 'offset')} of group {shown(group)}?"):
            if not as_json:
                print(shown(f"group {group} kept"))
            return FAILED
        client.commit(session, group, plan)
    if not as_json:
        print(shown(f"group {group} set: {counted(len(plan), 'offset')}"))
    return OK


def _check_name(group: str) -> None:
    """Refuse a name that no member of a group can have."""
    if not group:
        raise CommandError("GROUP is empty: nobody reads in a group without a name", USAGE)
    size = len(group.encode())
    if size > NAME_MAX_BYTES:
        # The client library would say only that the broker does not answer.
        raise CommandError(f"the name of a group has {NAME_MAX_BYTES:,} bytes at most, and this one {size:,}")


def _look_at(group: str, found: Mapping[str, Any] | None, every: bool, is_dry: bool) -> None:
    """Refuse to change a group that has members; a plan that stays one is no matter of theirs."""
    if found is None:
        if every:
            raise groups.no_group(group)
        note(f"group {group} does not exist yet; its first offsets make it")
    elif is_dry and found["members"]:
        note(f"group {group} would not be reset now: {groups.in_words(found['members'])}")
    else:
        groups.refuse_members(group, found, "reset")


def _wanted(target: Target, now_ms: int) -> _Wanted:
    if sum(each is not None for each in target) != 1:
        raise CommandError(
            "give one target: --to-offset N, --to-time TIME, --by-duration LENGTH or --shift-by N", USAGE
        )
    if target.shift_by is not None:
        return _Shift(target.shift_by)
    if target.to_time is not None:
        return _Time(time_options.time_ms("--to-time", target.to_time, now_ms))
    if target.by_duration is not None:
        return _Time(max(0, now_ms - time_options.duration_ms("--by-duration", target.by_duration)))
    text = str(target.to_offset).strip().lower()
    if text in (EARLIEST, LATEST):
        return text
    if not (text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS):
        raise CommandError(
            f"--to-offset {target.to_offset}: must be earliest, latest or a number from 0 up", USAGE
        )
    return int(text)


def _in_words(wanted: _Wanted) -> str:
    if isinstance(wanted, _Time):
        return f"to the first record at or after {times.show(wanted.at_ms)}"
    if isinstance(wanted, _Shift):
        return f"by {wanted.records:+} records"
    return f"to offset {wanted}" if isinstance(wanted, int) else f"to the {wanted} offset"


def _parse_topics(texts: Sequence[str]) -> dict[str, set[int]]:
    """Return the numbers of the partitions that are meant, by topic; none for all."""
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


def _named(session: client.Client, chosen: Mapping[str, set[int]]) -> list[Any]:
    keys = []
    for topic, numbers in sorted(chosen.items()):
        there = [each["partition_index"] for each in client.describe(session, topic)["partitions"]]
        keys += client.choose(topic, there, numbers)
    return keys


def _all_committed(session: client.Client, group: str, committed: Mapping[Any, int]) -> list[Any]:
    keys = client.existing(session, sorted(committed))
    if not keys:
        raise CommandError(f"group {group} has committed nothing; name a --topic")
    return keys


def _plan(
    session: client.Client, keys: Sequence[Any], committed: Mapping[Any, int], wanted: _Wanted
) -> tuple[list[Row], dict[Any, int]]:
    """Return the rows that are shown, and the offset that each partition gets."""
    starts, ends = offsets.bounds(session, keys)
    known = {key: _Partition(committed.get(key), starts[key], ends[key]) for key in keys}
    if isinstance(wanted, _Shift) and (without := [key for key in keys if key not in committed]):
        key = without[0]
        raise CommandError(
            f"--shift-by: nothing is committed of partition {key.partition} of {key.topic} to go on from"
        )
    found: dict[Any, Any] = {}
    clocks: dict[str, str] = {}
    if isinstance(wanted, _Time):
        found = client.at_time(session, dict.fromkeys(keys, wanted.at_ms))
        clocks = {topic: client.lookup_clock(session, topic) for topic in {key.topic for key in keys}}
    plan, rows = {}, []
    for key, part in known.items():
        answer = found.get(key)
        asked_for = _offset(wanted, part, answer)
        plan[key] = new = min(max(asked_for, part.start), part.end)
        if new != asked_for:
            note(
                f"{key.topic}-{key.partition}: offset {asked_for} is not in {part.start} to {part.end}: {new} instead"
            )
        timed = {"clock": clocks.get(key.topic), "timestamp": _timestamp(answer)} if found else {}
        rows.append(_row(key, part, new) | timed)
    return rows, plan


def _offset(wanted: _Wanted, part: _Partition, answer: Any) -> int:
    if isinstance(wanted, _Shift):
        return (part.old or 0) + wanted.records
    if isinstance(wanted, int):
        return wanted
    if isinstance(wanted, _Time):
        return part.end if answer.offset < 0 else int(answer.offset)
    return part.start if wanted == EARLIEST else part.end


def _timestamp(answer: Any) -> int | None:
    return None if answer.offset < 0 else int(answer.timestamp)


def _row(key: Any, part: _Partition, new: int) -> Row:
    """Count offsets of what is there: what lies before the start is gone, and nothing is past the end."""
    was = None if part.old is None else min(max(part.old, part.start), part.end)
    return {
        "topic": key.topic,
        "partition": key.partition,
        "old": part.old,
        "new": new,
        "skipped": None if was is None else max(0, new - was),
        "read_again": None if was is None else max(0, was - new),
    }
