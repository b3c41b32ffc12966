"""A topic as a stream: which offsets a batch takes, from brokers and segments; and what must not pass in silence."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.pipeline import topics
from tests.pipeline.test_from_broker import delete_before, remake, rows_of
from tests.support.broker import Broker
from tests.support.logs import NOW, batch
from tests.support.raw_client import RawClient
from tidelog.client.cluster import Partition
from tidelog.client.groups import commit
from tidelog.pipeline import options
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.pipeline.files import snapshot
from tidelog.pipeline.stream import RECORDS_A_BATCH, StreamReader
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

pytestmark = pytest.mark.e2e
ALL = ReadAllAvailable()


@pytest.fixture(params=["broker", "segments"])
def source(request: pytest.FixtureRequest, broker: Broker) -> str:
    return f"broker:{broker.address}" if request.param == "broker" else f"segments:{broker.data_dir}"


def stream(source: str, topic: str, **given: str) -> StreamReader:
    renamed = {"from" if name == "from_" else name: text for name, text in given.items()}
    return StreamReader(
        options.parse({"source": source, "topic": topic, **renamed}, NOW), ("partition", "offset")
    )


def at(offset: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = offset["partitions"]
    return found


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [row for task in reader.partitions(start, end) for row in rows_of(reader.read(task))]


def test_batches_follow_one_another(source: str, client: RawClient, topic: str) -> None:
    client.create(topic, 2)
    client.produce(topic, batch([NOW] * 3), 0)
    reader = stream(source, topic)
    start = reader.initialOffset()
    assert at(start) == {"0": 0, "1": 0}
    first = reader.latestOffset(start, ALL)
    assert read(reader, start, first) == [(0, 0), (0, 1), (0, 2)]
    assert reader.latestOffset(first, ALL) == first
    assert list(reader.partitions(first, first)) == []
    client.produce(topic, batch([NOW] * 2), 1)
    client.produce(topic, batch([NOW]), 0)
    second = reader.latestOffset(first, ALL)
    assert at(reader.reportLatestOffset()) == at(second) == {"0": 4, "1": 2}
    assert read(reader, first, second) == [(0, 3), (1, 0), (1, 1)]
    # What was read once is read again, whatever has come since.
    client.produce(topic, batch([NOW]), 0)
    assert read(stream(source, topic), start, first) == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_takes_so_many_records_at_most(source: str, client: RawClient, topic: str) -> None:
    client.create(topic, 3)
    for partition, count in enumerate([10, 1, 4]):
        client.produce(topic, batch([NOW] * count), partition)
    reader = stream(source, topic, maxRecordsPerTrigger="7")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    assert stream(source, topic).getDefaultReadLimit() == ReadMaxRows(RECORDS_A_BATCH)
    offset, seen, sizes = reader.initialOffset(), [], []
    while (end := reader.latestOffset(offset, limit)) != offset:
        rows = read(reader, offset, end)
        offset, seen, sizes = end, seen + rows, [*sizes, len(rows)]
    assert sizes == [7, 7, 1]
    assert sorted(seen) == [(p, n) for p, count in enumerate([10, 1, 4]) for n in range(count)]


def test_one_record_a_batch_starves_no_partition(source: str, client: RawClient, topic: str) -> None:
    client.create(topic, 3)
    for partition in range(3):
        client.produce(topic, batch([NOW] * 2), partition)
    reader = stream(source, topic)
    offset = reader.initialOffset()
    for _ in range(3):
        offset = reader.latestOffset(offset, ReadMaxRows(1))
    assert at(offset) == {"0": 1, "1": 1, "2": 1}


def test_available_now_ends_where_the_log_ended(source: str, client: RawClient, topic: str) -> None:
    client.create(topic, 1)
    client.produce(topic, batch([NOW] * 5))
    reader = stream(source, topic)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    client.produce(topic, batch([NOW] * 5))
    grow(client, topic, 2)
    client.produce(topic, batch([NOW]), 1)
    end = reader.latestOffset(start, ALL)
    assert at(end) == {"0": 5, "1": 0}
    assert reader.latestOffset(end, ALL) == end


def grow(client: RawClient, topic: str, count: int) -> None:
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=20_000, validate_only=False)
    assert client.ask(37, 2, request).results[0].error_code == 0


def test_partitions_of_a_topic_that_grows_are_read_from_their_beginning(
    source: str, client: RawClient, topic: str
) -> None:
    client.create(topic)
    client.produce(topic, batch([NOW]))
    reader = stream(source, topic)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    grow(client, topic, 2)
    client.produce(topic, batch([NOW] * 2), 1)
    end = reader.latestOffset(start, ALL)
    assert read(reader, start, end) == [(1, 0), (1, 1)]


def test_from_a_time_on(source: str, client: RawClient, topic: str) -> None:
    client.create(topic, 2)
    client.produce(topic, batch([NOW, NOW + 1000, NOW + 10, NOW + 2000]), 0)
    client.produce(topic, batch([NOW]), 1)
    reader = stream(source, topic, from_=str(NOW + 500))
    start = reader.initialOffset()
    assert at(start) == {"0": 1, "1": 1}
    client.produce(topic, batch([NOW + 600]), 1)
    assert read(reader, start, reader.latestOffset(start, ALL)) == [(0, 1), (0, 3), (1, 1)]


def test_a_time_relative_to_now_is_that_of_the_beginning(source: str, client: RawClient, topic: str) -> None:
    """A stream that was down for longer than "2 hours" has the records of the time between."""
    hour = 3_600_000

    def started(now_ms: int) -> StreamReader:
        given = {"source": source, "topic": topic, "from": "2 hours ago"}
        return StreamReader(options.parse(given, now_ms), ("partition", "offset"))

    client.create(topic)
    client.produce(topic, batch([NOW - 3 * hour, NOW - hour, NOW - 3 * hour]))
    reader = started(NOW)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert start["from_ms"] == first["from_ms"] == NOW - 2 * hour
    assert read(reader, start, first) == [(0, 1)]
    client.produce(topic, batch([NOW, NOW - 3 * hour]))
    again = started(NOW + 10 * hour)
    second = again.latestOffset(first, ALL)
    assert read(again, first, second) == [(0, 3)]
    assert read(again, start, first) == [(0, 1)]
    # A stream that was killed in its first batch is asked once more where it begins.
    assert at(again.initialOffset()) == {"0": 5}
    assert read(again, again.initialOffset(), first) == [(0, 1)]
    assert again.latestOffset(second, ALL) == second


def test_an_end_relative_to_now_is_refused() -> None:
    with pytest.raises(WrongOption, match=r"option to: .* such as 2023-11-14T21:13:20"):
        stream("segments:d", "t", to="1 hour ago")


def test_what_retention_deleted_before_it_was_read(
    source: str, client: RawClient, topic: str, broker: Broker
) -> None:
    client.create(topic)
    for _ in range(4):
        client.produce(topic, batch([NOW] * 5))
    start = stream(source, topic).initialOffset()
    end = stream(source, topic).latestOffset(start, ReadMaxRows(8))
    delete_before(client, topic, 7)
    if source.startswith("segments"):
        broker.restart()  # it writes the checkpoint
    deleted = rf"{topic}-0@0: retention has deleted offsets 0 to 6 .*failOnDataLoss=false"
    with pytest.raises(PipelineError, match=deleted):
        stream(source, topic).latestOffset(start, ALL)
    with pytest.raises(PipelineError, match=deleted):
        stream(source, topic).partitions(start, end)
    # A stream that was killed in its first batch: some of it may have been written, and must not be taken for all.
    anew = stream(source, topic).initialOffset()
    assert at(anew) == {"0": 7}
    with pytest.raises(PipelineError, match=deleted):
        stream(source, topic).partitions(anew, end)
    reader = stream(source, topic, failOnDataLoss="false")
    assert read(reader, start, end) == read(reader, anew, end) == [(0, 7)]
    assert at(reader.latestOffset(start, ReadMaxRows(3))) == {"0": 10}


def test_a_topic_that_was_made_anew(source: str, client: RawClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch([NOW] * 5))
    reader = stream(source, topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    remake(client, topic)
    client.produce(topic, batch([NOW] * 5))
    for ask in (lambda: reader.latestOffset(end, ALL), lambda: reader.partitions(start, end)):
        with pytest.raises(
            PipelineError, match=rf"topic {topic} was deleted and created again .*new checkpoint"
        ):
            ask()


def test_a_checkpoint_of_another_topic_is_named_and_commits_nothing(
    client: RawClient, broker: Broker, topic: str
) -> None:
    for name in (topic, f"{topic}-2"):
        client.create(name)
        client.produce(name, batch([NOW] * 5))
    reader = stream(f"broker:{broker.address}", topic)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    other = stream(f"broker:{broker.address}", f"{topic}-2", group=f"g-{topic}")
    with pytest.raises(PipelineError, match=rf"the checkpoint is of topic {topic}, not of {topic}-2"):
        other.latestOffset(end, ALL)
    assert topics.committed(broker, f"g-{topic}", f"{topic}-2") == {}


def test_a_log_that_ends_before_what_was_read(
    source: str, client: RawClient, topic: str, broker: Broker
) -> None:
    client.create(topic)
    client.produce(topic, batch([NOW] * 5))
    reader = stream(source, topic)
    start = reader.initialOffset()
    ahead = {**start, "partitions": {"0": 9}}
    for ask in (lambda: reader.latestOffset(ahead, ALL), lambda: reader.partitions(start, ahead)):
        with pytest.raises(
            PipelineError, match=rf"{topic}-0@.: the stream is at offset 9, and the log ends at 5"
        ):
            ask()
    # What was planned of it is let go of.
    assert not (broker.data_dir / f"{topic}-0" / snapshot.FOLDER).exists()


def test_a_partition_that_is_not_read_any_more(source: str, client: RawClient, topic: str) -> None:
    client.create(topic, 2)
    start = stream(source, topic).initialOffset()
    with pytest.raises(PipelineError, match=r"the stream has read partition 1, .* \[0\]"):
        stream(source, topic, partitions="0").latestOffset(start, ALL)


def test_what_was_written_is_committed_to_a_group(client: RawClient, broker: Broker, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch([NOW] * 5))
    reader = stream(f"broker:{broker.address}", topic, group=f"g-{topic}")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert committed(broker, topic) == {0: 0}
    reader.commit(end)
    assert committed(broker, topic) == {0: 3}
    last = reader.latestOffset(end, ALL)
    # The end of the last batch is committed when the next one is asked for.
    assert reader.latestOffset(last, ALL) == last
    assert committed(broker, topic) == {0: 5}
    # And committed once.
    with connected(broker.address) as cluster:
        commit(cluster, f"g-{topic}", {Partition(topic, 0): 1})
    reader.latestOffset(last, ALL)
    assert committed(broker, topic) == {0: 1}


def committed(broker: Broker, topic: str) -> dict[int, int]:
    return topics.committed(broker, f"g-{topic}", topic)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxRecords": "5"}, r"option maxRecords: .*maxRecordsPerTrigger"),
        ({"table": "segments"}, "option table: a stream is of records; segments are read as a table"),
    ],
)
def test_an_option_that_is_for_tables(options: dict[str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        stream("segments:/x", "t", **options)
