"""`tidelog tail`: the records of a topic between two times, and those that come.

Owns which records are printed and in which order. Refuses to know how they are written. Within a partition the order
is that of offsets; between partitions the record with the smaller timestamp comes first, as far as those that are
there already go.

A time range is exact where timestamps are out of order too: reading starts at the first record at or after `since`,
goes to the end that the partition has at the start, and prints what has since <= timestamp < until. It cannot stop at
the first record past `until`, since an earlier one may follow. Where the broker searches a topic by append time, which
no record need carry, the range is from the broker's answer for `since` up to that for `until`, and all between.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, NamedTuple

from tidelog.broker.clock import Clock
from tidelog.cli import client, formats, time_options
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import progress
from tidelog.cli.text import called, note
from tidelog.config import times

POLL_MS: Final = 250
# A partition that is ahead of the others by this much is not read further until they have caught up.
QUEUE_MAX_RECORDS: Final = 10_000
STALLED_S: Final = 30


def run(
    topic: str,
    partitions: Sequence[int],
    since: str | None,
    from_offset: int | None,
    until: str | None,
    follow: bool,
    limit: int | None,
    format_name: str,
    bootstrap: str,
    clock: Clock,
) -> int:
    """Print records until the end, the limit or Ctrl-C; return the exit code: 1 where some could not be read."""
    if from_offset is not None and (since is not None or len(partitions) != 1):
        raise CommandError("--offset N goes with one --partition, and without --since", USAGE)
    now_ms = clock.now_ms()
    since_ms = None if since is None else time_options.time_ms("--since", since, now_ms)
    until_ms = None if until is None else time_options.time_ms("--until", until, now_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        since_shown, until_shown = times.show(since_ms), times.show(until_ms)
        raise CommandError(
            f"--since {since} is later than --until {until}: {since_shown} is after {until_shown}", USAGE
        )
    write = formats.choose(format_name)
    if since_ms is not None and since_ms > now_ms:
        note(f"--since {since} is in the future, {times.show(since_ms)}: what is printed bears such a time")
    damaged: list[Any] = []
    with suppress(KeyboardInterrupt), client.consumer(bootstrap) as session:
        chosen = client.choose(topic, session.partitions_for_topic(topic), partitions)
        by_append = False
        if since_ms is not None or until_ms is not None:
            with client.admin(bootstrap) as asked:
                by_append = client.lookup_clock(asked, topic) == "append"
                if not by_append:
                    # Of a topic without times a consumer is told that nothing was found.
                    at_ms = since_ms or until_ms or 0
                    client.without_refused(
                        lambda keys: client.at_time(asked, dict.fromkeys(keys[:1], at_ms)), chosen
                    )
        span = Span(since_ms, until_ms, by_append, from_offset, follow)
        reader = Reader(session, chosen, span, clock)
        damaged = reader.damaged
        with progress(f"tail {topic}") as advance:
            _print(reader, span, limit, write, advance)
    return FAILED if damaged else OK


class Span(NamedTuple):
    """Which records of a partition are meant: from a time or an offset, up to a time; times by one of the clocks.

    Without a start it is the partition's, or where it is followed its end.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    by_append: bool = False
    from_offset: int | None = None
    follow: bool = False

    def has(self, timestamp: int) -> bool:
        """Tell whether a record that was read is meant, by the time that it carries."""
        since_ms = self.since_ms or 0
        # A record without a timestamp (-1) belongs to no range, and to the whole.
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
    """One partition: the records that are there and not yet printed, and how far it must be read."""

    __slots__ = ("end", "is_paused", "next_offset", "queue", "topic_partition")

    def __init__(self, topic_partition: Any, next_offset: int, end: int) -> None:
        self.topic_partition = topic_partition
        self.next_offset = next_offset
        self.end = end
        self.queue: deque[Any] = deque()
        self.is_paused = False

    @property
    def is_behind(self) -> bool:
        return self.next_offset < self.end


