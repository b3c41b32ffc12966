"""The options of the broker that are about groups and their committed offsets; rows as in `options`."""

import dataclasses

from tidelog.config.kinds import INT, INT_MAX, LIST, LONG, POLICY
from tidelog.config.table import option
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """What holds for all groups."""

    group_consumer_assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        choices=("uniform", "range"),
        because="no others are built in",
        doc="How partitions may be shared out among the members of a consumer group (KIP-848); the first is taken "
        "where members ask for none.",
    )
    group_consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        at_least=1,
        doc="How often members of consumer groups are told to send a heartbeat.",
    )
    group_consumer_max_heartbeat_interval_ms: int = option(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        at_least=1,
        doc="Longest that `group.consumer.heartbeat.interval.ms` may be.",
    )
    group_consumer_max_session_timeout_ms: int = option(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        at_least=1,
        doc="Longest that `group.consumer.session.timeout.ms` may be.",
    )
    group_consumer_max_size: int = option(
        "group.consumer.max.size",
        INT,
        INT_MAX,
        at_least=1,
        doc="Members that one consumer group may have; one more is answered GROUP_MAX_SIZE_REACHED.",
    )
    group_consumer_migration_policy: str = option(
        "group.consumer.migration.policy",
        POLICY,
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Whether a classic group becomes a consumer group when a member of that protocol joins (`upgrade`), and a "
        "classic one again when the last of them has left (`downgrade`).",
    )
    group_consumer_min_heartbeat_interval_ms: int = option(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        at_least=1,
        doc="Shortest that `group.consumer.heartbeat.interval.ms` may be.",
    )
    group_consumer_min_session_timeout_ms: int = option(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        at_least=1,
        doc="Shortest that `group.consumer.session.timeout.ms` may be.",
    )
    group_consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        at_least=1,
        doc="Time without a heartbeat after which a member of a consumer group is taken to be gone.",
    )
    group_initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms",
        INT,
        0,
        at_least=0,
        doc="How long an empty group waits for more members when its first one joins. Kafka's default is 3000; ours "
        "lets a single consumer begin at once, and who comes later starts one more rebalance.",
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
        doc="Members that one group may have; one more is answered GROUP_MAX_SIZE_REACHED.",
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
        "the broker deletes idle groups of the address that holds the most (docs/operations.md). At the bound a new "
        "member gets GROUP_MAX_SIZE_REACHED, and the first commit of a partition INVALID_COMMIT_OFFSET_SIZE. Existing "
        "groups go on; a member that needs more memory gets COORDINATOR_NOT_AVAILABLE and tries again.",
    )
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes",
        INT,
        4096,
        at_least=0,
        doc="Longest text that a client may commit with an offset.",
    )
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        at_least=1,
        doc="Time between two looks for committed offsets that have expired.",
    )
    offsets_retention_minutes: int = option(
        "offsets.retention.minutes",
        INT,
        10_080,
        at_least=1,
        doc="How long committed offsets are kept once their group has no members; of a group of consumers that has, "
        "those of topics that none of them reads, from when they were committed.",
    )
    offsets_topic_num_partitions: int = option(
        "offsets.topic.num.partitions",
        INT,
        1,
        at_least=1,
        at_most=MAX_PARTITIONS_PER_TOPIC,
        doc="Partitions of `__consumer_offsets`, when it is made. Kafka's default is 50, for as many brokers to share; "
        "with one a single flush puts the commits of all groups on disk.",
    )
    offsets_topic_segment_bytes: int = option(
        "offsets.topic.segment.bytes",
        INT,
        100 << 20,
        at_least=1,
        doc="`segment.bytes` of `__consumer_offsets`, when it is made.",
    )
