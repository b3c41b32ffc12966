"""The three sources of options, what wins, and what is said of a setting that cannot be honoured."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import docs

from tidelog.config.errors import ConfigError
from tidelog.config.load import environ_name, load
from tidelog.config.options import BrokerConfig
from tidelog.config.properties import read_properties

# The environment of the single-node example of the apache/kafka image, and of two others that people copy.
COMPOSE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:29093,PLAINTEXT_HOST://:9092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:19092,PLAINTEXT_HOST://localhost:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
    "KAFKA_NUM_PARTITIONS": "3",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_LOG_RETENTION_HOURS": "1",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
    "KAFKA_JMX_PORT": "9101",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
    "KAFKA_SERVICE_HOST": "10.0.0.1",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "PATH": "/bin",
}  # fmt: skip


def test_a_compose_file_for_kafka_starts_tidelog() -> None:
    config = load(environ=COMPOSE)
    assert [str(listener) for listener in config.listeners] == [
        "PLAINTEXT://:19092",
        "PLAINTEXT_HOST://:9092",
    ]
    assert config.advertised("PLAINTEXT_HOST", "172.17.0.2", 9092) == ("localhost", 9092)
    assert (config.num_partitions, config.auto_create_topics_enable) == (3, False)
    assert config.topic_defaults().retention_ms == 3_600_000
    assert config.log_dir == Path("/tmp/kraft-combined-logs")
    noted = {note.split()[0] for note in config.notes}
    assert {"process.roles", "controller.quorum.voters", "offsets.topic.replication.factor"} <= noted
    assert config.group_initial_rebalance_delay_ms == 0
    assert "listener CONTROLLER://:29093" in " ".join(config.notes)
    assert not any("HEAP" in note or "jmx" in note for note in config.notes)


def test_nothing_set_is_the_default() -> None:
    assert load() == BrokerConfig()


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("KAFKA_A__B_C", "a_b.c"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
    ],
)
def test_variables_are_spelt_as_the_kafka_image_spells_them(variable: str, name: str) -> None:
    assert environ_name(variable) == name


def write(folder: Path, content: str) -> Path:
    path = folder / "server.properties"
    path.write_text(content, encoding="utf-8")
    return path


def test_later_sources_win(tmp_path: Path) -> None:
    file = write(tmp_path, "num.partitions=1\nnode.id=1\nlog.segment.bytes=100\n")
    config = load(
        file, {"KAFKA_NODE_ID": "2", "KAFKA_LOG_SEGMENT_BYTES": "200"}, {"log.segment.bytes": "300"}
    )
    assert (config.num_partitions, config.node_id, config.topic_defaults().segment_bytes) == (1, 2, 300)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_of_one_source_the_finest_unit_wins(tmp_path: Path, order: tuple[int, ...]) -> None:
    lines = ("log.retention.hours=3", "log.retention.minutes=2", "log.retention.ms=1")
    assert load(write(tmp_path, "\n".join(lines[i] for i in order))).topic_defaults().retention_ms == 1
    two = [line for line in (lines[i] for i in order) if not line.startswith("log.retention.ms")]
    assert load(write(tmp_path, "\n".join(two))).topic_defaults().retention_ms == 120_000


def test_a_coarser_unit_of_a_later_source_wins(tmp_path: Path) -> None:
    file = write(tmp_path, "log.retention.ms=1")
    assert load(file, {"KAFKA_LOG_RETENTION_HOURS": "1"}).topic_defaults().retention_ms == 3_600_000


def test_a_negative_span_in_hours_is_no_limit() -> None:
    assert load(flags={"log.retention.hours": "-1"}).topic_defaults().retention_ms == -1


def test_the_last_of_a_repeated_property_wins(tmp_path: Path) -> None:
    assert load(write(tmp_path, "node.id=1\nnode.id=2\n")).node_id == 2


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("log.segmnt.bytes", "1", "no such option; did you mean log.segment.bytes?"),
        ("LOG_SEGMENT_BYTES", "1", "no such option; did you mean log.segment.bytes?"),
        ("advertised.listener", "PLAINTEXT://h:1", "did you mean advertised.listeners?"),
        ("segment.bytes", "1", "a topic option; the broker's default for all topics is log.segment.bytes"),
        ("colour", "red", "no such option"),
        ("num.partitions", "0", "must be at least 1"),
        ("num.partitions", "many", "Not a number of type INT"),
        ("log.retention.hours", "9223372036854775807", "Value must be no more than 2562047788015"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("default.replication.factor", "3", "there is one node"),
        ("log.cleanup.policy", "forget", "String must be one of: compact, delete"),
        ("ssl.keystore.location", "k", "refused: the broker can neither authenticate nor encrypt"),
        ("sasl.enabled.mechanisms", "PLAIN", "refused"),
        ("authorizer.class.name", "A", "refused"),
        ("queued.max.request.bytes", "1000", "would never fit"),
        ("log.dir", "", "a folder is needed"),
        ("listeners", "", "at least one is needed"),
        ("listeners", "CONTROLLER://:9093", "at least one is needed"),
        ("listeners", "PLAINTEXT:9092", "not of the form NAME://host:port"),
        ("listeners", "PLAINTEXT://9092", "not of the form NAME://host:port"),
        ("listeners", "PLAINTEXT://h:65536", "not a number from 0 to 65535"),
        ("listeners", "PLAINTEXT://h:-1", "not a number from 0 to 65535"),
        ("listeners", "PLAINTEXT://::1:9092", "write an IPv6 address in brackets"),
        ("listeners", "SSL://h:9093", "SSL is not supported yet; use PLAINTEXT"),
        ("listeners", "SASL_PLAINTEXT://h:9093", "SASL_PLAINTEXT is not supported yet"),
        ("listeners", "INSIDE://h:9092", "add INSIDE:PLAINTEXT to listener.security.protocol.map"),
        ("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2", "the name PLAINTEXT is used twice"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "clients need a host that they can reach"),
        ("advertised.listeners", "PLAINTEXT://:9092", "clients need a host that they can reach"),
        ("advertised.listeners", "OUTSIDE://h:9092", "there is no listener OUTSIDE"),
        ("listener.security.protocol.map", "PLAINTEXT", "not of the form NAME:PROTOCOL"),
    ],
)
def test_a_bad_setting_is_named_with_its_value_its_place_and_what_is_wrong(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags={name: text})
    message = str(caught.value)
    assert message.startswith(name)
    assert "(command line)" in message
    assert problem in message
    assert "\n" not in message


def test_a_mapped_protocol_is_looked_at_too() -> None:
    flags = {"listeners": "INSIDE://h:9092", "listener.security.protocol.map": "INSIDE:SASL_SSL"}
    with pytest.raises(ConfigError, match="SASL_SSL is not supported yet"):
        load(flags=flags)


def test_two_listeners_cannot_share_a_port_unless_it_is_a_free_one() -> None:
    mapped = {"listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    with pytest.raises(ConfigError, match="port 9092 is used twice"):
        load(flags={"listeners": "A://:9092,B://:9092", **mapped})
    assert len(load(flags={"listeners": "A://:0,B://:0", **mapped}).listeners) == 2


def test_the_place_of_a_bad_setting_is_its_line_or_its_variable(tmp_path: Path) -> None:
    file = write(tmp_path, "# ours\nnode.id=1\n\nnum.partitions = none\n")
    with pytest.raises(
        ConfigError, match=r"^num\.partitions=none \(.*server\.properties:4\): Not a number of type INT$"
    ):
        load(file)
    with pytest.raises(ConfigError, match=r"\(environment KAFKA_NODE_ID\): Not a number of type INT"):
        load(environ={"KAFKA_NODE_ID": "x"})


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory$"), (b"\xff\xfe", "'utf-8' codec can't decode")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "server.properties"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"server\.properties: cannot be read: {why}"):
        load(file)


def test_properties_are_read_as_java_reads_them() -> None:
    content = (
        "! a comment\n   # another\n\na=1\nb: 2\nc 3\nd=x=y:z # not a comment\n  e  =  5  \n"
        "f=one,\\\n    two,\\\n    three\ng\\=h=\\u0041\\t\\\\\nempty=\nbare\nlast=\\\n"
    )
    assert [(name, text) for name, text, _ in read_properties(content)] == [
        ("a", "1"), ("b", "2"), ("c", "3"), ("d", "x=y:z # not a comment"), ("e", "5  "),
        ("f", "one,two,three"), ("g=h", "A\t\\"), ("empty", ""), ("bare", ""), ("last", ""),
    ]  # fmt: skip
    assert [line for _, _, line in read_properties(content)][4:7] == [8, 9, 12]
    assert list(read_properties("a=1\x0b\u20282\rb=3\r\nc=4")) == [
        ("a", "1\x0b\u20282", 1),
        ("b", "3", 2),
        ("c", "4", 3),
    ]


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


@given(
    st.dictionaries(st.text(st.characters(codec="ascii"), min_size=1), st.text(st.characters(codec="ascii")))
)
def test_any_properties_survive_being_escaped(pairs: dict[str, str]) -> None:
    content = "".join(f"{escaped(name)} = {escaped(text)}\n" for name, text in pairs.items())
    assert {name: text for name, text, _ in read_properties(content)} == pairs


@given(st.text())
def test_any_file_is_options_or_a_config_error(content: str) -> None:
    for row in read_properties(content):
        with suppress(ConfigError):
            load(flags={row.name: row.text})


def test_the_page_on_options_names_them_all() -> None:
    page = docs.options_page()
    for option in ("`segment.bytes`", "`log.retention.hours`", "`process.roles`", "`ssl.*`"):
        assert option in page


def test_contradictory_lags_of_compaction_keep_the_broker_from_starting(tmp_path: Path) -> None:
    file = write(tmp_path, "log.cleaner.min.compaction.lag.ms=6\nlog.cleaner.max.compaction.lag.ms=5\n")
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert str(refused.value) == (
        "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5): "
        f"log.cleaner.min.compaction.lag.ms must be at most log.cleaner.max.compaction.lag.ms ({file}:1)"
    )


def test_options_of_another_tier_are_taken_with_a_note_each() -> None:
    flags = {"remote.log.storage.system.enable": "false", "log.local.retention.ms": "-2"}
    notes = load(flags=flags).notes
    assert [note.split()[0] for note in notes] == list(flags)
    assert all("no other tier" in note for note in notes)
    with pytest.raises(ConfigError, match="a topic option"):
        load(flags={"segment.bytes": "100"})


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"group.consumer.session.timeout.ms": "1000"}, "group.consumer.session.timeout.ms"),
        ({"group.consumer.heartbeat.interval.ms": "60000"}, "group.consumer.heartbeat.interval.ms"),
        (
            {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
            "group.consumer.heartbeat.interval.ms",
        ),
        ({"group.consumer.assignors": "sticky"}, "group.consumer.assignors"),
        ({"group.consumer.migration.policy": "sometimes"}, "group.consumer.migration.policy"),
    ],
)
def test_times_of_consumer_groups_must_fit_one_another(flags: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        load(flags=flags)
    fits = {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "6000"}
    assert load(flags=fits).group_consumer_session_timeout_ms == 6000
    assert (
        load(flags={"group.consumer.migration.policy": "DISABLED"}).group_consumer_migration_policy
        == "disabled"
    )
