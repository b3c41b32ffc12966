"""Every metric there is: its name, what kind it is, its labels, and what it says.

Owns the words; docs/metrics.md is made of them. Names and units are as Prometheus has them: seconds, bytes, `_total`
for what only grows.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row; `doc` is a sentence or two."""

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

REQUESTS = Metric("tidelog_requests_total", COUNTER, "Requests that were decoded.", _API)
ERRORS = Metric(
    "tidelog_request_errors_total",
    COUNTER,
    "Error codes in answers, by Kafka's names: an answer about ten partitions may have ten.",
    ("api", "error"),
)
LATENCY = Metric(
    "tidelog_request_seconds",
    HISTOGRAM,
    "Time from when a request is taken up until its answer may leave. That of a fetch has in it the time that its "
    "client lets it wait, that of a produce with acks=all the way to the disk.",
    _API,
)
REQUEST_BYTES = Metric("tidelog_request_bytes_total", COUNTER, "Bytes of requests.", _API)
RESPONSE_BYTES = Metric(
    "tidelog_response_bytes_total", COUNTER, "Bytes of answers; those of Fetch are nearly all records.", _API
)
BAD_REQUESTS = Metric(
    "tidelog_bad_requests_total", COUNTER, "Requests that could not be served and ended their connection."
)

CONNECTIONS = Metric("tidelog_connections", GAUGE, "Connections of clients.")
CONNECTIONS_MAX = Metric(
    "tidelog_connections_max",
    GAUGE,
    "Their bound: `max.connections`, or three quarters of the files that the broker may open.",
)
ACCEPTED = Metric("tidelog_connections_accepted_total", COUNTER, "Connections that were admitted.")
REFUSED = Metric("tidelog_connections_refused_total", COUNTER, "Connections that were closed at a bound.")
WAITERS = Metric("tidelog_waiting_fetches", GAUGE, "Fetches that wait for records.")
HELD = Metric(
    "tidelog_held_bytes",
    GAUGE,
    "What clients make the broker hold: `requests` on their way, `topics` to be created or deleted, `fetches` that "
    "wait, `answers` that were not taken, `producers` that are remembered, `groups` of consumers, `fetch_sessions`.",
    _KIND,
)
HELD_MAX = Metric(
    "tidelog_held_bytes_max", GAUGE, "The bound of each (docs/operations.md); negative for none.", _KIND
)

TOPICS = Metric("tidelog_topics", GAUGE, "Topics.")
PARTITIONS = Metric("tidelog_partitions", GAUGE, "Partitions of all topics.")
SEGMENTS = Metric("tidelog_segments", GAUGE, "Segments of all logs.")
LOG_BYTES = Metric("tidelog_log_bytes", GAUGE, "Bytes of all logs, without their indexes.")
TOPIC_PARTITIONS = Metric("tidelog_topic_partitions", GAUGE, "Partitions of a topic.", _TOPIC)
TOPIC_RECORDS = Metric(
    "tidelog_topic_records_total",
    COUNTER,
    "Offsets that were given out in a topic, ever: what its rate is, records are appended at.",
    _TOPIC,
)
TOPIC_SEGMENTS = Metric("tidelog_topic_segments", GAUGE, "Segments of a topic's logs.", _TOPIC)
TOPIC_BYTES = Metric("tidelog_topic_bytes", GAUGE, "Bytes of a topic's logs.", _TOPIC)
START_OFFSET = Metric(
    "tidelog_partition_start_offset", GAUGE, "The first offset that can be read.", _PARTITION
)
END_OFFSET = Metric(
    "tidelog_partition_end_offset", GAUGE, "The offset that the next record gets.", _PARTITION
)
PARTITION_BYTES = Metric("tidelog_partition_bytes", GAUGE, "Bytes of a log.", _PARTITION)
APPEND_DELAY = Metric(
    "tidelog_partition_append_delay_seconds",
    GAUGE,
    "How long after it was made, by its own time, the last record was appended. Negative where the producer's clock is "
    "ahead. Not told of records without a time, or stamped when they were appended, or that take long to look into.",
    _PARTITION,
)

