"""Sends the records of a task with an idempotent producer, without Spark.

`finish` returns only if the broker has acknowledged every record with acks=all. Records of a task to one partition keep
their order, and a request that is retried is appended once. An error names the record that it is about.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientError
from tidelog.client.producer import Producer, Rejected, Stalled
from tidelog.pipeline.brokers.connected import CLIENT_ID, addresses
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.now import now_ms
from tidelog.pipeline.writing import target

DELIVERY_S: Final = 120  # how long a request is retried, for example while a broker restarts
_ABANDON_S: Final = 5


class Record(NamedTuple):
    """A record to send; `place` names its row and task in errors."""

    place: str
    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None  # None for now


class Sender:
    """Sends the records of one task."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._partitions: dict[str, frozenset[int]] = {}
        self._under_way: dict[int, Record] = {}
        self._count = 0
        self.sent = 0
        self.oldest_ms: dict[str, int] = {}  # by topic, of the records with a time of their own
        self._cluster = Cluster(addresses(address), CLIENT_ID)
        self._producer = Producer(self._cluster, DELIVERY_S, self._acknowledged)

    def send(self, record: Record) -> None:
        """Send a record, and wait if too much is in flight; PipelineError if this or an earlier record was rejected."""
        self._check(record)
        at_ms = record.timestamp_ms
        if at_ms is not None:
            self.oldest_ms[record.topic] = min(at_ms, self.oldest_ms.get(record.topic, at_ms))
        self._count += 1
        self._under_way[self._count] = record
        try:
            self._producer.send(
                record.topic,
                record.value,
                now_ms() if at_ms is None else at_ms,
                record.key,
                record.headers,
                record.partition,
            )
        except ClientError as error:
            raise self._failed(error) from error

    def finish(self) -> None:
        """Wait until all records are acknowledged; PipelineError if one is not."""
        try:
            self._producer.flush()
        except ClientError as error:
            raise self._failed(error) from error
        self._cluster.close()

    def abandon(self) -> None:
        """Give up records in flight. They may be appended or not, but not after this call, if the broker answers."""
        self._producer.settle(_ABANDON_S)
        self._cluster.close()

    def _acknowledged(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._under_way[number]
        self.sent += len(numbers)

    def _check(self, record: Record) -> None:
        numbers = self._partitions.get(record.topic)
        if numbers is None:
            try:
                numbers = target.partitions(self._address, record.topic)
            except PipelineError as error:
                raise PipelineError(f"{record.place}: {error}") from error
            self._partitions[record.topic] = numbers
        if record.partition is not None and record.partition not in numbers:
            raise PipelineError(
                f"{record.place}: topic {record.topic} has no partition {record.partition}, "
                f"it has {len(numbers)}, from 0 on"
            )

    def _failed(self, error: ClientError) -> PipelineError:
        """Return an error that names the record that failed."""
        number, why = min(self._under_way), str(error)
        if isinstance(error, Rejected | Stalled):
            number = error.number
        if isinstance(error, Stalled):
            why += f"; no broker took it in {DELIVERY_S} s: is it running?"
        record = self._under_way[number]
        to = record.topic if record.partition is None else f"{record.topic}-{record.partition}"
        return PipelineError(f"{record.place}: not written to {to} at {self._address}: {why}")
