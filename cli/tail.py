"""`tidelog tail`: print the records of a topic, of a range of times, and those that follow.

Records of a partition are in the order of offsets. Partitions are merged by timestamp, as far as their records have
arrived.

A range of times is exact even if timestamps are out of order: each partition is read from its first record at or after
`since` to the end that it has at the start, and records with since <= timestamp < until are printed. Reading cannot
stop at the first record past `until`, since an earlier one may follow. If the broker searches the topic by append time,
which need not be in the records, the range is everything from the broker's answer for `since` to that for `until`.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tidelog.cli import formats
from tidelog.cli.arguments import TIME_HELP, Integer, bootstrap_option, partitions_option, topic_argument
from tidelog.cli.connect import (
    connected,
    find_all_offsets,
    find_offsets,
    lookup_clock,
    partitions_of,
    unread_words,
)
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREACHABLE, USAGE
from tidelog.cli.output import progress
from tidelog.cli.text import called, note
from tidelog.cli.time_options import now_ms, time_ms
from tidelog.config import times

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition
    from tidelog.client.fetching import Polled, Record

WAIT_MS: Final = 250
# A partition that is ahead of the others by this many records waits for them.
QUEUE_MAX_RECORDS: Final = 10_000
STALLED_S: Final = 30


@click.command("tail")
@topic_argument
@partitions_option
@click.option("--since", metavar="TIME", help=f"{TIME_HELP}. Default: the start; with --follow, the end.")
@click.option(
    "--offset",
    "from_offset",
    metavar="N",
    type=Integer(0),
    help="Start at this offset of one --partition.",
)
@click.option("--until", metavar="TIME", help="Print only earlier records; takes the same forms as --since.")
@click.option(
    "--follow", "-f", is_flag=True, help="Continue at the end, until Ctrl-C or until --until has passed."
)
@click.option(
    "--format",
    "format_name",
    metavar="FORMAT",
    default="text",
    help="text, json, or a template such as '{time} {key} {value}' "
    "(topic, partition, offset, timestamp, time, key, value, headers).",
)
@click.option("--limit", "-n", type=Integer(1), help="Stop after this many records.")
@bootstrap_option
def tail(
    topic: str,
    partitions: Sequence[int],
    since: str | None,
    from_offset: int | None,
    until: str | None,
    follow: bool,
    format_name: str,
    limit: int | None,
    bootstrap: str,
) -> int:
    """Print the records of a topic, partitions merged by time. Each partition is in the order of offsets.

    A range of times is exact even if records are out of order: each partition is read from its first record at or
    after --since to its end, and records with since <= timestamp < until are printed. With lookup.clock=append, the
    records appended at or after --since and before --until are printed.
    """
    if from_offset is not None and (since is not None or len(partitions) != 1):
        raise CommandError("--offset N needs exactly one --partition, and no --since", USAGE)
    at_ms = now_ms()
    since_ms = None if since is None else time_ms("--since", since, at_ms)
    until_ms = None if until is None else time_ms("--until", until, at_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        since_shown, until_shown = times.show(since_ms), times.show(until_ms)
        raise CommandError(
            f"--since {since} is later than --until {until}: {since_shown} is after {until_shown}", USAGE
        )
    write = formats.choose(format_name)
    if since_ms is not None and since_ms > at_ms:
        note(f"--since {since} is in the future, {times.show(since_ms)}: earlier records are not printed")
    damaged: Sequence[Partition] = ()
    with suppress(KeyboardInterrupt), connected(bootstrap) as cluster:
        chosen = partitions_of(cluster, topic, partitions)
        by_append = False
        if since_ms is not None or until_ms is not None:
            by_append = lookup_clock(cluster, topic) == "append"
            if not by_append:
                find_offsets(
                    cluster, {chosen[0]: since_ms or until_ms or 0}
                )  # raises CommandError for a topic without timestamps
        span = Span(since_ms, until_ms, by_append, from_offset, follow)
        reader = Reader(cluster, chosen, span)
        damaged = reader.damaged
        with progress(f"tail {topic}") as advance:
            _print(reader, span, limit, write, advance)
    return FAILED if damaged else OK


class Span(NamedTuple):
    """The records to read: from a time or an offset, up to a time, by one of the clocks.

    By default they start at the start of the partition, or with `follow` at its end.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    by_append: bool = False
    from_offset: int | None = None
    follow: bool = False

    def has(self, timestamp: int) -> bool:
        """Return whether a record is in the span, by its timestamp."""
        since_ms = self.since_ms or 0
        # A record without a timestamp (-1) is only in a span without bounds.
        if self.by_append or (since_ms == 0 and self.until_ms is None):
            return True
        return since_ms <= timestamp and (self.until_ms is None or timestamp < self.until_ms)


