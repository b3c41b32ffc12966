"""A member of a consumer group, as a program: what it is told by JSON in its argument, what it does on stdout.

    python member.py CLIENT '{"bootstrap": "host:port", "group": ..., "topic": ..., "session_ms": ..., ...}'

It says `A p ...` (the partitions that it has now), `R p o` (a record that it was given) and `C p o` (an offset that it
has committed, in answer to what it was given), a line each. It leaves when stdin ends.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

HEARTBEATS_A_SESSION = 5


def say(kind: str, *values: object) -> None:
    """Say one thing that has happened."""
    print(kind, *values, flush=True)


def with_kafka_python(told: dict[str, Any], is_over: threading.Event) -> None:
    """Be a member by kafka-python, of the version that is found first."""
    sys.path[:0] = [told["path"]] if "path" in told else []
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            pass

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            say("A", *sorted(each.partition for each in assigned))

    more = {"api_version": tuple(told["api_version"])} if "api_version" in told else {}
    consumer = KafkaConsumer(
        bootstrap_servers=told["bootstrap"],
        group_id=told["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=told["session_ms"],
        heartbeat_interval_ms=told["session_ms"] // HEARTBEATS_A_SESSION,
        fetch_max_wait_ms=100,
        **more,
    )
    consumer.subscribe([told["topic"]], listener=Listener())
    # A leader that learns of its topic only after it has assigned joins anew, and where that outlasts the poll,
    # kafka-python 3.0.12 forgets its share for good.
    consumer.partitions_for_topic(told["topic"])
    while not is_over.is_set():
        found = consumer.poll(timeout_ms=100)
        for partition, records in found.items():
            for record in records:
                say("R", partition.partition, record.offset)
        if found:
            try:
                consumer.commit()
            except Exception as error:
                say("E", repr(error))
                continue
            for partition, records in found.items():
                say("C", partition.partition, records[-1].offset + 1)
    consumer.close()


def with_confluent_kafka(told: dict[str, Any], is_over: threading.Event) -> None:
    """Be a member by confluent-kafka, in either protocol of groups."""
    from confluent_kafka import Consumer, KafkaException

    protocol = told.get("protocol", "classic")
    settings = {
        "bootstrap.servers": told["bootstrap"],
        "group.id": told["group"],
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "log_level": 0,
    }
    if protocol == "classic":
        settings["session.timeout.ms"] = told["session_ms"]
        settings["heartbeat.interval.ms"] = told["session_ms"] // HEARTBEATS_A_SESSION
        settings["partition.assignment.strategy"] = told.get("assignor", "range")
    if "instance" in told:
        settings["group.instance.id"] = told["instance"]
    consumer = Consumer(settings)

    def changed(*_: object) -> None:
        pass

    consumer.subscribe([told["topic"]], on_assign=changed)
    has: list[int] | None = None
    while not is_over.is_set():
        messages = consumer.consume(500, timeout=0.1)
        now = sorted(each.partition for each in consumer.assignment())
        if now != has:
            has = now
            say("A", *has)
        ends: dict[int, int] = {}
        for message in messages:
            if message.error() is None:
                say("R", message.partition(), message.offset())
                ends[message.partition()] = message.offset() + 1
        if ends:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                say("E", repr(error))
                continue
            for partition, end in ends.items():
                say("C", partition, end)
    consumer.close()


def with_aiokafka(told: dict[str, Any], is_over: threading.Event) -> None:
    """Be a member by aiokafka."""
    asyncio.run(_aiokafka(told, is_over))


async def _aiokafka(told: dict[str, Any], is_over: threading.Event) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            pass

        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            say("A", *sorted(each.partition for each in assigned))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=told["bootstrap"],
        group_id=told["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=told["session_ms"],
        heartbeat_interval_ms=told["session_ms"] // HEARTBEATS_A_SESSION,
        fetch_max_wait_ms=100,
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    consumer.subscribe([told["topic"]], listener=Listener())
    await consumer.start()
    while not is_over.is_set():
        found = await consumer.getmany(timeout_ms=100)
        for partition, records in found.items():
            for record in records:
                say("R", partition.partition, record.offset)
        if found:
            try:
                await consumer.commit()
            except Exception as error:
                say("E", repr(error))
                continue
            for partition, records in found.items():
                say("C", partition.partition, records[-1].offset + 1)
    await consumer.stop()


CLIENTS: dict[str, Callable[[dict[str, Any], threading.Event], None]] = {
    "kafka-python": with_kafka_python,
    "confluent-kafka": with_confluent_kafka,
    "aiokafka": with_aiokafka,
}


def main() -> None:
    """Be a member until stdin ends."""
    is_over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    CLIENTS[sys.argv[1]](json.loads(sys.argv[2]), is_over)


if __name__ == "__main__":
    main()
