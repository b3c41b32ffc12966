"""An idempotent producer: each record is appended once, in order, and acknowledged when it is on disk.

There is at most one request in flight to each leader, with one batch of each partition; other records wait for the
next batch. The records of a partition keep their order. A batch that is sent twice is appended once. After a record was
rejected, no later record of its partition is sent. The caller sets timestamps.
"""

import random
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from tidelog.client import interrupts
from tidelog.client.cluster import FIRST_PAUSE_S, LONGEST_PAUSE_S, RETRIABLE, Cluster, Partition, check
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, ConnectionLost, Retriable, UnknownTopic, explain
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.records.build import Header, build_rows, encode_headers
from tidelog.protocol.records.compression import NONE
from tidelog.protocol.records.encode import Row

BATCH_BYTES: Final = 256 << 10
# The limits of what is not acknowledged: enough for full batches, and few enough to report a rejected record soon.
UNDER_WAY_BYTES: Final = 16 << 20
UNDER_WAY_RECORDS: Final = 10_000
_RECORD_BYTES_MAX: Final = 100 << 20  # larger than any request that a broker accepts
# For a request of several batches; brokers with small limits accept it.
_REQUEST_BYTES: Final = 512 << 10
# The longest wait of a batch for more records, while the caller sends some.
LINGER_S = 0.05
_RECORD_OVERHEAD_BYTES: Final = 40
ANSWER_S: Final = 10.0
_ALL_REPLICAS: Final = -1
_BY_NAME: Final = 12  # the last version of Produce that names topics
_SEQUENCES: Final = 1 << 31
# The broker does not know the sequence numbers of this producer, or no longer.
_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class Rejected(ClientError):
    """The broker rejected a record: its number, and the error code."""

    def __init__(self, number: int, code: int, message: str | None = None) -> None:
        super().__init__(f"{explain(code)}{f': {message}' if message else ''}")
        self.number = number
        self.code = code


class Stalled(ClientError):
    """Nothing was acknowledged for too long; `number` is the first record that may not be on disk."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


class _Batch:
    """Records of one partition that are sent as one batch."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.rows: list[Row] = []
        self.size_bytes = 0
        self.attempts = 0  # that the broker did not reject as too large

    def add(self, numbers: Sequence[int], rows: Sequence[Row], size: int) -> None:
        self.rows += rows
        self.size_bytes += size
        self.numbers += numbers  # last, so that an interrupt leaves no number without its row

    def halves(self) -> tuple["_Batch", "_Batch"]:
        """Return the records as two batches."""
        half = len(self.rows) // 2
        found = _Batch(), _Batch()
        for to, part in zip(found, (slice(half), slice(half, None)), strict=True):
            to.add(self.numbers[part], self.rows[part], sum(map(_size, self.rows[part])))
            to.attempts = self.attempts
        return found