def _print(
    reader: "Reader",
    span: Span,
    limit: int | None,
    write: formats.Format,
    advance: Any,
) -> None:
    out = sys.stdout.buffer
    left = limit
    for records in reader.read():
        records = [record for record in records if span.has(record.timestamp)]
        if left is not None:
            records = records[:left]
            left -= len(records)
        out.write(b"".join(map(write, records)))
        out.flush()
        advance(len(records))
        if left == 0:
            return


class _Partition:
    """A partition: its records that are not printed yet, and how far to read it."""

    __slots__ = ("end", "key", "next_offset", "queue")

    def __init__(self, key: "Partition", next_offset: int, end: int) -> None:
        self.key = key
        self.next_offset = next_offset
        self.end = end
        self.queue: deque[Record] = deque()

    @property
    def is_behind(self) -> bool:
        return self.next_offset < self.end


class Reader:
    """Reads and merges some partitions of a topic; with `follow`, until `until` has passed.

    `damaged` has the partitions that are not read to their end because the broker cannot read them.
    """

    def __init__(
        self, cluster: "Cluster", chosen: "Sequence[Partition]", span: Span, now: Callable[[], int] = now_ms
    ) -> None:
        """Find where the span starts and ends in each partition."""
        self.damaged: list[Partition] = []
        self._cluster = cluster
        self._span = span
        self._follow = span.follow
        self._now_ms = now
        self._refused: set[Partition] = set()
        self._noted: set[Partition] = set()
        ends, unread = self._ends(chosen)
        if unread:
            self.damaged += unread
            note(f"not read: {unread_words(unread)}")
        starts = self._starts(ends)
        ends = self._before_until(ends)
        # In the order of the next request: those that gave records last come last.
        self._partitions = [_Partition(key, starts[key], ends[key]) for key in ends]

    def _ends(self, chosen: "Sequence[Partition]") -> "tuple[dict[Partition, int], list[Partition]]":
        from tidelog.client.offsets import LATEST

        found, unread = find_offsets(self._cluster, dict.fromkeys(chosen, LATEST))
        return {key: found[key].offset for key in chosen if key in found}, unread

    def _starts(self, ends: "dict[Partition, int]") -> "dict[Partition, int]":
        from tidelog.client.offsets import EARLIEST

        if self._span.since_ms is not None:
            return self._at(self._span.since_ms, ends)
        offset = self._span.from_offset
        if offset is None and self._follow:
            return ends
        starts = find_all_offsets(self._cluster, dict.fromkeys(ends, EARLIEST))
        if offset is None:
            return {key: each.offset for key, each in starts.items()}
        for key, start in starts.items():
            if not start.offset <= offset <= ends[key]:
                raise CommandError(
                    f"--offset {offset}: partition {key.partition} of {key.topic} starts at {start.offset} and ends "
                    f"before {ends[key]}"
                )
        return dict.fromkeys(ends, offset)

    def _at(self, at_ms: int, ends: "dict[Partition, int]") -> "dict[Partition, int]":
        """Return the first offset at or after a time, or the end if there is none yet."""
        found = find_all_offsets(self._cluster, dict.fromkeys(ends, at_ms))
        return {key: end if found[key].offset < 0 else found[key].offset for key, end in ends.items()}

    def _before_until(self, ends: "dict[Partition, int]") -> "dict[Partition, int]":
        """Return where the span ends in partitions with these ends."""
        if self._span.by_append and self._span.until_ms is not None:
            return self._at(self._span.until_ms, ends)
        return ends

    def read(self) -> "Iterator[list[Record]]":
        """Yield lists of records in order; with `follow`, without end."""
        last_news = time.monotonic()
        while True:
            behind = [part for part in self._partitions if part.is_behind]
            if not behind and (not self._follow or len(self.damaged) >= len(self._partitions)):
                return
            is_news = self._poll()
            until_ms = self._span.until_ms
            # After the poll, whose records may have been appended since.
            if self._follow and until_ms is not None and self._now_ms() >= until_ms:
                self._end_here()
            if is_news:
                last_news = time.monotonic()
                if records := self._merge():
                    yield records
            elif behind and time.monotonic() - last_news > STALLED_S:
                why = f": {unread_words(self._refused)}" if self._refused else ""
                raise CommandError(f"the broker has sent nothing for {STALLED_S} s{why}", UNREACHABLE)

    def _end_here(self) -> None:
        """Stop following: read to the current end, or up to `until` by append time."""
        self._follow = False
        followed = [part for part in self._partitions if part.key not in self.damaged]
        ends, _ = self._ends([part.key for part in followed])
        ends = self._before_until(ends)
        for part in followed:
            part.end = ends.get(part.key, part.next_offset)
            part.queue = deque(record for record in part.queue if record.offset < part.end)

    def _poll(self) -> bool:
        """Fetch the next records; return whether the read has advanced."""
        from tidelog.client.errors import Retriable, UnknownTopic
        from tidelog.client.fetching import poll

        wanted = {
            part.key: part.next_offset
            for part in self._partitions
            if (part.is_behind or (self._follow and part.key not in self.damaged))
            and (len(part.queue) < QUEUE_MAX_RECORDS or len(self._partitions) == 1)
        }
        try:
            answers = poll(self._cluster, wanted, WAIT_MS)
        except UnknownTopic as error:
            topic = error.topic
            raise CommandError(f"topic {topic} was deleted while it was read") from error
        except Retriable:
            # The broker may be restarting, or a partition may have moved.
            self._cluster.forget()
            time.sleep(WAIT_MS / 1000)
            return False
        is_news = [
            self._take(part, answers[part.key]) for part in list(self._partitions) if part.key in answers
        ]
        refused = self._refused - self._noted
        if refused:
            self._noted |= refused
            note(f"retrying: {unread_words(refused)}")
        if self._refused and not any(is_news):
            time.sleep(WAIT_MS / 1000)  # the broker answers a refusal at once
        return any(is_news)

    def _take(self, part: _Partition, answer: "Polled") -> bool:
        """Queue the records of a partition; return whether the read has advanced."""
        from tidelog.client.offsets import EARLIEST
        from tidelog.protocol.error_codes import ErrorCode

        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._refused.add(part.key)
            return False
        self._refused.discard(part.key)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            part.next_offset = find_all_offsets(self._cluster, {part.key: EARLIEST})[part.key].offset
            return True
        records = answer.records
        if not self._follow:
            records = [record for record in records if record.offset < part.end]
        part.queue += records
        is_news = answer.next_offset > part.next_offset
        part.next_offset = answer.next_offset
        if is_news:
            self._partitions.remove(part)
            self._partitions.append(part)
        if answer.error_code == ErrorCode.CORRUPT_MESSAGE:
            self._leave(part)
            return True
        return is_news

    def _leave(self, part: _Partition) -> None:
        """Stop reading a partition at its damage, and say so, unless the damage is after the end."""
        key, offset = part.key, part.next_offset
        if offset >= part.end and not self._follow:
            return
        part.end = offset
        self.damaged.append(key)
        note(
            f"partition {key.partition} of {key.topic} is damaged at offset {offset}, and is not read further; the "
            f"broker's log and {called()} fsck show where the damage ends: continue there with --partition "
            f"{key.partition} --offset N"
        )

    def _merge(self) -> "list[Record]":
        """Take the records that no record still to come can precede."""
        records: list[Record] = []
        if any(not part.queue and part.is_behind for part in self._partitions):
            return records
        heap = [
            (part.queue[0].timestamp, part.key.partition, part) for part in self._partitions if part.queue
        ]
        heapify(heap)
        while heap:
            _, number, part = heap[0]
            records.append(part.queue.popleft())
            if part.queue:
                heapreplace(heap, (part.queue[0].timestamp, number, part))
                continue
            heappop(heap)
            if part.is_behind:
                break
        return records