class Reader:
    """The records of some partitions of a topic, merged; a span that follows goes on until its end has passed.

    `damaged` has the partitions whose reading ended, or never began, because the broker could not read them.
    """

    def __init__(self, session: client.Client, chosen: Sequence[Any], span: Span, clock: Clock) -> None:
        """Assign the partitions, and seek to where the span starts."""
        self.damaged: list[Any] = []
        self._session = session
        self._span = span
        self._follow = span.follow
        self._clock = clock
        self._noted: set[Any] = set()
        ends, refused = client.without_refused(session.end_offsets, chosen)
        if refused is not None:
            self.damaged += sorted(refused.keys)
            note(f"not read: {refused}")
        chosen = list(ends)
        session.assign(chosen)
        starts = self._starts(chosen, ends)
        ends = self._before_until(ends)
        self._partitions = {key: _Partition(key, starts[key], ends[key]) for key in chosen}
        for key, start in starts.items():
            session.seek(key, start)

    def _starts(self, chosen: Sequence[Any], ends: dict[Any, int]) -> dict[Any, int]:
        if self._span.since_ms is not None:
            return self._at(self._span.since_ms, ends)
        offset = self._span.from_offset
        if offset is None and self._follow:
            return ends
        starts: dict[Any, int] = self._session.beginning_offsets(chosen)
        if offset is None:
            return starts
        for key, start in starts.items():
            if not start <= offset <= ends[key]:
                raise CommandError(
                    f"--offset {offset}: partition {key.partition} of {key.topic} starts at {start} and ends before "
                    f"{ends[key]}"
                )
        return dict.fromkeys(chosen, offset)

    def _at(self, time_ms: int, ends: dict[Any, int]) -> dict[Any, int]:
        """Return the first offset at or after a time; of what has none, which may get one, the end."""
        found = self._session.offsets_for_times(dict.fromkeys(ends, time_ms))
        return {key: end if found[key] is None else found[key].offset for key, end in ends.items()}

    def _before_until(self, ends: dict[Any, int]) -> dict[Any, int]:
        """Return where the span ends, of partitions with these ends."""
        if self._span.by_append and self._span.until_ms is not None:
            return self._at(self._span.until_ms, ends)
        return ends

    def read(self) -> Iterator[list[Any]]:
        """Yield lists of records in order; an endless iterator where the partitions are followed."""
        last_news = time.monotonic()
        while True:
            behind = [part for part in self._partitions.values() if part.is_behind]
            if not behind and (not self._follow or self._partitions.keys() <= set(self.damaged)):
                return
            try:
                is_news = self._poll(behind)
            except client.unknown_topic_error() as error:
                raise self._gone() from error  # It came with another answer than that of a fetch.
            until_ms = self._span.until_ms
            # After the poll: what came with it may have been appended since.
            if self._follow and until_ms is not None and self._clock.now_ms() >= until_ms:
                self._end_here()
            if is_news:
                last_news = time.monotonic()
                if records := self._merge():
                    yield records
            elif behind and time.monotonic() - last_news > STALLED_S:
                raise client.stalled(self._session, STALLED_S)

    def _end_here(self) -> None:
        """Follow no longer: read to the end as it is now, or before `until` by the clock of appends."""
        self._follow = False
        followed = [key for key in self._partitions if key not in self.damaged]
        for key, end in self._before_until(self._session.end_offsets(followed)).items():
            part = self._partitions[key]
            part.end = end
            part.queue = deque(record for record in part.queue if record.offset < end)

    def _poll(self, behind: Sequence[_Partition]) -> bool:
        """Take what the broker sends; tell whether that brought the reading on."""
        answer = client.poll(self._session, POLL_MS)
        for key, records in answer.items():
            part = self._partitions[key]
            part.next_offset = records[-1].offset + 1
            if not self._follow:
                records = [record for record in records if record.offset < part.end]
            part.queue += records
            if len(part.queue) >= QUEUE_MAX_RECORDS and len(self._partitions) > 1:
                self._session.pause(key)
                part.is_paused = True
        damaged = client.take_damaged(self._session)
        for key, offset in damaged.items():
            self._leave(self._partitions[key], offset)
        self._note_refused()
        if answer or damaged:
            return True
        self._look_for_topic()
        for part in behind:
            # What is left before the end may be no records: markers, or what compaction took.
            part.next_offset = max(part.next_offset, self._session.position(part.topic_partition))
        return any(not part.is_behind for part in behind)

    def _leave(self, part: _Partition, offset: int) -> None:
        """Read a partition no further than to its damage, and say so; what lies after the end is nobody's concern."""
        key = part.topic_partition
        self._session.pause(key)
        if offset >= part.end and not self._follow:
            return
        part.end = offset
        self.damaged.append(key)
        note(
            f"partition {key.partition} of {key.topic} is damaged at offset {offset}, and read no further; where that "
            f"ends say the broker's log and {called()} fsck: read on from there with --partition {key.partition} "
            "--offset N"
        )

    def _note_refused(self) -> None:
        """Say once of a partition that the broker cannot read it; the session asks for it again."""
        refused = client.refused_fetches(self._session)
        if refused is not None and not refused.keys <= self._noted:
            self._noted |= refused.keys
            note(f"not read now, and asked for again: {refused}")

    def _look_for_topic(self) -> None:
        """End where a topic was deleted: what is known of it says so after the fetch that failed."""
        # Asks the broker only where the topic is not known any more.
        if not self._session.partitions_for_topic(next(iter(self._partitions)).topic):
            raise self._gone()

    def _gone(self) -> CommandError:
        topic = next(iter(self._partitions)).topic
        return CommandError(f"topic {topic} is gone: it was deleted while it was being read")

    def _merge(self) -> list[Any]:
        """Take from the queues what nothing that is still to come can precede."""
        parts = self._partitions.values()
        records: list[Any] = []
        if any(not part.queue and part.is_behind for part in parts):
            return records
        heap = [(part.queue[0].timestamp, number, part) for number, part in enumerate(parts) if part.queue]
        heapify(heap)
        while heap:
            _, number, part = heap[0]
            records.append(part.queue.popleft())
            if part.queue:
                heapreplace(heap, (part.queue[0].timestamp, number, part))
                continue
            heappop(heap)
            if part.is_paused:
                self._session.resume(part.topic_partition)
                part.is_paused = False
            if part.is_behind:
                break
        return records
