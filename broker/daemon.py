"""The broker as a whole: what a handler can reach, and the order in which the parts start and stop."""

import asyncio
import logging

from tidelog.broker.busy_poll import BusyPoll
from tidelog.broker.catalog import Catalog
from tidelog.broker.clock import Clock
from tidelog.broker.flusher import Flusher
from tidelog.broker.maintenance import LONGEST_WAIT_S, Maintenance, Periodic
from tidelog.broker.outbox import Outbox
from tidelog.broker.readers import Readers
from tidelog.broker.repeated_lines import lines
from tidelog.broker.topics import Topic, Topics
from tidelog.broker.waiting import Parked
from tidelog.config.options import BrokerConfig
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.log_manager import LogManager

_log = logging.getLogger(__name__)

CATALOG_FILE = "catalog.sqlite"


class Broker:
    """Topics, logs and threads; knows nothing of sockets."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.node_id = config.node_id
        self.logs = LogManager(config.log_dir, config, clock.now_ms)
        self._retention = Periodic(config.log_retention_check_interval_ms / 1000, self._retain)
        self._flushing = Periodic(LONGEST_WAIT_S, self._flush)
        self._checkpointing = Periodic(
            config.log_flush_offset_checkpoint_interval_ms / 1000, self.logs.checkpoint
        )
        self.loop: asyncio.AbstractEventLoop
        self.catalog: Catalog
        self.topics: Topics
        self.parked: Parked
        self.busy_poll: BusyPoll
        self.outbox: Outbox
        self.flusher: Flusher
        self.maintenance: Maintenance
        self.readers: Readers

    @property
    def cluster_id(self) -> str:
        """The cluster id of the data folder."""
        return self.logs.cluster_id

    def start(self) -> None:
        """Open the data folder and start the threads. On a running event loop."""
        loop = self.loop = asyncio.get_running_loop()
        self.logs.lock()
        self.catalog = Catalog(self.logs.directory / CATALOG_FILE)
        self.topics = Topics(self.catalog, self.logs, self.config)
        self.topics.open()
        self.parked = Parked(loop)
        self.busy_poll = BusyPoll(loop)
        self.outbox = Outbox(loop)
        self.flusher = Flusher(loop, GroupSync(self.logs.directory).flush)
        self.flusher.start()
        self.readers = Readers(loop)
        self.maintenance = Maintenance(loop, [self._retention, self._flushing, self._checkpointing])
        for topic in self.topics.by_name.values():
            self._look_after(topic)
        self.maintenance.start()

    def _retain(self) -> float | None:
        """Enforce retention; return the seconds until there is more to do."""
        due_ms = self.logs.enforce_retention()
        return None if due_ms is None else (due_ms - self.clock.now_ms()) / 1000

    def _flush(self) -> float | None:
        shortest_ms = self.logs.flush_intervals()
        return None if shortest_ms is None else shortest_ms / 1000

    def create_topic(self, name: str, partitions: int, options: dict[str, str]) -> Topic:
        """Create a topic, and look after it as soon as its options say. As `Topics.create`."""
        topic = self.topics.create(name, partitions, options)
        self._look_after(topic)
        return topic

    def _look_after(self, topic: Topic) -> None:
        """See to a topic no later than its options ask for, counted from now."""
        if topic.config.retention_ms >= 0:
            self._retention.hasten(topic.config.retention_ms / 1000)
        if topic.config.flush_policy == "interval":
            self._flushing.hasten(topic.config.flush_ms / 1000)

    def stop(self) -> None:
        """Flush, checkpoint, and let go of the data folder. Every answer owed has been handed to the loop."""
        self.readers.stop()
        self.flusher.stop()
        self.maintenance.stop()
        self.logs.close()
        self.catalog.close()
        lines.tell()
        _log.info("stopped data=%s", self.logs.directory)
