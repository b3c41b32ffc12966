"""What ran against a container of Testcontainers, and what could not."""

from contextlib import closing

import pytest
from kafka import KafkaConsumer, KafkaProducer


@pytest.fixture(scope="session")
def kafka(tidelog_session):
    return tidelog_session.bootstrap


def test_an_order_is_read_back(kafka):
    with closing(KafkaProducer(bootstrap_servers=kafka)) as producer:
        producer.send("orders", b"tea").get(10)
    with closing(KafkaConsumer("orders", bootstrap_servers=kafka, auto_offset_reset="earliest")) as consumer:
        assert next(consumer).value == b"tea"


def test_an_order_is_kept_for_a_day(tidelog, tidelog_clock):
    orders = tidelog.topic(**{"retention.ms": 86_400_000})
    with closing(KafkaProducer(bootstrap_servers=orders.bootstrap)) as producer:
        producer.send(orders.name, b"tea").get(10)
    tidelog_clock.advance(hours=49)
    assert orders.records() == []
