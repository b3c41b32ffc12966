"""A scrape: the state of the broker now, as text.

What belongs to the event loop is copied there in one go: some counters, and the tuple of topics. The rest is read on a
reader thread, in steps, from what any thread may read. A scrape changes nothing that it reads.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

from prometheus_client import ProcessCollector, generate_latest

import tidelog
from tidelog.broker.broker import Broker
from tidelog.broker.metrics import table
from tidelog.broker.metrics.exposition import Sample, histogram, labels, text
from tidelog.broker.metrics.looks import Look, Looks
from tidelog.broker.metrics.table import Metric
from tidelog.broker.tallies import BOUNDS_S, ApiTally, Net, Tallies
from tidelog.broker.topics import Topic
from tidelog.broker.work import SHORT, reader
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage import files
from tidelog.storage.log import Log
from tidelog.storage.search.by_time import APPEND_TIME
from tidelog.storage.search.lag import lag_ms, latency_ms, times_of
from tidelog.storage.sources import WAITING

# Beyond these bounds an answer would be megabytes, so it says less of each.
MOST_PARTITIONS = 5_000
MOST_TOPICS = 5_000
MOST_LAGS = 5_000
# A group's name may have 32 KiB, and appears in two lines for each partition. Names longer than a topic's are left out.
MOST_GROUP_NAME = 249
# How long a scrape looks for delays, and as long again for lags.
LOOKS_S = 0.25
# Logs per step: 2 us each, and more with many segments. Lines per step: less than 1 us each.
STEP_LOGS = 250
STEP_COMPACTED = 25
STEP_LINES = 2_000


class _Seen(NamedTuple):
    """What is read on the event loop. The counts of an API change meanwhile; the reader thread reads each once."""

    net: Net
    apis: list[tuple[str, ApiTally]]
    waiting: int
    held: dict[str, tuple[int, int]]
    topics: tuple[Topic, ...]
    committed: Sequence[tuple[str, str, int, int]]  # group, topic, partition, offset
    uncounted: int  # committed offsets besides these


class _Samples(defaultdict[Metric, list[Sample]]):
    """The samples of each metric."""

    def __init__(self) -> None:
        super().__init__(list)

    def add(self, metric: Metric, value: float, label: str = "") -> None:
        """Add a sample, with its labels as `exposition.labels` writes them."""
        self[metric].append((label, value))


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
        """Return the text in pieces. Begin it on the event loop."""
        seen = self._look()
        await reader(SHORT)
        samples = _Samples()
        self._of_broker(seen, samples)
        self._of_requests(seen.apis, samples)
        self._of_cleaners(samples)
        for _ in self._of_logs(seen.topics, samples):
            await reader(SHORT)
        await self._of_delays(seen.topics, samples)
        await self._of_lags(seen, samples)
        pieces = [*self._histograms(seen.apis), generate_latest(self._process)]
        for metric in table.METRICS:
            for piece in _in_steps(metric, samples[metric]):
                await reader(SHORT)
                pieces.append(piece)
        return pieces

    # -- the event loop ----------------------------------------------------------------------------------------

    def _look(self) -> _Seen:
        broker = self._broker
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
        apis = list(self._tallies.by_name())
        return _Seen(net, apis, len(broker.parked), held, broker.topics.all(), committed, max(0, uncounted))

    # -- a reader thread -----------------------------------------------------------------------------------------

    def _of_broker(self, seen: _Seen, samples: _Samples) -> None:
        """Add what needs no log."""
        broker, net = self._broker, seen.net
        tally = broker.logs.shared.tally
        ours = tidelog.__version__, broker.cluster_id, broker.node_id
        samples.add(table.INFO, 1, labels(table.INFO.labels, ours))
        samples.add(table.BAD_REQUESTS, net.bad_requests)
        samples.add(table.CONNECTIONS, net.connections)
        samples.add(table.CONNECTIONS_MAX, net.connections_max)
        samples.add(table.ACCEPTED, net.admitted)
        samples.add(table.REFUSED, net.refused)
        samples.add(table.WAITERS, seen.waiting)
        samples.add(table.DELETED_SEGMENTS, tally.deleted_segments)
        samples.add(table.DELETED_BYTES, tally.deleted_bytes)
        samples.add(table.RECOVERY_SECONDS, tally.open_s)
        samples.add(table.RECOVERY_READ, tally.read_bytes)
        samples.add(table.RECOVERY_CUT, tally.cut_bytes)
        samples.add(table.DISK_FULL, int(broker.logs.disk.is_full))
        with suppress(OSError):  # a disk that fails has neither
            size_bytes, free_bytes = files.space_bytes(broker.logs.disk.folder)
            samples.add(table.DISK_BYTES, size_bytes)
            samples.add(table.DISK_FREE, free_bytes)
        for kind, (held_bytes, most_bytes) in seen.held.items():
            label = labels(table.HELD.labels, [kind])
            samples.add(table.HELD, held_bytes, label)
            samples.add(table.HELD_MAX, most_bytes, label)

    def _of_requests(self, apis: list[tuple[str, ApiTally]], samples: _Samples) -> None:
        for name, tally in apis:
            label = labels(table.REQUESTS.labels, [name])
            samples.add(table.REQUESTS, tally.requests, label)
            samples.add(table.REQUEST_BYTES, tally.received_bytes, label)
            samples.add(table.RESPONSE_BYTES, tally.sent_bytes, label)
        for (name, code), count in sorted(self._tallies.errors().items()):
            samples.add(table.ERRORS, count, labels(table.ERRORS.labels, (name, ErrorCode(code).name)))

    def _histograms(self, apis: list[tuple[str, ApiTally]]) -> Iterator[bytes]:
        latencies = [((name,), tally.times) for name, tally in apis]
        for metric, timed in ((table.LATENCY, latencies), (table.COMMITS, [((), self._tallies.commits)])):
            counted = [(names, times.counts[:], times.sum_s) for names, times in timed]
            yield histogram(metric, BOUNDS_S, counted).encode()

    def _of_cleaners(self, samples: _Samples) -> None:
        done, failing = self._broker.cleaners.figures(), self._broker.cleaners.failing()
        for outcome, passes in done.passes.items():
            samples.add(table.PASSES, passes, labels(table.PASSES.labels, [outcome]))
        for outcome, seconds in done.seconds.items():
            samples.add(table.PASS_SECONDS, seconds, labels(table.PASS_SECONDS.labels, [outcome]))
        samples.add(table.PASSES_UNDER_WAY, done.under_way)
        samples.add(table.CLEANED_READ, done.read_bytes)
        samples.add(table.CLEANED_WRITTEN, done.written_bytes)
        samples.add(table.CLEANED_RECORDS, done.records_dropped)
        samples.add(table.CLEANED_TOMBSTONES, done.tombstones_dropped)
        samples.add(table.FAILING, len(failing))
        if done.began_ms is not None:
            samples.add(table.PASS_AGE, (self._broker.clock.monotonic_ms() - done.began_ms) / 1000)
        for log, _ in failing[:MOST_PARTITIONS]:
            label = labels(table.FAILING_PARTITION.labels, (log.topic, log.partition))
            samples.add(table.FAILING_PARTITION, 1, label)

    def _of_logs(self, topics: Sequence[Topic], samples: _Samples) -> Iterator[None]:
        """Add the figures of the logs, in steps."""
        now_ms, dirty_ratio = self._broker.clock.now_ms(), 0.0
        tells_partitions = sum(len(topic.partitions) for topic in topics) <= MOST_PARTITIONS
        totals = Counter(dict.fromkeys(_SUMS, 0))
        for topic in topics:
            of_topic: Counter[Metric] = Counter()
            records = 0
            step_logs = STEP_COMPACTED if topic.config.compacts else STEP_LOGS
            for partition in topic.partitions:
                if (totals[table.PARTITIONS] + of_topic[table.PARTITIONS]) % step_logs == 0:
                    yield
                log = partition.log
                log_bytes = _add(of_topic, log)
                records += log.log_end_offset
                if topic.config.compacts:
                    dirty_ratio = max(dirty_ratio, self._broker.dirty_ratio(log, now_ms))
                if tells_partitions:
                    label = labels(table.END_OFFSET.labels, (topic.name, partition.index))
                    samples.add(table.START_OFFSET, log.log_start_offset, label)
                    samples.add(table.END_OFFSET, log.log_end_offset, label)
                    samples.add(table.PARTITION_BYTES, log_bytes, label)
            totals.update(of_topic)
            if len(topics) <= MOST_TOPICS:
                label = labels(table.TOPIC_RECORDS.labels, [topic.name])
                samples.add(table.TOPIC_PARTITIONS, of_topic[table.PARTITIONS], label)
                samples.add(table.TOPIC_RECORDS, records, label)
                samples.add(table.TOPIC_SEGMENTS, of_topic[table.SEGMENTS], label)
                samples.add(table.TOPIC_BYTES, of_topic[table.LOG_BYTES], label)
        for metric, total in totals.items():
            samples.add(metric, total)
        samples.add(table.TOPICS, len(topics))
        samples.add(table.DIRTY_MAX, dirty_ratio)

    async def _of_delays(self, topics: Sequence[Topic], samples: _Samples) -> None:
        partitions = [(topic, partition) for topic in topics for partition in topic.partitions]
        if len(partitions) > MOST_PARTITIONS:
            return
        wanted = [
            Look((topic.id, partition.index), _bounds(partition.log), partial(_delay_s, partition.log))
            for topic, partition in partitions
        ]
        delays = await self._delays.look(wanted)
        for (topic, partition), delay_s in zip(partitions, delays, strict=True):
            if delay_s is not None:
                label = labels(table.APPEND_DELAY.labels, (topic.name, partition.index))
                samples.add(table.APPEND_DELAY, delay_s, label)

    async def _of_lags(self, seen: _Seen, samples: _Samples) -> None:
        topics = {topic.name: topic for topic in seen.topics}
        wanted: list[Look] = []
        wanted_labels: list[str] = []
        left_out = seen.uncounted
        for group, name, index, offset in seen.committed:
            if len(group) > MOST_GROUP_NAME:
                left_out += 1
                continue
            topic = topics.get(name)
            partition = topic.partition(index) if topic is not None else None
            if topic is None or partition is None:
                continue
            log = partition.log
            start, end = bounds = _bounds(log)
            label = labels(table.LAG_RECORDS.labels, (group, name, index))
            if offset > end:
                samples.add(table.PAST_END, offset - end, label)
                continue
            samples.add(table.LAG_RECORDS, end - max(offset, start), label)
            wanted.append(Look((group, topic.id, index), (offset, bounds), partial(_lag_s, log, offset)))
            wanted_labels.append(label)
        for label, lag_s in zip(wanted_labels, await self._lags.look(wanted), strict=True):
            if lag_s is not None:
                samples.add(table.LAG_SECONDS, lag_s, label)
        samples.add(table.LAGS_LEFT_OUT, left_out)


# Metrics that are summed over all logs.
_SUMS = (
    table.PARTITIONS,
    table.SEGMENTS,
    table.LOG_BYTES,
    table.DAMAGED_RANGES,
    table.DAMAGED_BYTES,
    table.REFUSING,
)


def _add(sums: Counter[Metric], log: Log) -> int:
    """Add one log to the sums; return its bytes."""
    segments, log_bytes = log.segments, 0
    for segment in segments:
        log_bytes += segment.size
        if damage := segment.summary.damage:
            sums[table.DAMAGED_RANGES] += len(damage)
            sums[table.DAMAGED_BYTES] += sum(each.end - each.start for each in damage)
    sums[table.PARTITIONS] += 1
    sums[table.SEGMENTS] += len(segments)
    sums[table.LOG_BYTES] += log_bytes
    sums[table.REFUSING] += not log.takes_writes
    return log_bytes


def _in_steps(metric: Metric, samples: Sequence[Sample]) -> Iterator[bytes]:
    """Yield the text of a metric, some lines at a time."""
    for first in range(0, len(samples), STEP_LINES):
        yield text(metric, samples[first : first + STEP_LINES], with_heading=not first).encode()


def _bounds(log: Log) -> tuple[int, int]:
    """Return the start and end of a log: a change of either may change what is found in it."""
    return log.log_start_offset, log.log_end_offset


def _delay_s(log: Log) -> float | None:
    """Return the time from the creation of the last record to its append."""
    times = times_of(log, log.log_end_offset - 1, WAITING)
    delay_ms = None if times is None else latency_ms(times)
    return None if delay_ms is None else delay_ms / 1000


def _lag_s(log: Log, offset: int) -> float | None:
    found_ms = lag_ms(log, offset, APPEND_TIME, WAITING)
    return None if found_ms is None else found_ms / 1000
