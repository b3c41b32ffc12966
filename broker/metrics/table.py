"""The table of all metrics: name, kind, labels and description.

`make docs` writes docs/metrics.md from it. Names and units follow Prometheus: seconds, bytes, `_total` for counters.
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

INFO = Metric(
    "tidelog_info", GAUGE, "Always 1. The labels identify the broker.", ("version", "cluster_id", "node_id")
)

REQUESTS = Metric("tidelog_requests_total", COUNTER, "Requests that the broker could decode.", _API)
ERRORS = Metric(
    "tidelog_request_errors_total",
    COUNTER,
    "Error codes in responses, with Kafka's names. A response about ten partitions can count ten.",
    ("api", "error"),
)
LATENCY = Metric(
    "tidelog_request_seconds",
    HISTOGRAM,
    "Time from the start of a request until its response can be sent. It includes the time that a fetch waits for "
    "records, and the disk sync of a produce with acks=all.",
    _API,
)
REQUEST_BYTES = Metric("tidelog_request_bytes_total", COUNTER, "Bytes of requests.", _API)
RESPONSE_BYTES = Metric(
    "tidelog_response_bytes_total",
    COUNTER,
    "Bytes of responses. For Fetch, nearly all of them are records.",
    _API,
)
BAD_REQUESTS = Metric(
    "tidelog_bad_requests_total",
    COUNTER,
    "Requests that the broker could not decode or serve. Each one closed its connection.",
)

CONNECTIONS = Metric("tidelog_connections", GAUGE, "Client connections.")
CONNECTIONS_MAX = Metric(
    "tidelog_connections_max",
    GAUGE,
    "Maximum number of connections: `max.connections`, but at most three quarters of the file descriptors "
    "(`ulimit -n`).",
)
ACCEPTED = Metric("tidelog_connections_accepted_total", COUNTER, "Accepted connections.")
REFUSED = Metric("tidelog_connections_refused_total", COUNTER, "Connections refused because of a limit.")
WAITERS = Metric("tidelog_waiting_fetches", GAUGE, "Fetches that are waiting for records.")
HELD = Metric(
    "tidelog_held_bytes",
    GAUGE,
    "Memory held for clients: `requests` being received, `topics` that wait to be created, changed or deleted, waiting "
    "`fetches`, unsent `answers`, idempotent `producers`, consumer `groups`, `fetch_sessions`.",
    _KIND,
)
HELD_MAX = Metric(
    "tidelog_held_bytes_max",
    GAUGE,
    "Limit of each kind (docs/limits.md). Negative if it has no limit.",
    _KIND,
)

TOPICS = Metric("tidelog_topics", GAUGE, "Topics.")
PARTITIONS = Metric("tidelog_partitions", GAUGE, "Partitions of all topics together.")
SEGMENTS = Metric("tidelog_segments", GAUGE, "Segments of all logs together.")
LOG_BYTES = Metric("tidelog_log_bytes", GAUGE, "Bytes of all logs together, without their indexes.")
TOPIC_PARTITIONS = Metric("tidelog_topic_partitions", GAUGE, "Partitions of a topic.", _TOPIC)
TOPIC_RECORDS = Metric(
    "tidelog_topic_records_total",
    COUNTER,
    "Sum of the end offsets of a topic's partitions. Its rate is the rate of appended records.",
    _TOPIC,
)
TOPIC_SEGMENTS = Metric("tidelog_topic_segments", GAUGE, "Segments of a topic's logs.", _TOPIC)
TOPIC_BYTES = Metric("tidelog_topic_bytes", GAUGE, "Bytes of a topic's logs.", _TOPIC)
START_OFFSET = Metric(
    "tidelog_partition_start_offset", GAUGE, "First offset that can be read (log start offset).", _PARTITION
)
END_OFFSET = Metric(
    "tidelog_partition_end_offset", GAUGE, "Offset that the next record gets (log end offset).", _PARTITION
)
PARTITION_BYTES = Metric("tidelog_partition_bytes", GAUGE, "Bytes of a partition's log.", _PARTITION)
APPEND_DELAY = Metric(
    "tidelog_partition_append_delay_seconds",
    GAUGE,
    "Time from the create time of the last record to its append. Negative if the producer's clock is ahead. Omitted if "
    "the record has no timestamp, has the append time as its timestamp, or takes long to read.",
    _PARTITION,
)

LAG_RECORDS = Metric(
    "tidelog_group_lag_records",
    GAUGE,
    "Records left to read: the offsets from a group's committed offset, or from the start of the log if that is later, "
    "to the end of the log. Records that compaction removed count too.",
    _COMMITTED,
)
LAG_SECONDS = Metric(
    "tidelog_group_lag_seconds",
    GAUGE,
    "Time between the append of the record that the group reads next and the append of the last one. 0 if the "
    "group has read all records.",
    _COMMITTED,
)
PAST_END = Metric(
    "tidelog_group_past_end_records",
    GAUGE,
    "How far a group's committed offset is past the end of the log, because the log was cut or the topic was created "
    "again. Such an offset has no lag. Committed offsets within the log are omitted.",
    _COMMITTED,
)
LAGS_LEFT_OUT = Metric(
    "tidelog_group_lags_left_out",
    GAUGE,
    "Committed offsets without a lag, because there are too many or the name of the group is too long.",
)

COMMITS = Metric(
    "tidelog_commit_seconds",
    HISTOGRAM,
    "Duration of a group commit: an fdatasync of each log, or one sync of the file system. acks=all waits for it.",
)
DELETED_SEGMENTS = Metric(
    "tidelog_retention_segments_total", COUNTER, "Segments deleted by retention since the start."
)
DELETED_BYTES = Metric(
    "tidelog_retention_bytes_total", COUNTER, "Bytes of logs deleted by retention since the start."
)
RECOVERY_SECONDS = Metric(
    "tidelog_recovery_seconds", GAUGE, "Time that the broker needed to open all logs at start-up."
)
RECOVERY_READ = Metric(
    "tidelog_recovery_read_bytes",
    GAUGE,
    "Bytes of logs that the broker had to read at start-up because no summary covered them.",
)
RECOVERY_CUT = Metric(
    "tidelog_recovery_cut_bytes",
    GAUGE,
    "Bytes that the broker cut off at start-up because no flush covered them.",
)
_OUTCOME = ("outcome",)
PASSES = Metric(
    "tidelog_compaction_passes_total",
    COUNTER,
    "Compaction passes over a log since the start: `done`, `failed`, or `given_up` because the log changed, was "
    "deleted, or is no longer compacted.",
    _OUTCOME,
)
PASS_SECONDS = Metric(
    "tidelog_compaction_seconds_total",
    COUNTER,
    "Duration of these passes, including the throttling by `log.cleaner.io.max.bytes.per.second`.",
    _OUTCOME,
)
PASSES_UNDER_WAY = Metric("tidelog_compaction_passes", GAUGE, "Passes in progress.")
PASS_AGE = Metric(
    "tidelog_compaction_last_pass_age_seconds",
    GAUGE,
    "Time since the last pass began. Omitted before the first pass.",
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
    "Tombstones dropped by completed passes because `delete.retention.ms` had passed.",
)
DIRTY_MAX = Metric(
    "tidelog_compaction_dirty_ratio_max",
    GAUGE,
    "Largest dirty ratio of any log, the value that is compared with `min.cleanable.dirty.ratio`: the share of the "
    "compactable bytes that newer records replace, partly estimated. With `tidelog.cleaner.schedule=kafka`, the share "
    "that is new since the last pass.",
)
FAILING = Metric(
    "tidelog_compaction_failing",
    GAUGE,
    "Partitions whose compaction fails. The broker tries again within ten minutes.",
)
FAILING_PARTITION = Metric(
    "tidelog_partition_compaction_failing",
    GAUGE,
    "Always 1. Present only for partitions whose compaction fails; `/health` says why.",
    _PARTITION,
)

DAMAGED_RANGES = Metric(
    "tidelog_damaged_ranges", GAUGE, "Damaged ranges of logs. Reads of them fail. `/health` lists them."
)
DAMAGED_BYTES = Metric("tidelog_damaged_bytes", GAUGE, "Bytes in damaged ranges.")
REFUSING = Metric("tidelog_logs_refusing_writes", GAUGE, "Logs that refuse writes. `/health` lists them.")
DISK_FULL = Metric("tidelog_disk_full", GAUGE, "1 while the disk of the data folder is full, otherwise 0.")
DISK_BYTES = Metric("tidelog_disk_bytes", GAUGE, "Size of the file system of the data folder.")
DISK_FREE = Metric(
    "tidelog_disk_free_bytes", GAUGE, "Bytes of that file system that the broker can still use."
)

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
         DAMAGED_RANGES, DAMAGED_BYTES, REFUSING, DISK_FULL, DISK_BYTES, DISK_FREE),
    ),
)  # fmt: skip
METRICS: Final = tuple(metric for group in GROUPS for metric in group.metrics)
