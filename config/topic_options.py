"""The options of a topic, declared as in `options`.

Names, types and defaults are those of Kafka 4; where ours differ, the row says why. As in Kafka, the default of an
option is the broker's option in `broker=`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidelog.config.errors import ConfigError
from tidelog.config.inert import NO_TIER, TOPIC_INERT
from tidelog.config.kinds import BOOL, DOUBLE, FORMAT, INT, LIST, LONG, LONG_MAX, STRING
from tidelog.config.nearest import nearest
from tidelog.config.table import Described, Option, Source, Synonym, option, options_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 168 * HOUR_MS
# One request must not be able to exhaust the machine; each partition costs a file descriptor and a few KB.
MAX_PARTITIONS_PER_TOPIC = 10_000


def null_value(names: Iterable[str]) -> str:
    """Return the error message for options of a topic without a value."""
    return f"Null value not supported for topic configs: {','.join(names)}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TopicConfig:
    """The options of a topic: its own, and the broker's defaults."""

    cleanup_policy: tuple[str, ...] = option(
        "cleanup.policy",
        LIST,
        ("delete",),
        broker="log.cleanup.policy",
        choices=("compact", "delete"),
        may_be_empty=True,
        doc="What happens to old segments. `delete` removes expired ones. `compact` keeps the last record of each key; "
        "`min.cleanable.dirty.ratio` says when it removes earlier ones. With both, compacted records expire too; with "
        "`compact` alone nothing expires. With `compact`, a record without a key gets INVALID_RECORD. An empty list "
        "keeps everything.",
    )
    compression_gzip_level: int = option(
        "compression.gzip.level",
        INT,
        -1,
        broker="compression.gzip.level",
        choices=("-1", *map(str, range(1, 10))),
        doc="With `compression.type=gzip`: from 1 (fastest) to 9 (smallest); -1 is zlib's default, 6. At most 6 is "
        "used, and at most 4 for batches with more than 1 MiB of records: higher levels can take seconds for a "
        "megabyte.",
    )
    compression_lz4_level: int = option(
        "compression.lz4.level",
        INT,
        9,
        broker="compression.lz4.level",
        at_least=1,
        at_most=17,
        doc="With `compression.type=lz4`: from 1 to 17 (smallest). 9 is the fast compressor, as in Kafka. "
        "Of the others at most 8 is used, and at most 4 for batches with more than 1 MiB of records.",
    )
    compression_type: str = option(
        "compression.type",
        STRING,
        "producer",
        broker="compression.type",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        doc="Codec of stored batches. `producer`: as they were sent. Otherwise a batch of another codec is compressed "
        "again before it is stored, and must then fit `max.message.bytes` too; a batch of this codec is stored as it "
        "was sent, whatever its level.",
    )
    compression_zstd_level: int = option(
        "compression.zstd.level",
        INT,
        3,
        broker="compression.zstd.level",
        at_least=-131072,
        at_most=22,
        doc="With `compression.type=zstd`: up to 22 (smallest); negative levels are faster than 1. At most 12 is used, "
        "and at most 9 for batches with more than 1 MiB of records: higher levels take seconds and hundreds of "
        "megabytes.",
    )
    delete_retention_ms: int = option(
        "delete.retention.ms",
        LONG,
        DAY_MS,
        broker="log.cleaner.delete.retention.ms",
        at_least=0,
        doc="How long a tombstone, a record without a value, stays after its first compaction. A reader that starts "
        "from the beginning and takes less time than that sees that the key was deleted.",
    )
    file_delete_delay_ms: int = option(
        "file.delete.delay.ms",
        LONG,
        5_000,
        broker="log.segment.delete.delay.ms",
        at_least=0,
        doc="Time between renaming an expired file to `.deleted` and removing it; until then you can still rescue it. "
        "Reads of an open file continue in any case. Kafka's default is 60000.",
    )
    flush_messages: int = option(
        "flush.messages",
        LONG,
        LONG_MAX,
        broker="log.flush.interval.messages",
        at_least=1,
        doc="With `flush.policy=interval`: records that may wait before the log is forced to disk.",
    )
    flush_ms: int = option(
        "flush.ms",
        LONG,
        LONG_MAX,
        broker="log.flush.interval.ms",
        at_least=0,
        doc="With `flush.policy=interval`: time that a record may wait before the log is forced to disk.",
    )
    flush_policy: str = option(
        "flush.policy",
        STRING,
        "acks",
        broker="flush.policy",
        choices=("acks", "interval", "none"),
        ours=True,
        doc="When records are synced to disk. `acks`: before the response to a produce with acks=all; one sync serves "
        "many requests. `interval`: after `flush.messages` or `flush.ms`, as in Kafka. `none`: when the operating "
        "system writes them (docs/durability.md).",
    )
    index_interval_bytes: int = option(
        "index.interval.bytes",
        INT,
        4096,
        broker="log.index.interval.bytes",
        at_least=0,
        doc="Bytes of log between two entries of the offset index, and of the time index.",
    )
    lookup_clock: str = option(
        "lookup.clock",
        STRING,
        "record",
        broker="lookup.clock",
        choices=("record", "append"),
        ours=True,
        doc="Time that ListOffsets searches by. `record`: the timestamp of the record. `append`: when the broker "
        "appended it; the response then has this time as the timestamp.",
    )
    max_compaction_lag_ms: int = option(
        "max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        broker="log.cleaner.max.compaction.lag.ms",
        at_least=1,
        doc="How long a record may wait to be compacted; after that a pass is due, however little it saves. If it is "
        "less than `segment.ms`, it also seals the segments of a compacted topic. At least `min.compaction.lag.ms`.",
    )
    max_decompressed_bytes: int = option(
        "max.decompressed.bytes",
        LONG,
        64 << 20,
        broker="max.decompressed.bytes",
        at_least=1,
        memory_share=4,
        ours=True,
        doc="Largest size of a decompressed batch. A larger one gets MESSAGE_TOO_LARGE, and the broker uses no "
        "more memory than this for it. A topic's value is at most the broker's.",
    )
    max_message_bytes: int = option(
        "max.message.bytes",
        INT,
        1_048_588,
        broker="message.max.bytes",
        at_least=0,
        doc="Largest batch that is accepted, in bytes as sent, with its header.",
    )
    message_downconversion_enable: bool = option(
        "message.downconversion.enable",
        BOOL,
        True,
        broker="log.message.downconversion.enable",
        doc="Whether newer formats are converted for readers below Fetch 4. If not, they get UNSUPPORTED_VERSION.",
    )
    message_format_version: str = option(
        "message.format.version",
        FORMAT,
        "3.0-IV1",
        broker="log.message.format.version",
        doc="Format of stored records: 0, 1, 2, or a release of Kafka: 0 before 0.10, 1 before 0.11. Records in "
        "another format are converted; stored records stay. 0 and 1 have no headers, 0 no timestamps. Kafka 4 has "
        "dropped it.",
    )
    message_timestamp_after_max_ms: int = option(
        "message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        broker="log.message.timestamp.after.max.ms",
        at_least=0,
        doc="How far a record's create time may be after the broker's clock. "
        "Not checked with `message.timestamp.type=LogAppendTime`.",
    )
    message_timestamp_before_max_ms: int = option(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        broker="log.message.timestamp.before.max.ms",
        at_least=0,
        doc="How far a record's create time may be before the broker's clock. "
        "Not checked with `message.timestamp.type=LogAppendTime`.",
    )
    message_timestamp_difference_max_ms: int = option(
        "message.timestamp.difference.max.ms",
        LONG,
        LONG_MAX,
        broker="log.message.timestamp.difference.max.ms",
        at_least=0,
        doc="Older name of the two bounds above: it applies to each that has its default. Kafka 4 has dropped it.",
    )
    message_timestamp_type: str = option(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        broker="log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
        doc="Clock that sets the timestamps of records: the producer's, or the broker's on arrival.",
    )
    min_cleanable_dirty_ratio: float = option(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        broker="log.cleaner.min.cleanable.ratio",
        at_least=0,
        at_most=1,
        doc="A log is compacted when more than this share of it, and at least 8 %, may be garbage. With "
        "`tidelog.cleaner.schedule=kafka`: when more than this share has not been compacted. The active segment and "
        "segments that are too young (`min.compaction.lag.ms`) do not count.",
    )
    min_compaction_lag_ms: int = option(
        "min.compaction.lag.ms",
        LONG,
        0,
        broker="log.cleaner.min.compaction.lag.ms",
        at_least=0,
        doc="How old a segment's largest timestamp must be before the segment is compacted; until then all of its "
        "records stay.",
    )
    min_insync_replicas: int = option(
        "min.insync.replicas",
        INT,
        1,
        broker="min.insync.replicas",
        at_least=1,
        doc="Replicas that must have a record before the response to acks=all. There is one node, so a value above 1 "
        "needs `tidelog.tolerate.replication.factor`, and the response still waits for the one replica only.",
    )
    remote_storage_enable: bool = option(
        "remote.storage.enable",
        BOOL,
        False,
        choices=("false",),
        because=NO_TIER,
        doc="Whether old segments are moved to another tier of storage.",
    )
    retention_bytes: int = option(
        "retention.bytes",
        LONG,
        -1,
        broker="log.retention.bytes",
        at_least=-1,
        doc="Size of a partition above which its oldest segments are deleted; -1 for no limit.",
    )
    retention_clock: str = option(
        "retention.clock",
        STRING,
        "bounded",
        broker="retention.clock",
        choices=("bounded", "record", "append"),
        ours=True,
        doc="Time from which the age of a segment counts. `bounded`: its largest record timestamp, but no later than "
        "its last append, so a record from the future does not keep the segment. `record`: its largest record "
        "timestamp, as in Kafka. `append`: its last append. Without timestamps it is always the last append.",
    )
    retention_ms: int = option(
        "retention.ms",
        LONG,
        WEEK_MS,
        broker="log.retention.ms",
        aliases={"log.retention.minutes": 60_000, "log.retention.hours": HOUR_MS},
        at_least=-1,
        doc="Age above which the oldest segments are deleted; -1 for no limit.",
    )
    segment_bytes: int = option(
        "segment.bytes",
        INT,
        1 << 30,
        broker="log.segment.bytes",
        at_least=14,
        doc="Size at which a segment is sealed and the next one started. "
        "Kafka 4 requires 1 MiB or more; here it may be smaller.",
    )
    segment_index_bytes: int = option(
        "segment.index.bytes",
        INT,
        10 << 20,
        broker="log.index.size.max.bytes",
        at_least=12,
        doc="Maximum size of an index; a full index seals its segment. The minimum is one entry of the time index.",
    )
    segment_jitter_ms: int = option(
        "segment.jitter.ms",
        LONG,
        0,
        broker="log.roll.jitter.ms",
        aliases={"log.roll.jitter.hours": HOUR_MS},
        at_least=0,
        doc="Up to this much, at random, is subtracted from `segment.ms`, so that not all segments are sealed at once.",
    )
    segment_min_ms: int = option(
        "segment.min.ms",
        LONG,
        10_000,
        broker="log.roll.min.ms",
        at_least=0,
        ours=True,
        doc="Minimum time between new segments that start because of record timestamps, on average over the last 32. "
        "It keeps timestamps that jump from starting a segment with each batch. A new segment still starts if a record "
        "would otherwise outlive `retention.ms`.",
    )
    segment_ms: int = option(
        "segment.ms",
        LONG,
        WEEK_MS,
        broker="log.roll.ms",
        aliases={"log.roll.hours": HOUR_MS},
        at_least=1,
        doc="Span of record time after which a segment is sealed.",
    )
    # Not an option: how long records stay that have expired when they are appended (`BrokerConfig.topic_defaults`).
    late_ms: int = 0
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def override(self, settings: Mapping[str, str | None], *, source: str = "") -> "TopicConfig":
        """Return this configuration with `settings`; raise ConfigError for the first invalid one."""
        values: dict[str, Any] = {}
        texts = dict(self.overrides)
        for name, text in settings.items():
            row = TOPIC_OPTIONS.get(name) or TOPIC_INERT.get(name)
            if row is None:
                problem = f"Unknown topic config name: {name}{nearest(name, TOPIC_OPTIONS)}"
                raise ConfigError(name, problem, source=source)
            if text is None:
                raise ConfigError(name, null_value([name]), source=source)
            value = row.read(text, source=source)
            texts[name] = row.text(value)
            if row.attribute:
                values[row.attribute] = value
        return dataclasses.replace(self, **values, overrides=texts)

    def bounded_by(self, broker: "TopicConfig") -> "TopicConfig":
        """Return this configuration within the broker's bounds, which may be lower than when the topic was set."""
        most = min(self.max_decompressed_bytes, broker.max_decompressed_bytes)
        return dataclasses.replace(self, max_decompressed_bytes=most)

    @property
    def timestamp_bounds_ms(self) -> tuple[int, int]:
        """Return how far a create time may be before and after the broker's clock, as in Kafka 3.9."""
        older = self.message_timestamp_difference_max_ms
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        if after == HOUR_MS and older != LONG_MAX:
            after = older
        return older if before == LONG_MAX else before, after

    @property
    def deletes(self) -> bool:
        """Whether `cleanup.policy` deletes expired segments."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether `cleanup.policy` compacts segments."""
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The time after which a segment is sealed; in a compacted topic, no later than it must be compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @property
    def inert(self) -> Mapping[str, str]:
        """The options that are set but have no effect, with the reason."""
        return {name: TOPIC_INERT[name].why_inert for name in self.overrides if name in TOPIC_INERT}

    def describe(self, synonyms_of: Callable[[Option], tuple[Synonym, ...]]) -> Iterator[Described]:
        """Yield every option with its value and the source of that, also options without effect.

        `synonyms_of` returns what applies if the topic does not set an option.
        """
        for row in (*TOPIC_OPTIONS.values(), *TOPIC_INERT.values()):
            synonyms = synonyms_of(row)
            text = row.text(getattr(self, row.attribute)) if row.attribute else synonyms[0].text
            if row.name in self.overrides:
                text = self.overrides[row.name]
                synonyms = (Synonym(row.name, text, Source.TOPIC), *synonyms)
            yield Described(row.name, text, row.kind, row.doc, synonyms[0].source, synonyms)


TOPIC_OPTIONS: Mapping[str, Option] = {row.name: row for row in options_of(TopicConfig)}
