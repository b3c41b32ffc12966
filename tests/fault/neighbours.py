"""What one client does to all others: each scenario is a client that takes more than its share, and what it cost them.

While it goes on, a second client in a process of its own asks every few milliseconds (`tests/support/neighbour.py`).
A row of figures comes out of it, and the bounds that it missed. `python -m tests.fault.neighbours` prints the table;
test_neighbours.py asserts the bounds.

The longest turn of the event loop is estimated by the second client's longest ApiVersions: what takes no time itself.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.broker import Broker
from tests.support.neighbour import SMALL, Neighbour, make_topic
from tests.support.raw_client import (
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    RawClient,
    produce_request,
)
from tests.support.workload import START_MS, bomb, damaged
from tidelog.protocol.frame import encode_request
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.registry import APIS

MIB = 1 << 20
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS = 23, 32
# A broker that takes more than that is stopped by the system, before it takes the machine from everybody.
MOST_ADDRESS_SPACE = 8 << 30
SETTLE_S = 12.0
STOP_S = 10.0
SMALL_DISK_BYTES = 16 * MIB
ONE = build_batch([Record(0, START_MS, None, b"x" * 100)])


@dataclass(frozen=True)
class Bounds:
    """What a scenario may cost the others."""

    growth_mb: int = 300
    left_mb: int = 100
    small_s: float = 1.0  # any answer to a small question
    slow_s: float = 3.0  # creating a topic, a producer id, a durable produce


@dataclass
class Row:
    """The figures of one scenario: memory in MB, times in seconds."""

    name: str
    before_mb: float = 0
    peak_mb: float = 0
    after_mb: float = 0
    p99_s: float = 0
    longest_s: float = 0
    turn_s: float = 0
    slow_s: dict[str, float] = field(default_factory=dict)
    stop_s: float = 0
    faults: list[str] = field(default_factory=list)

    def misses(self, bounds: Bounds) -> list[str]:
        """Return the bounds that were not met, in words."""
        found = list(self.faults)
        checks = [
            ("memory grew by {:.0f} MB", self.peak_mb - self.before_mb, bounds.growth_mb),
            ("{:.0f} MB remain", self.after_mb - self.before_mb, bounds.left_mb),
            ("a small answer took {:.2f} s", self.longest_s, bounds.small_s),
            ("SIGTERM took {:.1f} s", self.stop_s, STOP_S),
        ]
        checks += [(kind + " took {:.2f} s", took_s, bounds.slow_s) for kind, took_s in self.slow_s.items()]
        return found + [
            words.format(value) + f", bound {most}" for words, value, most in checks if value > most
        ]


class Stage:
    """A broker, the second client, and the figures."""

    def __init__(self, broker: Broker, row: Row) -> None:
        self.broker = broker
        self.row = row

    @contextmanager
    def watched(self, *kinds: str, topic: str = "neighbour", may_be_refused: bool = False) -> Iterator[None]:
        """Measure while this lasts; the small questions are asked in any case. Once a scenario."""
        row = self.row
        # What was built up before belongs to nobody's row.
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")
        row.before_mb = self.broker.rss_bytes / MIB
        neighbour = Neighbour(self.broker, *SMALL, *kinds, topic=topic)
        try:
            with neighbour:
                yield
        finally:
            found = neighbour.findings
            row.faults += [each for each in found.faults if not (may_be_refused and "refused" in each)]
            if self.broker.is_running:
                row.peak_mb = self.broker.peak_rss_bytes / MIB
            row.p99_s, row.longest_s = found.small.p99_s, found.small.longest_s
            row.turn_s = found.kinds["versions"].longest_s
            row.slow_s = {
                kind: answers.longest_s for kind, answers in found.kinds.items() if kind not in SMALL
            }

    def settle(self, left_mb: int) -> None:
        """Wait until what the clients held is given back, or for SETTLE_S."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.row.after_mb = self.broker.rss_bytes / MIB
            if self.row.after_mb - self.row.before_mb <= left_mb or time.monotonic() > deadline:
                return
            time.sleep(0.1)

    def connect(self, stack: ExitStack, timeout_s: float = 60) -> RawClient:
        return stack.enter_context(RawClient(self.broker, timeout_s))


