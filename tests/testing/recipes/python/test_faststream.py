"""A test of an application of FastStream: its handlers as they are, and a fault on the way to them."""

import pytest
from faststream.kafka import KafkaBroker, TestKafkaBroker


@pytest.mark.asyncio
async def test_a_kitchen_is_told_after_a_move_of_the_partition(tidelog_topic, tidelog_faults):
    orders = tidelog_topic.name
    application = KafkaBroker(tidelog_topic.bootstrap)

    @application.subscriber(orders, auto_offset_reset="earliest")
    async def kitchen(order: str): ...

    moved = tidelog_faults.next("fetch", times=3, error="NOT_LEADER_OR_FOLLOWER", topic=orders)
    async with TestKafkaBroker(application, with_real=True):
        await application.publish("tea", orders)
        await kitchen.wait_call(timeout=10)
        kitchen.mock.assert_called_once_with("tea")
    assert len(moved.seen()) == 3
