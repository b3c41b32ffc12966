"""The broker: everything that handlers reach, and the order in which its parts start and stop."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from tidelog.broker.catalog import ALL_BROKERS, CATALOG_FILE, Catalog
from tidelog.broker.cleaners import Cleaners, Passes
from tidelog.broker.clock import Clock
from tidelog.broker.codes import Refused
from tidelog.broker.fetch_sessions import FetchSessions
from tidelog.broker.flusher import Flusher
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.broker.maintenance import LONGEST_WAIT_S, Maintenance, Periodic
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.quota import Owner, Quota
from tidelog.broker.repeated_lines import lines
from tidelog.broker.running import Readers
from tidelog.broker.tallies import Tallies
from tidelog.broker.threads import cpu_clock
from tidelog.broker.timers import Timers
from tidelog.broker.topics import FEW_TOPICS_BYTES, TOO_MANY_WAIT, NewTopic, Topic, Topics
from tidelog.broker.turns import Turns
from tidelog.broker.waiting import Parked
from tidelog.broker.work import Coro, MemoryInUse, all_of, map_in_chunks
from tidelog.config.inert import BROKER_INERT
from tidelog.config.options import BrokerConfig
from tidelog.config.table import Source
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage.compaction import passes, plan
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager
from tidelog.storage.scrub import Scrubber

_log = logging.getLogger(__name__)

# The longest delay before a snapshot of producers is written, or the end of a full disk is noticed.
LOOK_EVERY_S: Final = 1.0
# The shortest wait before retention deletes what was appended to an empty log. Without it, each record of a topic with
# `retention.ms=1` might cost a segment.
EXPIRED_EVERY_S: Final = 0.1
# Links left by readers keep the space of segments that retention deletes.
UNPIN_EVERY_S: Final = 60.0
# Completes an error about an assignment that names other nodes.
BESIDE_OTHERS: Final = "or beside others with tidelog.tolerate.replication.factor=true"
# How often each sealed segment is read again.
SCRUB_EVERY_S: Final = 86400.0


P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class BrokerFailed(Exception):
    """The broker stopped because one of its threads ended with an exception."""


class Broker:
    """Holds the topics, logs and threads. Knows nothing of sockets."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.node_id = config.node_id
        self.logs = LogManager(config.log_dir, config, clock.now_ms)
        # Memory held for clients: requests whose topics wait to be created or deleted, fetches that wait for records,
        # and answers that were not taken.
        self.queued_topics = Quota(config.queued_max_topic_bytes, FEW_TOPICS_BYTES)
        self.queued_fetches = Quota(config.queued_max_fetch_bytes)
        self.queued_answers = Quota(config.queued_max_response_bytes)
        self.held = MemoryInUse()  # by reads and checks that run in steps
        self.tallies = Tallies() if config.http_port else None
        # Cached answers of DescribeConfigs for the broker, by the details requested. Replaced whenever `config` is.
        self.described: dict[tuple[bool, bool], dict[str, Any]] = {}
        # Why the broker must stop, if a thread ended or did not stop cleanly. `on_failure` is called on the event loop
        # for the first such reason.
        self.failure: str | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._retention = Periodic(
            "retention", config.log_retention_check_interval_ms / 1000, self._retain, clock
        )
        self._begun: list[tuple[Log, int]] = []
        self._flushing = Periodic("flush", LONGEST_WAIT_S, self._flush, clock)
        self._checkpointing = Periodic(
            "checkpoint", config.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint, clock
        )
        self._looking = Periodic("snapshots", LOOK_EVERY_S, lambda: all_of(self.logs.look_after()), clock)
        self._unpinning = Periodic("pins", UNPIN_EVERY_S, lambda: all_of(self.logs.sweep_pins()), clock)
        self._scrubber = Scrubber(lambda: self.logs.logs, config.log_scrub_bytes_per_second)
        self._scrubbing = Periodic("scrub", SCRUB_EVERY_S, self._scrub, clock)
        self.loop: asyncio.AbstractEventLoop
        self.catalog: Catalog
        self.topics: Topics
        self.timers: Timers
        self.parked: Parked
        self.turns: Turns
        self.fetch_sessions: FetchSessions
        self.flusher: Flusher
        self.maintenance: Maintenance
        self.cleaners: Cleaners
        self.readers: Readers
        self.producer_ids: ProducerIds
        self.groups: Coordinator

    @property
    def cluster_id(self) -> str:
        """The cluster id of the data folder."""
        return self.logs.cluster_id

    def start(self) -> None:
        """Open the data folder and start the threads. On a running event loop."""
        loop = self.loop = asyncio.get_running_loop()
        self.logs.lock()
        self.catalog = Catalog(self.logs.directory / CATALOG_FILE, self.logs.disk.refused)
        self._configure(self.catalog.changed(self.config))
        for source, options in self.config.changes:
            for name, value in options.items():
                _log.info("option set while running option=%s value=%s for=%s", name, value, source.name)
            self._log_inert(ALL_BROKERS if source is Source.DYNAMIC_DEFAULT else str(self.node_id), options)
        self.topics = Topics(self.catalog, self.logs, self.config, loop)
        self.topics.open()
        self.timers = Timers(loop, self.clock)
        self.parked = Parked(loop, self.clock, self.timers, self.queued_fetches)
        self.turns = Turns(loop)
        self.fetch_sessions = FetchSessions(self.config, self.clock, self.topics, self.logs, self.parked)
        flush = GroupSync(self.logs.directory, self.logs.trust).flush
        timed = flush if self.tallies is None else self.tallies.timed_flush(flush)
        self.flusher = Flusher(loop, timed, self._thread_ended)
        self.flusher.start()
        self.readers = Readers(self._thread_ended)
        self._unpinning.hasten(LOOK_EVERY_S)
        periodic = [self._retention, self._flushing, self._checkpointing, self._looking, self._unpinning]
        if self.config.log_scrub_bytes_per_second:
            self._scrubbing.hasten(LOOK_EVERY_S)
            periodic.append(self._scrubbing)
        self.maintenance = Maintenance(loop, self.clock, periodic, self._thread_ended)
        self.producer_ids = ProducerIds(self._reserve_producer_ids)
        self.groups = Coordinator(
            self, self.config, self.clock, self.timers, self.topics, self.flusher, self.create_topic
        )
        self.groups.start(self.maintenance)
        compaction = Passes(self._due, plan.next_due_ms, passes.clean, passes.OVERTAKEN)
        self.cleaners = Cleaners(
            self.config, self.clock, compaction, self.maintenance.call, self._thread_ended, cpu_clock()
        )
        self.topics.watch(lambda topic, _: self._clean(topic), lambda topic: self.cleaners.leave(topic.id))
        for topic in self.topics.all():
            self._look_after(topic)
            self._clean(topic)
        self.logs.shared.on_first_batch = self._segment_begun
        self._retention.hasten(0)
        self.maintenance.start()
        self.cleaners.start()

    async def _retain(self) -> float | None:
        """Enforce retention where it is due; return the seconds until the next time."""
        return self._seconds_to(await all_of(self.logs.enforce_retention()))

    def _seconds_to(self, due_ms: int | None) -> float | None:
        return None if due_ms is None else (due_ms - self.clock.now_ms()) / 1000

    def _segment_begun(self, log: Log) -> None:
        """Schedule retention for the time when the first append to an empty segment expires. Event loop."""
        self._begun.append((log, self.clock.monotonic_ms()))
        if len(self._begun) == 1:
            self.maintenance.submit(self._note_begun(), owner=self)

    async def _note_begun(self) -> None:
        while self._begun:
            log, begun_ms = self._begun.pop()
            wait_s = self._seconds_to(self.logs.note_first_batch(log))
            if wait_s is not None:
                # Counted from the append: a clock that a test holds may have been moved since.
                passed_s = (self.clock.monotonic_ms() - begun_ms) / 1000
                self._retention.hasten(max(wait_s, EXPIRED_EVERY_S - passed_s))

    async def _flush(self) -> float | None:
        shortest_ms = await all_of(self.logs.flush_intervals())
        return None if shortest_ms is None else shortest_ms / 1000

    async def _checkpoint(self) -> None:
        self.logs.checkpoint()

    async def _scrub(self) -> float | None:
        """Scrub for one second's budget; return when to continue, or None after the whole round."""
        is_done = await all_of(self._scrubber.round())
        return None if is_done else 1.0

    async def change(
        self,
        owner: Owner,
        size_bytes: int,
        coroutine: Coro[list[R]],
        named: Sequence[P],
        refuse: Callable[[P, ErrorCode, str], R],
    ) -> list[R]:
        """Change topics on the maintenance thread; return the results, one for each topic in the request.

        The client is charged with `size_bytes` until then. If too many changes wait already, none is made, and the
        results come from `refuse`, called for each of `named`. Event loop only.
        """
        held = self.queued_topics.hold(owner, size_bytes)
        if held is None:
            coroutine.close()
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return await map_in_chunks(lambda each: refuse(each, code, TOO_MANY_WAIT), named)
        can_wait = size_bytes > FEW_TOPICS_BYTES
        results: list[R] = await self.maintenance.submit(coroutine, owner=owner, held=held, can_wait=can_wait)
        return results

    async def create_topic(self, name: str, partitions: int, options: dict[str, str]) -> Topic:
        """Create a topic and schedule its flushes. As `Topics.create`."""
        topic = await self.topics.create(name, partitions, options)
        self._look_after(topic)
        return topic

    async def create_topics(self, wanted: Sequence[NewTopic]) -> dict[str, Topic | Exception]:
        """Create topics and schedule their flushes. As `Topics.create_all`."""
        outcomes = await self.topics.create_all(wanted)
        for outcome in outcomes.values():
            if isinstance(outcome, Topic):
                self._look_after(outcome)
        return outcomes

    async def alter_topic(self, topic: Topic, options: dict[str, str]) -> None:
        """Change a topic's options, and apply retention and flushing soon. As `Topics.alter`."""
        await self.topics.alter(topic, options)
        now = self.topics.find(None, topic.id)
        if now is not None:
            self.retain_soon(partition.log for partition in now.partitions)
            self._look_after(now)

    async def alter_options(self, broker: str, options: dict[str, str]) -> None:
        """Replace the dynamic options of this broker, or of all brokers (`ALL_BROKERS`).

        They are in the catalogue before anything uses them. Maintenance thread only. ConfigError, StorageError.
        """
        config = self.checked(broker, options)
        before = self.catalog.broker_options(broker)
        texts = config.set_for(broker == ALL_BROKERS)
        self.catalog.set_broker_options(broker, texts)
        self._configure(config)
        self.cleaners.configure(config)
        await self.topics.change_defaults(config.topic_defaults())
        self.retain_soon()
        self._flushing.hasten(0)
        changed = sorted({name for name, _ in before.items() ^ texts.items()})
        values = " ".join(f"{name}={texts.get(name, 'as before')}" for name in changed)
        _log.info("options changed broker=%s %s", broker or "all", values or "none")
        self._log_inert(broker, {name: texts[name] for name in changed if name in texts})

    def _log_inert(self, broker: str, texts: Mapping[str, str]) -> None:
        """Log which of these options, of this broker or of all, have no effect."""
        for name, text in texts.items():
            if name in BROKER_INERT:
                template = "option has no effect broker=%s option=%s value=%s reason=%r"
                _log.info(template, broker or "all", name, text, BROKER_INERT[name].why_inert)

    def checked(self, broker: str, options: dict[str, str]) -> BrokerConfig:
        """Return the configuration with these dynamic options of this broker, or of all. ConfigError. Maintenance
        thread.
        """
        own, everywhere = options, self.config.set_for(all_brokers=True)
        if broker == ALL_BROKERS:
            own, everywhere = self.config.set_for(all_brokers=False), options
        config = self.config.changed(own, everywhere)
        config.check_topic(config.topic)
        return config

    def check_assignment(self, nodes: Sequence[int]) -> None:
        """Raise Refused, in Kafka's words, for an assignment of a partition to nodes that this broker does not accept.

        Other nodes are accepted only if `tidelog.tolerate.replication.factor` is set; they then stand for this one, as
        a replication factor does.
        """
        is_tolerated = self.config.tidelog_tolerate_replication_factor
        others = [node for node in nodes if node != self.node_id and (node < 0 or not is_tolerated)]
        twice = [node for node, times in Counter(nodes).items() if times > 1]
        problem = ""
        if not nodes:
            problem = "an empty replica list."
        elif others or self.node_id not in nodes:
            problem = f"broker {(others or nodes)[0]}, but no such broker is registered."
        elif twice:
            problem = f"the broker {twice[0]} more than once."
        if problem:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes {problem} Name node {self.node_id} alone, {BESIDE_OTHERS}",
            )

    def _configure(self, config: BrokerConfig) -> None:
        if config.log_level != self.config.log_level:
            logging.getLogger().setLevel(config.log_level.upper())
        # In this order: code that finds the empty cache must find the new options, too.
        self.config = self.logs.defaults = config
        self.described = {}

    def save_log_starts(self, moved: list[Log]) -> bool:
        """Write the start offsets of logs to disk, and schedule the removal of what lies before; tell whether they are
        on disk.

        Maintenance thread only.
        """
        for log in moved:
            _log.info("records deleted log=%s log_start_offset=%d", log, log.log_start_offset)
        self.retain_soon(moved)
        try:
            self.logs.checkpoint()
        except OSError as error:
            _log.error("log starts not on disk error=%r", str(error))
            return False
        return True

    def retain_soon(self, logs: Iterable[Log] | None = None) -> None:
        """Run retention next for these logs, or for all. Maintenance thread."""
        self.logs.retain_soon(self.logs.logs.values() if logs is None else logs)
        self._retention.hasten(0)

    def _reserve_producer_ids(self, reserved: Callable[[range | Exception], None]) -> None:
        async def reserve() -> range:
            return self.catalog.reserve_producer_ids()

        later = self.maintenance.submit(reserve(), owner=self)
        later.ready = lambda: reserved(later.response)

    def _look_after(self, topic: Topic) -> None:
        """Schedule the next interval flush of a topic, counted from now."""
        if topic.config.flush_policy == "interval":
            self._flushing.hasten(topic.config.flush_ms / 1000)

    @property
    def _by_yield(self) -> bool:
        return self.config.tidelog_cleaner_schedule == "generational"

    def _due(self, log: Log, now_ms: int) -> plan.Plan | None:
        return plan.due(log, now_ms, by_yield=self._by_yield)

    def dirty_ratio(self, log: Log, now_ms: int) -> float:
        """Return the ratio of a log that is compared with `min.cleanable.dirty.ratio`. Any thread."""
        ratio = plan.garbage_ratio if self._by_yield else plan.dirty_ratio
        return ratio(plan.compactable(log, now_ms))

    def _clean(self, topic: Topic) -> None:
        """Register a topic with the cleaners, or remove it, as its policy says. Event loop only."""
        self.cleaners.serve(topic.id, topic.partitions, topic.config.compacts)

    def _thread_ended(self, why: str) -> None:
        """Stop the broker, with a failure. Called by the thread that ends."""
        with suppress(RuntimeError):  # the loop is closed, so no client is connected
            self.loop.call_soon_threadsafe(self.fail, why)

    def fail(self, why: str) -> None:
        """Stop the broker, with an exit status other than 0. Event loop."""
        self.failure = self.failure or why
        self.on_failure()

    def release(self) -> None:
        """Answer what waits for records, for topics or for a reader, without it: the broker stops. Event loop."""
        self.topics.is_stopping = True
        self.maintenance.drop()
        self.readers.drop()
        self.cleaners.drop()
        self.parked.release()
        self.groups.release()

    def stop(self) -> None:
        """Flush, checkpoint and unlock the data folder. By now every answer has been passed to the loop."""
        self.topics.is_stopping = True
        self.maintenance.drop()
        self.cleaners.stop()
        self.readers.stop()
        self.flusher.stop()
        self.maintenance.stop()
        if not self.logs.close():
            self.failure = self.failure or "not everything could be written to disk when the broker stopped"
        self.catalog.close()
        lines.flush()
        _log.info("stopped data=%s", self.logs.directory)
