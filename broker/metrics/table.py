"""The table of all metrics: name, kind, labels and description.

docs/metrics.md is made from it. Names and units follow Prometheus: seconds, bytes, `_total` for counters.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric; `doc` is a sentence or two."""

    name: str
    kind: str
    doc: str
    labels: tuple[str, ...] = ()


class Group(NamedTuple):
    """Metrics that belong together."""

    title: str
    metrics: tuple[Metric, ...]


_API, _KIND, _TOPIC, _PARTITION = ("api",), ("kind",), ("topic",), ("topic", "partition")
_COMMITTED = ("group", "topic", "partition")

INFO = Metric("tidelog_info", GAUGE, "Always 1; what runs.", ("version", "cluster_id", "node_id"))

REQUESTS = Metric("tidelog_requests_total", COUNTER, "Decoded requests.", _API)
ERRORS = Metric(
    "tidelog_request_errors_total",
    COUNTER,
    "Error codes in answers, by Kafka's names. An answer about ten partitions may have ten.",
    ("api", "error"),
)
LATENCY = Metric(
    "tidelog_request_seconds",
    HISTOGRAM,
    "Time from the start of a request until its answer may leave. For a fetch this includes the time that its client "
    "lets it wait, for a produce with acks=all the way to the disk.",
    _API,
)
REQUEST_BYTES = Metric("tidelog_request_bytes_total", COUNTER, "Bytes of requests.", _API)
RESPONSE_BYTES = Metric(
    "tidelog_response_bytes_total", COUNTER, "Bytes of answers. Those of Fetch are nearly all records.", _API
)
BAD_REQUESTS = Metric(
    "tidelog_bad_requests_total", COUNTER, "Requests that could not be served and ended their connection."
)

CONNECTIONS = Metric("tidelog_connections", GAUGE, "Client connections.")
CONNECTIONS_MAX = Metric(
    "tidelog_connections_max",
    GAUGE,
    "The bound of connections: `max.connections`, or three quarters of the files that the broker may open.",
)
ACCEPTED = Metric("tidelog_connections_accepted_total", COUNTER, "Accepted connections.")
REFUSED = Metric("tidelog_connections_refused_total", COUNTER, "Connections that were refused at a bound.")
WAITERS = Metric("tidelog_waiting_fetches", GAUGE, "Fetches that wait for records.")
HELD = Metric(
    "tidelog_held_bytes",
    GAUGE,
    "Memory held for clients: `requests` being received, `topics` to be created or deleted, `fetches` that wait, "
    "`answers` that were not taken, `producers` that are remembered, `groups` of consumers, `fetch_sessions`.",
    _KIND,
)
HELD_MAX = Metric(
    "tidelog_held_bytes_max", GAUGE, "The bound of each kind (docs/operations.md); negative for none.", _KIND
)

TOPICS = Metric("tidelog_topics", GAUGE, "Topics.")
PARTITIONS = Metric("tidelog_partitions", GAUGE, "Partitions of all topics.")
SEGMENTS = Metric("tidelog_segments", GAUGE, "Segments of all logs.")
LOG_BYTES = Metric("tidelog_log_bytes", GAUGE, "Bytes of all logs, without their indexes.")
TOPIC_PARTITIONS = Metric("tidelog_topic_partitions", GAUGE, "Partitions of a topic.", _TOPIC)
TOPIC_RECORDS = Metric(
    "tidelog_topic_records_total",
    COUNTER,
    "Offsets that were ever assigned in a topic. Its rate is the rate of appended records.",
    _TOPIC,
)
TOPIC_SEGMENTS = Metric("tidelog_topic_segments", GAUGE, "Segments of a topic's logs.", _TOPIC)
TOPIC_BYTES = Metric("tidelog_topic_bytes", GAUGE, "Bytes of a topic's logs.", _TOPIC)
START_OFFSET = Metric(
    "tidelog_partition_start_offset", GAUGE, "The first offset that can be read.", _PARTITION
)
END_OFFSET = Metric("tidelog_partition_end_offset", GAUGE, "The offset of the next record.", _PARTITION)
PARTITION_BYTES = Metric("tidelog_partition_bytes", GAUGE, "Bytes of a log.", _PARTITION)
APPEND_DELAY = Metric(
    "tidelog_partition_append_delay_seconds",
    GAUGE,
    "Time from the last record's own timestamp to its append. Negative if the producer's clock is ahead. Left out for "
    "records without a timestamp, or with the append's, and for those that take long to read.",
    _PARTITION,
)

LAG_RECORDS = Metric(
    "tidelog_group_lag_records",
    GAUGE,
    "Existing records from the committed offset of a group on.",
    _COMMITTED,
)
LAG_SECONDS = Metric(
    "tidelog_group_lag_seconds",
    GAUGE,
    "Time from the append of the record that the group reads next to that of the last one; 0 if it has read all.",
    _COMMITTED,
)
PAST_END = Metric(
    "tidelog_group_past_end_records",
    GAUGE,
    "How far a group's committed offset is past the end of the log, because the log was cut or the topic was made "
    "again. Such an offset has no lag; all others are left out here.",
    _COMMITTED,
)
LAGS_LEFT_OUT = Metric(
    "tidelog_group_lags_left_out",
    GAUGE,
    "Committed offsets without a lag, because there are too many, or the name of the group is too long.",
)

