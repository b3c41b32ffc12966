"""What is administered by `tidelog`, kafka-python, confluent-kafka and Apache's own tools, against a running broker."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition
from kafka.admin import AlterConfigOp, KafkaAdminClient, NewTopic
from kafka.admin import ConfigResource as Resource
from kafka.admin import ConfigResourceType as Type

from tests.support.broker import Broker, Running
from tests.support.command import ok, rows, tidelog
from tests.support.java import needs_java, run_java

pytestmark = pytest.mark.e2e

START_MS = 1_700_000_000_000
OFFSET_OUT_OF_RANGE = 1


@contextmanager
def admin(broker: Running) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        yield client


def send(broker: Running, topic: str, count: int, partition: int = 0) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as to:
        for number in range(count):
            to.send(topic, b"%d" % number, partition=partition, timestamp_ms=START_MS + number)
        to.flush()


def read(broker: Running, topic: str, count: int, partition: int = 0) -> list[tuple[int, bytes]]:
    """Return the first records that there are, by a consumer that begins at the start."""
    settings = {
        "bootstrap_servers": broker.address,
        "auto_offset_reset": "earliest",
        "consumer_timeout_ms": 20_000,
    }
    with closing(KafkaConsumer(**settings)) as source:
        source.assign([Partition(topic, partition)])
        return [(record.offset, record.value) for _, record in zip(range(count), source, strict=False)]


# -- the command ------------------------------------------------------------------------------------------------------


def test_a_topic_is_created_like_another(shared_broker: Running, topic: str) -> None:
    own = ["--config", "retention.ms=1d", "--config", "cleanup.policy=compact"]
    ok(tidelog(shared_broker, "topics", "create", topic, "--partitions", 3, *own))
    like = ["--like", topic]
    ok(tidelog(shared_broker, "topics", "create", f"{topic}-a", *like))
    change = ["--partitions", 2, "--config", "retention.ms=2d"]
    ok(tidelog(shared_broker, "topics", "create", f"{topic}-b", *like, *change))
    for name, partitions, retention in ((f"{topic}-a", 3, "86400000"), (f"{topic}-b", 2, "172800000")):
        (found,) = rows(tidelog(shared_broker, "topics", "describe", name, "--json"))
        assert len(found["partitions"]) == partitions
        assert found["options"] == {"cleanup.policy": "compact", "retention.ms": retention}
    missing = tidelog(shared_broker, "topics", "create", f"{topic}-c", "--like", f"{topic}-none")
    assert missing.returncode == 1
    assert f"topic {topic}-none does not exist" in missing.stderr


def test_topics_are_altered(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic))
    said = ok(
        tidelog(shared_broker, "topics", "alter", topic, "--partitions", 3, "--config", "retention.ms=5000s")
    )
    assert said == f"topic {topic} changed: 3 partitions, retention.ms=5000000 (5000s)\n"
    readable = "retention.ms=5000000 (5000s)"
    assert f"options {readable}\n" in ok(tidelog(shared_broker, "topics", "describe", topic))
    assert "5000000 (5000s)" in ok(tidelog(shared_broker, "configs", "describe", "--topic", topic))
    changed = rows(
        tidelog(
            shared_broker,
            "topics",
            "alter",
            topic,
            "--delete-config",
            "retention.ms",
            "--config",
            "segment.ms=9",
            "--json",
        )
    )
    assert changed == [
        {"topic": topic, "partitions": None, "set": {"segment.ms": "9"}, "deleted": ["retention.ms"]}
    ]
    (described,) = rows(tidelog(shared_broker, "topics", "describe", topic, "--json"))
    assert (len(described["partitions"]), described["options"]) == (3, {"segment.ms": "9"})
    for arguments, words in (
        (["--partitions", "2"], "would not be an increase"),
        (
            ["--config", "segment.ms=x"],
            "Invalid value x for configuration segment.ms: Not a number of type LONG",
        ),
        (
            ["--partitions", "4", "--config", "segment.ms=x"],
            "Invalid value x for configuration segment.ms: Not a number of type LONG",
        ),
    ):
        done = tidelog(shared_broker, "topics", "alter", topic, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.startswith(f"tidelog: topic {topic} was not changed: ")
        assert words in done.stderr
    (described,) = rows(tidelog(shared_broker, "topics", "describe", topic, "--json"))
    assert (len(described["partitions"]), described["options"]) == (3, {"segment.ms": "9"})
    missing = tidelog(shared_broker, "topics", "alter", f"{topic}-none", "--partitions", 2)
    assert (missing.returncode, "does not exist" in missing.stderr) == (1, True)


def test_options_are_shown_and_changed(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker({"log.segment.bytes": "5000000"})
    ok(tidelog(broker, "topics", "create", topic))
    assert ok(tidelog(broker, "configs", "describe", "--topic", topic)).split("\n")[1].split() == [
        "segment.bytes",
        "5000000",
        "broker",
        "yes",
    ]
    said = ok(tidelog(broker, "configs", "alter", "--broker", 1, "--config", "log.segment.bytes=6000000"))
    assert said == "broker 1 changed: log.segment.bytes=6000000\n"
    changed = rows(
        tidelog(broker, "configs", "alter", "--topic", topic, "--config", "retention.ms=-1", "--json")
    )
    assert changed == [{"topic": topic, "set": {"retention.ms": "-1"}, "deleted": []}]
    broker.kill()
    broker.start()
    found = {
        row.pop("option"): row
        for row in rows(tidelog(broker, "configs", "describe", "--topic", topic, "--json"))
    }
    assert found == {
        "retention.ms": {"value": "-1", "source": "topic", "read_only": False},
        "segment.bytes": {"value": "6000000", "source": "dynamic broker", "read_only": False},
    }
    everything = {
        row.pop("option"): row
        for row in rows(tidelog(broker, "configs", "describe", "--broker", 1, "--all", "--json"))
    }
    assert everything["node.id"] == {"value": "1", "source": "default", "read_only": True}
    assert ok(tidelog(broker, "configs", "alter", "--broker", 1, "--delete-config", "log.segment.bytes")) == (
        "broker 1 changed: log.segment.bytes deleted\n"
    )
    refused = tidelog(broker, "configs", "alter", "--broker", 1, "--config", "node.id=2")
    assert refused.returncode == 1
    assert refused.stderr == (
        "tidelog: broker 1 was not changed: Cannot update these configs dynamically: [node.id]: "
        "it is read when the broker starts\n"
    )


@pytest.mark.parametrize("verb", ["describe", "alter"])
def test_a_broker_that_there_is_not_is_named_with_those_there_are(shared_broker: Running, verb: str) -> None:
    more = ["--config", "log.retention.ms=60000"] if verb == "alter" else []
    done = tidelog(shared_broker, "configs", verb, "--broker", 7, *more)
    assert (done.returncode, done.stderr) == (1, "tidelog: there is no broker 7: the cluster has broker 1\n")


def test_what_could_not_be_set_is_not_said_to_be_deleted(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic))
    of_topic, of_broker = ("configs", "alter", "--topic", topic), ("configs", "alter", "--broker", 1)
    assert ok(tidelog(shared_broker, *of_topic, "--delete-config", "retention.ms")) == (
        f"topic {topic} changed: retention.ms deleted\n"
    )
    for verb, name, words in (
        (
            of_topic,
            "retentoin.ms",
            f"topic {topic} was not changed: --delete-config retentoin.ms: no such option",
        ),
        (("topics", "alter", topic), "retentoin.ms", "did you mean retention.ms?"),
        (("topics", "alter", topic, "--partitions", 2), "retentoin.ms", "no such option"),
        (of_broker, "nosuch", "broker 1 was not changed: --delete-config nosuch: no such option"),
        (of_broker, "http.port", "--delete-config http.port: cannot be changed while the broker runs"),
    ):
        refused = tidelog(shared_broker, *verb, "--delete-config", name)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
        assert words in refused.stderr
    (described,) = rows(tidelog(shared_broker, "topics", "describe", topic, "--json"))
    assert len(described["partitions"]) == 1


def test_why_records_are_not_deleted_is_said(shared_broker: Running, topic: str) -> None:
    ok(tidelog(shared_broker, "topics", "create", topic))
    send(shared_broker, topic, 3)
    beyond = tidelog(shared_broker, "delete-records", topic, "-p", 0, "--offset", 99, "--yes")
    words = f"--offset 99: partition 0 of {topic} starts at 0 and ends before 3"
    assert (beyond.returncode, beyond.stderr) == (1, f"tidelog: {words}\n")
    kept = tidelog(shared_broker, "delete-records", topic, "--all", "--json")
    assert (kept.returncode, kept.stdout) == (1, "")
    made = tidelog(shared_broker, "groups", "reset", topic, "--topic", topic, "--to-offset", 1, "--yes")
    assert made.returncode == 0
    own = tidelog(shared_broker, "delete-records", "__consumer_offsets", "--all", "--yes")
    assert own.returncode == 1
    assert own.stderr.startswith("tidelog: topic __consumer_offsets belongs to the broker")
    asked = tidelog(shared_broker, "topics", "delete", "__consumer_offsets")
    assert (asked.returncode, "all consumer groups and their committed offsets?" in asked.stderr) == (
        1,
        True,
    )
    compacted = f"{topic}-compacted"
    ok(tidelog(shared_broker, "topics", "create", compacted, "--config", "cleanup.policy=compact"))
    refused = tidelog(shared_broker, "delete-records", compacted, "--all", "--yes")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    why = "records can be deleted only if cleanup.policy includes delete (POLICY_VIOLATION, 44)"
    assert refused.stderr == f"tidelog: topic {compacted} partition 0: {why}\n"


def test_records_are_deleted_by_offset_time_and_all(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker({"log.retention.ms": "-1"})
    ok(tidelog(broker, "topics", "create", topic, "--partitions", 2))
    send(broker, topic, 10)
    by_offset = ("delete-records", topic, "-p", 0, "--offset", 3)
    kept = tidelog(broker, *by_offset)
    assert (kept.returncode, kept.stdout) == (1, f"topic {topic} kept\n")
    assert kept.stderr.startswith(f"Delete the records of {topic}-0 before offset 3? [y/N]")
    assert rows(tidelog(broker, *by_offset, "--yes", "--json")) == [{"partition": 0, "start": 3}]
    assert ok(tidelog(broker, "delete-records", topic, "--before", f"@{START_MS + 6}", "-y")).split() == [
        *("partition", "start"),
        *("0", "6"),
        *("1", "0"),
    ]
    broker.kill()
    broker.start()
    assert read(broker, topic, 1) == [(6, b"6")]
    beyond = tidelog(broker, "delete-records", topic, "-p", 0, "--offset", 11, "--yes")
    assert (beyond.returncode, beyond.stderr.count("\n")) == (1, 1)
    assert rows(tidelog(broker, "delete-records", topic, "--all", "-y", "-p", 0, "--json")) == [
        {"partition": 0, "start": 10}
    ]
    future = ("delete-records", topic, "--before", "now", "--yes")
    assert rows(tidelog(broker, *future, "--json")) == [
        {"partition": 0, "start": 10},
        {"partition": 1, "start": 0},
    ]


def test_sizes_on_disk_are_shown(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker()
    ok(tidelog(broker, "topics", "create", topic, "--partitions", 2, "--config", "retention.ms=-1"))
    send(broker, topic, 5)
    size = sum(path.stat().st_size for path in broker.data_dir.glob(f"{topic}-0/*.log"))
    *found, folder = rows(tidelog(broker, "log-dirs", "--json"))
    assert found == [
        {"kind": "partition", "broker": 1, "topic": topic, "partition": 0, "bytes": size},
        {"kind": "partition", "broker": 1, "topic": topic, "partition": 1, "bytes": 0},
    ]
    assert 0 < folder.pop("usable_bytes") <= folder.pop("total_bytes")
    assert folder == {"kind": "log_dir", "broker": 1, "log_dir": str(broker.data_dir), "bytes": size}
    shown = ok(tidelog(broker, "log-dirs", "--topic", topic)).splitlines()[-1]
    assert shown.startswith(f"broker 1, {broker.data_dir}: {size} bytes in 2 partitions; ")


# -- kafka-python, confluent-kafka ------------------------------------------------------------------------------------


def test_kafka_python_administers(new_broker: Callable[..., Broker], topic: str) -> None:
    broker = new_broker({"log.retention.ms": "-1", "tidelog.tolerate.replication.factor": "true"})
    with admin(broker) as client:
        client.create_topics([NewTopic(topic, 1, 3)])
        client.create_partitions({topic: 2})
        (described,) = client.describe_topic_partitions([topic])["topics"]
        assert [part["replica_nodes"] for part in described["partitions"]] == [[1], [1]]
        send(broker, topic, 5)
        own = Resource(Type.TOPIC, topic, {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})
        assert client.alter_configs([own]) == {"topic": {topic: "OK"}}
        for_all = Resource(Type.BROKER, "1", {"log.segment.bytes": "7000000"})
        assert client.alter_configs([for_all], incremental=False) == {"broker": {"1": "OK"}}
        told = client.describe_configs([Resource(Type.TOPIC, topic)])["topic"][topic]
        assert {name: (each["value"], each["config_source"]) for name, each in told.items()} == {
            "cleanup.policy": ("delete,compact", "DYNAMIC_TOPIC_CONFIG"),
            "segment.bytes": ("7000000", "DYNAMIC_BROKER_CONFIG"),
        }
        found = client.delete_records({Partition(topic, 0): 2})
        assert found[Partition(topic, 0)]["low_watermark"] == 2
        (folders,) = client.describe_log_dirs()
        assert folders["log_dirs"][0]["topics"][0]["partitions"][0]["partition_size"] > 0
        assert client.list_config_resources() == {"broker": ["1"], "topic": [topic]}
        assert client.list_partition_reassignments() == {}
        (elected,) = client.elect_leaders(0, {topic: [0]}).replica_election_results
        assert [part.error_code for part in elected.partition_result] == [84], "it is not needed"
    broker.kill()
    broker.start()
    assert read(broker, topic, 3) == [(2, b"2"), (3, b"3"), (4, b"4")]


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_confluent_kafka_administers(shared_broker: Running, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": shared_broker.address, "log_level": 0})
    with admin(shared_broker) as other:
        other.create_topics([NewTopic(topic, 1, 1)])
    send(shared_broker, topic, 5)
    assert result(client.create_partitions([NewPartitions(topic, 3)])) is None
    assert len(client.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    entry = ConfigEntry("retention.ms", "7000000000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    result(client.incremental_alter_configs([resource]))
    told = result(client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert (told["retention.ms"].value, told["retention.ms"].is_read_only) == ("7000000000000", False)
    result(
        client.alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "80000000"})]
        )
    )
    told = result(client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert (told["retention.ms"].value, told["segment.ms"].value) == ("-1", "80000000")
    deleted = client.delete_records([TopicPartition(topic, 0, 2)])
    assert result(deleted).low_watermark == 2
    elected = client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(10)
    assert [error.name() for error in elected.values()] == ["ELECTION_NOT_NEEDED"]
    assert read(shared_broker, topic, 1) == [(2, b"2")]


def result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(10)


# -- Apache's tools ---------------------------------------------------------------------------------------------------


@needs_java
@pytest.mark.java
def test_apaches_tools_administer(new_broker: Callable[..., Broker], topic: str) -> None:
    """All of them in one JVM, as its start takes longest."""
    broker = new_broker({"log.retention.ms": "-1"})
    records = broker.data_dir.with_name("records.json")
    records.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]})
    )
    with admin(broker) as client:
        client.create_topics([NewTopic(topic, 1, 1)])
    send(broker, topic, 5)
    to = ["--bootstrap-server", broker.address]
    topics = ["org.apache.kafka.tools.TopicCommand", *to, "--topic", topic]
    configs = ["org.apache.kafka.tools.ConfigCommand", *to]
    calls = [
        [*topics, "--alter", "--partitions", "3"],
        [*topics, "--describe"],
        [
            *configs,
            "--alter",
            "--topic",
            topic,
            "--add-config",
            "cleanup.policy=[delete,compact],segment.ms=90000",
        ],
        [*configs, "--alter", "--topic", topic, "--delete-config", "segment.ms"],
        [*configs, "--describe", "--topic", topic],
        [*configs, "--alter", "--broker", "1", "--add-config", "log.segment.bytes=7000000"],
        [*configs, "--alter", "--broker-defaults", "--add-config", "log.segment.bytes=8000000"],
        [*configs, "--describe", "--broker", "1"],
        [*configs, "--describe", "--broker-defaults"],
        ["org.apache.kafka.tools.DeleteRecordsCommand", *to, "--offset-json-file", str(records)],
        ["org.apache.kafka.tools.GetOffsetShell", *to, "--topic", topic, "--time", "earliest"],
        ["org.apache.kafka.tools.LogDirsCommand", *to, "--describe", "--topic-list", topic],
        [*configs, "--alter", "--broker", "1", "--add-config", "num.io.threads=16"],
        [*configs, "--describe", "--broker", "1", "--all"],
        [*configs, "--describe", "--entity-type", "users", "--entity-type", "clients"],
        [*configs, "--describe", "--user", "somebody"],
        ["org.apache.kafka.tools.TransactionsCommand", *to, "list"],
        ["org.apache.kafka.tools.MetadataQuorumCommand", *to, "describe", "--status"],
        [
            "org.apache.kafka.tools.MetadataQuorumCommand",
            *to,
            "describe",
            "--replication",
            "--human-readable",
        ],
        ["org.apache.kafka.tools.FeatureCommand", *to, "describe"],
    ]
    done = run_java("Tools", stdin="".join("\t".join(call) + "\n" for call in calls), timeout_s=120)
    assert done.returncode == 0, done.stderr
    (
        altered,
        described,
        *_,
        own,
        for_one,
        for_all,
        told_one,
        told_all,
        deleted,
        earliest,
        sizes,
        set_inert,
        told_everything,
        quotas,
        user,
        transactions,
        quorum,
        replication,
        features,
    ) = done.stdout.split("=== ended with status 0\n")[:-1]
    assert altered == ""
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert (
        "cleanup.policy=delete,compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete,compact"
        in own
    )
    assert "segment.ms" not in own
    assert "Completed updating config for broker 1." in for_one
    assert "Completed updating default config for brokers in the cluster." in for_all
    assert (
        "DYNAMIC_BROKER_CONFIG:log.segment.bytes=7000000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=8000000"
        in told_one
    )
    assert "log.segment.bytes=8000000" in told_all
    assert "Completed updating config for broker 1." in set_inert
    for line in (
        "num.io.threads=16 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:num.io.threads=16, DEFAULT_CONFIG:num.io",
        f"log.dirs={broker.data_dir} sensitive=false",
        "broker.rack=null sensitive=false",
    ):
        assert line in told_everything
    assert quotas == ""
    assert user == ""
    assert transactions.split() == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert re.search(
        r"LeaderId: +1\n.*MaxFollowerLag: +0\n.*CurrentVoters: +\[\{\"id\": 1", quorum, re.DOTALL
    )
    assert [line.split()[-1] for line in replication.splitlines()] == ["Status", "Leader"]
    assert re.findall(r"Feature: (\S+) .*FinalizedVersionLevel: (\S+)", features) == [
        ("group.version", "1"),
        ("metadata.version", "4.0-IV3"),
    ]
    assert f"partition: {topic}-0\tlow_watermark: 2" in deleted
    assert earliest.split() == [f"{topic}:0:2", f"{topic}:1:0", f"{topic}:2:0"]
    (folders,) = [json.loads(line) for line in sizes.splitlines() if line.startswith("{")]
    (folder,) = folders["brokers"][0]["logDirs"]
    assert (folder["error"], folder["logDir"]) == (None, str(broker.data_dir))
    assert sorted(part["partition"] for part in folder["partitions"]) == [f"{topic}-{n}" for n in range(3)]
    assert sum(part["size"] for part in folder["partitions"]) > 0