@dataclass(frozen=True)
class Scenario:
    """Something that one client does, and what it may cost."""

    name: str
    run: Callable[[Stage], None]
    bounds: Bounds = Bounds()
    is_slow: bool = False
    overrides: tuple[tuple[str, str], ...] = ()
    is_on_small_disk: bool = False


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    bounds: Bounds = Bounds(), **how: Any
) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Enter a function into the table by its name."""

    def enter(run: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SCENARIOS[run.__name__] = Scenario(run.__name__, run, bounds, **how)
        return run

    return enter


# -- requests --------------------------------------------------------------------------------------------------------


def frame(key: int, version: int, request: object, correlation_id: int = 1) -> bytes:
    return encode_request(APIS[key], version, correlation_id, "greedy", request)


def fetch_request(
    topic: str, offset: int = 0, *, max_bytes: int, min_bytes: int = 1, wait_ms: int = 0
) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


def metadata_request(names: list[str], *, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def fill(client: RawClient, topic: str, batches: int) -> None:
    """Create a topic of so many batches of a megabyte."""
    assert client.create(topic).error_code == 0
    megabyte = build_batch([Record(0, START_MS, None, b"v" * 1_000_000)])
    for _ in range(batches):
        assert client.produce(topic, megabyte, acks=1).error_code == 0


# -- unread answers --------------------------------------------------------------------------------------------------

HEAVY_BATCHES, FETCHES = 52, 60
HEAVY = [frame(FETCH, 12, fetch_request("heavy", max_bytes=55_000_000), number) for number in range(FETCHES)]


def read_heavy(client: RawClient) -> None:
    """Read the answers to HEAVY: all of them, whole and in order, on a connection that lives on."""
    first = b""
    for number in range(FETCHES):
        correlation_id, answer = client.receive(FETCH, 12)
        assert correlation_id == number, f"answer {correlation_id} in place of {number}"
        part = answer.responses[0].partitions[0]
        assert part.error_code == 0, f"answer {number} has error {part.error_code}"
        first = first or bytes(part.records)
        assert len(first) > HEAVY_BATCHES * 1_000_000
        assert part.records == first, f"answer {number} differs from the first"
    assert client.api_versions()


@scenario()
def deaf_fetches(stage: Stage) -> None:
    """Sixty fetches in one packet, whose answers nobody reads for a while."""
    with RawClient(stage.broker, 60) as client:
        fill(client, "heavy", HEAVY_BATCHES)
        with stage.watched():
            client.send_bytes(b"".join(HEAVY))
            time.sleep(3)
            read_heavy(client)


@scenario(Bounds(growth_mb=1000))
def deaf_fetches_of_twenty(stage: Stage) -> None:
    """The same from twenty connections, of which one reads in the end."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(20)]
        fill(clients[0], "heavy", HEAVY_BATCHES)
        with stage.watched():
            for client in clients:
                client.send_bytes(b"".join(HEAVY))
            time.sleep(3)
            read_heavy(clients[0])
            for client in clients:
                client.close()


# -- requests that are large -----------------------------------------------------------------------------------------


@scenario()
def fetches_with_a_large_tag(stage: Stage) -> None:
    """A hundred fetches, each with ten megabytes that nobody knows the meaning of."""
    plain = frame(FETCH, 12, fetch_request("heavy", max_bytes=1000))
    with RawClient(stage.broker, 60) as client:
        fill(client, "heavy", 1)
        with stage.watched():
            for number in range(100):
                # One tag in place of none: its number, its length, and what it holds.
                tag = b"\x01\x63" + uvarint(10_000_000) + number.to_bytes(4, "big") * 2_500_000
                body = plain[4:-1] + tag
                client.send_frame(body)
                assert client.receive(FETCH, 12)[1].error_code == 0


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@scenario()
def announced_and_not_sent(stage: Stage) -> None:
    """Connections that announce 100 MB, send 16 KB and wait, while another wants to send a megabyte."""
    start = (100_000_000).to_bytes(4, "big") + frame(PRODUCE, 9, produce_request("neighbour", bytes(17_000)))[
        4:
    ]
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(520)]
        with stage.watched("large"):
            for client in clients:
                client.send_bytes(start[: 16 * 1024 + 4])
            time.sleep(4)