class Producer:
    """Sends records to the leaders of their partitions. Use it from one thread; it makes progress only during calls."""

    def __init__(
        self,
        cluster: Cluster,
        give_up_s: float,
        acknowledged: Callable[[Sequence[int]], None],
        *,
        creates_topics: bool = False,
        codec: int = NONE,
    ) -> None:
        """Send nothing yet. `acknowledged` gets the numbers of records that are on disk."""
        self._codec = codec
        self._cluster = cluster
        self._give_up_s = give_up_s
        self._acknowledged = acknowledged
        self._creates_topics = creates_topics
        self._partitions: dict[str, list[int]] = {}
        self._sticky: dict[str, int] = {}
        self._pending: dict[Partition, deque[_Batch]] = {}
        self._in_flight: dict[Connection, tuple[float, dict[Partition, _Batch]]] = {}
        self._batch_bytes: dict[Partition, int] = {}
        self._sequences: dict[Partition, int] = {}
        self._identity: tuple[int, int] | None = None  # of partitions that have none yet
        self._identities: dict[Partition, tuple[int, int]] = {}
        self._sent = 0
        self._under_way = 0
        self._under_way_bytes = 0
        self._polled_at = self._last_news = time.monotonic()
        self._is_tried = False  # whether `poll` was called since there are unacknowledged records
        self._pause_s = FIRST_PAUSE_S
        self._paused_until = 0.0
        self._reason = "it cannot be reached"

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic; ClientError."""
        if topic not in self._partitions:
            self._partitions[topic] = self._cluster.partitions(topic, self._creates_topics)
        return self._partitions[topic]

    def send(
        self,
        topic: str,
        value: bytes | None,
        timestamp_ms: int,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
    ) -> None:
        """Queue a record, and wait while too much is unacknowledged; Rejected, Stalled, also for earlier records.

        Records are numbered from 1, in the order of the calls.
        """
        row = (timestamp_ms, key, value, encode_headers(headers))
        size = _size(row)
        if size > _RECORD_BYTES_MAX:
            self._sent += 1
            raise Rejected(self._sent, ErrorCode.MESSAGE_TOO_LARGE)
        to = Partition(topic, self._choose(topic, key) if partition is None else partition)
        self._queue(to, [row], size)

    def send_values(
        self,
        topic: str,
        values: Sequence[bytes | None],
        timestamp_ms: int,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
    ) -> None:
        """Do what `send` does for each value. Values that fit into a batch go into one, which is much faster."""
        encoded = encode_headers(headers)
        rows = [(timestamp_ms, key, value, encoded) for value in values]
        size = sum(map(_size, rows))
        to = Partition(topic, self._choose(topic, key) if partition is None else partition)
        if size <= self._batch_bytes.get(to, BATCH_BYTES):
            self._queue(to, rows, size)
            return
        for value in values:
            self.send(topic, value, timestamp_ms, key, headers, partition)

    def _queue(self, to: Partition, rows: Sequence[Row], size: int) -> None:
        numbers = range(self._sent + 1, self._sent + 1 + len(rows))
        self._sent += len(rows)
        batches = self._pending.setdefault(to, deque())
        limit = self._batch_bytes.get(to, BATCH_BYTES)
        is_new = not batches or batches[-1].attempts > 0 or batches[-1].size_bytes + size > limit
        batch = _Batch() if is_new else batches[-1]
        batch.add(numbers, rows, size)
        if is_new:
            batches.append(batch)  # with a record in it, also for an interrupt
            self._sticky.pop(to.topic, None)
        if not self._under_way:
            self._is_tried = False
        self._under_way += len(rows)
        self._under_way_bytes += size
        if len(batches) > 1 or time.monotonic() - self._polled_at >= LINGER_S:
            self.poll(0)
        while self._under_way > UNDER_WAY_RECORDS or self._under_way_bytes > UNDER_WAY_BYTES:
            self.poll(1)

    def poll(self, wait_s: float) -> None:
        """Send waiting batches, and handle the answers that come within a time; Rejected, Stalled."""
        self._polled_at = time.monotonic()
        if not self._is_tried:
            self._is_tried, self._last_news = True, self._polled_at
        try:
            self._start()
            self._receive(wait_s)
        except UnknownTopic as error:
            self._again(str(error))
            if self._creates_topics:
                with suppress(ClientError):
                    self._cluster.partitions(error.topic, create=True)
        except Retriable as error:
            self._again(str(error))
        except KeyboardInterrupt:
            self._again("it was interrupted")  # an answer may be half read
            raise
        if self._under_way and time.monotonic() - self._last_news > self._give_up_s:
            raise Stalled(self._first(), self._reason)

    def flush(self) -> None:
        """Wait until all records are acknowledged; Rejected, Stalled."""
        while self._under_way > 0:
            self.poll(1)

    def settle(self, within_s: float) -> Rejected | None:
        """Wait like `flush`, but only for a time; return the first record that is rejected, and ignore other errors.

        Unacknowledged records may be on disk.
        """
        rejected: list[Rejected] = []
        deadline = time.monotonic() + within_s
        while self._under_way > 0 and time.monotonic() < deadline:
            try:
                self.poll(min(1.0, max(0.0, deadline - time.monotonic())))
            except Rejected as error:
                rejected.append(error)
            except ClientError:
                break
        return min(rejected, key=lambda each: each.number, default=None)

    def _choose(self, topic: str, key: bytes | None) -> int:
        numbers = self.partitions(topic)
        if key is not None:
            return numbers[(murmur2(key) & 0x7FFFFFFF) % len(numbers)]
        if topic not in self._sticky:
            self._sticky[topic] = random.choice(numbers)
        return self._sticky[topic]

    def _start(self) -> None:
        """Send a request to each leader that has none in flight."""
        if not self._pending or time.monotonic() < self._paused_until:
            return
        if self._identity is None:
            self._identity = new_identity(self._cluster)
        busy = {each for _, batches in self._in_flight.values() for each in batches}
        ready = [each for each, batches in self._pending.items() if batches and each not in busy]
        for connection, partitions in self._cluster.by_leader(ready).items():
            if connection in self._in_flight:
                continue
            # Recorded before the send, so that a failed send puts all of it back.
            with interrupts.held():
                taken = self._take(partitions)
                self._in_flight[connection] = (time.monotonic(), taken)
            connection.send(PRODUCE, self._request(taken), _BY_NAME)

    def _take(self, partitions: Iterable[Partition]) -> dict[Partition, _Batch]:
        """Take the next batch of each partition, as many as a request has room for."""
        taken: dict[Partition, _Batch] = {}
        size = 0
        for each in partitions:
            batch = self._next(each)
            if taken and size + batch.size_bytes > _REQUEST_BYTES:
                break
            self._pending[each].popleft()
            if not self._pending[each]:
                del self._pending[each]
            batch.attempts += 1
            taken[each] = batch
            size += batch.size_bytes
        return taken

    def _next(self, partition: Partition) -> _Batch:
        """Return the first batch of a partition, split until it is below the known limit."""
        batches = self._pending[partition]
        limit = self._batch_bytes.get(partition, BATCH_BYTES)
        while batches[0].size_bytes > limit and len(batches[0].rows) > 1:
            batches.extendleft(reversed(batches.popleft().halves()))
        return batches[0]

    def _request(self, taken: dict[Partition, _Batch]) -> ProduceRequest:
        assert self._identity is not None
        topics: dict[str, list[PartitionProduceData]] = {}
        for each, batch in taken.items():
            producer_id, epoch = self._identities.setdefault(each, self._identity)
            data = build_rows(batch.rows, self._codec, producer_id, epoch, self._sequences.get(each, 0))
            part = PartitionProduceData(index=each.partition, records=memoryview(data))
            topics.setdefault(each.topic, []).append(part)
        return ProduceRequest(
            transactional_id=None,
            acks=_ALL_REPLICAS,
            timeout_ms=int(ANSWER_S * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=some) for name, some in topics.items()],
        )

    def _receive(self, wait_s: float) -> None:
        """Handle the answers that come within a time."""
        if not self._in_flight:
            if wait_s and self._pending:
                time.sleep(max(0.0, min(wait_s, self._paused_until - time.monotonic())))
            return
        if any(connection.fileno() < 0 for connection in self._in_flight):
            raise ConnectionLost("the connection was closed")
        ready, _, _ = select.select(list(self._in_flight), (), (), wait_s)
        now = time.monotonic()
        for connection, (sent_at, _) in self._in_flight.items():
            if connection not in ready and now - sent_at > ANSWER_S:
                raise ConnectionLost(f"{connection.address} does not answer")
        refused: list[Rejected] = []
        for connection in ready:
            answer = connection.receive()
            with interrupts.held():
                _, taken = self._in_flight.pop(connection)
                for topic in answer.responses:
                    for each in topic.partition_responses:
                        key = Partition(topic.name, each.index)
                        refused += self._settle(key, taken.pop(key), each)
        if refused:
            raise min(refused, key=lambda each: each.number)

    def _settle(self, key: Partition, batch: _Batch, answer: PartitionProduceResponse) -> list[Rejected]:
        """Acknowledge a batch, put it back to be sent again, or return its rejected record."""
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._sequences[key] = (self._sequences.get(key, 0) + len(batch.rows)) % _SEQUENCES
            self._pause_s = FIRST_PAUSE_S
            self._done(batch)
            self._acknowledged(batch.numbers)
            return []
        if code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.rows) > 1:
            self._batch_bytes[key] = batch.size_bytes // 2
            batch.attempts -= 1
            self._put_back(key, batch)
            return []
        if code in RETRIABLE:
            self._put_back(key, batch)
            self._cluster.forget_topic(key.topic)
            self._wait(answer.error_message or explain(code))
            return []
        if code in _FORGOTTEN and batch.attempts == 1:
            # A new identity for this partition only: batches of others may be on disk under the old one.
            if self._identities.pop(key) == self._identity:
                self._identity = None
            self._sequences.pop(key, None)
            self._put_back(key, batch)
            return []
        return [self._refused(key, batch, answer)]

    def _refused(self, key: Partition, batch: _Batch, answer: PartitionProduceResponse) -> Rejected:
        """Drop the records of a partition from the rejected one on, and return that one.

        A broker rejects a batch as a whole. The records before the rejected one are sent again.
        """
        for dropped in [batch, *self._pending.pop(key, ())]:
            self._done(dropped)
        index, message = 0, answer.error_message
        for each in answer.record_errors:
            if 0 <= each.batch_index < len(batch.numbers):
                index, message = each.batch_index, each.batch_index_error_message or message
                break
        if batch.attempts > 1:
            unsure = "it may be on disk from an earlier attempt"
            message = f"{message}; {unsure}" if message else unsure
        if index:
            before = _Batch()
            before.attempts = batch.attempts - 1
            before.add(batch.numbers[:index], batch.rows[:index], sum(map(_size, batch.rows[:index])))
            self._put_back(key, before)
            self._under_way += index
            self._under_way_bytes += before.size_bytes
        return Rejected(batch.numbers[index], answer.error_code, message)

    def _done(self, batch: _Batch) -> None:
        self._under_way -= len(batch.rows)
        self._under_way_bytes -= batch.size_bytes
        self._last_news = time.monotonic()

    def _put_back(self, key: Partition, batch: _Batch) -> None:
        self._pending.setdefault(key, deque()).appendleft(batch)

    def _again(self, reason: str) -> None:
        """Start again with new connections: unanswered batches are sent again, with the same sequence numbers."""
        with interrupts.held():
            for _, batches in self._in_flight.values():
                for each, batch in batches.items():
                    self._put_back(each, batch)
            self._in_flight.clear()
        self._cluster.forget()
        self._wait(reason)

    def _wait(self, reason: str) -> None:
        self._reason = reason
        self._paused_until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _first(self) -> int:
        batches = [each for queue in self._pending.values() for each in queue]
        batches += [each for _, taken in self._in_flight.values() for each in taken.values()]
        return min(each.numbers[0] for each in batches)


def new_identity(cluster: Cluster) -> tuple[int, int]:
    """Return a new producer id and its epoch; ClientError."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    answer: Any = cluster.any_broker().ask(INIT_PRODUCER_ID, request)
    check(answer.error_code, "a producer id")
    return answer.producer_id, answer.producer_epoch


def _size(row: Row) -> int:
    """Return about how many bytes a row takes in a batch."""
    _, key, value, headers = row
    return _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + len(headers)


def murmur2(data: bytes) -> int:
    """Return the hash that Kafka's clients choose the partition of a key by."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        found = found * multiplier & mask ^ word
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return found ^ found >> 15
