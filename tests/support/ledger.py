"""A ledger of what was sent and what was acknowledged, kept outside the broker, and producers that fill it.

Owns: the load, and the judgement of a log against the ledger (invariants I1 to I4 of a crash).
Refuses to know: how the broker died. Invariant: an acknowledgement is written down before anything else happens.
"""

import random
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.broker import Running
from tests.support.builders import produce_request
from tests.support.raw_client import PRODUCE, RawClient
from tests.support.workload import START_MS
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records import batch
from tidelog.protocol.records.build import Record, build_batch

# What Kafka allows an idempotent producer, and so how many batches a broker must recognise when they come again.
IN_FLIGHT = 5
PLAIN = -1


class Sent(NamedTuple):
    """One batch as it was sent."""

    partition: int
    producer_id: int
    sequence: int
    count: int
    data: bytes


@dataclass
class Ledger:
    """What was sent, by the batch's records; what was acknowledged, and at which offset."""

    topic: str
    partitions: int
    sent: dict[bytes, Sent] = field(default_factory=dict)
    acknowledged: dict[Sent, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    # What each log held when it was last looked at: offset and bytes of every batch.
    history: dict[int, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))

    def send(self, sent: Sent) -> None:
        self.sent[sent.data[batch.HEADER_BYTES :]] = sent

    def acknowledge(self, sent: Sent, offset: int) -> None:
        earlier = self.acknowledged.setdefault(sent, offset)
        if earlier != offset:
            self.faults.append(f"{name(sent)} acknowledged at {earlier}, then at {offset}")

    def judge(self, broker: Running) -> None:
        """Read every partition to its end and hold it against the ledger."""
        assert self.faults == []
        with RawClient(broker) as client:
            for partition in range(self.partitions):
                self._judge_partition(client, partition)

    def _judge_partition(self, client: RawClient, partition: int) -> None:
        found = list(client.batches(self.topic, partition))
        missing = {sent for sent in self.acknowledged if sent.partition == partition}
        next_offset, next_sequence = 0, defaultdict[int, int](int)
        for offset, data in found:
            sent = self.sent.get(data[batch.HEADER_BYTES :])
            where = f"{self.topic}-{partition}@{offset}"
            assert sent is not None, f"{where}: records that nobody sent"
            assert data[batch.MAGIC_POSITION :] == sent.data[batch.MAGIC_POSITION :], (
                f"{where}: bytes changed"
            )
            assert offset == next_offset, f"{where}: the offset before it is {next_offset - 1}"
            assert self.acknowledged.get(sent, offset) == offset, f"{where}: {name(sent)} has moved"
            if sent.producer_id != PLAIN:
                due = next_sequence[sent.producer_id]
                assert sent.sequence == due, f"{where}: {name(sent)}, but sequence {due} is due"
                next_sequence[sent.producer_id] += sent.count
            missing.discard(sent)
            next_offset += sent.count
        assert not missing, f"acknowledged and lost: {sorted(map(name, missing))[:5]} of {len(missing)}"
        assert client.list_offsets(self.topic, -1, partition).offset == next_offset
        before = self.history[partition]
        assert found[: len(before)] == before, f"{self.topic}-{partition}: what was read before has changed"
        self.history[partition] = found


def name(sent: Sent) -> str:
    return f"batch of producer {sent.producer_id}, sequence {sent.sequence}, {sent.count} records"


class Producer(threading.Thread):
    """Send numbered batches, with acks=all or acks=1, several in flight, until the connection breaks.

    What an idempotent one has sent without an answer it sends again, first and in order, in its next life.
    """

    def __init__(
        self, ledger: Ledger, partition: int, seed: str, producer: tuple[int, int], acks: int = -1
    ) -> None:
        super().__init__(daemon=True, name=f"producer {seed}")
        self.sending = threading.Event()
        self._ledger = ledger
        self._acks = acks
        self._partition = partition
        self._random = random.Random(seed)
        self._seed = seed
        self._producer_id, self._epoch = producer
        self._sequence = 0
        self._unanswered: deque[Sent] = deque()
        self._broker: Running | None = None

    def reborn(self) -> "Producer":
        """Return a producer that goes on where this one was cut off; a thread runs only once."""
        heir = Producer(
            self._ledger, self._partition, self._seed, (self._producer_id, self._epoch), self._acks
        )
        heir._random, heir._sequence = self._random, self._sequence
        if self._producer_id != PLAIN:
            heir._unanswered = self._unanswered
        return heir

    def load(self, broker: Running) -> None:
        """Begin to send."""
        self._broker = broker
        self.start()

    def run(self) -> None:
        assert self._broker is not None
        try:
            with RawClient(self._broker) as client:
                for sent in self._unanswered:
                    self._put(client, sent)
                while not self._ledger.faults:
                    while len(self._unanswered) < IN_FLIGHT:
                        self._unanswered.append(self._make())
                        self._put(client, self._unanswered[-1])
                    self._take_answer(client)
        except OSError:
            return
        except Exception as error:
            self._ledger.faults.append(f"{self.name}: {error!r}")

    def _make(self) -> Sent:
        rng = self._random
        count, size = rng.choice((1, 1, 3, 20)), rng.choice((10, 100, 1000))
        records = []
        for delta in range(count):
            number = self._sequence + delta
            # Late by up to a second: the time index has something to get wrong.
            timestamp = START_MS + number - rng.randrange(1000)
            value = b"%s %d " % (self._seed.encode(), number) + rng.randbytes(size)
            records.append(Record(delta, timestamp, None, value))
        idempotent = self._producer_id != PLAIN
        data = build_batch(
            records,
            codec=rng.choice((0, 0, 3, 4)),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence if idempotent else -1,
        )
        sent = Sent(self._partition, self._producer_id, self._sequence, count, data)
        self._sequence += count
        return sent

    def _put(self, client: RawClient, sent: Sent) -> None:
        self._ledger.send(sent)
        request = produce_request(self._ledger.topic, sent.data, self._partition, acks=self._acks)
        client.send(PRODUCE, 9, request)
        self.sending.set()

    def _take_answer(self, client: RawClient) -> None:
        _, response = client.receive(PRODUCE, 9)
        result = response.responses[0].partition_responses[0]
        sent = self._unanswered.popleft()
        if result.error_code == ErrorCode.NONE:
            self._ledger.acknowledge(sent, result.base_offset)
        elif result.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._ledger.faults.append(f"{name(sent)} answered {ErrorCode(result.error_code).name}")