# -- Metadata --------------------------------------------------------------------------------------------------------


@scenario(Bounds(growth_mb=150))
def one_topic_named_often(stage: Stage) -> None:
    """A topic of a thousand partitions, named two thousand times in one request: it is described once."""
    with RawClient(stage.broker, 60) as client:
        assert client.create("t", 1000).error_code == 0
        with stage.watched():
            answer = client.ask(METADATA, 9, metadata_request(["t"] * 2000))
            time.sleep(0.3)
        assert [len(topic.partitions) for topic in answer.topics] == [1000]


@scenario(Bounds(growth_mb=150), is_slow=True)
def many_partitions_described(stage: Stage) -> None:
    """Metadata of topics with many partitions: more parts than one writev takes."""
    with RawClient(stage.broker, 60) as client:
        for number in range(MANY_TOPICS):
            assert client.create(f"many-{number}", MANY_PARTITIONS).error_code == 0
        names = [f"many-{number}" for number in range(MANY_TOPICS)]
        everything = metadata_request(names)
        everything.topics = None
        asked = [
            (version, request) for version in (5, 9, 12) for request in (metadata_request(names), everything)
        ]
        with stage.watched():
            # All before the first is read: what the socket does not take at once is what is put together for writev.
            for _ in range(4):
                for version, request in asked:
                    client.send_bytes(frame(METADATA, version, request))
            time.sleep(0.5)
            for _ in range(4):
                for version, _ in asked:
                    _, answer = client.receive(METADATA, version)
                    found = {topic.name: len(topic.partitions) for topic in answer.topics}
                    assert {found[name] for name in names} == {MANY_PARTITIONS}


MANY_TOPICS, MANY_PARTITIONS = 27, 1000


@scenario(Bounds(growth_mb=150), is_slow=True)
def many_new_names(stage: Stage) -> None:
    """Thirty thousand new names in one request, and a stop in the midst of another."""
    with ExitStack() as stack:
        client = stage.connect(stack, 0.5)
        with stage.watched("create", "producer-id"):
            client.send_bytes(
                frame(METADATA, 9, metadata_request([f"new-{i:05}" for i in range(30_000)], create=True))
            )
            time.sleep(5)
        client.send_bytes(
            frame(METADATA, 9, metadata_request([f"more-{i:05}" for i in range(30_000)], create=True))
        )
        time.sleep(0.5)
        stop(stage)


# -- elements --------------------------------------------------------------------------------------------------------

ELEMENTS = 250_000


def of_many_elements() -> dict[str, tuple[int, int, object]]:
    """Return a request of each API that takes a list, with as many elements as one may have."""
    numbers = range(ELEMENTS)
    fetches = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=100) for i in numbers]
    lookups = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in numbers]
    epochs = [OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in numbers]
    topics = [CreatableTopic(name=f"{i:x}", num_partitions=1, replication_factor=1) for i in numbers]
    parts = [PartitionProduceData(index=i, records=memoryview(b"")) for i in numbers]
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=f"{i:x}", configuration_keys=None)
        for i in numbers
    ]
    return {
        "metadata": (METADATA, 9, metadata_request([f"{i:x}" for i in numbers])),
        "fetch": (
            FETCH,
            11,
            FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic="t", partitions=fetches)]
            ),
        ),
        "list_offsets": (
            LIST_OFFSETS,
            5,
            ListOffsetsRequest(
                replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=lookups)]
            ),
        ),
        "offset_for_leader_epoch": (
            OFFSET_FOR_LEADER_EPOCH,
            3,
            OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=epochs)]),
        ),
        "create_topics": (CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, validate_only=True)),
        "describe_configs": (DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources)),
        "produce": (
            PRODUCE,
            9,
            ProduceRequest(
                transactional_id=None,
                acks=1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name="t", partition_data=parts)],
            ),
        ),
    }


