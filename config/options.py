"""The table: every option that Tidelog honours, declared once.

The fields of the two dataclasses are the rows, so a type checker sees each option and a misspelt one is an
error. Names, types and defaults are those of Kafka 4; where ours differ, the row says why. A topic option's
default is the broker's option of the name in `broker=`, as in Kafka.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.config.errors import ConfigError
from tidelog.config.inert import NO_TIER, TOPIC_INERT
from tidelog.config.kinds import (
    BOOL,
    DIRECTORY,
    FORMAT,
    INT,
    INT_MAX,
    LIST,
    LISTENERS,
    LONG,
    LONG_MAX,
    PROTOCOL_MAP,
    STRING,
    Kind,
    Listener,
)
from tidelog.config.nearest import nearest
from tidelog.config.table import Option, option, options_of

HOUR_MS = 3_600_000
WEEK_MS = 168 * HOUR_MS
ONE_NODE = "there is one node"


class Source(IntEnum):
    """Where a value came from, numbered as in DescribeConfigs."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """A setting that would apply if those before it were not there."""

    name: str
    text: str
    source: Source


class Described(NamedTuple):
    """One option of one configuration, as DescribeConfigs tells it; the first synonym is in force."""

    name: str
    text: str
    kind: Kind[Any]
    doc: str
    source: Source
    synonyms: tuple[Synonym, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What holds for one topic: the broker's defaults under the topic's own overrides."""

    cleanup_policy: tuple[str, ...] = option(
        "cleanup.policy",
        LIST,
        ("delete",),
        broker="log.cleanup.policy",
        choices=("delete",),
        because="log compaction is not built yet",
        doc="What happens to old segments: `delete` removes those that have expired.",
    )
    compression_gzip_level: int = option(
        "compression.gzip.level",
        INT,
        -1,
        broker="compression.gzip.level",
        choices=("-1", *map(str, range(1, 10))),
        doc="With `compression.type=gzip`: from 1, fast, to 9, small; -1 is zlib's own choice, 6. Taken as 6 at most, "
        "as 4 for batches with more than 1 MiB of records: higher levels can take seconds for a megabyte.",
    )
    compression_lz4_level: int = option(
        "compression.lz4.level",
        INT,
        9,
        broker="compression.lz4.level",
        at_least=1,
        at_most=17,
        doc="With `compression.type=lz4`: from 1 to 17, small. 9 is the fast compressor, as in Kafka. "
        "Any other is taken as 8 at most, as 4 for batches with more than 1 MiB of records.",
    )
    compression_type: str = option(
        "compression.type",
        STRING,
        "producer",
        broker="compression.type",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        doc="Codec of stored batches. `producer`: as they came. With any other a batch of another codec is "
        "compressed again before it is stored, and must fit `max.message.bytes` then too; one of that codec is stored "
        "as it came, whatever its level.",
    )
    compression_zstd_level: int = option(
        "compression.zstd.level",
        INT,
        3,
        broker="compression.zstd.level",
        at_least=-131072,
        at_most=22,
        doc="With `compression.type=zstd`: up to 22, small; negative ones are faster than 1. Taken as 12 at most, as "
        "9 for batches with more than 1 MiB of records: higher levels take seconds and hundreds of megabytes.",
    )
    file_delete_delay_ms: int = option(
        "file.delete.delay.ms",
        LONG,
        5_000,
        broker="log.segment.delete.delay.ms",
        at_least=0,
        doc="Time between renaming an expired file to `.deleted` and removing it, in which it can still be rescued; "
        "readers that have it open go on in any case. Kafka's default is 60000.",
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
        doc="When records reach the disk. `acks`: before a produce with acks=all is answered, many at once. "
        "`interval`: by `flush.messages` and `flush.ms`, as in Kafka. `none`: when the operating system pleases.",
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
        doc="Clock by which ListOffsets finds the first record at or after a time. `record`: the timestamp that it "
        "carries. `append`: when the broker took it, which is the timestamp in the answer then.",
    )
    max_decompressed_bytes: int = option(
        "max.decompressed.bytes",
        LONG,
        64 << 20,
        broker="max.decompressed.bytes",
        at_least=1,
        ours=True,
        doc="Largest size of a batch once decompressed; a larger one is answered MESSAGE_TOO_LARGE "
        "before more memory than this is used. A topic's value is at most the broker's.",
    )
    max_message_bytes: int = option(
        "max.message.bytes",
        INT,
        1_048_588,
        broker="message.max.bytes",
        at_least=0,
        doc="Largest batch that is accepted, in bytes as sent, its header included.",
    )
    message_downconversion_enable: bool = option(
        "message.downconversion.enable",
        BOOL,
        True,
        broker="log.message.downconversion.enable",
        doc="Whether readers below Fetch 4 get newer formats converted. If not, they get UNSUPPORTED_VERSION.",
    )
    message_format_version: str = option(
        "message.format.version",
        FORMAT,
        "3.0-IV1",
        broker="log.message.format.version",
        doc="Format of stored records: 0, 1, 2, or a release of Kafka: 0 before 0.10, 1 before 0.11. What is sent in "
        "another is converted; what is there stays. 0 and 1 hold no headers, 0 no timestamps. Kafka 4 has dropped it.",
    )
    message_timestamp_after_max_ms: int = option(
        "message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        broker="log.message.timestamp.after.max.ms",
        at_least=0,
        doc="How far a record's create time may lie ahead of the broker's clock. "
        "Not checked with `message.timestamp.type=LogAppendTime`.",
    )
    message_timestamp_before_max_ms: int = option(
        "message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        broker="log.message.timestamp.before.max.ms",
        at_least=0,
        doc="How far a record's create time may lie behind the broker's clock. "
        "Not checked with `message.timestamp.type=LogAppendTime`.",
    )
    message_timestamp_difference_max_ms: int = option(
        "message.timestamp.difference.max.ms",
        LONG,
        LONG_MAX,
        broker="log.message.timestamp.difference.max.ms",
        at_least=0,
        doc="The older name of both bounds above: it counts for each that has its default. Kafka 4 has dropped it.",
    )
    message_timestamp_type: str = option(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        broker="log.message.timestamp.type",
        choices=("CreateTime", "LogAppendTime"),
        doc="Clock that stamps records: the producer's, or the broker's on arrival.",
    )
    min_insync_replicas: int = option(
        "min.insync.replicas",
        INT,
        1,
        broker="min.insync.replicas",
        at_least=1,
        at_most=1,
        because=ONE_NODE,
        doc="Replicas that must have a record before acks=all is answered.",
    )
    remote_storage_enable: bool = option(
        "remote.storage.enable",
        BOOL,
        False,
        choices=("false",),
        because=NO_TIER,
        doc="Whether old segments move to another tier of storage.",
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
        doc="Where the age of a segment begins. `bounded`: at its largest record timestamp, but no later than its last "
        "append, so that a record from the future keeps nothing. `record`: at its largest record timestamp, as in "
        "Kafka. `append`: at its last append, whatever records say. Without timestamps it is the last append.",
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
        doc="Size at which a segment is sealed and the next one begun. "
        "Kafka 4 asks for 1 MiB or more; smaller ones are welcome here.",
    )
    segment_index_bytes: int = option(
        "segment.index.bytes",
        INT,
        10 << 20,
        broker="log.index.size.max.bytes",
        at_least=12,
        doc="Size at which a full index seals its segment; at least room for one entry of the time index.",
    )
    segment_jitter_ms: int = option(
        "segment.jitter.ms",
        LONG,
        0,
        broker="log.roll.jitter.ms",
        aliases={"log.roll.jitter.hours": HOUR_MS},
        at_least=0,
        doc="Up to this much, at random, is taken off `segment.ms`, so that not all segments are sealed at once.",
    )
    segment_min_ms: int = option(
        "segment.min.ms",
        LONG,
        10_000,
        broker="log.roll.min.ms",
        at_least=0,
        ours=True,
        doc="How often record times may begin a segment, on average over the last 32: with times that jump each batch "
        "might. Where that would keep a record longer than `retention.ms` says, a segment is begun all the same.",
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
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def override(self, settings: Mapping[str, str | None], *, source: str = "") -> "TopicConfig":
        """Return this configuration under `settings`; raise ConfigError for the first bad one."""
        values: dict[str, Any] = {}
        texts = dict(self.overrides)
        for name, text in settings.items():
            row = TOPIC_OPTIONS.get(name) or _INERT_OPTIONS.get(name)
            if row is None:
                raise ConfigError(
                    name, f"no such topic option{nearest(name, TOPIC_OPTIONS)}", value=text, source=source
                )
            if text is None:
                raise ConfigError(name, "a value is needed", source=source)
            value = row.read(text, source=source)
            texts[name] = row.text(value)
            if row.attribute:
                values[row.attribute] = value
        return dataclasses.replace(self, **values, overrides=texts)

    def bounded_by(self, broker: "TopicConfig") -> "TopicConfig":
        """Return this configuration without what is more than the broker allows: its bound may have come down since."""
        most = min(self.max_decompressed_bytes, broker.max_decompressed_bytes)
        return dataclasses.replace(self, max_decompressed_bytes=most)

    @property
    def timestamp_bounds_ms(self) -> tuple[int, int]:
        """Return how far a create time may lie behind the broker's clock and ahead of it, as in Kafka 3.9."""
        older = self.message_timestamp_difference_max_ms
        before, after = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        if after == HOUR_MS and older != LONG_MAX:
            after = older
        return older if before == LONG_MAX else before, after

    @property
    def inert(self) -> Mapping[str, str]:
        """Return what was set and does nothing, with the reason."""
        return {name: TOPIC_INERT[name].why for name in self.overrides if name in TOPIC_INERT}

    def describe(self, broker: "BrokerConfig") -> Iterator[Described]:
        """Yield every option with its value and where that came from: the topic, `broker` or the table.

        Of those that do nothing, yield what the topic was given.
        """
        for name, why in self.inert.items():
            synonym = Synonym(name, self.overrides[name], Source.TOPIC)
            doc = f"Has no effect: {why}."
            yield Described(name, synonym.text, TOPIC_INERT[name].kind, doc, Source.TOPIC, (synonym,))
        for row in TOPIC_OPTIONS.values():
            synonyms = broker.synonyms(row)
            if row.name in self.overrides:
                synonyms = (Synonym(row.name, self.overrides[row.name], Source.TOPIC), *synonyms)
            in_force = synonyms[0]
            yield Described(row.name, in_force.text, row.kind, row.doc, in_force.source, synonyms)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What holds for the broker, the defaults of its topics included."""

    listeners: tuple[Listener, ...] = option(
        "listeners",
        LISTENERS,
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        doc="Addresses to listen on, `NAME://host:port`, separated by commas; no host means every interface, "
        "port 0 a free one. Kafka listens on every interface; we listen on this machine only, as nobody is "
        "asked for a password.",
    )
    advertised_listeners: tuple[Listener, ...] = option(
        "advertised.listeners",
        LISTENERS,
        (),
        doc="Addresses that clients are given, one for each listener name. For a listener without one they get "
        "the address it is bound to, or if that is every interface, the one at which the client reached it.",
    )
    listener_security_protocol_map: tuple[tuple[str, str], ...] = option(
        "listener.security.protocol.map",
        PROTOCOL_MAP,
        (("PLAINTEXT", "PLAINTEXT"), ("CONTROLLER", "PLAINTEXT")),
        doc="Protocol of each listener name, `NAME:PROTOCOL`; only PLAINTEXT is supported so far.",
    )
    controller_listener_names: tuple[str, ...] = option(
        "controller.listener.names",
        LIST,
        ("CONTROLLER",),
        doc="Listeners meant for Kafka's controllers. There are none here, so these listeners are left out.",
    )
    log_dir: Path = option(
        "log.dir",
        DIRECTORY,
        Path("data"),
        aliases={"log.dirs": 1},
        doc="The data folder; made if it is missing.",
    )
    node_id: int = option(
        "node.id",
        INT,
        1,
        aliases={"broker.id": 1},
        at_least=0,
        doc="Number by which clients know this broker.",
    )
    num_partitions: int = option(
        "num.partitions",
        INT,
        1,
        at_least=1,
        doc="Partitions of a topic that is created without saying how many.",
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        INT,
        1,
        at_least=1,
        at_most=1,
        because=ONE_NODE,
        doc="Replicas of a topic that is created without saying how many.",
    )
    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        BOOL,
        True,
        doc="Create a topic when a client first asks for its metadata.",
    )
    delete_topic_enable: bool = option("delete.topic.enable", BOOL, True, doc="Allow topics to be deleted.")
    log_retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        at_least=1,
        doc="Longest time between two checks for expired segments; one that expires earlier is found then.",
    )
    log_flush_offset_checkpoint_interval_ms: int = option(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        at_least=0,
        doc="Time between two records of how far each log is on disk; recovery after a crash starts there.",
    )
    socket_request_max_bytes: int = option(
        "socket.request.max.bytes",
        INT,
        100 << 20,
        at_least=1,
        doc="Largest request; a connection that announces a larger one is closed at once.",
    )
    queued_max_request_bytes: int = option(
        "queued.max.request.bytes",
        LONG,
        512 << 20,
        doc="Bytes of requests held in memory by all connections together before reading from them pauses; "
        "-1 for no limit. Kafka has none; ours bounds what a crowd of clients can make the broker hold.",
    )
    queued_max_topic_bytes: int = option(
        "queued.max.topic.bytes",
        LONG,
        2 << 20,
        at_least=4096,
        ours=True,
        doc="Bytes of requests whose topics wait to be created or deleted, of all connections together; half of it for "
        "one address. Above it a name in a request for metadata is answered LEADER_NOT_AVAILABLE, one to "
        "create or delete THROTTLING_QUOTA_EXCEEDED: clients ask again.",
    )
    queued_max_fetch_bytes: int = option(
        "queued.max.fetch.bytes",
        LONG,
        64 << 20,
        at_least=4096,
        ours=True,
        doc="Bytes of fetches that wait for records, of all connections together; half of it for one address. "
        "Above it a fetch is answered at once with what is there.",
    )
    queued_max_response_bytes: int = option(
        "queued.max.response.bytes",
        LONG,
        512 << 20,
        at_least=1 << 20,
        ours=True,
        doc="Bytes of answers that clients have not taken yet, of all connections together. Above it every answer "
        "leaves in pieces of 16 KiB, each when the one before was taken; none is lost.",
    )
    max_connections: int = option(
        "max.connections",
        INT,
        10_000,
        at_least=1,
        doc="Connections at once; one more is closed as it is accepted. Kafka's default is no limit; ours "
        "keeps descriptors free for segment files.",
    )
    max_connections_per_ip: int = option(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        at_least=1,
        doc="Connections at once from one address.",
    )
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms",
        LONG,
        600_000,
        at_least=-1,
        doc="Time after which a silent connection is closed; negative for never.",
    )
    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        INT,
        55 << 20,
        at_least=1024,
        doc="Most bytes of records in one fetch response, whatever is asked for; the first batch always fits.",
    )
    producer_id_expiration_ms: int = option(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        at_least=1,
        doc="Time after its last record at which an idempotent producer is forgotten.",
    )
    producer_state_max_bytes: int = option(
        "producer.state.max.bytes",
        LONG,
        64 << 20,
        at_least=1 << 20,
        ours=True,
        doc="Memory for what is remembered of idempotent producers, in all logs together: some 200 to 300 bytes for "
        "each of them in each log. Above it those that have sent nothing for longest are forgotten, as after "
        "`producer.id.expiration.ms`.",
    )
    log_scrub_bytes_per_second: int = option(
        "log.scrub.bytes.per.second",
        LONG,
        4 << 20,
        at_least=0,
        ours=True,
        doc="How fast sealed segments are read again, once a day, to find what the disk has spoilt; 0 for not at all.",
    )
    topic: TopicConfig = dataclasses.field(default_factory=TopicConfig)
    explicit: frozenset[str] = frozenset()  # names, as the table spells them, that somebody set
    notes: tuple[str, ...] = ()  # what was accepted though it does nothing, for the start-up log

    def topic_defaults(self) -> TopicConfig:
        """Return what holds for a topic without overrides."""
        return self.topic

    def advertised(self, name: str, reached_host: str, reached_port: int) -> tuple[str, int]:
        """Return the address to tell a client of listener `name` that reached the broker at `reached_*`."""
        told = next((listener for listener in self.advertised_listeners if listener.name == name), None)
        bound = next((listener for listener in self.listeners if listener.name == name), None)
        if told is not None:
            return told.host, told.port or reached_port
        if bound is not None and not bound.is_wildcard:
            return bound.host, reached_port
        return reached_host, reached_port

    def on_port(self, port: int) -> "BrokerConfig":
        """Return this configuration with the first listener moved to `port`; 0 takes a free one."""
        first, *others = self.listeners
        return dataclasses.replace(
            self, listeners=(first._replace(port=port), *others), explicit=self.explicit | {"listeners"}
        )

    def synonyms(self, row: Option) -> tuple[Synonym, ...]:
        """Return what applies to an option of either table on this broker, strongest first."""
        name = row.broker or row.name
        default = Synonym(name, row.text(row.default), Source.DEFAULT)
        if name not in self.explicit:
            return (default,)
        value = getattr(self.topic if row.broker else self, row.attribute)
        return Synonym(name, row.text(value), Source.BROKER), default

    def describe(self) -> Iterator[Described]:
        """Yield every option of the broker, by its broker's name, with its value and where that came from."""
        for name, row in BROKER_OPTIONS.items():
            synonyms = self.synonyms(row)
            yield Described(name, synonyms[0].text, row.kind, row.doc, synonyms[0].source, synonyms)


TOPIC_OPTIONS: Mapping[str, Option] = {row.name: row for row in options_of(TopicConfig)}
_INERT_OPTIONS: Mapping[str, Option] = {
    name: Option(name, row.kind, None, row.why, at_least=row.at_least, at_most=row.at_most)
    for name, row in TOPIC_INERT.items()
}
BROKER_OPTIONS: Mapping[str, Option] = {
    **{row.name: row for row in options_of(BrokerConfig)},
    **{row.broker: row for row in TOPIC_OPTIONS.values() if row.broker},
}
