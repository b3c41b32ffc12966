"""Options of Kafka that Tidelog takes and does nothing with, and those that it must not take.

A compose file written for Kafka should start Tidelog unchanged, so what means nothing on one node is accepted
with a note. What would leave the broker open while its configuration says otherwise is refused.
A key that ends in `.` stands for every option that begins so.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.config.kinds import BOOL, INT, LIST, LONG, LONG_MAX, STRING, Kind

ONE_NODE = "there is one node"
ONE_COPY = "there is one node, so a topic has one replica, and acks=all is answered when that has the records"
NO_CONTROLLER = "there are no controllers to talk to"
NO_REPLICAS = "there are no replicas to copy from"
LOOP = "one event loop serves all connections"
AT_ONCE = "a group is assigned anew with the next heartbeat, and no later"
NO_SHARE_GROUPS = "share groups and streams groups are not built"
ON_DISK = "a commit is answered when it is on disk, or could not be put there"
NO_TRANSACTIONS = "transactions are not built yet"
NO_TIER = "there is no other tier: all of a log is on this machine's disk"
NO_JMX = "there is no JVM"
ONE_EACH = "the broker has one thread for each kind of work"
BY_ITSELF = "the system sizes socket buffers by itself"


class InertOption(NamedTuple):
    """An option that does nothing: why, what value it must have all the same, and what is told where nobody gave one.

    That is what is so here, where it says something about this broker; else it is Kafka's default. None is no value.
    """

    why: str
    kind: Kind[Any]
    told: str | None
    at_least: int | None = None
    at_most: int | None = None
    broker: str = ""  # the broker's name of a topic option
    live: bool = False  # of the broker, and one that Kafka lets be changed while it runs


TOPIC_INERT: Mapping[str, InertOption] = {
    "follower.replication.throttled.replicas": InertOption(NO_REPLICAS, LIST, ""),
    "leader.replication.throttled.replicas": InertOption(NO_REPLICAS, LIST, ""),
    "local.retention.bytes": InertOption(NO_TIER, LONG, "-2", -2, broker="log.local.retention.bytes"),
    "local.retention.ms": InertOption(NO_TIER, LONG, "-2", -2, broker="log.local.retention.ms"),
    "preallocate": InertOption("files grow as they are written", BOOL, "false", broker="log.preallocate"),
    "remote.log.copy.disable": InertOption(NO_TIER, BOOL, "false"),
    "remote.log.delete.on.disable": InertOption(NO_TIER, BOOL, "false"),
    "unclean.leader.election.enable": InertOption(
        ONE_NODE, BOOL, "false", broker="unclean.leader.election.enable"
    ),
}

# Those of the broker that Kafka lists whether somebody has set them or not, and those that it lets be changed.
BROKER_INERT: Mapping[str, InertOption] = {
    **{row.broker: row._replace(broker="", live=True) for row in TOPIC_INERT.values() if row.broker},
    "auto.leader.rebalance.enable": InertOption(ONE_NODE, BOOL, "false"),
    "background.threads": InertOption(ONE_EACH, INT, "1", 1, live=True),
    "broker.rack": InertOption(ONE_NODE, STRING, None),
    "follower.fetch.last.tiered.offset.enable": InertOption(NO_TIER, BOOL, "false", live=True),
    "follower.replication.throttled.rate": InertOption(NO_REPLICAS, LONG, str(LONG_MAX), 0, live=True),
    "group.consumer.assignment.interval.ms": InertOption(AT_ONCE, INT, "0", 0, live=True),
    "group.coordinator.cached.buffer.max.bytes": InertOption(LOOP, INT, "1048588", 524_288, live=True),
    "inter.broker.listener.name": InertOption(ONE_NODE, STRING, None),
    # Programs take the release of a broker from it, though Kafka 4 has dropped it. It names the level of the feature
    # `metadata.version` (broker/handlers/api_versions.py), which newer programs ask for.
    "inter.broker.protocol.version": InertOption(ONE_NODE, STRING, "4.0-IV3"),
    "leader.replication.throttled.rate": InertOption(NO_REPLICAS, LONG, str(LONG_MAX), 0, live=True),
    "log.cleaner.io.buffer.size": InertOption(
        "a cleaner reads and writes about a megabyte at a time, or one batch that is larger",
        INT,
        "1048576",
        0,
        live=True,
    ),
    "log.flush.scheduler.interval.ms": InertOption(
        "the flusher wakes when there is something to flush", LONG, str(LONG_MAX)
    ),
    "log.flush.start.offset.checkpoint.interval.ms": InertOption(
        "written with the other checkpoints", INT, "60000", 0
    ),
    "metric.reporters": InertOption(NO_JMX, LIST, "", live=True),
    "num.io.threads": InertOption(LOOP, INT, "1", 1, live=True),
    "num.network.threads": InertOption(LOOP, INT, "1", 1, live=True),
    "num.recovery.threads.per.data.dir": InertOption(
        "after a crash logs are recovered four at a time", INT, "4", 1, live=True
    ),
    "num.replica.fetchers": InertOption(NO_REPLICAS, INT, "1", 1, live=True),
    "offsets.commit.timeout.ms": InertOption(ON_DISK, INT, "5000", 1),
    "offsets.load.buffer.size": InertOption(
        "committed offsets are read a batch at a time", INT, "5242880", 1
    ),
    "offsets.topic.compression.codec": InertOption(
        "commits are small, and wait for the disk together", INT, "0"
    ),
    "offsets.topic.replication.factor": InertOption(ONE_NODE, INT, "1", 1),
    "process.roles": InertOption("this is the broker, and there are no controllers", LIST, "broker"),
    "queued.max.requests": InertOption(
        "what requests hold is bounded in bytes: queued.max.request.bytes", INT, "500", 1
    ),
    "remote.fetch.max.wait.ms": InertOption(NO_TIER, INT, "500", 1, live=True),
    "remote.list.offsets.request.timeout.ms": InertOption(NO_TIER, LONG, "30000", 1, live=True),
    "remote.log.index.file.cache.total.size.bytes": InertOption(NO_TIER, LONG, "1073741824", 1, live=True),
    "remote.log.manager.copier.thread.pool.size": InertOption(NO_TIER, INT, "10", 1, live=True),
    "remote.log.manager.copy.max.bytes.per.second": InertOption(NO_TIER, LONG, str(LONG_MAX), 1, live=True),
    "remote.log.manager.expiration.thread.pool.size": InertOption(NO_TIER, INT, "10", 1, live=True),
    "remote.log.manager.fetch.max.bytes.per.second": InertOption(NO_TIER, LONG, str(LONG_MAX), 1, live=True),
    "remote.log.manager.follower.thread.pool.size": InertOption(NO_TIER, INT, "2", 1, live=True),
    "remote.log.reader.threads": InertOption(NO_TIER, INT, "10", 1, live=True),
    "remote.log.storage.system.enable": InertOption(NO_TIER, BOOL, "false"),
    "replica.alter.log.dirs.io.max.bytes.per.second": InertOption(
        NO_REPLICAS, LONG, str(LONG_MAX), 0, live=True
    ),
    "replica.fetch.max.bytes": InertOption(NO_REPLICAS, INT, "1048576", 0),
    "replica.fetch.min.bytes": InertOption(NO_REPLICAS, INT, "1"),
    "replica.fetch.response.max.bytes": InertOption(NO_REPLICAS, INT, "10485760", 0),
    "replica.fetch.wait.max.ms": InertOption(NO_REPLICAS, INT, "500"),
    "replica.high.watermark.checkpoint.interval.ms": InertOption(NO_REPLICAS, LONG, "5000"),
    "replica.lag.time.max.ms": InertOption(NO_REPLICAS, LONG, "30000"),
    "replica.selector.class": InertOption(NO_REPLICAS, STRING, None),
    "replica.socket.receive.buffer.bytes": InertOption(NO_REPLICAS, INT, "65536"),
    "replica.socket.timeout.ms": InertOption(NO_REPLICAS, INT, "30000"),
    "security.inter.broker.protocol": InertOption(ONE_NODE, STRING, "PLAINTEXT"),
    "socket.receive.buffer.bytes": InertOption(BY_ITSELF, INT, "-1"),
    "socket.send.buffer.bytes": InertOption(BY_ITSELF, INT, "-1"),
    "transaction.partition.verification.enable": InertOption(NO_TRANSACTIONS, BOOL, "true", live=True),
}

# Why an option of the broker does nothing.
INERT: Mapping[str, str] = {
    **{name: option.why for name, option in BROKER_INERT.items()},
    "alter.config.policy.class.name": NO_JMX,
    "auto.include.jmx.reporter": NO_JMX,
    "broker.heartbeat.interval.ms": NO_CONTROLLER,
    "broker.session.timeout.ms": NO_CONTROLLER,
    "confluent.": "an option of another distribution",
    "controlled.shutdown.": ONE_NODE,
    "controller.": NO_CONTROLLER,
    "early.start.listeners": NO_CONTROLLER,
    "eligible.leader.replicas.enable": ONE_NODE,
    "follower.": NO_REPLICAS,
    "group.consumer.assignment.": AT_ONCE,
    "group.consumer.assignor.": AT_ONCE,
    "group.consumer.max.assignment.": AT_ONCE,
    "group.consumer.min.assignment.": AT_ONCE,
    "group.consumer.regex.refresh.interval.ms": "regular expressions are matched anew when there are other topics",
    "group.coordinator.": LOOP,
    "group.share.": NO_SHARE_GROUPS,
    "group.streams.": NO_SHARE_GROUPS,
    "initial.broker.registration.timeout.ms": NO_CONTROLLER,
    "kafka.metrics.": NO_JMX,
    "leader.": ONE_NODE,
    "log.local.retention.": NO_TIER,
    "metadata.": NO_CONTROLLER,
    "metrics.": NO_JMX,
    "num.replica.": NO_REPLICAS,
    "offsets.commit.required.acks": ON_DISK,
    "remote.": NO_TIER,
    "replica.": NO_REPLICAS,
    "share.": NO_SHARE_GROUPS,
    "socket.listen.backlog.size": "the system's own limit applies",
    "transaction.": NO_TRANSACTIONS,
    "transactional.id.expiration.ms": NO_TRANSACTIONS,
    "unstable.": "an option of Kafka's own development",
    "zookeeper.": "there is no ZooKeeper",
}

UNGUARDED = "the broker can neither authenticate nor encrypt yet, and would be open to everyone"
REFUSED: Mapping[str, str] = {
    "allow.everyone.if.no.acl.found": UNGUARDED,
    "authorizer.": UNGUARDED,
    "connection.failed.authentication.delay.ms": UNGUARDED,
    "connections.max.reauth.ms": UNGUARDED,
    "delegation.token.": UNGUARDED,
    "listener.name.": UNGUARDED,
    "principal.": UNGUARDED,
    "sasl.": UNGUARDED,
    "security.providers": UNGUARDED,
    "ssl.": UNGUARDED,
    "super.users": UNGUARDED,
}


def reason(name: str, table: Mapping[str, str]) -> str | None:
    """Return what `table` says of an option, or None where it does not know it."""
    if name in table:
        return table[name]
    return next((why for key, why in table.items() if key.endswith(".") and name.startswith(key)), None)