def many_elements(what: str) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        key, version, request = of_many_elements()[what]
        data = frame(key, version, request)
        with RawClient(stage.broker, 60) as client:
            assert client.create("t").error_code == 0
            with stage.watched():
                for _ in range(3):
                    client.send_bytes(data)
                    # It may be answered or refused by the end of the connection; the others must not feel it.
                    if client.is_closed_by_peer():
                        break

    return run


for _what in (
    "metadata",
    "fetch",
    "list_offsets",
    "offset_for_leader_epoch",
    "create_topics",
    "describe_configs",
    "produce",
):
    _name = f"many_elements_{_what}"
    SCENARIOS[_name] = Scenario(_name, many_elements(_what))


@scenario()
def one_broker_described_often(stage: Stage) -> None:
    """DescribeConfigs that names the broker, all of its options, ten thousand times."""
    resources = [
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        for _ in range(10_000)
    ]
    data = frame(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources, include_synonyms=True))
    with RawClient(stage.broker, 60) as client, stage.watched():
        client.send_bytes(data)
        client.is_closed_by_peer()


# -- producers -------------------------------------------------------------------------------------------------------

PRODUCER_IDS = 200_000


@scenario(Bounds(growth_mb=120, small_s=0.3), is_slow=True)
def invented_producer_ids(stage: Stage) -> None:
    """Two hundred thousand producers of one record each, in a log that rolls again and again."""
    with RawClient(stage.broker, 60) as client:
        assert client.create("ids", configs={"segment.bytes": str(MIB)}).error_code == 0
        frames = list(idempotent_frames("ids", PRODUCER_IDS))
        with stage.watched():
            answers: list[int] = []
            reader = threading.Thread(target=lambda: answers.extend(codes_of(client, PRODUCER_IDS)))
            reader.start()
            for start in range(0, PRODUCER_IDS, 500):
                client.send_bytes(b"".join(frames[start : start + 500]))
            reader.join()
        assert len(answers) == PRODUCER_IDS, f"{len(answers)} answers"


def codes_of(client: RawClient, count: int) -> Iterator[int]:
    for _ in range(count):
        yield client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code


def idempotent_frames(topic: str, count: int) -> Iterator[bytes]:
    """Yield produces of one small batch, each of another producer."""
    data = build_batch([Record(0, START_MS, None, b"")], producer_id=1, producer_epoch=0, base_sequence=0)
    whole = frame(PRODUCE, 9, produce_request(topic, data, acks=1))
    at = whole.index(data)
    for number in range(count):
        yield whole[:at] + damaged(data, producer_id=1_000_000 + number) + whole[at + len(data) :]


@scenario(Bounds(small_s=0.5))
def bombs_on_one_connection(stage: Stage) -> None:
    """Forty batches of 2 KB that are 60 MB once decompressed, in one packet."""
    with RawClient(stage.broker, 60) as client:
        assert client.create("bombs").error_code == 0
        request = produce_request("bombs", bomb(4, 60 * MIB), acks=1)
        with stage.watched():
            client.send_bytes(b"".join(frame(PRODUCE, 9, request, number) for number in range(40)))
            for number in range(40):
                correlation_id, answer = client.receive(PRODUCE, 9)
                part = answer.responses[0].partition_responses[0]
                assert (correlation_id, part.error_code, part.base_offset) == (number, 0, number)


