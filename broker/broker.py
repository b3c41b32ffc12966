"""The broker as a whole: what a handler can reach, and the order in which the parts start and stop."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tidelog.broker.catalog import CATALOG_FILE, Catalog
from tidelog.broker.clock import Clock
from tidelog.broker.collector import Collector
from tidelog.broker.flusher import Flusher
from tidelog.broker.maintenance import LONGEST_WAIT_S, Maintenance, Periodic, Task
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.quota import Quota
from tidelog.broker.readers import Readers
from tidelog.broker.repeated_lines import lines
from tidelog.broker.topics import FEW_TOPICS_BYTES, Topic, Topics
from tidelog.broker.turns import Turns
from tidelog.broker.waiting import Parked
from tidelog.broker.work import Held
from tidelog.config.options import BrokerConfig
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.log_manager import LogManager
from tidelog.storage.scrub import Scrubber

_log = logging.getLogger(__name__)

# How long a snapshot of producers may wait to be written, and the end of a full disk to be seen.
LOOK_EVERY_S = 1.0
# How often each sealed segment is read again.
SCRUB_EVERY_S = 86400.0


class BrokerFailed(Exception):
    """The broker stopped because one of its threads was ended by a fault."""


class Broker:
    """Topics, logs and threads; knows nothing of sockets."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.node_id = config.node_id
        self.logs = LogManager(config.log_dir, config, clock.now_ms)
        # What clients hold: requests whose topics wait to be created or deleted, fetches that wait for records, answers
        # that were not taken.
        self.queued_topics = Quota(config.queued_max_topic_bytes, FEW_TOPICS_BYTES)
        self.queued_fetches = Quota(config.queued_max_fetch_bytes)
        self.queued_answers = Quota(config.queued_max_response_bytes)
        self.held = Held()  # by reads and checks that are made in turns
        self.collector = Collector()
        # Answers about the broker's options, which never change, by how much is told of each.
        self.described: dict[tuple[bool, bool], dict[str, Any]] = {}
        # Why the broker must stop, if a thread has ended, or has not stopped as it should; `on_failure` is told of the
        # first, on the event loop.
        self.failure: str | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._retention = Periodic("retention", config.log_retention_check_interval_ms / 1000, self._retain)
        self._flushing = Periodic("flush", LONGEST_WAIT_S, self._flush)
        self._checkpointing = Periodic(
            "checkpoint", config.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint
        )
        self._looking = Periodic("snapshots", LOOK_EVERY_S, self.logs.look_after)
        self._scrubber = Scrubber(lambda: self.logs.logs, config.log_scrub_bytes_per_second)
        self._scrubbing = Periodic("scrub", SCRUB_EVERY_S, self._scrub)
        self.loop: asyncio.AbstractEventLoop
        self.catalog: Catalog
        self.topics: Topics
        self.parked: Parked
        self.turns: Turns
        self.flusher: Flusher
        self.maintenance: Maintenance
        self.readers: Readers
        self.producer_ids: ProducerIds

    @property
    def cluster_id(self) -> str:
        """The cluster id of the data folder."""
        return self.logs.cluster_id

    def start(self) -> None:
        """Open the data folder and start the threads. On a running event loop."""
        loop = self.loop = asyncio.get_running_loop()
        self.logs.lock()
        self.catalog = Catalog(self.logs.directory / CATALOG_FILE, self.logs.disk.refused)
        self.topics = Topics(self.catalog, self.logs, self.config, loop)
        self.topics.open()
        self.parked = Parked(loop, self.queued_fetches)
        self.turns = Turns(loop)
        self.flusher = Flusher(loop, GroupSync(self.logs.directory).flush, self._thread_ended)
        self.flusher.start()
        self.readers = Readers(loop, self._thread_ended)
        periodic = [self._retention, self._flushing, self._checkpointing, self._looking]
        if self.config.log_scrub_bytes_per_second:
            self._scrubbing.hasten(LOOK_EVERY_S)
            periodic.append(self._scrubbing)
        self.maintenance = Maintenance(loop, periodic, self._thread_ended)
        self.producer_ids = ProducerIds(self._reserve_producer_ids)
        for topic in self.topics.all():
            self._look_after(topic)
        self.maintenance.start()

    def _retain(self) -> Task[float | None]:
        """Enforce retention; return the seconds until there is more to do."""
        due_ms = yield from self.logs.enforce_retention()
        return None if due_ms is None else (due_ms - self.clock.now_ms()) / 1000

    def _flush(self) -> Task[float | None]:
        shortest_ms = yield from self.logs.flush_intervals()
        return None if shortest_ms is None else shortest_ms / 1000

    def _checkpoint(self) -> Task[None]:
        yield
        self.logs.checkpoint()

    def _scrub(self) -> Task[float | None]:
        """Read again what a second is to read; return when to go on, None where all has been read."""
        is_done = yield from self._scrubber.round()
        return None if is_done else 1.0

    def create_topic(self, name: str, partitions: int, options: dict[str, str]) -> Task[Topic]:
        """Create a topic, and look after it as soon as its options say. As `Topics.create`."""
        topic = yield from self.topics.create(name, partitions, options)
        self._look_after(topic)
        return topic

    def _reserve_producer_ids(self, reserved: Callable[[range | Exception], None]) -> None:
        def reserve() -> Task[range]:
            yield
            return self.catalog.reserve_producer_ids()

        later = self.maintenance.submit(reserve(), owner=self)
        later.ready = lambda: reserved(later.response)

    def _look_after(self, topic: Topic) -> None:
        """See to a topic no later than its options ask for, counted from now."""
        if topic.config.retention_ms >= 0:
            self._retention.hasten(topic.config.retention_ms / 1000)
        if topic.config.flush_policy == "interval":
            self._flushing.hasten(topic.config.flush_ms / 1000)

    def _thread_ended(self, why: str) -> None:
        """Stop in order, though not as if nothing had been. The thread that ends."""
        with suppress(RuntimeError):  # The loop is closed: nobody is served any more.
            self.loop.call_soon_threadsafe(self.fail, why)

    def fail(self, why: str) -> None:
        """Stop in order, with a status that is not 0. Event loop."""
        self.failure = self.failure or why
        self.on_failure()

    def release(self) -> None:
        """Answer what waits for records, to be created or for a reader without it: the broker stops. Event loop."""
        self.topics.is_stopping = True
        self.maintenance.drop()
        self.readers.drop()
        self.parked.release()

    def stop(self) -> None:
        """Flush, checkpoint, and let go of the data folder. Every answer owed has been handed to the loop."""
        self.topics.is_stopping = True
        self.readers.stop()
        self.flusher.stop()
        self.maintenance.stop()
        if not self.logs.close():
            self.failure = (
                self.failure or "the disk did not take all that was owed to it when the broker stopped"
            )
        self.catalog.close()
        lines.tell()
        _log.info("stopped data=%s", self.logs.directory)
