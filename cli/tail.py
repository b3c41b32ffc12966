"""`tidelog tail`: print the records of topics: all, the last, of a range of times, and new ones.

Records of a partition are in the order of offsets. Partitions are merged by timestamp, as far as their records have
arrived.

A range of times is exact even if timestamps are out of order: each partition is read from its first record at or after
`since` to the end that it has at the start, and records with since <= timestamp < until are printed. Reading cannot
stop at the first record past `until`, since an earlier one may follow. If the broker searches the topic by append time,
which need not be in the records, the range is everything from the broker's answer for `since` to that for `until`.
"""

import re
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from tidelog.cli import completion, formats
from tidelog.cli.arguments import (
    TIME_HELP,
    Integer,
    Spelled,
    bootstrap_option,
    is_match,
    is_pattern,
    partitions_option,
    utf8,
)
from tidelog.cli.connect import (
    connected,
    find_all_offsets,
    find_offsets,
    lookup_clock,
    partitions_of,
    unread_words,
)
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, INTERRUPTED, OK, UNREACHABLE, USAGE
from tidelog.cli.output import progress
from tidelog.cli.text import called, counted, examples, note, shortened, shown
from tidelog.cli.time_options import now_ms, time_ms
from tidelog.config import times
from tidelog.config.kinds import INT_MAX

if TYPE_CHECKING:
    from tidelog.client.cluster import Cluster, Partition
    from tidelog.client.fetching import Polled, Read, Record

    Places = Mapping[Partition | int | None, int]

WAIT_MS: Final = 250
# A partition that is ahead of the others by this many records waits for them.
QUEUE_MAX_RECORDS: Final = 10_000
STALLED_S: Final = 30
# How often `--follow` looks for new partitions.
LOOK_S: Final = 5.0