@scenario(Bounds(small_s=0.5))
def bombs_on_forty_connections(stage: Stage) -> None:
    """The same, one on each of forty connections."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(40)]
        assert clients[0].create("bombs").error_code == 0
        data = frame(PRODUCE, 9, produce_request("bombs", bomb(4, 60 * MIB), acks=1))
        with stage.watched():
            for _ in range(2):
                for client in clients:
                    client.send_bytes(data)
                for client in clients:
                    part = client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0]
                    assert part.error_code == 0, f"error {part.error_code}"


# -- waiting ---------------------------------------------------------------------------------------------------------


@scenario()
def many_parked_fetches(stage: Stage) -> None:
    """Forty thousand fetches that wait on one partition, on which another produces all the time."""
    with ExitStack() as stack:
        clients = [stage.connect(stack) for _ in range(40)]
        assert clients[0].create("crowd").error_code == 0
        request = fetch_request("crowd", max_bytes=200, min_bytes=1 << 20, wait_ms=300_000)
        with stage.watched(topic="crowd"):
            for client in clients:
                client.send_bytes(b"".join(frame(FETCH, 12, request, number) for number in range(1000)))
            time.sleep(3)
            with RawClient(stage.broker) as other:
                enough = build_batch([Record(0, START_MS, None, b"v" * 1_000_000)])
                for _ in range(2):
                    assert other.produce("crowd", enough, acks=1).error_code == 0
            for client in clients:
                for number in range(1000):
                    correlation_id, answer = client.receive(FETCH, 12)
                    assert correlation_id == number, f"answer {correlation_id} in place of {number}"
                    assert answer.responses[0].partitions[0].error_code == 0


# -- what the system has not got -------------------------------------------------------------------------------------


@scenario()
def descriptors_run_out(stage: Stage) -> None:
    """Connections take the last descriptor while commits of four logs go on; then they go."""
    pid = stage.broker.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with RawClient(stage.broker) as client:
        assert client.create("spare", 4).error_code == 0
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid) + 40, hard))
        with stage.watched(), ExitStack() as late, ExitStack() as greedy:
            # Connected before, they must still be served when no further connection is let in.
            durable = [stage.connect(late, 5) for _ in range(4)]
            for _ in range(60):
                stage.connect(greedy)
            time.sleep(0.3)
            for _ in range(5):
                for index, one in enumerate(durable):
                    one.send(PRODUCE, 9, produce_request("spare", ONE, index))
                time.sleep(0.2)
            greedy.close()
            took_s = until_durable_again(stage.broker, "spare", 4)
            if took_s > 2:
                stage.row.faults.append(f"acks=all works again only after {took_s:.1f} s, bound 2")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))


def until_durable_again(broker: Broker, topic: str, partitions: int, patience_s: float = 8) -> float:
    """Return how long it took until acks=all worked on each partition; more than `patience_s` if it never did."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < patience_s:
        try:
            with RawClient(broker, 2) as client:
                if not any(client.produce(topic, ONE, index).error_code for index in range(partitions)):
                    break
        except OSError:
            pass
        time.sleep(0.05)
    return time.monotonic() - began_s


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@scenario(is_on_small_disk=True, overrides=(("num.partitions", "8"),))
def full_disk_while_a_topic_is_created(stage: Stage) -> None:
    """A disk without a page to spare, or with a few; then space comes back."""
    ballast = stage.broker.data_dir / "ballast"
    with stage.watched(may_be_refused=True):
        for pages in range(20):
            made, named = f"made-{pages}", f"named-{pages}"
            fill_disk(ballast, pages)
            story = [f"on a full disk {creation(stage, made)} and {naming(stage, named)}"]
            ballast.unlink()
            began_s = time.monotonic()
            while time.monotonic() - began_s < 2:
                codes = creation(stage, made), naming(stage, named)
                wrote = [production(stage, topic) for topic in (made, named)]
                if codes[0] in (0, TOPIC_ALREADY_EXISTS) and codes[1] == 0 and not any(wrote):
                    break
                story.append(f"{codes} and produced with {wrote}")
                time.sleep(0.2)
            else:
                stage.row.faults.append(
                    f"with {pages} pages left: {', then '.join(dict.fromkeys(story))}"[:300]
                )


TOPIC_ALREADY_EXISTS, CLOSED = 36, -100


