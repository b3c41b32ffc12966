"""What ran with the mock cluster of librdkafka, and what could not from Python."""

from confluent_kafka import Consumer, Producer


def test_an_order_is_read_back(tidelog_topic):
    producer = Producer({"bootstrap.servers": tidelog_topic.bootstrap})
    producer.produce(tidelog_topic.name, b"tea")
    assert producer.flush(10) == 0

    consumer = Consumer(
        {
            "bootstrap.servers": tidelog_topic.bootstrap,
            "group.id": "kitchen",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([tidelog_topic.name])
    order = consumer.poll(10)
    consumer.close()
    assert order.value() == b"tea"


def test_an_order_survives_a_move_of_its_partition(tidelog_topic, tidelog_faults):
    moved = tidelog_faults.next("produce", times=3, error="NOT_LEADER_OR_FOLLOWER", topic=tidelog_topic)

    producer = Producer({"bootstrap.servers": tidelog_topic.bootstrap, "retry.backoff.ms": 10})
    producer.produce(tidelog_topic.name, b"tea")
    assert producer.flush(10) == 0

    assert len(moved.seen()) == 3
    assert [record.value for record in tidelog_topic.records()] == [b"tea"]
