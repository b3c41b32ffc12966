"""How far behind a reader is in time, as far as a client can know: from Fetch and ListOffsets alone.

Owns the arithmetic: by the clock that the broker searches a topic by, from the time of the record that is read next to
that of the last record, and to now. Refuses to know groups. It is exact: by record time both records are read; by
append time, which no record need carry, a record's is the latest for which the broker's answer is not past it.
"""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidelog.cli import client

POLL_MS: Final = 250
STALLED_S: Final = 30
# No record is appended as late: in the year 2109.
_LATEST_MS: Final = 1 << 42


class Lag(NamedTuple):
    """How much earlier than the last record, and than now, the next one is by a clock; None where it has no time."""

    behind_ms: int | None
    waits_ms: int | None


NO_LAG: Final = Lag(0, 0)


def in_time(
    asked: client.Client,
    reader: client.Client,
    positions: Mapping[Any, int],
    ends: Mapping[Any, int],
    by_append: frozenset[str],
    now_ms: int,
) -> dict[Any, Lag]:
    """Return the lag of each position, the offset that is read next; `by_append` has the topics of that clock.

    `asked` is an admin session, `reader` one that reads. As the broker itself counts it, there is no lag at the end and
    none where a last record is older; where one of the two has no time, it is not known.
    """
    lags = {key: NO_LAG for key, position in positions.items() if position >= ends[key]}
    behind = {key: position for key, position in positions.items() if key not in lags}
    read = first_records(reader, behind, ends)
    following = {key: record for key, record in read.items() if record is not None}
    appended = {key: record.offset for key, record in following.items() if key.topic in by_append}
    read_last = {key: ends[key] - 1 for key in following if key not in appended}
    next_ms = {key: following[key].timestamp for key in read_last} | append_times(asked, appended)
    last = first_records(reader, read_last, ends)
    last_ms = {key: record.timestamp for key, record in last.items() if record is not None}
    last_ms |= append_times(asked, {key: ends[key] - 1 for key in appended})
    for key in behind:
        if key in read and read[key] is None:
            lags[key] = NO_LAG  # what is left before the end is no record
            continue
        first, newest = next_ms.get(key, -1), last_ms.get(key, -1)
        lags[key] = Lag(
            None if min(first, newest) < 0 else max(0, newest - first),
            None if first < 0 else max(0, now_ms - first),
        )
    return lags


def first_records(
    reader: client.Client, wanted: Mapping[Any, int], ends: Mapping[Any, int]
) -> dict[Any, Any | None]:
    """Return the first record at or after an offset of each partition; None where none is before its end.

    A partition that the broker cannot read there is left out.
    """
    found: dict[Any, Any | None] = {}
    left = set(wanted)
    if not left:
        return found
    reader.assign(sorted(left))
    reader.resume(*left)  # one that was read before is paused still
    for key in left:
        reader.seek(key, wanted[key])
    last_news = time.monotonic()
    while left:
        news = {key: records[0] for key, records in client.poll(reader, POLL_MS).items() if key in left}
        found |= news
        unread = client.take_damaged(reader).keys() & left
        if not news and not unread:
            # What lies before the end may be no records: markers, or what compaction took.
            found |= {key: None for key in left if reader.position(key) >= ends[key]}
        done = (found.keys() & left) | unread
        if done:
            reader.pause(*done)
            left -= done
            last_news = time.monotonic()
        elif time.monotonic() - last_news > STALLED_S:
            raise client.stalled(reader, STALLED_S)
    return found


def append_times(asked: client.Client, offsets: Mapping[Any, int]) -> dict[Any, int]:
    """Return when the record at an offset of each partition was appended, where the broker searches by that clock.

    They never go back, so that is the latest time for which the first record at or after it is not a later one.
    """
    at_least = dict.fromkeys(offsets, -1)
    before = dict.fromkeys(offsets, _LATEST_MS)
    while open_ := {
        key: (at_least[key] + before[key]) // 2 for key in offsets if before[key] - at_least[key] > 1
    }:
        answers = asked.list_partition_offsets(open_)
        for key, at_ms in open_.items():
            answer = answers[key]
            if 0 <= answer.offset <= offsets[key]:
                at_least[key] = at_ms
            else:
                before[key] = at_ms
    return at_least
