"""Partitions that take many fetches: every one gets its turn, and none is read short."""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.support.broker import Broker
from tests.support.command import ok, rows, tidelog
from tests.support.raw_client import RawClient
from tests.support.workload import START_MS
from tidelog.pipeline.jobs import lag
from tidelog.pipeline.jobs.parts.committed import Reads
from tidelog.pipeline.writing import target
from tidelog.protocol.records.build import Record, build_batch

pytestmark = pytest.mark.e2e

RECORDS = 60_000
AT_ONCE = 500  # records of a batch, a millisecond apart
APART_MS = 12_000  # the first records of two partitions: more than `tail` keeps of one
COMMITTED = 7_010  # of partition 1, and so often of the others


def batch(partition: int, first: int) -> bytes:
    """Return the records of a partition from a number on, each with a header that has it."""
    at_ms = START_MS + partition * APART_MS
    return build_batch(
        [
            Record(number, at_ms + number, None, b"value", ((target.HEADER, b"%d@%d" % (partition, number)),))
            for number in range(first, first + AT_ONCE)
        ]
    )


class Many(NamedTuple):
    broker: Broker
    topic: str
    partitions: int

    @property
    def each(self) -> int:
        return RECORDS // self.partitions

    def of(self, since_ms: int, until_ms: int) -> int:
        """Return how many records have a time within a range."""
        starts = [START_MS + number * APART_MS for number in range(self.partitions)]
        spans = [(max(start, since_ms), min(start + self.each, until_ms)) for start in starts]
        return sum(max(0, end - start) for start, end in spans)


@pytest.fixture(scope="module", params=[2, 3])
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Many]:
    """Topics of 60,000 records, `record` and `append` by the clock that finds them, both read by a group `g`."""
    partitions: int = request.param
    with Broker(tmp_path_factory.mktemp("many") / "data", {"log.retention.ms": "-1"}) as broker:
        broker.start()
        for clock in ("record", "append"):
            with RawClient(broker) as to:
                to.create(clock, partitions, {"lookup.clock": clock})
                for partition in range(partitions):
                    for first in range(0, RECORDS // partitions, AT_ONCE):
                        assert to.produce(clock, batch(partition, first), partition).error_code == 0
            with closing(KafkaConsumer(bootstrap_servers=broker.address, group_id="g")) as reader:
                reader.commit(
                    {
                        TopicPartition(clock, number): OffsetAndMetadata(number * COMMITTED, "", -1)
                        for number in range(partitions)
                    }
                )
        yield Many(broker, "record", partitions)
        broker.stop()


def test_tail_prints_every_record_in_order(many: Many) -> None:
    times = [
        int(line)
        for line in ok(tidelog(many.broker, "tail", many.topic, "--format", "{timestamp}")).splitlines()
    ]
    assert len(times) == RECORDS
    assert times == sorted(times)


def test_tail_prints_every_record_of_a_range(many: Many) -> None:
    since_ms, until_ms = START_MS + 5_000, START_MS + 24_000
    given = ("--since", str(since_ms), "--until", str(until_ms), "--format", "{timestamp}")
    times = list(map(int, ok(tidelog(many.broker, "tail", many.topic, *given)).splitlines()))
    assert len(times) == many.of(since_ms, until_ms)
    assert times == sorted(times)


def test_tail_that_follows_prints_every_record_before_the_end_of_its_range(many: Many) -> None:
    given = (
        "--follow",
        "--since",
        str(START_MS),
        "--until",
        str(START_MS + 24_000),
        "--format",
        "{timestamp}",
    )
    times = ok(tidelog(many.broker, "tail", many.topic, *given)).splitlines()
    assert len(times) == many.of(0, START_MS + 24_000)


def test_groups_describe_tells_the_lag_of_every_partition(many: Many) -> None:
    (found,) = rows(tidelog(many.broker, "groups", "describe", "g", "--json"))
    lags = {(row["topic"], row["partition"]): (row["lag"], row["lag_ms"]) for row in found["partitions"]}
    left = [many.each - number * COMMITTED for number in range(many.partitions)]
    assert [lags["record", number] for number in range(many.partitions)] == [(n, n - 1) for n in left]
    assert [lags["append", number][0] for number in range(many.partitions)] == left
    assert None not in [each for lag in lags.values() for each in lag]


def test_the_lag_of_the_pipeline_is_that_of_every_partition_of_each_group(many: Many) -> None:
    wanted = {
        Reads(group, many.topic, number): number * COMMITTED
        for group in ("g", "h")
        for number in range(many.partitions)
    }
    found = list(lag.at_broker(many.broker.address, wanted, "record", START_MS + RECORDS))
    ages_s = [(RECORDS - number * (APART_MS + COMMITTED)) / 1000 for number in range(many.partitions)]
    assert [row["lag_s"] for row in found] == [max(0, age) for age in ages_s] * 2


def test_a_writer_that_resumes_reads_to_the_end_of_every_partition(many: Many) -> None:
    looked = target.look(many.broker.address, many.topic, "job", read=True)
    ends = [(f"{number}@0", f"{number}@{many.each - 1}") for number in range(many.partitions)]
    assert all(looked.written.has(origin) for pair in ends for origin in pair)
