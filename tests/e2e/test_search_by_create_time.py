"""S58: searches by create time as they are used, by kafka-python: skewed clocks, a dump of old records, a failover."""

import random
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.support.broker import Broker, Running

pytestmark = pytest.mark.e2e

START_MS = 1_709_283_600_000  # 2024-03-01 09:00 UTC
MAX_SKEW_MS = 5_000
MAX_LATENCY_MS = 30_000
DAY_MS = 86_400_000


def send(broker: Running, topic: str, create_times: Sequence[tuple[int, int]], **settings: object) -> None:
    """Append (number, create time) in this order, the number as the value."""
    with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=5, **settings)) as to:
        sent = [to.send(topic, b"%d" % n, partition=0, timestamp_ms=at) for n, at in create_times]
        to.flush(timeout=20)
    assert [answer.get(timeout=20).offset for answer in sent] == list(range(len(sent)))


def consumer(broker: Running) -> KafkaConsumer:
    # At the end of the log a fetch is under way still, which the next one waits for.
    return KafkaConsumer(bootstrap_servers=broker.address, group_id=None, fetch_max_wait_ms=1)


def read_since(source: KafkaConsumer, topic: str, at_ms: int) -> list[int]:
    """Search by a create time, and read from there to the end of the log; return the numbers in order."""
    partition = TopicPartition(topic, 0)
    found = source.offsets_for_times({partition: at_ms})[partition]
    if found is None:
        return []
    end = source.end_offsets([partition])[partition]
    source.assign([partition])
    source.seek(partition, found.offset)
    numbers: list[int] = []
    while source.position(partition) < end:
        records = source.poll(timeout_ms=20_000)
        assert records, "no record for 20 s"
        numbers += [int(record.value) for record in records[partition]]
    return numbers


@pytest.mark.parametrize("skews", [(-MAX_SKEW_MS, -1_700, 0), (-MAX_SKEW_MS, -40, 900, MAX_SKEW_MS)])
def test_S58_a_search_less_the_skew_of_the_clocks_loses_nothing(
    shared_broker: Running, topic: str, skews: tuple[int, ...]
) -> None:
    """Who wants all that was made at a time or later asks for that much earlier: no producer's clock is further off."""
    chosen = random.Random(1)
    made_ms = [START_MS + 250 * n for n in range(300)]
    send(shared_broker, topic, [(n, at + chosen.choice(skews)) for n, at in enumerate(made_ms)])
    loses = False
    with closing(consumer(shared_broker)) as source:
        for since_ms in range(START_MS, made_ms[-1] + 1, 7_321):
            wanted = {n for n, at in enumerate(made_ms) if at >= since_ms}
            assert wanted <= set(read_since(source, topic, since_ms - MAX_SKEW_MS))
            loses |= not wanted <= set(read_since(source, topic, since_ms))
    assert loses, "without it some are lost"


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_S58_a_dump_that_is_appended_now_is_searched_by_when_its_records_were_made(
    shared_broker: Running, topic: str, codec: str | None
) -> None:
    """A table of many years, in the order of its keys, into a log: what its rows say counts, not when it came."""
    made_ms = [START_MS - n * DAY_MS for n in range(2_000)]
    random.Random(2).shuffle(made_ms)
    by_append = f"{topic}-append"
    with closing(KafkaAdminClient(bootstrap_servers=shared_broker.address)) as admin:
        admin.create_topics([NewTopic(by_append, 1, 1, topic_configs={"lookup.clock": "append"})])
    for name in (topic, by_append):
        send(shared_broker, name, list(enumerate(made_ms)), compression_type=codec)
    partition = TopicPartition(topic, 0)
    with closing(consumer(shared_broker)) as source:
        for since_ms in (0, START_MS - 1_500 * DAY_MS, START_MS - 3 * DAY_MS + 1, START_MS):
            first = next(n for n, at in enumerate(made_ms) if at >= since_ms)
            found = source.offsets_for_times({partition: since_ms})[partition]
            assert (found.offset, found.timestamp) == (first, made_ms[first])
            assert read_since(source, topic, since_ms) == list(range(first, len(made_ms)))
        assert source.offsets_for_times({partition: START_MS + 1})[partition] is None
        # All of it came after the last row was made.
        assert read_since(source, by_append, START_MS + 1) == list(range(len(made_ms)))


def test_S58_a_failover_goes_on_at_the_last_create_time_less_the_latency(
    new_broker: Callable[..., Broker], topic: str
) -> None:
    """Two clusters get every record within some time, each in its own order; offsets of one mean nothing in the other.

    Whoever has read one of them up to a record finds all that it has not read in the other.
    """
    chosen = random.Random(3)
    made_ms = [START_MS + 100 * n for n in range(1_000)]
    orders, brokers = [], []
    for name in ("first", "second"):
        came_ms = [at + chosen.randrange(MAX_LATENCY_MS + 1) for at in made_ms]
        orders.append(sorted(range(len(made_ms)), key=came_ms.__getitem__))
        brokers.append(new_broker({"log.retention.ms": "-1"}, name=name))
        send(brokers[-1], topic, [(n, made_ms[n]) for n in orders[-1]])
    loses = False
    with closing(consumer(brokers[1])) as source:
        for read in range(1, len(made_ms), 37):
            unread, last_ms = set(orders[0][read:]), made_ms[orders[0][read - 1]]
            assert unread <= set(read_since(source, topic, last_ms - MAX_LATENCY_MS))
            loses |= not unread <= set(read_since(source, topic, last_ms))
    assert loses, "at the create time itself some are lost"
