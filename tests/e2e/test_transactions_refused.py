"""What a transactional producer is told at its start: that there are no transactions, at once and for good."""

import asyncio

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import errors as aiokafka_errors
from kafka import KafkaProducer
from kafka import errors as kafka_errors

from tests.support.broker import Running
from tests.support.java import needs_java, run_java

pytestmark = pytest.mark.e2e

MESSAGE = "transactions are not supported: leave out transactional.id, idempotent producers need none"
# Clients that go on asking do so for a minute or more by default.
PATIENCE_S = 30.0


def test_confluent_kafka_gives_up_and_says_why(shared_broker: Running, topic: str) -> None:
    settings = {"bootstrap.servers": shared_broker.address, "transactional.id": topic, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(PATIENCE_S)
    (error,) = refused.value.args
    assert (error.name(), error.fatal()) == ("CLUSTER_AUTHORIZATION_FAILED", True)
    assert error.str().endswith(MESSAGE)


def test_kafka_python_gives_up(shared_broker: Running, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=shared_broker.address, transactional_id=topic, max_block_ms=PATIENCE_S * 1000
    )
    with pytest.raises(kafka_errors.KafkaError, match=r"coordinator .* ClusterAuthorizationFailedError"):
        producer.init_transactions()
    producer.close(timeout=1)


async def test_aiokafka_gives_up(shared_broker: Running, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=shared_broker.address, transactional_id=topic)
    try:
        with pytest.raises(aiokafka_errors.KafkaError, match="ClusterAuthorizationFailedError"):
            await asyncio.wait_for(producer.start(), PATIENCE_S)
    finally:
        await producer.stop()


@needs_java
@pytest.mark.java
def test_apaches_producer_gives_up_and_says_why(shared_broker: Running, topic: str) -> None:
    done = run_java("JavaClient", "transaction", shared_broker.address, topic)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(MESSAGE)