LAG_RECORDS = Metric(
    "tidelog_group_lag_records",
    GAUGE,
    "Records behind the offset that a group has committed, of those that are there.",
    _COMMITTED,
)
LAG_SECONDS = Metric(
    "tidelog_group_lag_seconds",
    GAUGE,
    "How much later than the record that the group reads next the last one was appended; 0 where it has read all.",
    _COMMITTED,
)
PAST_END = Metric(
    "tidelog_group_past_end_records",
    GAUGE,
    "How far past the end of the log the committed offset of a group is, only where it is: the log was cut, or the "
    "topic was made again. Such an offset has no lag.",
    _COMMITTED,
)
LAGS_LEFT_OUT = Metric(
    "tidelog_group_lags_left_out",
    GAUGE,
    "Committed offsets whose lag is not told, as there are too many, or the name of the group is too long.",
)

COMMITS = Metric(
    "tidelog_commit_seconds",
    HISTOGRAM,
    "Time that a group commit took to put what had gathered on disk: an fdatasync of each log, or one sync of the file "
    "system. What acks=all waits for.",
)
DELETED_SEGMENTS = Metric(
    "tidelog_retention_segments_total", COUNTER, "Segments that retention has deleted since the start."
)
DELETED_BYTES = Metric(
    "tidelog_retention_bytes_total", COUNTER, "Bytes of logs that retention has deleted since the start."
)
RECOVERY_SECONDS = Metric("tidelog_recovery_seconds", GAUGE, "Time that the start took to open all logs.")
RECOVERY_READ = Metric(
    "tidelog_recovery_read_bytes", GAUGE, "Bytes of logs that the start read, as no summary vouched for them."
)
RECOVERY_CUT = Metric(
    "tidelog_recovery_cut_bytes", GAUGE, "Bytes that the start cut off: what no flush had covered."
)
_OUTCOME = ("outcome",)
PASSES = Metric(
    "tidelog_compaction_passes_total",
    COUNTER,
    "Passes of compaction over a log since the start: `done`, `failed`, or `given_up`, as the log changed meanwhile, "
    "was deleted, or is not to be compacted any more.",
    _OUTCOME,
)
PASS_SECONDS = Metric(
    "tidelog_compaction_seconds_total",
    COUNTER,
    "Time that these took, with what they waited for `log.cleaner.io.max.bytes.per.second`.",
    _OUTCOME,
)
PASSES_UNDER_WAY = Metric("tidelog_compaction_passes", GAUGE, "Passes that are under way.")
PASS_AGE = Metric(
    "tidelog_compaction_last_pass_age_seconds",
    GAUGE,
    "Time since the last pass began; not told before the first.",
)
CLEANED_READ = Metric(
    "tidelog_compaction_read_bytes_total", COUNTER, "Bytes of logs that passes which are done have read."
)
CLEANED_WRITTEN = Metric(
    "tidelog_compaction_written_bytes_total", COUNTER, "Bytes of logs that they have written."
)
CLEANED_RECORDS = Metric(
    "tidelog_compaction_dropped_records_total",
    COUNTER,
    "Records that they have left out, tombstones with them.",
)
CLEANED_TOMBSTONES = Metric(
    "tidelog_compaction_dropped_tombstones_total",
    COUNTER,
    "Tombstones that they have left out, as `delete.retention.ms` was over.",
)
DIRTY_MAX = Metric(
    "tidelog_compaction_dirty_ratio_max",
    GAUGE,
    "What `min.cleanable.dirty.ratio` is compared with, of the log where it is largest: the share of what may be "
    "compacted by now that is known or thought to be replaced, or with `tidelog.cleaner.schedule=kafka` is new.",
)
FAILING = Metric(
    "tidelog_compaction_failing",
    GAUGE,
    "Partitions whose compaction fails. It is tried again, after ten minutes at the latest.",
)
FAILING_PARTITION = Metric(
    "tidelog_partition_compaction_failing", GAUGE, "1 for each of these; `/health` says why.", _PARTITION
)

DAMAGED_RANGES = Metric("tidelog_damaged_ranges", GAUGE, "Ranges of logs that are damaged, and refused.")
DAMAGED_BYTES = Metric("tidelog_damaged_bytes", GAUGE, "Bytes in them.")
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