def code_of(stage: Stage, ask: Callable[[RawClient], int]) -> int:
    """Ask on a connection of its own; return the code, or CLOSED where there was no answer."""
    try:
        with RawClient(stage.broker, 5) as client:
            return ask(client)
    except OSError:
        return CLOSED


def creation(stage: Stage, topic: str) -> int:
    return code_of(stage, lambda client: client.create(topic, 8).error_code)


def naming(stage: Stage, topic: str) -> int:
    return code_of(stage, lambda client: client.metadata(topic).topics[0].error_code)


def production(stage: Stage, topic: str) -> int:
    return code_of(stage, lambda client: client.produce(topic, ONE).error_code)


def fill_disk(ballast: Path, pages_left: int) -> None:
    """Write until nothing fits, and give so many pages back."""
    system = os.statvfs(ballast.parent)
    assert system.f_blocks * system.f_frsize <= SMALL_DISK_BYTES, "this is not the small disk"
    with ballast.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            pass
        out.truncate(max(ballast.stat().st_size - 4096 * pages_left, 0))


# -- measuring -------------------------------------------------------------------------------------------------------


def stop(stage: Stage) -> None:
    began_s = time.monotonic()
    try:
        stage.broker.stop(timeout_s=60)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        stage.row.faults.append(f"did not stop in order: {str(error)[:200]}")
        stage.broker.kill()
    stage.row.stop_s = time.monotonic() - began_s


def measure(what: Scenario, folder: Path) -> Row:
    """Run a scenario on a broker of its own; its row holds whatever went wrong."""
    row = Row(what.name)
    with Broker(folder / "data", {"log.retention.ms": "-1", **dict(what.overrides)}) as broker:
        broker.start()
        resource.prlimit(broker.pid, resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))
        stage = Stage(broker, row)
        make_topic(broker)
        try:
            what.run(stage)
        except (OSError, AssertionError) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            row.faults.append(f"{type(error).__name__}: {error} (at {where.name})")
        if broker.is_running:
            stage.settle(what.bounds.left_mb)
            stop(stage)
        lines = [line for line in broker.printed.splitlines() if " ERROR " in line or "Error:" in line]
        row.faults += [f"logged: {line[:160]}" for line in dict.fromkeys(lines)][:5]
    return row


@contextmanager
def place_for(what: Scenario, folder: Path) -> Iterator[Path]:
    """Give a folder; on a small file system of its own where the scenario wants one. OSError if there is none."""
    if not what.is_on_small_disk:
        yield folder
        return
    folder.mkdir(parents=True, exist_ok=True)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tidelog-test", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        raise OSError("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


HEAD = (
    "| scenario | RSS before | peak | after | p99 | longest | turn | slow kinds | SIGTERM | missed |\n"
    + "|---" * 10
    + "|"
)


def line(row: Row, bounds: Bounds) -> str:
    """Show a row of the table: MB, milliseconds, seconds for what is slow."""
    slow = ", ".join(f"{kind} {took_s:.2f} s" for kind, took_s in row.slow_s.items())
    cells = [
        row.name,
        *(f"{value:.0f}" for value in (row.before_mb, row.peak_mb, row.after_mb)),
        *(f"{value * 1000:.0f}" for value in (row.p99_s, row.longest_s, row.turn_s)),
        slow or "-",
        f"{row.stop_s:.1f}",
        "; ".join(row.misses(bounds)) or "-",
    ]
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def main() -> None:
    """Print the table of all scenarios, or of those named."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="of scenarios; all without")
    names = parser.parse_args().names or list(SCENARIOS)
    print("Memory in MB, times in ms, SIGTERM in s.\n\n" + HEAD, flush=True)
    for name in names:
        what = SCENARIOS[name]
        root = Path(tempfile.mkdtemp(prefix="neighbours-"))
        try:
            with place_for(what, root / "place") as folder:
                print(line(measure(what, folder), what.bounds), flush=True)
        except OSError as error:
            print(f"| {name} | skipped: {error} |", flush=True)
        finally:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    main()
