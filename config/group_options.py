"""The options of the broker for groups and their committed offsets; declared as in `options`."""

import dataclasses

from tidelog.config.kinds import INT, INT_MAX, LIST, LONG, POLICY
from tidelog.config.table import option
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC


# Only `BrokerConfig` is made, which has its own methods.
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False, eq=False)
class GroupOptions:
    """The options for all groups."""

    group_consumer_assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        choices=("uniform", "range"),
        because="no others are built in",
        doc="Assignors that distribute partitions among the members of a consumer group (KIP-848). The first is used "
        "if members ask for none.",
    )
    group_consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        at_least=1,
        doc="Interval of heartbeats of members of consumer groups.",
    )
    group_consumer_max_heartbeat_interval_ms: int = option(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        at_least=1,
        doc="Maximum of `group.consumer.heartbeat.interval.ms`.",
    )
    group_consumer_max_session_timeout_ms: int = option(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        at_least=1,
        doc="Maximum of `group.consumer.session.timeout.ms`.",
    )
    group_consumer_max_size: int = option(
        "group.consumer.max.size",
        INT,
        INT_MAX,
        at_least=1,
        doc="Maximum number of members of a consumer group; one more gets GROUP_MAX_SIZE_REACHED.",
    )
    group_consumer_migration_policy: str = option(
        "group.consumer.migration.policy",
        POLICY,
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Whether a classic group becomes a consumer group when a member of the consumer protocol joins "
        "(`upgrade`), and a classic group again when its last such member has left (`downgrade`).",
    )
    group_consumer_min_heartbeat_interval_ms: int = option(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        at_least=1,
        doc="Minimum of `group.consumer.heartbeat.interval.ms`.",
    )
    group_consumer_min_session_timeout_ms: int = option(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        at_least=1,
        doc="Minimum of `group.consumer.session.timeout.ms`.",
    )
    group_consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        at_least=1,
        doc="Time without a heartbeat after which a member of a consumer group is removed.",
    )
    group_initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms",
        INT,
        0,
        at_least=0,
        doc="How long an empty group waits for more members when its first one joins. Kafka's default is 3000. "
        "0 lets a single consumer start at once; a later one causes another rebalance.",
    )
    group_max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        at_least=1,
        doc="Longest session timeout that a member may ask for.",
    )
    group_max_size: int = option(
        "group.max.size",
        INT,
        INT_MAX,
        at_least=1,
        doc="Maximum number of members of a classic group; one more gets GROUP_MAX_SIZE_REACHED.",
    )
    group_min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        at_least=1,
        doc="Shortest session timeout that a member may ask for.",
    )
    group_state_max_bytes: int = option(
        "group.state.max.bytes",
        LONG,
        64 << 20,
        at_least=1 << 20,
        ours=True,
        doc="Memory for all groups together: their members, assignments, and committed offsets (about 300 bytes each). "
        "One address may use half of it. The last sixteenth is for addresses that hold little. When memory runs short, "
        "the broker deletes idle groups of the address that holds the most (docs/limits.md). At the bound a new "
        "member gets GROUP_MAX_SIZE_REACHED, and the first commit of a partition INVALID_COMMIT_OFFSET_SIZE. Existing "
        "groups go on; a member that needs more memory gets COORDINATOR_NOT_AVAILABLE and tries again.",
    )
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes",
        INT,
        4096,
        at_least=0,
        doc="Longest metadata text that a client may commit with an offset.",
    )
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        at_least=1,
        doc="Time between two checks for expired committed offsets.",
    )
    offsets_retention_minutes: int = option(
        "offsets.retention.minutes",
        INT,
        10_080,
        at_least=1,
        doc="How long committed offsets are kept after their group has lost its last member. In a group of consumers "
        "with members, offsets of topics that no member reads expire this long after their commit.",
    )
    offsets_topic_num_partitions: int = option(
        "offsets.topic.num.partitions",
        INT,
        1,
        at_least=1,
        at_most=MAX_PARTITIONS_PER_TOPIC,
        doc="Partitions of `__consumer_offsets` when it is created. Kafka's default is 50, to share the load among "
        "brokers; with one partition, a single flush puts the commits of all groups on disk.",
    )
    offsets_topic_segment_bytes: int = option(
        "offsets.topic.segment.bytes",
        INT,
        100 << 20,
        at_least=1,
        doc="`segment.bytes` of `__consumer_offsets` when it is created.",
    )
