"""A test of aiokafka: an answer that is lost, and what an idempotent producer makes of it."""

import pytest
from aiokafka import AIOKafkaProducer


@pytest.mark.asyncio
async def test_an_order_whose_answer_was_lost_is_stored_once(tidelog_topic, tidelog_faults):
    lost = tidelog_faults.next("produce", drop="after", topic=tidelog_topic)

    producer = AIOKafkaProducer(bootstrap_servers=tidelog_topic.bootstrap, enable_idempotence=True)
    async with producer:
        await producer.send_and_wait(tidelog_topic.name, b"tea")

    assert len(lost.seen()) == 1
    assert [record.value for record in tidelog_topic.records()] == [b"tea"]
