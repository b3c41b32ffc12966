"""A scrape: what is known of the broker now, as text.

What belongs to the event loop is copied there, in one go: some counters, and the tuple of topics. The rest is read on a
reader thread, in steps, from what any thread may read, as Metadata does. Nothing here changes what it looks at.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from prometheus_client import ProcessCollector, generate_latest

import tidelog
from tidelog.broker.broker import Broker
from tidelog.broker.metrics import table
from tidelog.broker.metrics.exposition import Sample, heading, histogram, labels, lines, text
from tidelog.broker.metrics.looks import Look, Looks
from tidelog.broker.metrics.table import Metric
from tidelog.broker.tallies import BOUNDS_S, Net, Tallies
from tidelog.broker.topics import Topic
from tidelog.broker.work import SHORT, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage.log import Log
from tidelog.storage.search.by_time import APPEND_TIME
from tidelog.storage.search.lag import lag_ms, latency_ms, times_of
from tidelog.storage.sources import WAITING

# Beyond these an answer would be megabytes: it says less of each then.
MOST_PARTITIONS = 5_000
MOST_TOPICS = 5_000
MOST_LAGS = 5_000
# A group's name may have 32 KiB, and is in two lines for each partition: longer than a topic's they are left out.
MOST_GROUP_NAME = 249
# How long a scrape looks for delays, and as long for lags.
LOOKS_S = 0.25
# Of logs, 2 us each and more where they have many segments; of lines, less than one.
STEP_LOGS = 250
STEP_COMPACTED = 25
STEP_LINES = 2_000


class _Api(NamedTuple):
    name: str
    requests: int
    received_bytes: int
    sent_bytes: int
    counts: Sequence[int]
    sum_s: float


class _Seen(NamedTuple):
    """Copies of what belongs to the event loop."""

    net: Net
    apis: list[_Api]
    waiting: int
    held: dict[str, tuple[int, int]]
    topics: tuple[Topic, ...]
    committed: Sequence[tuple[str, str, int, int]]  # group, topic, partition, offset
    uncounted: int  # that were committed beside these


class _Totals:
    """Sums over all logs."""

    def __init__(self) -> None:
        self.partitions = self.segments = self.size_bytes = 0
        self.damaged_ranges = self.damaged_bytes = self.refusing = 0
        self.dirty_ratio = 0.0  # the largest


class Collector:
    """Makes scrapes, one at a time."""

    def __init__(self, broker: Broker, tallies: Tallies, net: Callable[[], Net]) -> None:
        self._broker = broker
        self._tallies = tallies
        self._net = net
        self._delays = Looks(LOOKS_S)
        self._lags = Looks(LOOKS_S)
        self._process = ProcessCollector(registry=None)

    async def scrape(self) -> list[bytes]:
        """Return the text in pieces. To be begun on the event loop."""
        seen = self._look()
        await reader(SHORT)
        pieces = ["".join(self._counted(seen))]
        steps = self._of_logs(seen)
        for piece in steps:
            pieces.append(piece)
            await reader(SHORT)
        pieces += await self._of_looks(seen)
        return [*(piece.encode() for piece in pieces), generate_latest(self._process)]

    # -- the event loop ----------------------------------------------------------------------------------------

    def _look(self) -> _Seen:
        broker = self._broker
        apis = [
            _Api(
                name,
                each.requests,
                each.received_bytes,
                each.sent_bytes,
                each.times.counts[:],
                each.times.sum_s,
            )
            for name, each in self._tallies.by_name()
        ]
        net, producers = self._net(), broker.logs.shared.producers
        held = {
            "requests": (net.request_bytes, broker.config.queued_max_request_bytes),
            "producers": (producers.held_bytes, producers.limit_bytes),
        }
        for kind, quota in (
            ("topics", broker.queued_topics),
            ("fetches", broker.queued_fetches),
            ("answers", broker.queued_answers),
        ):
            held[kind] = quota.total_bytes, quota.limit_bytes
        held["fetch_sessions"] = broker.fetch_sessions.held_bytes, broker.config.fetch_session_max_bytes
        held["groups"] = broker.groups.memory.held_bytes, broker.config.group_state_max_bytes
        committed = list(islice(broker.groups.all_committed(), MOST_LAGS))
        uncounted = broker.groups.committed_count - MOST_LAGS if len(committed) == MOST_LAGS else 0
        return _Seen(net, apis, len(broker.parked), held, broker.topics.all(), committed, max(0, uncounted))

    # -- a reader thread -----------------------------------------------------------------------------------------

    def _counted(self, seen: _Seen) -> Iterator[str]:
        """Yield what needs no look at a log."""
        broker, net = self._broker, seen.net
        tally, disk = broker.logs.shared.tally, broker.logs.disk
        ours = tidelog.__version__, broker.cluster_id, broker.node_id
        yield text(table.INFO, [(labels(table.INFO.labels, ours), 1)])
        yield from self._requests(seen.apis)
        for metric, value in (
            (table.BAD_REQUESTS, net.bad_requests),
            (table.CONNECTIONS, net.connections),
            (table.CONNECTIONS_MAX, net.connections_max),
            (table.ACCEPTED, net.admitted),
            (table.REFUSED, net.refused),
            (table.WAITERS, seen.waiting),
            (table.DELETED_SEGMENTS, tally.deleted_segments),
            (table.DELETED_BYTES, tally.deleted_bytes),
            (table.RECOVERY_SECONDS, tally.open_s),
            (table.RECOVERY_READ, tally.read_bytes),
            (table.RECOVERY_CUT, tally.cut_bytes),
            (table.DISK_FULL, int(disk.is_full)),
        ):
            yield text(metric, [("", value)])
        yield from self._of_cleaners()
        for metric, number in ((table.HELD, 0), (table.HELD_MAX, 1)):
            yield text(
                metric, [(labels(metric.labels, [kind]), of[number]) for kind, of in seen.held.items()]
            )

    def _of_cleaners(self) -> Iterator[str]:
        cleaners, now_ms = self._broker.cleaners, self._broker.clock.monotonic_ms()
        done, failing = cleaners.figures(), cleaners.failing()
        counts: tuple[tuple[Metric, Mapping[str, float]], ...] = (
            (table.PASSES, done.passes),
            (table.PASS_SECONDS, done.seconds),
        )
        for metric, by_outcome in counts:
            yield text(metric, [(labels(metric.labels, [name]), of) for name, of in by_outcome.items()])
        for metric, value in (
            (table.PASSES_UNDER_WAY, done.under_way),
            (table.CLEANED_READ, done.read_bytes),
            (table.CLEANED_WRITTEN, done.written_bytes),
            (table.CLEANED_RECORDS, done.records_dropped),
            (table.CLEANED_TOMBSTONES, done.tombstones_dropped),
            (table.FAILING, len(failing)),
        ):
            yield text(metric, [("", value)])
        if done.began_ms is not None:
            yield text(table.PASS_AGE, [("", (now_ms - done.began_ms) / 1000)])
        names = table.FAILING_PARTITION.labels
        named = [(labels(names, (log.topic, log.partition)), 1) for log, _ in failing[:MOST_PARTITIONS]]
        yield from _in_steps(table.FAILING_PARTITION, named)

    def _requests(self, apis: list[_Api]) -> Iterator[str]:
        named = [(labels(("api",), [api.name]), api) for api in apis]
        yield text(table.REQUESTS, [(label, api.requests) for label, api in named])
        yield text(table.REQUEST_BYTES, [(label, api.received_bytes) for label, api in named])
        yield text(table.RESPONSE_BYTES, [(label, api.sent_bytes) for label, api in named])
        errors = sorted(self._tallies.errors().items())
        yield text(
            table.ERRORS,
            [(labels(table.ERRORS.labels, (api, ErrorCode(code).name)), n) for (api, code), n in errors],
        )
        yield histogram(table.LATENCY, BOUNDS_S, [((api.name,), api.counts, api.sum_s) for api in apis])
        commits = self._tallies.commits
        yield histogram(table.COMMITS, BOUNDS_S, [((), commits.counts[:], commits.sum_s)])

    def _of_logs(self, seen: _Seen) -> Iterator[str]:
        """Yield what the logs say, and nothing between steps."""
        totals, topics, now_ms = _Totals(), seen.topics, self._broker.clock.now_ms()
        tells_partitions = sum(len(topic.partitions) for topic in topics) <= MOST_PARTITIONS
        of_topics: dict[Metric, list[Sample]] = {}
        of_partitions: dict[Metric, list[Sample]] = {}
        for topic in topics:
            records = segments = size_bytes = 0
            for partition in topic.partitions:
                log, before = partition.log, totals.size_bytes
                if totals.partitions % (STEP_COMPACTED if topic.config.compacts else STEP_LOGS) == 0:
                    yield ""
                segments += _add(totals, log)
                if topic.config.compacts:
                    totals.dirty_ratio = max(totals.dirty_ratio, self._broker.dirty_ratio(log, now_ms))
                log_bytes = totals.size_bytes - before
                size_bytes += log_bytes
                records += log.log_end_offset
                if tells_partitions:
                    label = labels(table.END_OFFSET.labels, (topic.name, partition.index))
                    for metric, value in (
                        (table.START_OFFSET, log.log_start_offset),
                        (table.END_OFFSET, log.log_end_offset),
                        (table.PARTITION_BYTES, log_bytes),
                    ):
                        of_partitions.setdefault(metric, []).append((label, value))
            if len(topics) <= MOST_TOPICS:
                label = labels(("topic",), [topic.name])
                for metric, value in (
                    (table.TOPIC_PARTITIONS, len(topic.partitions)),
                    (table.TOPIC_RECORDS, records),
                    (table.TOPIC_SEGMENTS, segments),
                    (table.TOPIC_BYTES, size_bytes),
                ):
                    of_topics.setdefault(metric, []).append((label, value))
        for metric, value in (
            (table.TOPICS, len(topics)),
            (table.PARTITIONS, totals.partitions),
            (table.SEGMENTS, totals.segments),
            (table.LOG_BYTES, totals.size_bytes),
            (table.DAMAGED_RANGES, totals.damaged_ranges),
            (table.DAMAGED_BYTES, totals.damaged_bytes),
            (table.REFUSING, totals.refusing),
        ):
            yield text(metric, [("", value)])
        yield text(table.DIRTY_MAX, [("", totals.dirty_ratio)])
        for metric, samples in (*of_topics.items(), *of_partitions.items()):
            yield from _in_steps(metric, samples)

    async def _of_looks(self, seen: _Seen) -> list[str]:
        """Return what takes a look into the logs."""
        named = {topic.name: topic for topic in seen.topics}
        logs = [(topic, partition) for topic in seen.topics for partition in topic.partitions]
        if len(logs) > MOST_PARTITIONS:
            logs = []
        wanted = [
            Look((topic.id, partition.index), _bounds(partition.log), partial(_delay_s, partition.log))
            for topic, partition in logs
        ]
        delays = await self._delays.look(wanted)
        names = table.APPEND_DELAY.labels
        samples = [
            (labels(names, (topic.name, partition.index)), delay)
            for (topic, partition), delay in zip(logs, delays, strict=True)
            if delay is not None
        ]
        pieces = list(_in_steps(table.APPEND_DELAY, samples))
        lags: list[Look] = []
        behind: list[Sample] = []
        past_end: list[Sample] = []
        left_out = seen.uncounted
        for group, name, index, offset in seen.committed:
            if len(group) > MOST_GROUP_NAME:
                left_out += 1
                continue
            topic = named.get(name)
            partition = topic.partition(index) if topic is not None else None
            if topic is not None and partition is not None:
                log = partition.log
                start, end = bounds = _bounds(log)
                label = labels(table.LAG_RECORDS.labels, (group, name, index))
                if offset > end:
                    past_end.append((label, offset - end))
                    continue
                lags.append(Look((group, topic.id, index), (offset, bounds), partial(_lag_s, log, offset)))
                behind.append((label, end - max(offset, start)))
        late = await self._lags.look(lags)
        await reader(SHORT)
        pieces += _in_steps(table.LAG_RECORDS, behind)
        found = [(label, lag) for (label, _), lag in zip(behind, late, strict=True) if lag is not None]
        pieces += _in_steps(table.LAG_SECONDS, found)
        pieces += _in_steps(table.PAST_END, past_end)
        pieces.append(text(table.LAGS_LEFT_OUT, [("", left_out)]))
        return pieces


def _add(totals: _Totals, log: Log) -> int:
    """Add one log to the sums; return how many segments it has."""
    segments = log.segments
    totals.partitions += 1
    totals.segments += len(segments)
    for segment in segments:
        totals.size_bytes += segment.size
        if damage := segment.summary.damage:
            totals.damaged_ranges += len(damage)
            totals.damaged_bytes += sum(each.end - each.start for each in damage)
    totals.refusing += not log.takes_writes
    return len(segments)


def _in_steps(metric: Metric, samples: Sequence[Sample]) -> Iterator[str]:
    """Yield a metric with many samples, some lines at a time."""
    for first in range(0, len(samples), STEP_LINES):
        body = "".join(lines(metric, samples[first : first + STEP_LINES]))
        yield body if first else heading(metric) + body


def _bounds(log: Log) -> tuple[int, int]:
    """Return where a log begins and ends: either may change what is found in it."""
    return log.log_start_offset, log.log_end_offset


def _delay_s(log: Log) -> float | None:
    """Return how long after it was made the last record of a log was appended."""
    times = times_of(log, log.log_end_offset - 1, WAITING)
    delay_ms = None if times is None else latency_ms(times)
    return None if delay_ms is None else delay_ms / 1000


def _lag_s(log: Log, offset: int) -> float | None:
    found_ms = lag_ms(log, offset, APPEND_TIME, WAITING)
    return None if found_ms is None else found_ms / 1000
