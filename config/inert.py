"""Options of Kafka that have no effect here, and options that are refused.

A compose file for Kafka should start Tidelog unchanged, so options without meaning on one node are accepted with a
note. Options of security are refused, since they would leave the broker open while its configuration says otherwise. A
key that ends in `.` is a prefix.
"""

from collections.abc import Mapping
from typing import Any

from tidelog.config.kinds import BOOL, INT, LIST, LONG, LONG_MAX, STRING, Kind
from tidelog.config.table import Option

ONE_NODE = "there is one node"
ONE_COPY = "there is one node, so a topic has one replica, and acks=all is answered when that has the records"
NO_CONTROLLER = "there are no controllers"
NO_REPLICAS = "there are no other replicas"
LOOP = "one event loop serves all connections"
AT_ONCE = "a new assignment is made at the next heartbeat"
NO_SHARE_GROUPS = "share groups and streams groups are not built"
ON_DISK = "a commit is answered when it is on disk, or its write failed"
NO_TRANSACTIONS = "transactions are not built yet"
NO_TIER = "there is no other tier: a log is on this machine's disk"
NO_JMX = "there is no JVM"
ONE_EACH = "the broker has one thread for each kind of work"
BY_ITSELF = "the system sizes socket buffers by itself"


def _inert(
    name: str, why: str, kind: Kind[Any], default: str | None, at_least: int | None = None, **row: Any
) -> Option:
    """Declare an option without effect.

    Its default is what holds for this broker if that means something, else Kafka's; None for no value.
    """
    value = None if default is None else kind.parse(default)
    doc = f"Has no effect: {why}."
    return Option(name, kind, value, doc=doc, at_least=at_least, why_inert=why, **row)


def _by_name(*rows: Option) -> Mapping[str, Option]:
    return {row.name: row for row in rows}


TOPIC_INERT = _by_name(
    _inert("follower.replication.throttled.replicas", NO_REPLICAS, LIST, ""),
    _inert("leader.replication.throttled.replicas", NO_REPLICAS, LIST, ""),
    _inert("local.retention.bytes", NO_TIER, LONG, "-2", -2, broker="log.local.retention.bytes"),
    _inert("local.retention.ms", NO_TIER, LONG, "-2", -2, broker="log.local.retention.ms"),
    _inert("preallocate", "files grow as they are written", BOOL, "false", broker="log.preallocate"),
    _inert("remote.log.copy.disable", NO_TIER, BOOL, "false"),
    _inert("remote.log.delete.on.disable", NO_TIER, BOOL, "false"),
    _inert(
        "unclean.leader.election.enable", ONE_NODE, BOOL, "false", broker="unclean.leader.election.enable"
    ),
)

