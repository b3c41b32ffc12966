"""A consumer in a process of its own, to be killed: `python -m tests.support.group_worker '{"client": ...}'`.

Writes a line for each record that it was given, `r partition offset value`, and one for each commit that was answered,
`c partition offset`. It reads until it is ended; SIGTERM has it leave its group.
"""

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# As long as a busy machine may keep a process waiting.
SESSION_MS, HEARTBEAT_MS = 8000, 800
AT_ONCE = 5
over = threading.Event()


class Journal:
    """What was read and committed, in a file that is whole to the line whatever becomes of its writer."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115
        self.next: dict[int, int] = {}

    def read(self, partition: int, offset: int, value: bytes) -> None:
        self._file.write(f"r {partition} {offset} {value.decode()}\n")
        self.next[partition] = offset + 1

    def committed(self) -> None:
        for partition, offset in self.next.items():
            self._file.write(f"c {partition} {offset}\n")
        self.next = {}


def with_kafka_python(
    journal: Journal, topic: str, group: str, address: str, settings: Mapping[str, Any]
) -> None:
    import kafka
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_records=AT_ONCE,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        **{name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()},
    )
    while not over.is_set():
        for partition, records in consumer.poll(timeout_ms=100).items():
            for record in records:
                journal.read(partition.partition, record.offset, record.value)
        if journal.next:
            try:
                consumer.commit()
                journal.committed()
            except kafka.errors.KafkaError:
                journal.next = {}  # another generation has begun: who reads them now begins where we had committed
    consumer.close()


def with_confluent(
    journal: Journal, topic: str, group: str, address: str, settings: Mapping[str, Any]
) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "roundrobin",
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe([topic])
    while not over.is_set():
        for message in consumer.consume(AT_ONCE, 0.1):
            if message.error() is None:
                journal.read(message.partition(), message.offset(), message.value())
        if journal.next:
            try:
                consumer.commit(asynchronous=False)
                journal.committed()
            except KafkaException:
                journal.next = {}
    consumer.close()


async def _with_aiokafka(
    journal: Journal, topic: str, group: str, address: str, settings: Mapping[str, Any]
) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        **settings,
    )
    await consumer.start()
    while not over.is_set():
        for partition, records in (await consumer.getmany(timeout_ms=100, max_records=AT_ONCE)).items():
            for record in records:
                journal.read(partition.partition, record.offset, record.value)
        if journal.next:
            try:
                await consumer.commit()
                journal.committed()
            except KafkaError:
                journal.next = {}
    await consumer.stop()


def with_aiokafka(*arguments: Any) -> None:
    asyncio.run(_with_aiokafka(*arguments))


CLIENTS = {"kafka-python": with_kafka_python, "confluent-kafka": with_confluent, "aiokafka": with_aiokafka}

if __name__ == "__main__":
    said = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    CLIENTS[said["client"]](
        Journal(said["journal"]), said["topic"], said["group"], said["address"], said["settings"]
    )
