"""`tidelog produce` and the producer beside a broker that answers as the test says: counting, retrying, giving up."""

import io
import os
import resource
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_cluster import FakeCluster
from tidelog.cli import produce
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, INTERRUPTED, UNREACHABLE
from tidelog.cli.lines import Outgoing, Values, json_reader, text_reader
from tidelog.client import producer as producing
from tidelog.client.errors import ConnectionLost
from tidelog.client.producer import Producer, Rejected, murmur2
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdResponse
from tidelog.protocol.messages.metadata import METADATA, MetadataResponse, MetadataResponseTopic
from tidelog.protocol.messages.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records.build import read_records

# What becomes of a batch: an error code, an answer that never comes, or a connection that is lost.
Outcome = int | PartitionProduceResponse | None | ConnectionLost
GIVE_UP_S = 0.05
TEXT = Values(Outgoing(), empty_is_null=False)


class Sent:
    """Batches as they came, and what becomes of each: the outcomes in their order, then 0."""

    def __init__(self, cluster: FakeCluster, outcomes: Iterable[Outcome]) -> None:
        self.batches: list[tuple[int, list[bytes | None], int, int]] = []
        self.outcomes = list(outcomes)
        self.codecs: list[int] = []
        self.ids = 0
        self.too_large: bytes | None = None  # a value that no batch may have
        cluster.connection.answers[PRODUCE.key] = self.answer
        cluster.connection.answers[INIT_PRODUCER_ID.key] = self.identify

    def identify(self, _request: object) -> InitProducerIdResponse:
        self.ids += 1
        return InitProducerIdResponse(error_code=0, producer_id=self.ids, producer_epoch=0)

    def answer(self, request: ProduceRequest) -> Any:
        (topic,) = request.topic_data
        answers = []
        for part in topic.partition_data:
            assert part.records is not None
            header = batch.read_header(part.records)
            self.codecs.append(header.codec)
            records = list(read_records(part.records))
            assert [record.offset for record in records] == list(range(len(records)))  # or Kafka refuses it
            values = [record.value for record in records]
            self.batches.append((part.index, values, header.producer_id, header.base_sequence))
            outcome = self.outcomes.pop(0) if self.outcomes else 0
            if self.too_large in values:
                outcome = ErrorCode.MESSAGE_TOO_LARGE
            if outcome is None or isinstance(outcome, ConnectionLost):
                return outcome
            if isinstance(outcome, int):
                outcome = PartitionProduceResponse(index=part.index, error_code=outcome, base_offset=0)
            answers.append(outcome)
        return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=answers)])


class Clock:
    """A time of day that only waiting moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def wait(self, length_s: float) -> None:
        self.now_s += length_s


@contextmanager
def sending(
    *outcomes: Outcome, partitions: int = 1, give_up_s: float = 20
) -> Iterator[tuple[Producer, Sent, list[int]]]:
    """A producer to topic `t`, what came of it, and the numbers that were acknowledged."""
    with FakeCluster(*[[]] * partitions) as cluster:
        sent, acknowledged = Sent(cluster, outcomes), list[int]()
        yield Producer(cluster, give_up_s, acknowledged.extend, creates_topics=True), sent, acknowledged


def lines_sent(to: Producer, *lines: bytes) -> CommandError | None:
    return produce.send_lines(to, "t", [lines] if lines else [], TEXT)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "STALLED_S", GIVE_UP_S)
    monkeypatch.setattr(produce, "GOODBYE_S", GIVE_UP_S)
    monkeypatch.setattr(producing, "FIRST_PAUSE_S", 0.001)


def test_all_acknowledged() -> None:
    with sending() as (to, sent, acknowledged):
        assert lines_sent(to, b"a", b"b", b"c") is None
        assert acknowledged == [1, 2, 3]
        assert sent.batches == [(0, [b"a", b"b", b"c"], 1, 0)]


def test_records_leave_while_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few they are: a writer that never ends is not kept waiting for a full batch."""
    monkeypatch.setattr(producing, "LINGER_S", 0)
    with sending() as (to, _, acknowledged):
        for _ in range(5000):
            to.send("t", b"v", 0)
            if acknowledged:
                break
        assert acknowledged


