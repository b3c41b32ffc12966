"""Real clients' frames, recorded once: what fuzzing starts from. `python -m tests.fuzz.record` writes them anew.

kafka-python (as it is, and pinned to old releases), aiokafka and confluent-kafka talk to a broker through a proxy that
keeps what they send. Of each client's frames to one version of an API the smallest and the largest are kept, if they
are small; a line each, as `client hexadecimal`.
"""

import asyncio
import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaNewTopic

from tests.support.broker import Broker
from tests.support.raw_client import RawClient

CORPUS = Path(__file__).with_name("corpus.txt")
# The topic that the frames name; who plays them to a broker makes it there.
TOPIC, TOPIC_ID_LINE = "corpus", "topic-id"
GROUP = "corpus-group"
MOST_BYTES = 1500
PINNED = [(0, 11), (1, 0), (2, 1), (2, 6)]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Recorder:
    """A proxy before a broker, which keeps every whole frame that comes from a client."""

    def __init__(self) -> None:
        self.frames: dict[tuple[str, bytes], list[bytes]] = {}
        self.client = "?"
        self.target = ("127.0.0.1", 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            broker = socket.create_connection(self.target)
            threading.Thread(target=self._up, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._down, args=(broker, client), daemon=True).start()

    def _up(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                body = stream.read(int.from_bytes(size, "big"))
                self.frames.setdefault((self.client, body[:4]), []).append(body)
                broker.sendall(size + body)
        broker.close()

    def _down(self, broker: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(1 << 16):
                client.sendall(data)
        client.close()

    def lines(self) -> list[str]:
        """Return the smallest and the largest frame of each client, API and version, that are small enough."""
        kept = []
        for (client, _), bodies in sorted(self.frames.items()):
            small = sorted((body for body in bodies if len(body) <= MOST_BYTES), key=len)
            kept += [f"{client} {body.hex()}" for body in dict.fromkeys(small[:1] + small[-1:])]
        return kept


def kafka_python(address: str, **settings: object) -> None:
    for codec in CODECS if not settings else CODECS[:1]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=address, compression_type=None if codec == "none" else codec, **settings
        )
        for number in range(3):
            producer.send(
                TOPIC, b"value %d" % number, b"key", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000
            )
        producer.flush()
        producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", **settings)
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.poll(timeout_ms=1000)
    consumer.offsets_for_times({partition: 1_700_000_000_000})
    consumer.end_offsets([partition])
    consumer.topics()
    consumer.close()
    # Sessions are 30 s and more to brokers of long ago.
    member = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest", **settings
    )
    member.poll(timeout_ms=5000)
    member.commit()
    member.committed(partition)
    member.close()


def kafka_python_admin(address: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([KafkaNewTopic(name="made", num_partitions=2, replication_factor=1)])
    admin.describe_cluster()
    admin.describe_metadata_quorum()
    admin.list_topics()
    admin.describe_configs([kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, TOPIC)])
    admin.create_partitions({"made": 3})
    topic, broker = kafka.admin.ConfigResourceType.TOPIC, kafka.admin.ConfigResourceType.BROKER
    append = {"cleanup.policy": (kafka.admin.AlterConfigOp.APPEND, "compact")}
    admin.alter_configs([kafka.admin.ConfigResource(topic, "made", append)])
    admin.alter_configs(
        [kafka.admin.ConfigResource(broker, "1", {"log.flush.interval.ms": "1"})], raise_on_unknown=False
    )
    admin.alter_configs([kafka.admin.ConfigResource(topic, "made", {"flush.ms": "1"})], incremental=False)
    admin.delete_records({kafka.TopicPartition(TOPIC, 0): -1})
    admin.describe_log_dirs()
    admin.describe_topic_partitions([TOPIC], 1)
    admin.elect_leaders(0, {TOPIC: [0]})
    admin.alter_partition_reassignments({kafka.TopicPartition(TOPIC, 0): [1]})
    admin.list_partition_reassignments()
    admin.list_config_resources()
    anybody = kafka.admin.ACLFilter(
        principal=None,
        host="*",
        operation=kafka.admin.ACLOperation.ANY,
        permission_type=kafka.admin.ACLPermissionType.ANY,
        resource_pattern=kafka.admin.ResourcePatternFilter(
            kafka.admin.ResourceType.ANY, None, kafka.admin.ACLResourcePatternType.ANY
        ),
    )
    with contextlib.suppress(kafka.errors.SecurityDisabledError):
        admin.describe_acls(anybody)
    admin.describe_user_scram_credentials()
    admin.list_transactions()
    admin.describe_producers([kafka.TopicPartition(TOPIC, 0)])
    admin.delete_topics(["made"])
    admin.list_groups()
    admin.describe_groups([GROUP])
    admin.list_group_offsets([GROUP])
    admin.delete_group_offsets(GROUP, [kafka.TopicPartition(TOPIC, 0)])
    admin.delete_groups([GROUP])
    admin.close()


async def aiokafka(address: str) -> None:
    for idempotent in (False, True):
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=idempotent) as producer:
            await producer.send_and_wait(TOPIC, b"value", b"key")
    async with AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        partition = AioTopicPartition(TOPIC, 0)
        consumer.assign([partition])
        await consumer.getmany(timeout_ms=1000)
        await consumer.offsets_for_times({partition: 1_700_000_000_000})
    async with AIOKafkaConsumer(TOPIC, bootstrap_servers=address, group_id=GROUP) as member:
        await member.getmany(timeout_ms=1000)
        await member.commit({partition: 1})
        await member.committed(partition)
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.list_topics()
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups([GROUP])
    await admin.close()


