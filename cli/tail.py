"""`tidelog tail`: the records of a topic between two times, and those that come.

Owns which records are printed and in which order. Refuses to know how they are written. Within a partition the order
is that of offsets; between partitions the record with the smaller timestamp comes first, as far as those that are
there already go.

A time range is exact where timestamps are out of order too: reading starts at the first record at or after `since`,
goes to the end that the partition has at the start, and prints what has since <= timestamp < until. It cannot stop at
the first record past `until`, since an earlier one may follow.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heapreplace
from typing import Any, Final

from tidelog.broker.clock import Clock
from tidelog.cli import client, formats, times
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import OK, UNREACHABLE, USAGE
from tidelog.cli.output import progress
from tidelog.cli.text import note

POLL_MS: Final = 250
# A partition that is ahead of the others by this much is not read further until they have caught up.
QUEUE_MAX_RECORDS: Final = 10_000
STALLED_S: Final = 30


def run(
    topic: str,
    partitions: Sequence[int],
    since: str | None,
    until: str | None,
    follow: bool,
    limit: int | None,
    format_name: str,
    bootstrap: str,
    clock: Clock,
) -> int:
    """Print records until the end, the limit or Ctrl-C; return the exit code."""
    now_ms = clock.now_ms()
    since_ms = None if since is None else times.option("--since", since, now_ms)
    until_ms = None if until is None else times.option("--until", until, now_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        since_shown, until_shown = times.show(since_ms), times.show(until_ms)
        raise CommandError(
            f"--since {since} is later than --until {until}: {since_shown} is after {until_shown}", USAGE
        )
    write = formats.choose(format_name)
    if since_ms is not None and since_ms > now_ms:
        note(f"--since {since} is still to come: {times.show(since_ms)}")
    with suppress(KeyboardInterrupt), client.consumer(bootstrap) as session:
        chosen = client.choose(topic, session.partitions_for_topic(topic), partitions)
        reader = Reader(session, chosen, since_ms, until_ms if follow else None, follow, clock)
        with progress(f"tail {topic}") as advance:
            _print(reader, since_ms or 0, until_ms, limit, write, advance)
    return OK


def _print(
    reader: "Reader",
    since_ms: int,
    until_ms: int | None,
    limit: int | None,
    write: formats.Format,
    advance: Any,
) -> None:
    out = sys.stdout.buffer
    left = limit
    # A record without a timestamp (-1) belongs to no range, and to the whole.
    everything = since_ms == 0 and until_ms is None
    for records in reader.read():
        if not everything:
            records = [
                record
                for record in records
                if since_ms <= record.timestamp and (until_ms is None or record.timestamp < until_ms)
            ]
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
    """The records of some partitions, merged; `follow` goes on after the end, until `follow_until_ms` has passed."""

    def __init__(
        self,
        session: client.Client,
        chosen: Sequence[Any],
        since_ms: int | None,
        follow_until_ms: int | None,
        follow: bool,
        clock: Clock,
    ) -> None:
        """Assign the partitions and seek: to a time, else to the start, or where they are followed to the end."""
        self._session = session
        self._follow = follow
        self._follow_until_ms = follow_until_ms
        self._clock = clock
        session.assign(chosen)
        ends = session.end_offsets(chosen)
        starts = ends if follow else session.beginning_offsets(chosen)
        if since_ms is not None:
            found = session.offsets_for_times(dict.fromkeys(chosen, since_ms))
            # What has no record at or after the time may get one.
            starts = {key: ends[key] if found[key] is None else found[key].offset for key in chosen}
        self._partitions = {key: _Partition(key, starts[key], ends[key]) for key in chosen}
        for key, start in starts.items():
            session.seek(key, start)

    def read(self) -> Iterator[list[Any]]:
        """Yield lists of records in order; an endless iterator where the partitions are followed."""
        last_news = time.monotonic()
        while True:
            behind = [part for part in self._partitions.values() if part.is_behind]
            if not behind and not self._follow:
                return
            if self._follow_until_ms is not None and self._clock.now_ms() >= self._follow_until_ms:
                self._end_here()
            if self._poll(behind):
                last_news = time.monotonic()
                if records := self._merge():
                    yield records
            elif behind and time.monotonic() - last_news > STALLED_S:
                raise CommandError(f"the broker has sent nothing for {STALLED_S} s", UNREACHABLE)

    def _end_here(self) -> None:
        """Follow no longer: read to the end as it is now."""
        self._follow, self._follow_until_ms = False, None
        for key, end in self._session.end_offsets(list(self._partitions)).items():
            self._partitions[key].end = end

    def _poll(self, behind: Sequence[_Partition]) -> bool:
        """Take what the broker sends; tell whether that brought the reading on."""
        answer = self._session.poll(POLL_MS)
        for key, records in answer.items():
            part = self._partitions[key]
            part.next_offset = records[-1].offset + 1
            if not self._follow:
                records = [record for record in records if record.offset < part.end]
            part.queue += records
            if len(part.queue) >= QUEUE_MAX_RECORDS and len(self._partitions) > 1:
                self._session.pause(key)
                part.is_paused = True
        if answer:
            return True
        self._look_for_topics()
        for part in behind:
            # What is left before the end may be no records: markers, or what compaction took.
            part.next_offset = max(part.next_offset, self._session.position(part.topic_partition))
        return any(not part.is_behind for part in behind)

    def _look_for_topics(self) -> None:
        """End where a topic was deleted: what is known of it says so after the fetch that failed."""
        for topic in {key.topic for key in self._partitions}:
            # Asks the broker only where the topic is not known any more.
            if not self._session.partitions_for_topic(topic):
                raise CommandError(f"topic {topic} is gone: it was deleted while it was being read")

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