COMMITS = Metric(
    "tidelog_commit_seconds",
    HISTOGRAM,
    "Time of a group commit: an fdatasync of each log, or one sync of the file system. acks=all waits for it.",
)
DELETED_SEGMENTS = Metric(
    "tidelog_retention_segments_total", COUNTER, "Segments deleted by retention since the start."
)
DELETED_BYTES = Metric(
    "tidelog_retention_bytes_total", COUNTER, "Bytes of logs deleted by retention since the start."
)
RECOVERY_SECONDS = Metric("tidelog_recovery_seconds", GAUGE, "Time that the start took to open all logs.")
RECOVERY_READ = Metric(
    "tidelog_recovery_read_bytes", GAUGE, "Bytes of logs that the start read because no summary covered them."
)
RECOVERY_CUT = Metric(
    "tidelog_recovery_cut_bytes", GAUGE, "Bytes that the start cut off because no flush covered them."
)
_OUTCOME = ("outcome",)
PASSES = Metric(
    "tidelog_compaction_passes_total",
    COUNTER,
    "Passes of compaction over a log since the start: `done`, `failed`, or `given_up`, because the log changed, was "
    "deleted, or is not compacted any more.",
    _OUTCOME,
)
PASS_SECONDS = Metric(
    "tidelog_compaction_seconds_total",
    COUNTER,
    "Time of these passes, with their waits for `log.cleaner.io.max.bytes.per.second`.",
    _OUTCOME,
)
PASSES_UNDER_WAY = Metric("tidelog_compaction_passes", GAUGE, "Passes in progress.")
PASS_AGE = Metric(
    "tidelog_compaction_last_pass_age_seconds",
    GAUGE,
    "Time since the last pass began. Left out before the first.",
)
CLEANED_READ = Metric(
    "tidelog_compaction_read_bytes_total", COUNTER, "Bytes of logs read by completed passes."
)
CLEANED_WRITTEN = Metric(
    "tidelog_compaction_written_bytes_total", COUNTER, "Bytes of logs written by completed passes."
)
CLEANED_RECORDS = Metric(
    "tidelog_compaction_dropped_records_total",
    COUNTER,
    "Records dropped by completed passes, including tombstones.",
)
CLEANED_TOMBSTONES = Metric(
    "tidelog_compaction_dropped_tombstones_total",
    COUNTER,
    "Tombstones dropped by completed passes, because `delete.retention.ms` was over.",
)
DIRTY_MAX = Metric(
    "tidelog_compaction_dirty_ratio_max",
    GAUGE,
    "The largest ratio of a log that is compared with `min.cleanable.dirty.ratio`: the share of its compactable bytes "
    "that is known or estimated to be replaced, or is new with `tidelog.cleaner.schedule=kafka`.",
)
FAILING = Metric(
    "tidelog_compaction_failing",
    GAUGE,
    "Partitions whose compaction fails. It is tried again within ten minutes.",
)
FAILING_PARTITION = Metric(
    "tidelog_partition_compaction_failing", GAUGE, "1 if compaction fails; `/health` says why.", _PARTITION
)

DAMAGED_RANGES = Metric("tidelog_damaged_ranges", GAUGE, "Damaged ranges of logs; reads of them are refused.")
DAMAGED_BYTES = Metric("tidelog_damaged_bytes", GAUGE, "Bytes in damaged ranges.")
REFUSING = Metric("tidelog_logs_refusing_writes", GAUGE, "Logs that take no writes; `/health` says which.")
DISK_FULL = Metric("tidelog_disk_full", GAUGE, "1 while the disk of the data folder is full.")

GROUPS: Final = (
    Group("The broker", (INFO,)),
    Group("Requests", (REQUESTS, ERRORS, LATENCY, REQUEST_BYTES, RESPONSE_BYTES, BAD_REQUESTS)),
    Group("Clients", (CONNECTIONS, CONNECTIONS_MAX, ACCEPTED, REFUSED, WAITERS, HELD, HELD_MAX)),
    Group(
        "Topics",
        (TOPICS, PARTITIONS, SEGMENTS, LOG_BYTES, TOPIC_PARTITIONS, TOPIC_RECORDS, TOPIC_SEGMENTS, TOPIC_BYTES,
         START_OFFSET, END_OFFSET, PARTITION_BYTES, APPEND_DELAY),
    ),
    Group("Groups", (LAG_RECORDS, LAG_SECONDS, PAST_END, LAGS_LEFT_OUT)),
    Group(
        "Compaction",
        (PASSES, PASS_SECONDS, PASSES_UNDER_WAY, PASS_AGE, CLEANED_READ, CLEANED_WRITTEN, CLEANED_RECORDS,
         CLEANED_TOMBSTONES, DIRTY_MAX, FAILING, FAILING_PARTITION),
    ),
    Group(
        "Storage",
        (COMMITS, DELETED_SEGMENTS, DELETED_BYTES, RECOVERY_SECONDS, RECOVERY_READ, RECOVERY_CUT,
         DAMAGED_RANGES, DAMAGED_BYTES, REFUSING, DISK_FULL),
    ),
)  # fmt: skip
METRICS: Final = tuple(metric for group in GROUPS for metric in group.metrics)
