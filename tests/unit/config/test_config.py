"""The option table: values, bounds, overrides, and what DescribeConfigs is told."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelog.config import machine
from tidelog.config.errors import ConfigError
from tidelog.config.inert import BROKER_INERT, INERT, REFUSED, TOPIC_INERT, reason
from tidelog.config.kinds import DOUBLE, Listener
from tidelog.config.load import SPELLINGS, load
from tidelog.config.options import BROKER_OPTIONS, BrokerConfig
from tidelog.config.table import Source
from tidelog.config.topic_options import TOPIC_OPTIONS, TopicConfig

# What a Kafka 4 broker tells of itself, by topic name; rows where we differ are not here.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
}
KAFKA_CLEANER_DEFAULTS = {
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.cleaner.enable": "true",
    "log.cleaner.io.buffer.load.factor": "0.9",
    "log.cleaner.io.max.bytes.per.second": "1.7976931348623157E308",
    "log.cleaner.max.compaction.lag.ms": "9223372036854775807",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.min.compaction.lag.ms": "0",
    "log.cleaner.threads": "1",
}
OTHER_DEFAULTS = {
    "file.delete.delay.ms": "5000",
    "message.downconversion.enable": "true",  # of Kafka 3
    "message.format.version": "3.0-IV1",  # of Kafka 3
    "message.timestamp.difference.max.ms": "9223372036854775807",  # of Kafka 3
}


def test_C15_defaults_are_those_of_kafka_but_for_a_few() -> None:
    ours = {row.name: row.text(row.default) for row in TOPIC_OPTIONS.values() if not row.ours}
    assert ours == KAFKA_TOPIC_DEFAULTS | OTHER_DEFAULTS
    cleaners = {row.name: row for row in BrokerConfig().describe() if row.name.startswith("log.cleaner.")}
    assert cleaners.pop("log.cleaner.io.buffer.size").doc.startswith("Has no effect: ")
    assert {name: row.text for name, row in cleaners.items()} == KAFKA_CLEANER_DEFAULTS
    assert [name for name, row in cleaners.items() if row.is_read_only] == ["log.cleaner.enable"]


@pytest.mark.parametrize("name", BROKER_OPTIONS)
def test_every_default_is_a_value_that_may_be_written(name: str) -> None:
    row = BROKER_OPTIONS[name]
    assert row.read(row.text(row.default)) == row.default


def test_every_name_means_one_thing() -> None:
    for table in (INERT, REFUSED):
        for name in SPELLINGS:
            assert name not in table
    for name in SPELLINGS:
        assert reason(name, REFUSED) is None
    assert not TOPIC_OPTIONS.keys() & TOPIC_INERT.keys()


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TopicConfig().segment_bytes = 1  # type: ignore[misc]


def test_overrides_add_up_and_leave_the_original_alone() -> None:
    base = TopicConfig()
    first = base.override({"segment.bytes": " 100 "})
    second = first.override({"retention.ms": "-1", "segment.bytes": "200"})
    assert (base.segment_bytes, first.segment_bytes, second.segment_bytes) == (1 << 30, 100, 200)
    assert second.overrides == {"segment.bytes": "200", "retention.ms": "-1"}
    assert base.overrides == {}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("segment.bytes", "13", "at least 14"),
        ("segment.bytes", "2147483648", "no more than 2147483647"),
        ("segment.bytes", "1e6", "Not a number of type "),
        ("segment.bytes", "1_000", "Not a number of type "),
        ("segment.bytes", "٣٣", "Not a number of type "),
        ("segment.bytes", "", "Not a number of type "),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "9223372036854775808", "no more than 9223372036854775807"),
        ("message.timestamp.type", "createTime", "String must be one of: CreateTime, LogAppendTime"),
        ("cleanup.policy", "compact,forget", "String must be one of: compact, delete"),
        ("min.insync.replicas", "0", "at least 1"),
        (
            "compression.type",
            "none",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("compression.gzip.level", "0", "Value must be one of: -1, 1, 2"),
        ("compression.gzip.level", "10", "Value must be one of: -1, 1, 2"),
        ("compression.lz4.level", "0", "at least 1"),
        ("compression.lz4.level", "18", "no more than 17"),
        ("compression.zstd.level", "23", "no more than 22"),
        ("compression.zstd.level", "-131073", "at least -131072"),
        ("remote.storage.enable", "true", "there is no other tier"),
        ("local.retention.ms", "-3", "at least -2"),
        ("local.retention.bytes", "some", "Not a number of type "),
        ("max.compaction.lag.ms", "0", "at least 1"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1_0", "Not a number of type DOUBLE"),
        ("preallocate", "maybe", "Expected value to be either true or false"),
        ("preallocate", None, "Null value not supported for topic configs: "),
        ("message.format.version", "0.9", "write 0.9.0"),
        ("message.format.version", "0.11", "write 0.11.0"),
        ("message.format.version", "0.12", "must be a format, 0, 1 or 2, or a release of Kafka"),
        ("flush.policy", "always", "String must be one of: acks, interval, none"),
        ("segmnt.bytes", "1", "did you mean segment.bytes?"),
        (
            "log.segment.bytes",
            "100",
            "Unknown topic config name: log.segment.bytes; did you mean segment.bytes?",
        ),
        ("colour", "red", "Unknown topic config name: "),
        ("segment.bytes", None, "Null value not supported for topic configs: "),
    ],
)
def test_a_bad_topic_option_is_named_with_its_value_and_what_is_wrong(
    name: str, text: str | None, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig().override({name: text})
    assert problem in str(caught.value)
    assert name in str(caught.value)
    assert name in caught.value.answer


INERT_VALUES = {
    "follower.replication.throttled.replicas": "*",
    "leader.replication.throttled.replicas": "0:1,1:1",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "preallocate": "true",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "unclean.leader.election.enable": "false",
}


def test_topic_options_without_effect_here_are_accepted_and_told() -> None:
    assert INERT_VALUES.keys() == TOPIC_INERT.keys()
    plain, topic = TopicConfig(), TopicConfig().override(INERT_VALUES)
    assert dataclasses.replace(topic, overrides={}) == plain
    assert topic.inert.keys() == INERT_VALUES.keys()
    told = {row.name: (row.text, row.source) for row in topic.describe(BrokerConfig().synonyms)}
    assert {name: told.pop(name) for name in INERT_VALUES} == {
        name: (value, Source.TOPIC) for name, value in INERT_VALUES.items()
    }
    as_is = {row.name: (row.text, row.source) for row in plain.describe(BrokerConfig().synonyms)}
    assert told == {name: row for name, row in as_is.items() if name not in INERT_VALUES}
    assert {name: as_is[name] for name in ("preallocate", "local.retention.ms")} == {
        "preallocate": ("false", Source.DEFAULT),
        "local.retention.ms": ("-2", Source.DEFAULT),
    }
    assert plain.inert == {}
    assert "has no effect" in described(BrokerConfig(), topic, "preallocate").doc.lower()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (sys.float_info.max, "1.7976931348623157E308"),  # as Kafka tells log.cleaner.io.max.bytes.per.second
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (-12345678.25, "-1.234567825E7"),
        (5e-324, "5.0E-324"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert DOUBLE.text(value) == text
    assert DOUBLE.parse(text) == value


def test_a_record_cannot_have_to_be_compacted_before_it_may_be() -> None:
    lags = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    with pytest.raises(
        ConfigError,
        match=r"min.compaction.lag.ms \(6\) > max.compaction.lag.ms \(5\): min.compaction.lag.ms must",
    ):
        BrokerConfig().check_topic(TopicConfig().override(lags))
    BrokerConfig().check_topic(TopicConfig().override(lags | {"min.compaction.lag.ms": "5"}))
    own, changed = {"log.cleaner.max.compaction.lag.ms": "5"}, {"log.cleaner.min.compaction.lag.ms": "6"}
    with pytest.raises(
        ConfigError, match=r"log.cleaner.min.* must be at most log.cleaner.max.compaction.lag.ms"
    ):
        load(flags=own).changed(changed, {})


@pytest.mark.parametrize(
    ("policy", "segment_ms", "lag_ms", "span_ms"),
    [("delete", 9, 5, 9), ("compact", 9, 5, 5), ("compact,delete", 9, 5, 5), ("compact", 4, 5, 4)],
)
def test_a_compacted_topic_has_segments_no_longer_than_its_lag(
    policy: str, segment_ms: int, lag_ms: int, span_ms: int
) -> None:
    options = {"segment.ms": str(segment_ms), "max.compaction.lag.ms": str(lag_ms), "cleanup.policy": policy}
    assert TopicConfig().override(options).max_segment_ms == span_ms


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (
            "log.cleaner.dedupe.buffer.size",
            str((2 << 20) - 1),
            "at least 1048576 for each of log.cleaner.threads=2",
        ),
        ("log.cleaner.io.buffer.load.factor", "0", "must be more than 0"),
        ("log.cleaner.io.buffer.load.factor", "1.1", "no more than 1"),
        ("log.cleaner.io.max.bytes.per.second", "0.5", "at least 1"),
        ("log.cleaner.threads", "-1", "at least 0"),
    ],
)
def test_what_no_cleaner_can_work_with_is_refused_at_the_start_and_while_running(
    name: str, value: str, problem: str
) -> None:
    start = {"log.cleaner.threads": "2"}
    with pytest.raises(ConfigError, match=problem) as refused:
        load(flags=start | {name: value})
    assert "command line" in str(refused.value)
    with pytest.raises(ConfigError, match=problem):
        load(flags=start).changed({}, {name: value})
    threads = load(flags={"log.cleaner.dedupe.buffer.size": "2097152"})
    assert threads.changed({"log.cleaner.threads": "2"}, {}).log_cleaner_threads == 2
    with pytest.raises(ConfigError, match=r"for each of log.cleaner.threads=3"):
        threads.changed({"log.cleaner.threads": "3"}, {})


@pytest.mark.parametrize(
    ("text", "policy", "deletes", "compacts"),
    [
        ("", "", False, False),
        (" , ", "", False, False),
        ("compact,compact", "compact", False, True),
        ("compact, delete,compact", "compact,delete", True, True),
    ],
)
def test_a_cleanup_policy_may_be_empty_and_names_each_policy_once(
    text: str, policy: str, deletes: bool, compacts: bool
) -> None:
    topic = TopicConfig().override({"cleanup.policy": text})
    assert topic.overrides == {"cleanup.policy": policy}
    assert (topic.deletes, topic.compacts) == (deletes, compacts)


def test_a_bound_is_a_share_of_the_memory_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 4 << 30)
    row = BROKER_OPTIONS["log.cleaner.dedupe.buffer.size"]
    assert row.read(str(2 << 30)) == 2 << 30
    with pytest.raises(ConfigError, match=r"no more than 2147483648, 1/2 of this machine's memory"):
        row.read(str((2 << 30) + 1))
    monkeypatch.setattr(machine, "memory_bytes", lambda: 1 << 20)
    assert row.read(row.text(row.default)) == row.default


def test_the_memory_is_that_of_the_container_if_it_has_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "_LIMITS", (limit, tmp_path / "missing"))
    found = []
    for text in ("max", "1048576\n"):
        limit.write_text(text)
        machine.memory_bytes.cache_clear()
        found.append(machine.memory_bytes())
    machine.memory_bytes.cache_clear()
    assert found[0] > found[1] == 1 << 20


def test_what_kafka_says_of_a_topic_without_another_tier_is_taken() -> None:
    topic = TopicConfig().override({"remote.storage.enable": "false", "compression.type": "producer"})
    remote = described(BrokerConfig(), topic, "remote.storage.enable")
    assert (remote.text, remote.kind.code, remote.source) == ("false", 1, Source.TOPIC)
    assert topic.inert == {}
    assert not any(row.name in ("", "remote.storage.enable") for row in BrokerConfig().describe())


def described(config: BrokerConfig, topic: TopicConfig, name: str) -> Any:
    return next(row for row in topic.describe(config.synonyms) if row.name == name)


def test_describe_tells_where_a_topic_value_comes_from() -> None:
    broker = load(flags={"log.segment.bytes": "500"})
    topic = broker.topic_defaults()
    assert described(broker, topic, "segment.ms").source is Source.DEFAULT
    assert described(broker, topic, "segment.bytes").source is Source.BROKER
    own = described(broker, topic.override({"segment.bytes": "100"}), "segment.bytes")
    assert (own.text, own.source) == ("100", Source.TOPIC)
    assert [tuple(synonym) for synonym in own.synonyms] == [
        ("segment.bytes", "100", Source.TOPIC),
        ("log.segment.bytes", "500", Source.BROKER),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]


def test_a_span_has_the_synonyms_that_kafka_lists_in_its_order() -> None:
    broker = load(flags={"log.retention.hours": "24", "log.roll.ms": "5000"})
    broker = broker.changed({"log.retention.ms": "1"}, {"log.retention.ms": "2"})
    found = described(broker, broker.topic.override({"retention.ms": "3"}), "retention.ms")
    assert (found.text, [tuple(synonym) for synonym in found.synonyms]) == (
        "3",
        [
            ("retention.ms", "3", Source.TOPIC),
            ("log.retention.ms", "1", Source.DYNAMIC_BROKER),
            ("log.retention.ms", "2", Source.DYNAMIC_DEFAULT),
            ("log.retention.hours", "24", Source.BROKER),
            ("log.retention.hours", "168", Source.DEFAULT),
        ],
    )
    found = described(broker, broker.topic, "segment.ms")
    assert (found.text, [tuple(synonym) for synonym in found.synonyms]) == (
        "5000",
        [
            ("log.roll.ms", "5000", Source.BROKER),
            ("log.roll.hours", "168", Source.DEFAULT),
        ],
    )
    found = described(broker, broker.topic, "segment.jitter.ms")
    assert (found.text, [tuple(synonym) for synonym in found.synonyms]) == (
        "0",
        [("log.roll.jitter.hours", "0", Source.DEFAULT)],
    )


def test_an_override_equal_to_the_default_is_still_an_override() -> None:
    topic = TopicConfig().override({"segment.ms": "604800000"})
    assert described(BrokerConfig(), topic, "segment.ms").source is Source.TOPIC


def test_describe_tells_the_broker_by_its_own_names() -> None:
    broker = load(flags={"log.retention.hours": "1", "node.id": "7"})
    rows = {row.name: row for row in broker.describe()}
    assert (rows["log.retention.ms"].text, rows["log.retention.ms"].source) == ("3600000", Source.BROKER)
    assert (rows["node.id"].text, rows["node.id"].source) == ("7", Source.BROKER)
    assert rows["num.partitions"].source is Source.DEFAULT
    assert "segment.bytes" not in rows
    aliases = {alias for row in BROKER_OPTIONS.values() for alias in row.aliases}
    assert rows.keys() == BROKER_OPTIONS.keys() | BROKER_INERT.keys() | aliases
    assert all(rows[name].is_read_only for name in aliases)
    told = {name: (rows[name].text, rows[name].source) for name in aliases}
    assert told == {
        "broker.id": ("7", Source.BROKER),
        "log.dirs": ("data", Source.DEFAULT),
        "log.retention.hours": ("1", Source.BROKER),
        "log.retention.minutes": (None, Source.DEFAULT),
        "log.roll.hours": ("168", Source.DEFAULT),
        "log.roll.jitter.hours": ("0", Source.DEFAULT),
    }


def test_a_span_has_under_each_name_what_was_set_by_that_name() -> None:
    broker = load(flags={"log.retention.minutes": "90", "log.roll.ms": "90001"})
    rows = {row.name: row for row in broker.changed({"log.retention.ms": "-1"}, {}).describe()}
    default = ("log.retention.hours", "168", Source.DEFAULT)
    assert {
        name: (row.text, row.source, [*map(tuple, row.synonyms)])
        for name, row in rows.items()
        if row.name in ("log.retention.minutes", "log.retention.hours", "log.roll.hours")
    } == {
        "log.retention.minutes": (
            "90",
            Source.BROKER,
            [("log.retention.minutes", "90", Source.BROKER), default],
        ),
        "log.retention.hours": ("168", Source.DEFAULT, [default]),
        "log.roll.hours": ("168", Source.DEFAULT, [("log.roll.hours", "168", Source.DEFAULT)]),
    }
    assert (rows["log.retention.ms"].text, rows["log.retention.ms"].source) == ("-1", Source.DYNAMIC_BROKER)


def test_what_does_nothing_is_told_with_what_it_was_given_or_what_is_so_here() -> None:
    flags = {"num.io.threads": " 8", "log.local.retention.ms": "7", "log.preallocate": "TRUE"}
    broker = load(flags=flags)
    rows = {row.name: row for row in broker.describe()}
    for name, text in {
        "num.io.threads": "8",
        "log.local.retention.ms": "7",
        "log.preallocate": "true",
    }.items():
        assert (rows[name].text, rows[name].source) == (text, Source.BROKER)
        assert rows[name].doc.startswith("Has no effect: ")
    assert [tuple(each) for each in rows["num.io.threads"].synonyms] == [
        ("num.io.threads", "8", Source.BROKER),
        ("num.io.threads", "1", Source.DEFAULT),
    ]
    kept = described(broker, broker.topic_defaults(), "local.retention.ms")
    assert (kept.text, kept.source) == ("7", Source.BROKER)
    rows = {row.name: row for row in BrokerConfig().describe()}
    so_here = {
        "num.io.threads": "1",
        "num.recovery.threads.per.data.dir": "4",
        "offsets.topic.replication.factor": "1",
    }
    assert {name: rows[name].text for name in so_here} == so_here
    assert rows["broker.rack"].text is None
    with pytest.raises(ConfigError, match="Not a number of type "):
        load(flags={"num.io.threads": "many"})


@pytest.mark.parametrize("name", BROKER_INERT)
def test_what_is_told_of_an_option_that_does_nothing_may_be_written(name: str) -> None:
    row = BROKER_INERT[name]
    if row.default is not None:
        assert row.text(row.read(str(row.default_text))) == row.default_text


def test_described_texts_make_the_same_configuration_again() -> None:
    flags = {
        "listeners": "PLAINTEXT://[::1]:1,X://h:2",
        "listener.security.protocol.map": "x:plaintext,PLAINTEXT:PLAINTEXT",
        "log.dir": "/d",
        "auto.create.topics.enable": "FALSE",
    }
    broker = load(flags=flags)
    again = load(flags={row.name: row.text for row in broker.describe() if row.text is not None})
    assert again.given_inert.keys() < BROKER_INERT.keys()
    again = dataclasses.replace(again, explicit=broker.explicit, given_inert={}, notes=())
    assert again == broker


def test_a_client_is_told_the_advertised_address() -> None:
    broker = load(
        flags={
            "listeners": "INSIDE://:19092,OUTSIDE://0.0.0.0:9092,LOCAL://127.0.0.1:0",
            "advertised.listeners": "INSIDE://broker:19092,OUTSIDE://localhost:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,LOCAL:PLAINTEXT",
        }
    )
    assert broker.advertised("INSIDE", "172.17.0.2", 19092) == ("broker", 19092)
    assert broker.advertised("OUTSIDE", "172.17.0.2", 9092) == ("localhost", 9092)
    assert broker.advertised("LOCAL", "127.0.0.1", 40001) == ("127.0.0.1", 40001)


def test_a_wildcard_listener_is_told_as_the_client_reached_it() -> None:
    broker = load(flags={"listeners": "PLAINTEXT://:9092"})
    assert broker.advertised("PLAINTEXT", "10.0.0.5", 9092) == ("10.0.0.5", 9092)


def test_on_port_moves_the_first_listener() -> None:
    broker = load(flags={"listeners": "PLAINTEXT://h:1,X://h:2", "listener.security.protocol.map":
                         "X:PLAINTEXT"}).on_port(0)  # fmt: skip
    assert broker.listeners == (Listener("PLAINTEXT", "h", 0), Listener("X", "h", 2))
    assert "listeners" in broker.explicit


def test_log_dirs_takes_one_folder() -> None:
    assert load(flags={"log.dirs": "/var/lib/tidelog"}).log_dir == Path("/var/lib/tidelog")
    with pytest.raises(ConfigError, match=r"^log\.dirs=/a,/b \(command line\): several data folders"):
        load(flags={"log.dirs": "/a,/b"})