def test_giving_up_counts_from_the_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not from when the record came: its caller may have done something else meanwhile."""
    monkeypatch.setattr(producing, "LINGER_S", 1000)
    with sending(give_up_s=0.5) as (to, _, acknowledged):
        to.send("t", b"v", 0)
        to._last_news -= 1000
        to.flush()
        assert acknowledged == [1]


def test_many_batches_are_no_larger_request_than_a_small_broker_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    request = Producer._request

    def sized(self: Producer, taken: dict[Any, Any]) -> Any:
        sizes.append(sum(batch.size_bytes for batch in taken.values()))
        return request(self, taken)

    monkeypatch.setattr(Producer, "_request", sized)
    with sending(partitions=20) as (to, _, acknowledged):
        for number in range(4000):
            to.send("t", b"v" * 1000, 0, partition=number % 20)
        to.flush()
        assert len(acknowledged) == 4000
    assert max(sizes) < 1_000_000


def test_the_sequence_goes_on_and_is_the_same_when_a_batch_is_sent_again() -> None:
    lost = ConnectionLost("gone")
    with sending(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, lost, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) as (
        to,
        sent,
        acknowledged,
    ):
        for value in (b"a", b"b"):
            to.send("t", value, 1)
        to.flush()
        to.send("t", b"c", 1)
        to.flush()
        assert sent.batches == [(0, [b"a", b"b"], 1, 0)] + [(0, [b"c"], 1, 2)] * 3
        assert acknowledged == [1, 2, 3]


def test_what_a_broker_has_forgotten_gets_a_new_producer_id_unless_it_may_have_been_appended() -> None:
    with sending(0, ErrorCode.UNKNOWN_PRODUCER_ID) as (to, sent, acknowledged):
        for value in (b"a", b"b"):
            to.send("t", value, 1)
            to.flush()
        assert sent.batches == [(0, [b"a"], 1, 0), (0, [b"b"], 1, 1), (0, [b"b"], 2, 0)]
        assert acknowledged == [1, 2]
    with sending(ConnectionLost("gone"), ErrorCode.UNKNOWN_PRODUCER_ID) as (to, sent, acknowledged):
        to.send("t", b"a", 1)
        with pytest.raises(
            Rejected, match="UNKNOWN_PRODUCER_ID, 59: it may be on disk from an earlier attempt"
        ):
            to.flush()
        assert acknowledged == []


@pytest.mark.parametrize("forgotten", [0, 1])
def test_a_partition_keeps_its_producer_id_when_that_of_another_is_forgotten(forgotten: int) -> None:
    """Its batch may be on disk under that id, and would be appended once more under another."""
    outcomes = [0, 0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT]
    outcomes[2 + forgotten] = ErrorCode.UNKNOWN_PRODUCER_ID
    with sending(*outcomes, partitions=2) as (to, sent, acknowledged):
        for value in (b"a", b"b", b"c"):
            for partition in (0, 1):
                to.send("t", value, 1, partition=partition)
            to.flush()
        kept = 1 - forgotten
        mine, others = ([each[1:] for each in sent.batches if each[0] == at] for at in (forgotten, kept))
        assert mine == [([b"a"], 1, 0), ([b"b"], 1, 1), ([b"b"], 2, 0), ([b"c"], 2, 1)]
        assert others == [([b"a"], 1, 0), ([b"b"], 1, 1), ([b"b"], 1, 1), ([b"c"], 1, 2)]
        assert sorted(acknowledged) == [1, 2, 3, 4, 5, 6]


def test_all_partitions_that_are_forgotten_at_once_share_a_new_producer_id() -> None:
    forgotten = ErrorCode.UNKNOWN_PRODUCER_ID
    with sending(0, 0, forgotten, forgotten, partitions=2) as (to, sent, acknowledged):
        for value in (b"a", b"b"):
            for partition in (0, 1):
                to.send("t", value, 1, partition=partition)
            to.flush()
        assert [each[2:] for each in sent.batches] == [(1, 0), (1, 0), (1, 1), (1, 1), (2, 0), (2, 0)]
        assert sorted(acknowledged) == [1, 2, 3, 4]


def test_a_batch_that_may_be_on_disk_gets_no_new_producer_id_after_it_is_cut() -> None:
    outcomes = (ConnectionLost("gone"), ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    with sending(*outcomes) as (to, sent, acknowledged):
        for value in (b"a", b"b"):
            to.send("t", value, 1)
        with pytest.raises(Rejected, match="OUT_OF_ORDER_SEQUENCE_NUMBER, 45: it may be on disk"):
            to.flush()
        assert [each[1:] for each in sent.batches[-1:]] == [([b"a"], 1, 0)]
        assert acknowledged == []


def test_a_batch_that_is_too_large_is_cut_until_the_record_that_is_too_large_is_alone() -> None:
    with sending() as (to, sent, acknowledged):
        sent.too_large = b"large"
        for value in (b"a", b"b", b"c", b"large", b"after"):
            to.send("t", value, 1)
        with pytest.raises(Rejected, match="larger than max") as raised:
            to.flush()
        assert raised.value.number == 4
        to.settle(1)
        assert acknowledged == [1, 2, 3]
        # Nothing of the partition is sent after it.
        assert [values for _, values, *_ in sent.batches][-1] == [b"large"]


def test_a_record_that_is_to_blame_is_named_and_other_partitions_go_on() -> None:
    blamed = PartitionProduceResponse(
        index=0,
        error_code=ErrorCode.INVALID_RECORD,
        base_offset=-1,
        record_errors=[BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="it has no key")],
    )
    with sending(blamed, partitions=2) as (to, _, acknowledged):
        for number in range(4):
            to.send("t", b"%d" % number, 1, partition=number // 2)
        with pytest.raises(Rejected, match="INVALID_RECORD, 87: it has no key") as raised:
            to.flush()
        assert raised.value.number == 2
        to.flush()
        # The broker rejects the batch as a whole; what was before the record is sent again.
        assert sorted(acknowledged) == [1, 3, 4]


def test_keys_choose_partitions_as_kafkas_clients_do() -> None:
    # The values are those of Apache Kafka's UtilsTest.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) - (murmur2(key) >> 31 << 32) for key in known} == known
    with sending(partitions=3) as (to, sent, _):
        for key in known:
            to.send("t", key, 1, key)
        to.flush()
        found = {value: index for index, values, *_ in sent.batches for value in values}
        assert found == {key: (known[key] & 0x7FFFFFFF) % 3 for key in known}


def test_a_line_without_an_answer_ends_it() -> None:
    with sending(0, None, give_up_s=GIVE_UP_S) as (to, _, acknowledged):

        def blocks() -> Iterator[list[bytes]]:
            yield [b"a"]
            to.flush()
            yield [b"b"]

        error = produce.send_lines(to, "t", blocks(), TEXT)
        assert error is not None
        assert error.exit_code == UNREACHABLE
        assert "line 2 is the first that may not be on disk" in str(error)
        assert acknowledged == [1]


@pytest.mark.parametrize(
    ("message", "words"),
    [("t-0: could not be opened", "t-0: could not be opened"), (None, "the broker cannot use its files")],
)
def test_what_the_broker_said_of_a_batch_that_is_sent_again_is_told(message: str | None, words: str) -> None:
    refused = PartitionProduceResponse(index=0, error_code=56, base_offset=-1, error_message=message)
    with sending(*[refused] * 1000, give_up_s=GIVE_UP_S) as (to, _, _acknowledged):
        error = lines_sent(to, b"a")
    assert error is not None
    assert f"acknowledged nothing for {GIVE_UP_S} s: {words}" in str(error)
    assert "; line 1 is the first" in str(error)


@pytest.mark.parametrize(
    ("code", "topic", "words"),
    [
        (56, "t", "topic t: the broker cannot use its files"),
        (17, "a b", "topic a b: a topic name has 1 to 249"),
        (17, "", "topic '': a topic name has 1 to 249"),
    ],
)
def test_what_the_broker_said_of_the_topic_is_told(
    code: int, topic: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.cluster.WAIT_S", GIVE_UP_S)
    found = MetadataResponseTopic(error_code=code, name=topic, partitions=[])
    with FakeCluster() as cluster:
        cluster.connection.answers[METADATA.key] = lambda _: MetadataResponse(brokers=[], topics=[found])
        error = produce.send_lines(Producer(cluster, 20, lambda _: None), topic, [[b"a"]], TEXT)
    assert error is not None
    assert str(error).startswith(words)
    assert str(error).endswith("; no more lines were read")
    assert error.exit_code == FAILED


def test_what_is_read_with_a_line_that_has_no_separator_is_still_sent() -> None:
    with sending() as (to, _, acknowledged):
        error = produce.send_lines(
            to, "t", [[b"a:b", b"c"]], text_reader(Outgoing(), b":", empty_is_null=False)
        )
        assert error is not None
        assert (error.exit_code, acknowledged) == (FAILED, [1])
        assert str(error).startswith("line 2 was rejected")


def test_ctrl_c_counts_what_is_acknowledged_soon_after_it() -> None:
    def interrupted(*lines: bytes) -> Iterator[Sequence[bytes]]:
        yield lines
        raise KeyboardInterrupt

    outcomes: Sequence[tuple[tuple[Outcome, ...], list[int]]] = [((), [1, 2]), ((None,), [])]
    for given, expected in outcomes:
        with sending(*given) as (to, _, acknowledged):
            error = produce.send_lines(to, "t", interrupted(b"a", b"b"), TEXT)
            assert error is not None
            assert (error.exit_code, acknowledged) == (INTERRUPTED, expected)


def test_lines_come_whole_and_silence_is_noticed() -> None:
    ours, theirs = os.pipe()
    idle = threading.Event()

    def write() -> None:
        with open(theirs, "wb", buffering=0) as to:
            to.write(b"one\n\ntwo parts")
            assert idle.wait(20)
            to.write(b", one line\r\nno end")

    writer = threading.Thread(target=write)
    writer.start()
    with open(ours, "rb") as stream:
        found = list(produce.lines(stream, idle.set))
        assert found == [[b"one", b""], [b"two parts, one line\r"], [b"no end"]]
    writer.join()


@pytest.mark.parametrize(
    ("rate", "count", "most", "took_s"), [(1000, 3000, 100, 2.9), (0.5, 10, 1, 18), (1e300, 300, 200, 0)]
)
def test_a_rate_spreads_the_lines_over_time(
    rate: float, count: int, most: int, took_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(produce.time, "monotonic", lambda: clock.now_s)
    blocks = [[b"x"] * 200] * (count // 200) + [[b"x"] * (count % 200)]
    pieces = [len(piece) for piece in produce.paced(blocks, rate, clock.wait)]
    assert (max(pieces), sum(pieces)) == (most, count)
    assert clock.now_s == pytest.approx(took_s)


def test_a_rate_makes_up_for_one_second_of_lost_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(produce.time, "monotonic", lambda: clock.now_s)
    times = []
    for number, _ in enumerate(produce.paced([[b"x"] * 10], 2, clock.wait)):
        times.append(clock.now_s)
        if number == 1:
            clock.now_s += 60
    assert times == pytest.approx([0, 0.5, 60.5, 60.5, 60.5, 61, 61.5, 62, 62.5, 63], abs=0.01)


def test_a_long_line_is_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "READ_BYTES", 3)
    with io.FileIO(os.memfd_create("lines"), "r+") as stream:
        stream.write(b"x" * 100 + b"\n" + b"y" * 10)
        stream.seek(0)
        assert list(produce.lines(stream, lambda: None)) == [[b"x" * 100], [b"y" * 10]]  # type: ignore[arg-type]


def test_a_line_without_end_is_cut_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "LINE_BYTES_MAX", 1 << 20)
    with open("/dev/zero", "rb") as stream, sending() as (to, sent, _):
        ((line,),) = produce.lines(stream, lambda: None)
        error = lines_sent(to, line)
        assert len(line) <= (1 << 20) + produce.READ_BYTES
        assert str(error).startswith("line 1 was rejected")
        assert str(error).endswith("it has more than 1,048,576 bytes")
        assert sent.batches == []


def test_a_rejected_line_is_named_by_its_file(tmp_path: Path) -> None:
    files = [tmp_path / "first", tmp_path / "empty", tmp_path / "second"]
    for file, text in zip(files, ("a:b\nc:d", "", "e:f\ng"), strict=True):
        file.write_text(text)
    given = produce.Lines([str(file) for file in files], lambda: None)
    with sending() as (to, _, acknowledged):
        error = produce.send_lines(to, "t", given, text_reader(Outgoing(), b":", False), given.place)
        assert str(error).startswith(f"line 2 of {files[2]} was rejected, ")
        assert acknowledged == [1, 2, 3]


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(200)]
    for file in files:
        file.write_text("a\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, hard))
    try:
        assert len(list(produce.Lines([str(file) for file in files], lambda: None))) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_that_cannot_be_read_is_named_after_what_came_before_it_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a\n")
    # A read at the start of a process's memory fails.
    given = produce.Lines([str(file), "/proc/self/mem"], lambda: None)
    with sending() as (to, _, acknowledged):
        error = produce.send_lines(to, "t", given, TEXT, given.place)
        assert error is not None
        assert str(error) == "/proc/self/mem: Input/output error; no more lines were read"
        assert (error.exit_code, acknowledged) == (FAILED, [1])


def test_the_first_rejected_line_is_named_though_the_broker_refuses_it_last() -> None:
    refused = PartitionProduceResponse(index=0, error_code=10, base_offset=-1, error_message="too large")
    with sending(refused) as (to, _, acknowledged):
        error = produce.send_lines(to, "t", [[b"a:b", b"c"]], text_reader(Outgoing(), b":", False))
        assert str(error).startswith("line 1 was rejected, ")
        assert str(error).endswith("too large")
        assert acknowledged == []


def test_the_first_rejected_line_is_named_though_another_partition_is_refused_before() -> None:
    again, refused = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD
    with sending(again, refused, refused, partitions=2) as (to, sent, acknowledged):
        lines = [[b'{"value": "a", "partition": 0}', b'{"value": "b", "partition": 1}']]
        error = produce.send_lines(to, "t", lines, json_reader(Outgoing()))
        assert str(error).startswith("line 1 was rejected, ")
        assert [partition for partition, *_ in sent.batches] == [0, 1, 0]
        assert acknowledged == []


def test_after_a_failure_nothing_is_sent_before_a_pause_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "LINGER_S", 0)
    monkeypatch.setattr(producing, "FIRST_PAUSE_S", 1000)
    with sending(ErrorCode.NOT_LEADER_OR_FOLLOWER) as (to, sent, acknowledged):
        to.send("t", b"v", 0)
        for _ in range(5):
            to.poll(0)
        assert (len(sent.batches), acknowledged) == (1, [])


def test_values_that_fit_into_a_batch_are_not_divided_and_share_key_headers_and_time() -> None:
    with sending(partitions=3) as (to, sent, acknowledged):
        to.send_values("t", [b"a", b""], 7, b"key", (("name", b"x"),), 2)
        to.send("t", b"b", 8, partition=2)
        to.flush()
        assert sent.batches == [(2, [b"a", b"", b"b"], 1, 0)]
        assert acknowledged == [1, 2, 3]


def test_values_of_several_batches_keep_their_order_and_numbers() -> None:
    values: list[bytes | None] = [b"%d" % number + bytes(1000) for number in range(1000)]
    with sending() as (to, sent, acknowledged):
        to.send_values("t", values, 1)
        to.flush()
        assert len(sent.batches) > 1
        assert [value for _, batch, *_ in sent.batches for value in batch] == values
        assert acknowledged == list(range(1, 1001))


@pytest.mark.parametrize(("codec", "name"), list(enumerate(produce.CODECS)))
def test_batches_are_compressed_with_the_codec(codec: int, name: str) -> None:
    assert compression.NAMES[codec] == name
    with FakeCluster([]) as cluster:
        sent = Sent(cluster, ())
        to = Producer(cluster, 20, lambda _: None, codec=codec)
        to.send_values("t", [b"a" * 100] * 100, 1)
        to.flush()
        assert [values for _, values, *_ in sent.batches] == [[b"a" * 100] * 100]
        assert sent.codecs == [codec]