@click.command(
    "tail",
    epilog=examples(
        "tidelog tail orders --follow",
        "tidelog tail orders -n 10 --json",
        "tidelog tail 'orders-*' --since 1h --grep error",
    ),
)
@click.argument(
    "topics",
    nargs=-1,
    required=True,
    metavar="TOPIC...",
    callback=utf8,
    shell_complete=completion.topics,
    help="Names, or patterns such as 'orders-*'.",
)
@partitions_option
@click.option("--since", metavar="TIME", help=f"{TIME_HELP}. Default: the start; with --follow, the end.")
@click.option(
    "--offset",
    "offsets",
    metavar="OFFSET",
    multiple=True,
    help="Start at offset N of partition P (P:N; may be repeated), at offset N of one --partition, or N offsets before "
    "the end of each (-N).",
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
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--last", "-n", type=Integer(1, INT_MAX), metavar="N", help="Print only the last N records.")
@click.option("--first", cls=Spelled, old=("--limit",), type=Integer(1), help="Stop after N records.")
@click.option("--key", metavar="KEY", callback=utf8, help="Print only records with this key.")
@click.option("--grep", metavar="REGEX", help="Print only records with a key, value or header that matches.")
@click.option("--count", is_flag=True, help="Print only the number of records.")
@bootstrap_option
def tail(
    topics: Sequence[str],
    partitions: Sequence[int],
    since: str | None,
    offsets: Sequence[str],
    until: str | None,
    follow: bool,
    format_name: str,
    as_json: bool,
    last: int | None,
    first: int | None,
    key: str | None,
    grep: str | None,
    count: bool,
    bootstrap: str,
) -> int:
    """Print the records of topics, partitions merged by time. Each partition is in the order of offsets.

    A TOPIC can be a pattern such as 'orders-*'. A range of times is exact even if records are out of order: each
    partition is read from its first record at or after --since to its end, and records with since <= timestamp < until
    are printed. With lookup.clock=append, the records appended at or after --since and before --until are printed.
    """
    places = _places(offsets, partitions)
    if places and since is not None:
        raise CommandError("--offset and --since cannot be combined", USAGE)
    if first is not None and last is not None:
        raise CommandError("--first and --last cannot be combined", USAGE)
    if count and follow and until is None:
        raise CommandError("--count with --follow needs --until", USAGE)
    at_ms = now_ms()
    since_ms = None if since is None else time_ms("--since", since, at_ms)
    until_ms = None if until is None else time_ms("--until", until, at_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        since_shown, until_shown = times.show(since_ms), times.show(until_ms)
        raise CommandError(
            f"--since {since} is later than --until {until}: {since_shown} is after {until_shown}", USAGE
        )
    several = len(topics) > 1 or is_pattern(topics[0])
    format_name = "json" if as_json else format_name
    write = formats.choose(format_name, names_topic=several)
    matches = _matcher(key, grep)
    read = None if matches is not None else formats.line_reader(format_name, write, names_topic=several)
    if since_ms is not None and since_ms > at_ms:
        note(f"--since {since} is in the future, {times.show(since_ms)}: earlier records are not printed")
    readers: list[Reader] = []
    is_whole = False
    output = _Output(write if read is None else attrgetter("text"), matches, first, count)
    with suppress(KeyboardInterrupt), connected(bootstrap) as cluster:
        chosen = _chosen(cluster, topics, partitions or [each for each in places if isinstance(each, int)])
        by_append = False
        if since_ms is not None or until_ms is not None:
            by_append = _is_by_append(cluster, chosen, since_ms or until_ms or 0)
        span = Span(since_ms, until_ms, by_append, places, follow)
        with progress(f"tail {' '.join(topics)}", beside_output=True) as advance:
            ends = None
            if last is not None:
                readers.append(_print_last(cluster, chosen, span, last, output, advance, read))
                ends = readers[0].ends
            if last is None or follow:
                listed = None if partitions or places else lambda: _chosen(cluster, topics, ())
                readers.append(
                    Reader(cluster, list(ends or chosen), span, starts=ends, listed=listed, read=read)
                )
                # After the ends are known: records that are appended from here on are printed.
                if follow and (until_ms is None or until_ms > at_ms):
                    note(
                        f"following {shown(' '.join(topics))} {_from_where(since_ms, last, places)}; Ctrl-C ends it"
                    )
                _print(readers[-1], span, output, advance)
        is_whole = True
    if count and not is_whole:
        raise CommandError(f"stopped by Ctrl-C, after {counted(output.count, 'record')}", INTERRUPTED)
    output.end()
    return FAILED if any(reader.damaged for reader in readers) else OK


def _from_where(since_ms: int | None, last: int | None, places: "Places") -> str:
    if since_ms is not None:
        return f"from {times.show(since_ms)}"
    if last is not None:
        return f"from the last {counted(last, 'record')}"
    return "from the given offset" if places else "from the end"


def _places(texts: Sequence[str], partitions: Sequence[int]) -> "dict[Partition | int | None, int]":
    """Return where to start, by partition: an offset, or a negative distance from the end; None is each partition."""
    places: dict[Partition | int | None, int] = {}
    for text in texts:
        found = re.fullmatch(r"(?:([0-9]{1,10}):)?(-?[0-9]{1,19})", text)
        if found is None:
            raise CommandError(f"--offset {shown(text)}: write N, P:N or -N, such as 100, 0:100 or -5", USAGE)
        number, offset = found[1], int(found[2])
        if number is None and offset >= 0 and len(partitions) != 1:
            raise CommandError(
                f"--offset {text} needs exactly one --partition, or write it as P:{text}", USAGE
            )
        if number is not None and partitions:
            raise CommandError(f"--offset {text} and --partition cannot be combined", USAGE)
        key = None if number is None else int(number)
        if key in places:
            of = "each partition" if key is None else f"partition {key}"
            raise CommandError(f"--offset {text}: {of} has --offset {places[key]} already", USAGE)
        places[key] = offset
    if None in places and len(places) > 1:
        raise CommandError("--offset P:N cannot be combined with an --offset for all partitions", USAGE)
    return places


def _chosen(cluster: "Cluster", topics: Sequence[str], partitions: Sequence[int]) -> "list[Partition]":
    """Return the partitions to read; CommandError if a topic or a partition does not exist."""
    names = {topic for topic in topics if not is_pattern(topic)}
    if len(names) < len(topics):
        there = [topic.name for topic in cluster.topics() if not topic.is_internal]
        matching = {name for name in there if any(is_match(name, topic) for topic in topics)}
        if not names | matching:
            raise CommandError(
                f"no topic matches {shown(' '.join(topics))}; {called()} topics list shows all topics"
            )
        names |= matching
    return [key for name in sorted(names) for key in partitions_of(cluster, name, partitions)]


def _is_by_append(cluster: "Cluster", chosen: "Sequence[Partition]", at_ms: int) -> bool:
    """Return whether times are append times; CommandError for topics that differ, or have no timestamps."""
    firsts = {key.topic: key for key in reversed(chosen)}
    clocks = {topic: lookup_clock(cluster, topic) for topic in firsts}
    if len(set(clocks.values())) > 1:
        shown_clocks = ", ".join(f"{topic} by {clock}" for topic, clock in sorted(clocks.items()))
        raise CommandError(f"topics differ in lookup.clock ({shown_clocks}): read them one by one")
    by_append = "append" in clocks.values()
    if not by_append:
        find_offsets(cluster, dict.fromkeys(firsts.values(), at_ms))
    return by_append


def _matcher(key: str | None, grep: str | None) -> "Callable[[Record], bool] | None":
    """Return which records to print; None for all. CommandError for a bad expression."""
    if key is None and grep is None:
        return None
    wanted = None if key is None else key.encode()
    expression = None if grep is None else _expression(grep)

    def matches(record: "Record") -> bool:
        if wanted is not None and record.key != wanted:
            return False
        if expression is None:
            return True
        parts = [record.key, record.value]
        for name, data in record.headers:
            parts += [name.encode(), data]
        return any(
            part is not None and expression.search(part.decode("utf-8", "surrogateescape")) for part in parts
        )

    return matches


def _expression(grep: str) -> re.Pattern[str]:
    """Compile a regular expression for text with surrogates for bytes that are not UTF-8; CommandError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may mean something else in a later Python
            return re.compile(grep)
    except (re.error, OverflowError) as error:
        why = str(error)
    except RecursionError:
        why = "too deeply nested"
    raise CommandError(f"--grep {shown(shortened(grep))}: {why}", USAGE)


class Span(NamedTuple):
    """The records to read: from a time or an offset, up to a time, by one of the clocks.

    By default they start at the start of the partition, or with `follow` at its end. `places` has offsets to start at
    by partition or its number, None for all, and negative ones count from the end.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    by_append: bool = False
    places: "Places" = MappingProxyType({})
    follow: bool = False

    @property
    def has_all(self) -> bool:
        """Whether every record that is read is in the span."""
        return self.by_append or (not self.since_ms and self.until_ms is None)

    def has(self, timestamp: int) -> bool:
        """Return whether a record is in the span, by its timestamp."""
        # A record without a timestamp (-1) is only in a span without bounds.
        return self.has_all or (
            (self.since_ms or 0) <= timestamp and (self.until_ms is None or timestamp < self.until_ms)
        )


class _Output:
    """Prints the records that match: all, or the first of them, or only their number."""

    def __init__(
        self,
        write: Callable[[Any], bytes],
        matches: "Callable[[Record], bool] | None" = None,
        first: int | None = None,
        counts: bool = False,
    ) -> None:
        self.is_done = False
        self.count = 0
        self.matches = matches
        self._write = write
        self._first = first
        self._counts = counts

    def chosen(self, span: Span, records: list[Any]) -> list[Any]:
        """Return the records that are in a span and match."""
        if not span.has_all:
            records = [record for record in records if span.has(record.timestamp)]
        return records if self.matches is None else list(filter(self.matches, records))

    def take(self, records: list[Any]) -> None:
        """Print or count records."""
        if self._first is not None:
            records = records[: self._first - self.count]
        self.count += len(records)
        self.is_done = self.count == self._first
        if not self._counts:
            out = sys.stdout.buffer
            out.write(b"".join(map(self._write, records)))
            out.flush()

    def end(self) -> None:
        """Print the number of records, if nothing else is printed."""
        if self._counts:
            print(self.count)


def _print(reader: "Reader", span: Span, output: _Output, advance: Callable[[int], object]) -> None:
    for records in reader.read():
        chosen = output.chosen(span, records)
        output.take(chosen)
        advance(len(chosen))
        if output.is_done:
            return


def _print_last(
    cluster: "Cluster",
    chosen: "Sequence[Partition]",
    span: Span,
    count: int,
    output: _Output,
    advance: Callable[[int], object],
    read: "Read[Any] | None" = None,
) -> "Reader":
    """Print the last records of a span, and return the reader that found them.

    Offsets may be missing, so reading of each partition begins further and further before the end until it has given
    enough records. Those of another partition do not stand in for them: they may be older.
    """
    distances: dict[Partition | int | None, int] = dict.fromkeys(chosen, -count)
    begins_at_start = not span.has_all or bool(span.places) or output.matches is not None
    noted: set[Partition] = set()
    while True:
        places: Places = span.places if begins_at_start else distances
        reader = Reader(cluster, chosen, span._replace(follow=False, places=places), noted=noted, read=read)
        last: deque[Any] = deque(maxlen=count)
        for records in reader.read():
            last += output.chosen(span, records)
        lacking = [key for key in reader.partial if reader.given[key] < count]
        if begins_at_start or not lacking:
            break
        for key in lacking:
            distances[key] *= 8
    output.take(list(last))
    advance(len(last))
    return reader


class _Partition:
    """A partition: its records that are not printed yet, and how far to read it."""

    __slots__ = ("end", "key", "next_offset", "queue")

    def __init__(self, key: "Partition", next_offset: int, end: int) -> None:
        self.key = key
        self.next_offset = next_offset
        self.end = end
        self.queue: deque[Any] = deque()

    @property
    def is_behind(self) -> bool:
        return self.next_offset < self.end


class Reader:
    """Reads and merges some partitions of a topic; with `follow`, until `until` has passed.

    `damaged` has the partitions that are not read to their end because the broker cannot read them.
    """

    def __init__(
        self,
        cluster: "Cluster",
        chosen: "Sequence[Partition]",
        span: Span,
        now: Callable[[], int] = now_ms,
        starts: "Mapping[Partition, int] | None" = None,
        noted: "set[Partition] | None" = None,
        listed: "Callable[[], Sequence[Partition]] | None" = None,
        read: "Read[Any] | None" = None,
    ) -> None:
        """Find where the span starts and ends in each partition; with `starts`, where it ends.

        Partitions in `noted` were named on standard error before as not read to their end. `listed` returns the
        partitions that exist: while it follows, new ones are read from their start. With `read`, its results take the
        place of records: they have an offset and a timestamp.
        """
        from tidelog.client import fetching

        self.damaged: list[Partition] = []
        self.given: Counter[Partition] = Counter()  # how many records came of each partition
        self._read = fetching.records if read is None else read
        self._cluster = cluster
        self._span = span
        self._follow = span.follow
        self._now_ms = now
        self._listed = listed
        self._looks_at = time.monotonic() + LOOK_S
        self._refused: set[Partition] = set()
        self._noted: set[Partition] = set()
        self._noted_damaged = set() if noted is None else noted
        ends, unread = self._ends(chosen)
        if unread:
            self.damaged += unread
            if not self._noted_damaged.issuperset(unread):
                note(f"not read: {unread_words(unread)}")
            self._noted_damaged.update(unread)
        self.partial: list[Partition] = []  # the partitions that are not read from their start
        starts = self._starts(ends) if starts is None else starts
        ends = self._before_until(ends)
        self.ends = ends
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
        places = self._span.places
        if not places and self._follow:
            return ends
        starts = find_all_offsets(self._cluster, dict.fromkeys(ends, EARLIEST))
        return {key: self._place(key, start.offset, ends[key]) for key, start in starts.items()}

    def _place(self, key: "Partition", start: int, end: int) -> int:
        """Return where to begin in a partition that starts and ends at these offsets."""
        places = self._span.places
        offset = places.get(key, places.get(key.partition, places.get(None, start)))
        if offset < 0:
            offset = max(start, end + offset)
        if not start <= offset <= end:
            raise CommandError(
                f"--offset {offset}: partition {key.partition} of {key.topic} starts at {start} and ends before {end}"
            )
        if offset > start:
            self.partial.append(key)
        return offset

    def _at(self, at_ms: int, ends: "dict[Partition, int]") -> "dict[Partition, int]":
        """Return the first offset at or after a time, or the end if there is none yet."""
        found = find_all_offsets(self._cluster, dict.fromkeys(ends, at_ms))
        return {key: end if found[key].offset < 0 else found[key].offset for key, end in ends.items()}

    def _before_until(self, ends: "dict[Partition, int]") -> "dict[Partition, int]":
        """Return where the span ends in partitions with these ends."""
        if self._span.by_append and self._span.until_ms is not None:
            return self._at(self._span.until_ms, ends)
        return ends

    def read(self) -> Iterator[list[Any]]:
        """Yield lists of records in order; with `follow`, without end."""
        last_news = time.monotonic()
        while True:
            behind = [part for part in self._partitions if part.is_behind]
            if not behind and (not self._follow or len(self.damaged) >= len(self._partitions)):
                return
            if self._follow and self._listed is not None and time.monotonic() >= self._looks_at:
                self._add(self._listed)
                self._looks_at = time.monotonic() + LOOK_S
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

    def _add(self, listed: "Callable[[], Sequence[Partition]]") -> None:
        """Follow the partitions that were added, from their start."""
        from tidelog.client.errors import ClientError
        from tidelog.client.offsets import EARLIEST

        known = {part.key for part in self._partitions}.union(self.damaged)
        # A topic may be gone, or the broker: `_poll` tells.
        with suppress(CommandError, ClientError):
            new = [key for key in listed() if key not in known]
            found = find_offsets(self._cluster, dict.fromkeys(new, EARLIEST))[0] if new else {}
            for key, start in found.items():
                note(f"following {key} too, which is new")
                self._partitions.append(_Partition(key, start.offset, start.offset))

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
        from tidelog.client.fetching import poll_as

        wanted = {
            part.key: part.next_offset
            for part in self._partitions
            if (part.is_behind or (self._follow and part.key not in self.damaged))
            and (len(part.queue) < QUEUE_MAX_RECORDS or len(self._partitions) == 1)
        }
        try:
            answers = poll_as(self._cluster, wanted, WAIT_MS, self._read)
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

    def _take(self, part: _Partition, answer: "Polled[Any]") -> bool:
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
        if not self._follow and answer.next_offset > part.end:
            records = [record for record in records if record.offset < part.end]
        part.queue += records
        self.given[part.key] += len(records)
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
        if key in self._noted_damaged:
            return
        self._noted_damaged.add(key)
        note(
            f"partition {key.partition} of {key.topic} is damaged at offset {offset}, and is not read further; "
            f"{called()} fsck on the broker's data folder shows where the damage ends, and so does the broker's log "
            f"once the broker has found it: continue there with --partition {key.partition} --offset N"
        )

    def _merge(self) -> list[Any]:
        """Take the records that no record still to come can precede."""
        records: list[Any] = []
        if any(not part.queue and part.is_behind for part in self._partitions):
            return records
        waiting = [part for part in self._partitions if part.queue]
        if len(waiting) == 1:
            records += waiting[0].queue
            waiting[0].queue.clear()
            return records
        heap = [(part.queue[0].timestamp, part.key, part) for part in waiting]
        heapify(heap)
        while heap:
            _, key, part = heap[0]
            records.append(part.queue.popleft())
            if part.queue:
                heapreplace(heap, (part.queue[0].timestamp, key, part))
                continue
            heappop(heap)
            if part.is_behind:
                break
        return records
