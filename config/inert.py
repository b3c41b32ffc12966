"""Options of Kafka that Tidelog takes and does nothing with, and those that it must not take.

A compose file written for Kafka should start Tidelog unchanged, so what means nothing on one node is accepted
with a note. What would leave the broker open while its configuration says otherwise is refused.
A key that ends in `.` stands for every option that begins so.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.config.kinds import BOOL, DOUBLE, LIST, LONG, Kind

ONE_NODE = "there is one node"
ONE_COPY = "there is one node, so a topic has one replica, and acks=all is answered when that has the records"
NO_CONTROLLER = "there are no controllers to talk to"
NO_REPLICAS = "there are no replicas to copy from"
LOOP = "one event loop serves all connections"
AT_ONCE = "a group is assigned anew with the next heartbeat, and no later"
NO_SHARE_GROUPS = "share groups and streams groups are not built"
ON_DISK = "a commit is answered when it is on disk, or could not be put there"
NO_TRANSACTIONS = "transactions are not built yet"
NO_COMPACTION = "log compaction is not built yet"
NO_TIER = "there is no other tier: all of a log is on this machine's disk"
NO_JMX = "there is no JVM"

INERT: Mapping[str, str] = {
    "alter.config.policy.class.name": NO_JMX,
    "auto.include.jmx.reporter": NO_JMX,
    "auto.leader.rebalance.enable": ONE_NODE,
    "background.threads": "the broker has one thread for each kind of work",
    "broker.heartbeat.interval.ms": NO_CONTROLLER,
    "broker.rack": ONE_NODE,
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
    "inter.broker.listener.name": ONE_NODE,
    "inter.broker.protocol.version": ONE_NODE,
    "kafka.metrics.": NO_JMX,
    "leader.": ONE_NODE,
    "log.cleaner.": NO_COMPACTION,
    "log.flush.scheduler.interval.ms": "the flusher wakes when there is something to flush",
    "log.flush.start.offset.checkpoint.interval.ms": "written with the other checkpoints",
    "log.local.retention.": NO_TIER,
    "log.preallocate": "files grow as they are written",
    "metadata.": NO_CONTROLLER,
    "metric.reporters": NO_JMX,
    "metrics.": NO_JMX,
    "num.io.threads": LOOP,
    "num.network.threads": LOOP,
    "num.recovery.threads.per.data.dir": "after a crash logs are recovered four at a time",
    "num.replica.": NO_REPLICAS,
    "offsets.commit.required.acks": ON_DISK,
    "offsets.commit.timeout.ms": ON_DISK,
    "offsets.load.buffer.size": "committed offsets are read a batch at a time",
    "offsets.topic.compression.codec": "commits are small, and wait for the disk together",
    "offsets.topic.replication.factor": ONE_NODE,
    "process.roles": "this is the broker, and there are no controllers",
    "queued.max.requests": "what requests hold is bounded in bytes: queued.max.request.bytes",
    "remote.": NO_TIER,
    "replica.": NO_REPLICAS,
    "security.inter.broker.protocol": ONE_NODE,
    "share.": NO_SHARE_GROUPS,
    "socket.listen.backlog.size": "the system's own limit applies",
    "socket.receive.buffer.bytes": "the system sizes socket buffers by itself",
    "socket.send.buffer.bytes": "the system sizes socket buffers by itself",
    "transaction.": NO_TRANSACTIONS,
    "transactional.id.expiration.ms": NO_TRANSACTIONS,
    "unclean.leader.election.enable": ONE_NODE,
    "unstable.": "an option of Kafka's own development",
    "zookeeper.": "there is no ZooKeeper",
}


class InertOption(NamedTuple):
    """A topic option that does nothing: why, and what value it must have all the same, as in Kafka."""

    why: str
    kind: Kind[Any]
    at_least: int | None = None
    at_most: int | None = None


TOPIC_INERT: Mapping[str, InertOption] = {
    "delete.retention.ms": InertOption(NO_COMPACTION, LONG, 0),
    "follower.replication.throttled.replicas": InertOption(NO_REPLICAS, LIST),
    "leader.replication.throttled.replicas": InertOption(NO_REPLICAS, LIST),
    "local.retention.bytes": InertOption(NO_TIER, LONG, -2),
    "local.retention.ms": InertOption(NO_TIER, LONG, -2),
    "max.compaction.lag.ms": InertOption(NO_COMPACTION, LONG, 1),
    "min.cleanable.dirty.ratio": InertOption(NO_COMPACTION, DOUBLE, 0, 1),
    "min.compaction.lag.ms": InertOption(NO_COMPACTION, LONG, 0),
    "preallocate": InertOption("files grow as they are written", BOOL),
    "remote.log.copy.disable": InertOption(NO_TIER, BOOL),
    "remote.log.delete.on.disable": InertOption(NO_TIER, BOOL),
    "unclean.leader.election.enable": InertOption(ONE_NODE, BOOL),
}

UNGUARDED = "the broker can neither authenticate nor encrypt yet, and would be open to everyone"
REFUSED: Mapping[str, str] = {
    "allow.everyone.if.no.acl.found": UNGUARDED,
    "authorizer.": UNGUARDED,
    "listener.name.": UNGUARDED,
    "sasl.": UNGUARDED,
    "ssl.": UNGUARDED,
    "super.users": UNGUARDED,
}


def reason(name: str, table: Mapping[str, str]) -> str | None:
    """Return what `table` says of an option, or None where it does not know it."""
    if name in table:
        return table[name]
    return next((why for key, why in table.items() if key.endswith(".") and name.startswith(key)), None)