# The options of the broker that Kafka lists by default, and those that can change while it runs.
BROKER_INERT = _by_name(
    *(row._replace(name=row.broker, broker="", live=True) for row in TOPIC_INERT.values() if row.broker),
    _inert("auto.leader.rebalance.enable", ONE_NODE, BOOL, "false"),
    _inert("background.threads", ONE_EACH, INT, "1", 1, live=True),
    _inert("broker.rack", ONE_NODE, STRING, None),
    _inert("follower.fetch.last.tiered.offset.enable", NO_TIER, BOOL, "false", live=True),
    _inert("follower.replication.throttled.rate", NO_REPLICAS, LONG, str(LONG_MAX), 0, live=True),
    _inert("group.consumer.assignment.interval.ms", AT_ONCE, INT, "0", 0, live=True),
    _inert("group.coordinator.cached.buffer.max.bytes", LOOP, INT, "1048588", 524_288, live=True),
    _inert("inter.broker.listener.name", ONE_NODE, STRING, None),
    # Kafka 4 has dropped it, but programs read the release of a broker from it. It matches the level of the feature
    # `metadata.version` (broker/handlers/api_versions.py), which newer programs read.
    _inert("inter.broker.protocol.version", ONE_NODE, STRING, "4.0-IV3"),
    _inert("leader.replication.throttled.rate", NO_REPLICAS, LONG, str(LONG_MAX), 0, live=True),
    _inert(
        "log.cleaner.io.buffer.size",
        "a cleaner reads and writes about a megabyte at a time, or a larger batch",
        INT,
        "1048576",
        0,
        live=True,
    ),
    _inert(
        "log.flush.scheduler.interval.ms",
        "the flusher wakes when there is something to flush",
        LONG,
        str(LONG_MAX),
    ),
    _inert(
        "log.flush.start.offset.checkpoint.interval.ms", "written with the other checkpoints", INT, "60000", 0
    ),
    _inert("metric.reporters", NO_JMX, LIST, "", live=True),
    _inert("num.io.threads", LOOP, INT, "1", 1, live=True),
    _inert("num.network.threads", LOOP, INT, "1", 1, live=True),
    _inert(
        "num.recovery.threads.per.data.dir",
        "after a crash, four logs are recovered at a time",
        INT,
        "4",
        1,
        live=True,
    ),
    _inert("num.replica.fetchers", NO_REPLICAS, INT, "1", 1, live=True),
    _inert("offsets.commit.timeout.ms", ON_DISK, INT, "5000", 1),
    _inert("offsets.load.buffer.size", "committed offsets are read a batch at a time", INT, "5242880", 1),
    _inert("offsets.topic.compression.codec", "commits are small, and wait for the disk together", INT, "0"),
    _inert("offsets.topic.replication.factor", ONE_NODE, INT, "1", 1),
    _inert("process.roles", "this is the broker, and there are no controllers", LIST, "broker"),
    _inert(
        "queued.max.requests",
        "requests are bounded in bytes: queued.max.request.bytes",
        INT,
        "500",
        1,
    ),
    _inert("remote.fetch.max.wait.ms", NO_TIER, INT, "500", 1, live=True),
    _inert("remote.list.offsets.request.timeout.ms", NO_TIER, LONG, "30000", 1, live=True),
    _inert("remote.log.index.file.cache.total.size.bytes", NO_TIER, LONG, "1073741824", 1, live=True),
    _inert("remote.log.manager.copier.thread.pool.size", NO_TIER, INT, "10", 1, live=True),
    _inert("remote.log.manager.copy.max.bytes.per.second", NO_TIER, LONG, str(LONG_MAX), 1, live=True),
    _inert("remote.log.manager.expiration.thread.pool.size", NO_TIER, INT, "10", 1, live=True),
    _inert("remote.log.manager.fetch.max.bytes.per.second", NO_TIER, LONG, str(LONG_MAX), 1, live=True),
    _inert("remote.log.manager.follower.thread.pool.size", NO_TIER, INT, "2", 1, live=True),
    _inert("remote.log.reader.threads", NO_TIER, INT, "10", 1, live=True),
    _inert("remote.log.storage.system.enable", NO_TIER, BOOL, "false"),
    _inert("replica.alter.log.dirs.io.max.bytes.per.second", NO_REPLICAS, LONG, str(LONG_MAX), 0, live=True),
    _inert("replica.fetch.max.bytes", NO_REPLICAS, INT, "1048576", 0),
    _inert("replica.fetch.min.bytes", NO_REPLICAS, INT, "1"),
    _inert("replica.fetch.response.max.bytes", NO_REPLICAS, INT, "10485760", 0),
    _inert("replica.fetch.wait.max.ms", NO_REPLICAS, INT, "500"),
    _inert("replica.high.watermark.checkpoint.interval.ms", NO_REPLICAS, LONG, "5000"),
    _inert("replica.lag.time.max.ms", NO_REPLICAS, LONG, "30000"),
    _inert("replica.selector.class", NO_REPLICAS, STRING, None),
    _inert("replica.socket.receive.buffer.bytes", NO_REPLICAS, INT, "65536"),
    _inert("replica.socket.timeout.ms", NO_REPLICAS, INT, "30000"),
    _inert("security.inter.broker.protocol", ONE_NODE, STRING, "PLAINTEXT"),
    _inert("socket.receive.buffer.bytes", BY_ITSELF, INT, "-1"),
    _inert("socket.send.buffer.bytes", BY_ITSELF, INT, "-1"),
    _inert("transaction.partition.verification.enable", NO_TRANSACTIONS, BOOL, "true", live=True),
)

# Why an option of the broker has no effect.
INERT: Mapping[str, str] = {
    **{name: row.why_inert for name, row in BROKER_INERT.items()},
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
    "group.consumer.regex.refresh.interval.ms": "regular expressions are matched again when topics change",
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
    """Return the reason for an option in `table`; None if it is not there."""
    if name in table:
        return table[name]
    return next((why for key, why in table.items() if key.endswith(".") and name.startswith(key)), None)
