"""Reading a topic from a broker: options become pieces, which are ranges of offsets, and a piece becomes Arrow batches.

A lookup by time gives the first record at or after a time, so it bounds only the start of a range. After it, times are
in any order: each record is tested. The protocol carries append times only for topics with
`message.timestamp.type=LogAppendTime`; for others, `append_time` is null.

Compaction may run during a read. It removes the last record of a key before the planned end if a record after the
planned end supersedes it; the protocol cannot pin records. So a batch read of a compacted topic reads each partition
in one task, in order, and past the planned end until it has caught up with the log. The last record of a key is never
removed, so such a read finds a record of every key. Streams need none of this: a later batch has the newer record.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from tidelog.client.admin import topic_options
from tidelog.client.cluster import Cluster, Partition, Topic
from tidelog.client.fetching import (
    LEAST_BYTES,
    RECORD_BYTES,
    Fetched,
    Fetcher,
    fetched,
    whole_entries,
)
from tidelog.client.groups import commit as commit_offsets
from tidelog.client.offsets import EARLIEST, LATEST, offsets_of
from tidelog.pipeline import quarantine
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.decode import Decoder, Window
from tidelog.pipeline.errors import DamagedLog, PipelineError, WrongOption
from tidelog.pipeline.options import APPEND, FAIL, QUARANTINE, RECORDS_TABLE, Options
from tidelog.pipeline.ranges import TopicOffsets, chosen_partitions, window_of
from tidelog.protocol.records import entries
from tidelog.protocol.records.batch import NO_TIMESTAMP, BatchHeader
from tidelog.protocol.records.errors import RecordError, RecordsError

# A piece has at least and at most so many records, whatever their size.
_LEAST_RECORDS, _MOST_RECORDS = 10_000, 1_000_000
_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """The offsets of a window in one partition.

    `end` is the end of the window or of the log, whichever came first at the plan. If the window ends later, the read
    goes on as the log grows.
    """

    of: Partition
    window: Window
    record_bytes: int  # estimated size of one record
    end: int

    @property
    def size_bytes(self) -> int:
        """The estimated size of the piece."""
        return (self.end - self.window.start) * self.record_bytes


def plan(chosen: Options, now_ms: int) -> list[Piece]:  # noqa: ARG001  (the log has the times)
    """Return pieces that contain every requested record, by partition and offset."""
    if chosen.table != RECORDS_TABLE:
        raise WrongOption(
            f"option table: a broker gives records; {chosen.table} are read from segments:FOLDER"
        )
    with connected(chosen.place) as cluster:
        topic = cluster.topic(chosen.topic)
        window = window_of(chosen)
        partitions = chosen_partitions(chosen, list(topic.leaders))
        ranges = dict.fromkeys(partitions, (window.start, window.end))
        return list(_pieces(cluster, topic, chosen, window, ranges, _is_compacted(cluster, topic.name)))


def between(chosen: Options, ranges: Mapping[int, tuple[int, int]], now_ms: int) -> list[Piece]:  # noqa: ARG001
    """Return pieces that contain the requested records in a range of offsets for each partition."""
    with connected(chosen.place) as cluster:
        topic = cluster.topic(chosen.topic)
        return list(_pieces(cluster, topic, chosen, window_of(chosen), ranges))


def _in_digits(found: bytes) -> str:
    return found.hex() if any(found) else ""


def topic_offsets(chosen: Options, now_ms: int) -> TopicOffsets:  # noqa: ARG001
    """Return the current start and end of each requested partition."""
    with connected(chosen.place) as cluster:
        topic = cluster.topic(chosen.topic)
        partitions = chosen_partitions(chosen, list(topic.leaders))
        starts = offsets_of(cluster, topic.name, dict.fromkeys(partitions, EARLIEST))
        ends = offsets_of(cluster, topic.name, dict.fromkeys(partitions, LATEST))
        return TopicOffsets(
            _in_digits(topic.topic_id), {each: (starts[each], ends[each]) for each in partitions}
        )


def first_offsets(chosen: Options, found: TopicOffsets, now_ms: int) -> dict[int, int]:  # noqa: ARG001
    """Return the offset in each partition from which on all records of option `from` and later lie."""
    with connected(chosen.place) as cluster:
        window = window_of(chosen)
        topic = cluster.topic(chosen.topic)
        times = _times_of(
            cluster, topic.name, chosen, window, {each: end for each, (_, end) in found.spans.items()}
        )
        return {each: max(start, times.get(each, start)) for each, (start, _) in found.spans.items()}


def demand_append_time(chosen: Options) -> None:
    """Raise WrongOption if the topic has records whose append time the protocol does not carry."""
    with connected(chosen.place) as cluster:
        name = cluster.topic(chosen.topic).name
        if topic_options(cluster, name).get("message.timestamp.type") == "CreateTime":
            raise _create_time_only(name)


def commit(chosen: Options, offsets: Mapping[int, int]) -> None:
    """Commit offsets by partition to the consumer group of option `group`."""
    with connected(chosen.place) as cluster:
        commit_offsets(
            cluster, chosen.group, {Partition(chosen.topic, n): each for n, each in offsets.items()}
        )


def rows(piece: Piece, names: Sequence[str], chosen: Options) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece."""
    of, window = piece.of, piece.window
    decoder = Decoder(of.topic, of.partition, names, window)
    checked = _Checked(of, chosen, window)
    with connected(chosen.place) as cluster:
        found = fetched(
            cluster, of, window.start, piece.end, window.end, piece.record_bytes, not chosen.fails_on_loss
        )
        for answer in found:
            if answer.start > checked.next_offset:  # the records in between are lost
                decoder = Decoder(of.topic, of.partition, names, window._replace(start=answer.start))
            for at, header in checked.entries(answer):
                append_ms = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
                try:
                    decoder.add(answer.data, at, header, append_ms)
                except (RecordsError, RecordError) as error:
                    checked.bad(answer, at, header, str(error))
                if decoder.is_full:
                    yield from decoder.take()
            # The rows of one answer share a buffer, so Arrow can use it without a copy.
            yield from decoder.take()


