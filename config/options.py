"""The options of the broker, as fields of a dataclass, so that a type checker knows them.

Names, types and defaults are those of Kafka 4; where ours differ, the row says why.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tidelog.config.contradictions import check_buffer, check_lags, check_replicas
from tidelog.config.errors import ConfigError
from tidelog.config.group_options import GroupOptions
from tidelog.config.inert import BROKER_INERT, INERT, REFUSED, reason
from tidelog.config.kinds import (
    BOOL,
    DIRECTORY,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    INT_MAX,
    LIST,
    LISTENERS,
    LONG,
    PROTOCOL_MAP,
    STRING,
    Listener,
)
from tidelog.config.nearest import nearest
from tidelog.config.table import Described, Option, Source, Synonym, option, options_of
from tidelog.config.topic_options import MAX_PARTITIONS_PER_TOPIC, TOPIC_OPTIONS, TopicConfig

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BrokerConfig(GroupOptions):
    """The options of the broker, and the defaults of its topics."""

    listeners: tuple[Listener, ...] = option(
        "listeners",
        LISTENERS,
        (Listener("PLAINTEXT", "127.0.0.1", 9092),),
        doc="Addresses to listen on, `NAME://host:port`, separated by commas; no host means every interface, by "
        "IPv4 and IPv6, port 0 a free one. Kafka listens on every interface; we listen on this machine only, "
        "because there is no authentication.",
    )
    advertised_listeners: tuple[Listener, ...] = option(
        "advertised.listeners",
        LISTENERS,
        (),
        doc="Addresses that the broker tells clients to connect to, one for each listener name. Default: the address "
        "in `listeners`, or if that is every interface, the address that the client has connected to.",
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
        doc="Listeners for Kafka's controllers. There are no controllers here, so these listeners are not opened.",
    )
    log_dir: Path = option(
        "log.dir",
        DIRECTORY,
        Path("data"),
        aliases={"log.dirs": 1},
        doc="The data folder; created if it is missing.",
    )
    node_id: int = option(
        "node.id",
        INT,
        1,
        aliases={"broker.id": 1},
        at_least=0,
        doc="Number of this broker, which clients see.",
    )
    num_partitions: int = option(
        "num.partitions",
        INT,
        1,
        at_least=1,
        at_most=MAX_PARTITIONS_PER_TOPIC,
        doc="Partitions of a topic that is created without a number of partitions.",
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        INT,
        1,
        at_least=1,
        doc="Replicas of a topic that is created without a number of replicas. There is one node and so one replica: a "
        "larger number needs `tidelog.tolerate.replication.factor`.",
    )
    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        BOOL,
        True,
        doc="Create a topic when a client first asks for its metadata.",
    )
    tidelog_tolerate_replication_factor: bool = option(
        "tidelog.tolerate.replication.factor",
        BOOL,
        False,
        ours=True,
        doc="Accept topics with more than one replica, which many programs create by default, and "
        "`min.insync.replicas` above 1. The topic then has one replica, and the response says so. If false, such "
        "requests get INVALID_REPLICATION_FACTOR, as from a single node of Kafka.",
    )
    delete_topic_enable: bool = option("delete.topic.enable", BOOL, True, doc="Allow topics to be deleted.")
    log_cleaner_backoff_ms: int = option(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        at_least=0,
        live=True,
        doc="How long cleaners wait between checks while no log is due. A failed compaction is tried again after this "
        "time, then after twice that, up to ten minutes.",
    )
    log_cleaner_dedupe_buffer_size: int = option(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        memory_share=2,
        live=True,
        doc="Memory for the keys of logs during compaction, for all cleaners together, at least 1 MiB for each. A log "
        "with more keys takes several passes.",
    )
    log_cleaner_enable: bool = option(
        "log.cleaner.enable",
        BOOL,
        True,
        doc="Whether logs with `cleanup.policy=compact` are compacted. If not, all of their records stay.",
    )
    log_cleaner_io_buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        at_least=0,
        at_most=1,
        live=True,
        doc="How full the memory for keys may get, as a share: a larger share means fewer but slower passes.",
    )
    log_cleaner_io_max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        DOUBLE_MAX,
        at_least=1,
        live=True,
        doc="Bytes that all cleaners together may read and write per second.",
    )
    log_cleaner_threads: int = option(
        "log.cleaner.threads",
        INT,
        1,
        at_least=0,
        at_most=16,
        because="the threads and all clients share one Python interpreter, except in passes over 64 MiB or more",
        live=True,
        doc="Threads that compact logs, one log at a time each; with 0 no pass begins. A pass over 64 MiB or more runs "
        "in a separate process.",
    )
    log_retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        LONG,
        300_000,
        at_least=1,
        doc="Longest time between two checks of a log for expired segments. A check also runs when the oldest segment "
        "expires (docs/time.md).",
    )
    log_flush_offset_checkpoint_interval_ms: int = option(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        60_000,
        at_least=0,
        doc="Time between two checkpoints of how far each log is on disk; recovery after a crash starts there.",
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
        doc="Bytes of requests that all connections together may hold in memory; at the limit, reading from them "
        "pauses. -1 for no limit, which is Kafka's default.",
    )
    queued_max_topic_bytes: int = option(
        "queued.max.topic.bytes",
        LONG,
        2 << 20,
        at_least=4096,
        ours=True,
        doc="Memory for requests that wait for topics to be created, changed or deleted, for all connections together; "
        "one address may use half of it. Above it, topics in a Metadata request get LEADER_NOT_AVAILABLE, topics to "
        "create, change or delete get THROTTLING_QUOTA_EXCEEDED, and clients retry.",
    )
    queued_max_fetch_bytes: int = option(
        "queued.max.fetch.bytes",
        LONG,
        64 << 20,
        at_least=4096,
        ours=True,
        doc="Memory for fetches that wait for records, for all connections together; one address may use half of it. "
        "Above it, the broker responds to a fetch at once.",
    )
    queued_max_response_bytes: int = option(
        "queued.max.response.bytes",
        LONG,
        512 << 20,
        at_least=1 << 20,
        ours=True,
        doc="Memory for responses that clients have not received yet, for all connections together. Above it, the "
        "broker sends a response in pieces of 16 KiB, each when the client has received the one before. None is lost.",
    )
    max_connections: int = option(
        "max.connections",
        INT,
        10_000,
        at_least=1,
        live=True,
        doc="Maximum number of connections; the broker closes further ones at once. Whatever the value, connections "
        "use at most three quarters of the file descriptors (`ulimit -n`); the rest are reserved for segment files. "
        "Kafka's default is no limit.",
    )
    max_connections_per_ip: int = option(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        at_least=1,
        live=True,
        doc="Connections at once from one address.",
    )
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms",
        LONG,
        600_000,
        at_least=-1,
        doc="Time after which an idle connection is closed; negative for never.",
    )
    http_port: int = option(
        "http.port",
        INT,
        0,
        at_least=0,
        at_most=65535,
        ours=True,
        doc="Port of `/metrics` (Prometheus) and `/health`, at the address of the first listener; 0 for none. There is "
        "no authentication.",
    )
    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        INT,
        55 << 20,
        at_least=1024,
        doc="Most bytes of records in a fetch response, whatever the request allows; the first batch is always sent "
        "whole.",
    )
    max_incremental_fetch_session_cache_slots: int = option(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        at_least=0,
        doc="Fetch sessions at once (KIP-227). With a session, requests and answers have only partitions that have "
        "changed. A consumer that gets no session fetches without one.",
    )
    min_incremental_fetch_session_eviction_ms: int = option(
        "min.incremental.fetch.session.eviction.ms",
        INT,
        120_000,
        at_least=0,
        ours=True,
        doc="Time after which an unused fetch session may be evicted for another, and a used one for a larger one. The "
        "name is that of KIP-227; in Kafka's brokers it is fixed.",
    )
    fetch_session_max_bytes: int = option(
        "fetch.session.max.bytes",
        LONG,
        64 << 20,
        at_least=4096,
        ours=True,
        doc="Memory for fetch sessions, about 700 bytes for each partition, for all clients together; one address may "
        "use half of it. Above it, a consumer fetches without a session.",
    )
    producer_id_expiration_ms: int = option(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        at_least=1,
        live=True,
        doc="An idempotent producer is forgotten this long after its last record.",
    )
    producer_state_max_bytes: int = option(
        "producer.state.max.bytes",
        LONG,
        64 << 20,
        at_least=1 << 20,
        ours=True,
        doc="Memory for the state of idempotent producers in all logs together: 200 to 300 bytes for each producer and "
        "log. Above it, producers that have been idle longest are forgotten, as after `producer.id.expiration.ms`.",
    )
    tidelog_cleaner_schedule: str = option(
        "tidelog.cleaner.schedule",
        STRING,
        "generational",
        choices=("generational", "kafka"),
        ours=True,
        live=True,
        doc="Which segments are compacted, and when. `generational`: the segments that save most, once enough of a log "
        "may be garbage. `kafka`: all segments, once enough of a log is new (docs/compaction.md).",
    )
    log_scrub_bytes_per_second: int = option(
        "log.scrub.bytes.per.second",
        LONG,
        4 << 20,
        at_least=0,
        ours=True,
        doc="Bytes per second of the scrub, which reads all sealed segments once a day to detect disk damage. 0 turns "
        "it off.",
    )
    log_level: str = option(
        "log.level",
        STRING,
        "info",
        choices=LOG_LEVELS,
        ours=True,
        live=True,
        doc="Least level of the events that the broker logs. `--log-level` sets it for a start.",
    )
    log_format: str = option(
        "log.format",
        STRING,
        "text",
        choices=("text", "json"),
        ours=True,
        doc="Form of the broker's log. `json`: one object a line, with `time`, `level`, `logger`, `message` and, for a "
        "fault, `traceback`.",
    )
    topic: TopicConfig = dataclasses.field(default_factory=TopicConfig)
    # The options that were set before the start: name in the table -> name that was used.
    explicit: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()  # on options that were accepted without effect, for the log
    given_inert: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # those that DescribeConfigs shows
    # What was set while the broker ran, strongest first, and the configuration without it.
    changes: tuple[tuple[Source, Mapping[str, str]], ...] = ()
    at_start: "BrokerConfig | None" = None

    def check_topic(self, topic: TopicConfig) -> None:
        """Raise ConfigError if options of a topic contradict each other, or this broker."""
        check_lags(topic)
        check_replicas(topic, self.tidelog_tolerate_replication_factor)

    def check(self) -> None:
        """Raise ConfigError if options of the broker that can change while it runs contradict each other."""
        check_lags(self.topic, "log.cleaner.")
        check_buffer(
            self.log_cleaner_threads,
            self.log_cleaner_dedupe_buffer_size,
            self.log_cleaner_io_buffer_load_factor,
        )

    def topic_defaults(self) -> TopicConfig:
        """Return the configuration of a topic without options of its own."""
        return dataclasses.replace(self.topic, late_ms=self.log_retention_check_interval_ms)

    def advertised(self, name: str, reached_host: str, reached_port: int) -> tuple[str, int]:
        """Return the address for a client of listener `name` that has connected to `reached_*`."""
        advertised = next((each for each in self.advertised_listeners if each.name == name), None)
        bound = next((listener for listener in self.listeners if listener.name == name), None)
        if advertised is not None:
            return advertised.host, advertised.port or reached_port
        if bound is not None and not bound.is_wildcard:
            return bound.host, reached_port
        return reached_host, reached_port

    def on_port(self, port: int) -> "BrokerConfig":
        """Return this configuration with the first listener moved to `port`; 0 takes a free one."""
        first, *others = self.listeners
        return dataclasses.replace(
            self,
            listeners=(first._replace(port=port), *others),
            explicit={**self.explicit, "listeners": "listeners"},
        )

    def with_values(self, values: Iterable[tuple[Option, Any]], **fields: Any) -> "BrokerConfig":
        """Return this configuration with these values of options, and these fields."""
        own: dict[str, Any] = {}
        of_topics: dict[str, Any] = {}
        for row, value in values:
            if row.attribute:
                (of_topics if row.broker else own)[row.attribute] = value
        topic = dataclasses.replace(self.topic, **of_topics)
        return dataclasses.replace(self, **own, topic=topic, **fields)

    def changed(self, own: Mapping[str, str], everywhere: Mapping[str, str]) -> "BrokerConfig":
        """Return the configuration with dynamic options: the broker's own, and those of all brokers.

        They replace all earlier ones. Raise ConfigError for the first invalid one.
        """
        start = self.at_start or self
        texts: dict[Source, dict[str, str]] = {Source.DYNAMIC_BROKER: {}, Source.DYNAMIC_DEFAULT: {}}
        values = []
        for source, settings in ((Source.DYNAMIC_DEFAULT, everywhere), (Source.DYNAMIC_BROKER, own)):
            for name, text in settings.items():
                row = dynamic_option(name)
                value = row.read(text, given=name)
                texts[source][name] = row.text(value)
                values.append((row, value))
        changed = start.with_values(values, changes=tuple(texts.items()), at_start=start)
        changed.check()
        return changed

    def set_for(self, all_brokers: bool) -> dict[str, str]:
        """Return the dynamic options of all brokers, or of this one."""
        source = Source.DYNAMIC_DEFAULT if all_brokers else Source.DYNAMIC_BROKER
        return dict(dict(self.changes).get(source, {}))

    def synonyms(self, row: Option) -> tuple[Synonym, ...]:
        """Return the settings of an option of the broker or its topics, strongest first."""
        name = row.broker or row.name
        found = [Synonym(name, texts[name], source) for source, texts in self.changes if name in texts]
        start = self.at_start or self
        if name in start.given_inert:
            found.append(Synonym(name, start.given_inert[name], Source.BROKER))
        elif (used := self.explicit.get(name)) is not None:
            value = getattr(start.topic if row.broker else start, row.attribute)
            unit = row.aliases.get(used, 1)
            text = row.text(value) if unit == 1 or value < 0 else str(value // unit)
            found.append(Synonym(used if unit != 1 else name, text, Source.BROKER))
        return *found, _default(row)

    def describe(self) -> Iterator[Described]:
        """Yield every option of the broker, by each of its names, with its value and the source of that.

        As in Kafka, a name in hours or minutes has the value that was set by that name, or the default, even if a
        setting by another name is in effect.
        """
        for name, row in {**BROKER_OPTIONS, **BROKER_INERT}.items():
            synonyms = self.synonyms(row)
            value_text, source_in_force = synonyms[0].text, synonyms[0].source
            if row.attribute:
                value_text = row.text(getattr(self.topic if row.broker else self, row.attribute))
            yield Described(
                name, value_text, row.kind, row.doc, source_in_force, synonyms, not row.is_dynamic
            )
            for alias, unit in row.aliases.items():
                own: tuple[Synonym, ...] = (Synonym(alias, value_text, source_in_force),)
                if unit != 1:
                    names = [each.name for each in synonyms]
                    own = synonyms[names.index(alias) :] if alias in names else ()
                text, source = (own[0].text, own[0].source) if own else (None, Source.DEFAULT)
                doc = f"Another name of {name}{'' if unit == 1 else ', in another unit'}."
                yield Described(alias, text, row.kind, doc, source, own, is_read_only=True)

    def describe_everywhere(self) -> Iterator[Described]:
        """Yield the dynamic options of all brokers."""
        for name, text in self.set_for(True).items():
            row, synonym = dynamic_option(name), Synonym(name, text, Source.DYNAMIC_DEFAULT)
            yield Described(name, text, row.kind, row.doc, synonym.source, (synonym,))


BROKER_OPTIONS: Mapping[str, Option] = {
    **{row.name: row for row in options_of(BrokerConfig)},
    **{row.broker: row for row in TOPIC_OPTIONS.values() if row.broker},
}


def _default(row: Option) -> Synonym:
    """Return the default of an option of the broker; of a time, as in Kafka, under the name of the coarsest unit."""
    name, unit = max(row.aliases.items(), key=lambda alias: alias[1], default=("", 1))
    if unit == 1:
        return Synonym(row.broker or row.name, row.default_text, Source.DEFAULT)
    return Synonym(name, str(row.default // unit), Source.DEFAULT)


def dynamic_option(name: str) -> Option:
    """Return an option that can change while the broker runs; raise ConfigError for any other."""
    row = BROKER_OPTIONS.get(name) or BROKER_INERT.get(name)
    if row is not None and row.is_dynamic:
        return row
    alias_of = next((other for other, row in BROKER_OPTIONS.items() if name in row.aliases), None)
    if row is not None:
        why = "it is read when the broker starts" if row.attribute else row.doc
    elif alias_of is not None:
        why = f"use {alias_of} instead"
    elif refused := reason(name, REFUSED):
        why = f"an option of Kafka that is refused: {refused}"
    elif inert := reason(name, INERT):
        why = f"has no effect: {inert}"
    elif name in TOPIC_OPTIONS:
        why = f"a topic option; the broker's default for all topics is {TOPIC_OPTIONS[name].broker}"
    else:
        raise ConfigError(name, f"Unknown config name: {name}{nearest(name, BROKER_OPTIONS)}")
    raise ConfigError(name, f"Cannot update these configs dynamically: [{name}]: {why}")
