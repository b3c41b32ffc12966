"""The lag of a reader in time, from Fetch and ListOffsets alone.

It is the time from the next record to the last record, and from the next record to now, by the clock that the broker
searches the topic by. It is exact. By record time, both records are read. Append times need not be in the records; the
append time of a record is the latest time for which ListOffsets does not return a later record.
"""

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.client.cluster import Cluster, Partition
from tidelog.client.errors import Unreachable
from tidelog.client.fetching import Record, poll
from tidelog.client.offsets import EARLIEST, list_offsets
from tidelog.protocol.error_codes import ErrorCode

WAIT_MS: Final = 250
STALLED_S: Final = 30
# In the year 2109: later than any append.
_LATEST_MS: Final = 1 << 42


class Lag(NamedTuple):
    """How much older the next record is than the last record, and than now; None if unknown."""

    behind_ms: int | None
    waits_ms: int | None


NO_LAG: Final = Lag(0, 0)


def in_time(
    cluster: Cluster,
    positions: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    by_append: frozenset[str],
    now_ms: int,
) -> dict[Partition, Lag]:
    """Return the lag of each position, which is the next offset to read.

    `by_append` has the topics that the broker searches by append time. As in the broker's own figures, the lag is 0 at
    the end, and if the last record is older than the next. It is unknown if one of the two records has no time.
    """
    lags = {key: NO_LAG for key, position in positions.items() if position >= ends[key]}
    behind = {key: position for key, position in positions.items() if key not in lags}
    read = first_records(cluster, behind, ends)
    following = {key: record for key, record in read.items() if record is not None}
    appended = {key: record.offset for key, record in following.items() if key.topic in by_append}
    read_last = {key: ends[key] - 1 for key in following if key not in appended}
    next_ms = {key: following[key].timestamp for key in read_last} | append_times(cluster, appended)
    last = first_records(cluster, read_last, ends)
    last_ms = {key: record.timestamp for key, record in last.items() if record is not None}
    last_ms |= append_times(cluster, {key: ends[key] - 1 for key in appended})
    for key in behind:
        if key in read and read[key] is None:
            lags[key] = NO_LAG  # there are no more records before the end
            continue
        first, newest = next_ms.get(key, -1), last_ms.get(key, -1)
        lags[key] = Lag(
            None if min(first, newest) < 0 else max(0, newest - first),
            None if first < 0 else max(0, now_ms - first),
        )
    return lags


def first_records(
    cluster: Cluster, wanted: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> dict[Partition, Record | None]:
    """Return the first record at or after an offset of each partition; None if there is none before its end.

    Partitions that the broker cannot read are left out. Unreachable if the broker sends nothing.
    """
    found: dict[Partition, Record | None] = {}
    left = dict(wanted)
    last_news = time.monotonic()
    while left:
        answers = cluster.retried("records", lambda: poll(cluster, left, WAIT_MS))
        for key, answer in answers.items():
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                left[key] = list_offsets(cluster, {key: EARLIEST})[key].offset
            elif answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                continue
            elif answer.records or answer.error_code or answer.next_offset >= ends[key]:
                if answer.records:
                    found[key] = answer.records[0]
                elif not answer.error_code:
                    found[key] = (
                        None  # there may be only markers before the end, or compaction removed the records
                    )
                del left[key]
                last_news = time.monotonic()
            else:
                left[key] = answer.next_offset
        if left and time.monotonic() - last_news > STALLED_S:
            raise Unreachable(f"the broker has sent nothing for {STALLED_S} s")
    return found


def append_times(cluster: Cluster, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the append time of the record at an offset of each partition, of topics that are searched by it.

    Append times never decrease, so it is the latest time for which ListOffsets does not return a later record.
    """
    at_least = dict.fromkeys(offsets, -1)
    before = dict.fromkeys(offsets, _LATEST_MS)
    while open_ := {
        key: (at_least[key] + before[key]) // 2 for key in offsets if before[key] - at_least[key] > 1
    }:
        answers = list_offsets(cluster, open_)
        for key, at_ms in open_.items():
            if 0 <= answers[key].offset <= offsets[key]:
                at_least[key] = at_ms
            else:
                before[key] = at_ms
    return at_least