def batches(piece: Piece, chosen: Options) -> Iterator[tuple[memoryview, int, BatchHeader]]:
    """Yield the batches of a piece: the bytes that hold each, its position in them, and its header."""
    of, window = piece.of, piece.window
    checked = _Checked(of, chosen, window)
    with connected(chosen.place) as cluster:
        may_lose = not chosen.fails_on_loss
        for answer in fetched(cluster, of, window.start, piece.end, window.end, piece.record_bytes, may_lose):
            for at, header in checked.entries(answer):
                yield answer.data, at, header


def release(planned: Iterable[Piece]) -> None:
    """Do nothing: a broker holds no resources for a piece."""


class _Checked:
    """Yields the sound entries of a piece, and treats damaged ones as option `bad` says."""

    def __init__(self, of: Partition, chosen: Options, window: Window) -> None:
        self._of = of
        self._window = window
        self._how = chosen.bad
        self.next_offset = window.start
        self._needs_append_time = _needs_append_time(chosen)
        self._handler = quarantine.handler(chosen.bad, chosen.quarantine, of.topic, of.partition)

    def entries(self, answer: Fetched) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each entry that may have rows in the window."""
        for at, header in answer.entries:
            if self.next_offset >= self._window.end:
                return
            if not entries.check_crc(answer.data, at, header):
                self._demand_end(header)
                self.bad(answer, at, header, "the checksum is wrong")
            elif header.last_offset >= self._window.start:
                if self._needs_append_time and not (header.is_log_append_time or header.is_control):
                    raise _no_append_time(f"{self._of}@{header.base_offset} has a create time only")
                yield at, header
            self.next_offset = max(self.next_offset, header.last_offset + 1)

    def bad(self, answer: Fetched, at: int, header: BatchHeader, reason: str) -> None:
        """Treat a damaged entry as option `bad` says."""
        data = bytes(answer.data[at : at + header.size_bytes])
        if self._how == FAIL:
            raise DamagedLog(
                f"{self._of}@{header.base_offset}: {len(data)} bytes that the broker sent are damaged, {reason}; skip "
                f"them with bad=skip, or keep them with bad={QUARANTINE}:FOLDER"
            )
        self._handler(Path(str(self._of)), header.base_offset, quarantine.held(data), reason)

    def _demand_end(self, header: BatchHeader) -> None:
        """Raise DamagedLog if the header of a damaged entry may not give the number of its offsets."""
        follows = header.base_offset <= self.next_offset <= header.last_offset
        if self._how != FAIL and not (follows and header.last_offset_delta == header.record_count - 1):
            raise DamagedLog(
                f"{self._of}@{self.next_offset}: bytes that the broker sent are damaged, and nothing tells where the "
                "next good record is; read the segments on the broker's disk instead (source=segments:FOLDER)"
            )


def _is_compacted(cluster: Cluster, topic: str) -> bool:
    policy = topic_options(cluster, topic).get("cleanup.policy")
    if policy is None:
        _log.warning(
            "the broker does not return cleanup.policy topic=%s; if the topic is compacted while it is read, keys may "
            "be missing from the result: grant DescribeConfigs on the topic",
            topic,
        )
    return "compact" in (policy or "")


def _pieces(
    cluster: Cluster,
    topic: Topic,
    chosen: Options,
    window: Window,
    ranges: Mapping[int, tuple[int, int]],
    reads_on: bool = False,
) -> Iterator[Piece]:
    starts = offsets_of(cluster, topic.name, dict.fromkeys(ranges, EARLIEST))
    ends = offsets_of(cluster, topic.name, dict.fromkeys(ranges, LATEST))
    times = _times_of(cluster, topic.name, chosen, window, ends)
    for partition, (first, end) in ranges.items():
        first = max(first, starts[partition], times.get(partition, 0))
        last, end = end, min(end, ends[partition])
        if first >= end:
            continue
        of = Partition(topic.name, partition, topic.topic_id)
        record_bytes = RECORD_BYTES
        if end - first > _LEAST_RECORDS:
            record_bytes = _record_bytes(cluster, of, first)
        if reads_on:
            yield Piece(of, window._replace(start=first, end=last), record_bytes, end)
            continue
        step = max(_LEAST_RECORDS, min(chosen.task_bytes // record_bytes, _MOST_RECORDS))
        for start in range(first, end, step):
            stop = min(start + step, end)
            yield Piece(of, window._replace(start=start, end=stop), record_bytes, stop)


def _times_of(
    cluster: Cluster, topic: str, chosen: Options, window: Window, ends: Mapping[int, int]
) -> dict[int, int]:
    """Return the first offset of each partition that may have a record in the times of a window.

    Empty if the times exclude nothing. WrongOption for a range of append times if the topic has none.
    """
    needs_append_time = _needs_append_time(chosen)
    if not ends or not (needs_append_time or window.create or window.append):
        return {}
    settings = topic_options(cluster, topic)
    if needs_append_time and settings.get("message.timestamp.type") == "CreateTime":
        raise _create_time_only(topic)
    # With lookup.clock=append our broker looks up append times, which says nothing about create times.
    by_append = settings.get("lookup.clock", "record") == APPEND
    bounds = [window.append] if by_append else [window.create, window.append]
    first = max((each[0] for each in bounds if each is not None), default=0)
    if first <= 1 or not settings:
        return {}
    # Apache Kafka's index may hold the last of several records with the same time. All of them come after any record
    # that is 1 ms older, so look that up.
    found = offsets_of(cluster, topic, dict.fromkeys(ends, first - 1))
    # If there is none, records after the end that was read before may still match.
    return {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}


def _record_bytes(cluster: Cluster, of: Partition, offset: int) -> int:
    """Estimate the size of a record from the first few."""
    answer = Fetcher(cluster, of).fetch(offset, LEAST_BYTES)
    data = memoryview(answer.records or b"")  # type: ignore[arg-type]
    found = whole_entries(of, data, offset)
    if not found.entries:
        return RECORD_BYTES
    first = min(offset, found.entries[0][1].base_offset)
    size = sum(header.size_bytes for _, header in found.entries)
    return max(1, size // (found.next_offset - first))


def _needs_append_time(chosen: Options) -> bool:
    return chosen.clock == APPEND and (chosen.from_ms is not None or chosen.to_ms is not None)


def _create_time_only(topic: str) -> PipelineError:
    return _no_append_time(f"topic {topic} has message.timestamp.type=CreateTime")


def _no_append_time(what: str) -> PipelineError:
    return WrongOption(
        f"option clock=append: {what}, and Kafka's protocol does not tell when its records were appended; read the "
        "segments on the broker's disk instead (source=segments:FOLDER), or use clock=record"
    )
