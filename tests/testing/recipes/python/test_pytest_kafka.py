"""What ran with the fixtures of pytest-kafka, and what could not."""

from contextlib import closing

import pytest
from kafka import KafkaConsumer, KafkaProducer


@pytest.fixture
def kafka_server(tidelog):
    return None, tidelog.port


@pytest.fixture
def kafka_consumer(tidelog):
    address = tidelog.bootstrap
    with closing(
        KafkaConsumer("parcels", bootstrap_servers=address, auto_offset_reset="earliest")
    ) as consumer:
        yield consumer


def test_a_parcel_arrives(kafka_server, kafka_consumer):
    _, port = kafka_server
    with closing(KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}")) as producer:
        producer.send("parcels", b"a book").get(10)
    assert next(kafka_consumer).value == b"a book"


def test_a_courier_who_stalls_is_replaced(tidelog_topic, tidelog_clock):
    def courier():
        return closing(
            KafkaConsumer(
                tidelog_topic.name,
                bootstrap_servers=tidelog_topic.bootstrap,
                group_id="couriers",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
        )

    with closing(KafkaProducer(bootstrap_servers=tidelog_topic.bootstrap)) as producer:
        producer.send(tidelog_topic.name, b"a book").get(10)
    with courier() as first, courier() as second:
        assert next(first).value == b"a book"
        tidelog_clock.advance(minutes=5)  # what the first one had not committed is the second one's, now
        assert next(second).value == b"a book"