def confluent(address: str) -> None:
    quiet = {"bootstrap.servers": address, "log_level": 0}
    for settings in ({}, {"enable.idempotence": True}, {"compression.type": "zstd"}, {"acks": 1}):
        producer = Producer({**quiet, **settings})
        for number in range(3):
            producer.produce(TOPIC, b"value %d" % number, b"key")
        producer.flush()
    consumer = Consumer({**quiet, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    consumer.consume(3, timeout=3)
    consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1_700_000_000_000)], timeout=5)
    consumer.close()
    for settings in (
        {},
        {"group.protocol": "consumer"},
        {"group.instance.id": "one", "partition.assignment.strategy": "cooperative-sticky"},
    ):
        member = Consumer(
            {**quiet, "group.id": f"{GROUP}{len(settings)}", "auto.offset.reset": "earliest", **settings}
        )
        member.subscribe([TOPIC, f"^{TOPIC}.*"] if "group.protocol" in settings else [TOPIC])
        member.consume(3, timeout=5)
        member.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        member.committed([TopicPartition(TOPIC, 0)], timeout=5)
        member.close()


def confluent_admin(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    wanted = [
        admin.create_topics([NewTopic("made-too", 2, 1)]),
        admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]),
        admin.create_partitions([NewPartitions("made-too", 3)]),
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, "made-too", incremental_configs=[entry])]
        ),
        admin.delete_records([TopicPartition(TOPIC, 0, -1)]),
        admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.latest()}),
        admin.delete_topics(["made-too"]),
        {None: admin.list_consumer_groups()},
        admin.describe_consumer_groups([f"{GROUP}0", f"{GROUP}1"]),
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{GROUP}0")]),
        admin.delete_consumer_groups([f"{GROUP}0"]),
    ]
    for futures in wanted:
        for future in futures.values():
            # What the broker does not serve was sent all the same.
            with contextlib.suppress(Exception):
                future.result(timeout=5)
    with contextlib.suppress(Exception):
        admin.list_topics(timeout=5)
    with contextlib.suppress(Exception):
        admin.describe_cluster().result(timeout=5)


def record() -> list[str]:
    """Let every client work through the proxy; return the lines of the corpus."""
    recorder = Recorder()
    address = f"127.0.0.1:{recorder.port}"
    clients: dict[str, Callable[[], object]] = {
        "kafka-python": lambda: kafka_python(address),
        "kafka-python-admin": lambda: kafka_python_admin(address),
        "aiokafka": lambda: asyncio.run(aiokafka(address)),
        "confluent-kafka": lambda: confluent(address),
        "confluent-kafka-admin": lambda: confluent_admin(address),
    }
    for release in PINNED:
        name = "kafka-python-" + ".".join(map(str, release))
        clients[name] = lambda release=release: kafka_python(address, api_version=release)  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        options = {"advertised.listeners": f"PLAINTEXT://{address}"}
        with Broker(Path(folder) / "data", options) as broker:
            broker.start()
            recorder.target = (broker.host, broker.port)
            with RawClient(broker) as client:
                topic_id = client.create(TOPIC, 2).topic_id
            for name, work in clients.items():
                recorder.client = name
                try:
                    work()
                except Exception as error:
                    print(f"{name}: {error!r}")
    return [f"{TOPIC_ID_LINE} {topic_id.hex()}", *recorder.lines()]


if __name__ == "__main__":
    found = record()
    CORPUS.write_text("\n".join(found) + "\n")
    print(f"{len(found) - 1} frames, {CORPUS.stat().st_size} bytes")
