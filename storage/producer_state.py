"""What is known of idempotent producers: their epoch and their last five batches, and the bytes of a snapshot.

Owns the rule of sequence numbers, which is Kafka's: a batch follows the one before it, or is one of the last five and
so a duplicate, or is refused. An unknown producer id may start anywhere, because its state may have expired with its
records, or been forgotten for lack of room. A producer that comes back after that goes on with any sequence, as in
Kafka; batches that were stored before and are sent again are stored twice. A new epoch starts at sequence 0.

The state is a function of the batch headers, so any snapshot and the headers after it restore it.

Anyone can invent producer ids. So a producer takes a few packed bytes, and all logs together keep what fits into
`producer.state.max.bytes`. The producers that have been silent for longest are forgotten first, across all logs.
"""

import threading
from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from tidelog.protocol.records.batch import BatchHeader
from tidelog.protocol.records.checksum import crc32c
from tidelog.storage.errors import InvalidProducerEpoch, OutOfOrderSequence

SNAPSHOT_VERSION: Final = 1
# How many batches a producer may have in flight, and so may send again (KAFKA-5494).
REMEMBERED_BATCHES: Final = 5
SEQUENCE_MAX: Final = (1 << 31) - 1
_NO_COORDINATOR = _NO_TRANSACTION = -1

_HEAD: Final = Struct(">hIi")
_ROW: Final = Struct(">qhiqiqiq")
_CRC_FROM: Final = 6

# A producer in memory: its epoch, then its batches, oldest first: last sequence, last offset delta, last offset, time.
_EPOCH: Final = Struct(">h")
_BATCH: Final = Struct(">iiqq")
_unpack_epoch: Final = _EPOCH.unpack_from
_unpack_batch: Final = _BATCH.unpack_from
_BATCH_BYTES: Final = _BATCH.size
_OLDER_BYTES: Final = (REMEMBERED_BATCHES - 1) * _BATCH_BYTES
# What a producer takes besides: the header of the bytes object, its id, its slot in a dict that has just grown.
PRODUCER_BYTES: Final = 33 + 32 + 105
# How many are forgotten under the lock at once: an append may wait for it.
_AT_ONCE: Final = 256

# Packed producers by id, in the order in which they last sent.
Producers = dict[int, bytes]


class SentBatch(NamedTuple):
    """A batch: how its producer numbered it, and where the log stored it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_ms: int


class Sender(NamedTuple):
    """A producer and its last batch."""

    producer_id: int
    epoch: int
    last: SentBatch


def last_sequence(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record; after 2^31 - 1 comes 0."""
    return (header.base_sequence + header.last_offset_delta) & SEQUENCE_MAX


def epoch_of(producer: bytes) -> int:
    """Return the epoch of a packed producer."""
    epoch: int = _unpack_epoch(producer)[0]
    return epoch


def batches_of(producer: bytes) -> Iterator[SentBatch]:
    """Yield the batches of a packed producer, oldest first."""
    for last, delta, last_offset, append_ms in _BATCH.iter_unpack(producer[_EPOCH.size :]):
        yield SentBatch((last - delta) & SEQUENCE_MAX, last, last_offset - delta, last_offset, append_ms)


def _last_append_ms(producer: bytes) -> int:
    append_ms: int = _unpack_batch(producer, len(producer) - _BATCH_BYTES)[3]
    return append_ms


class ProducerMemory:
    """The memory that the producers of several logs share, and the lock that guards them.

    The lock is held for microseconds, and never across a wait for the disk.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Keep what fits into `limit_bytes`."""
        self.lock = threading.Lock()
        self.held_bytes = 0
        self.limit_bytes = limit_bytes
        self.states: dict[ProducerState, None] = {}  # those with producers

    def make_room(self) -> None:
        """Free a sixteenth of the memory; the longest silent producers go first. Call with `lock` held."""
        enough = self.limit_bytes - self.limit_bytes // 16
        ages = [(state.oldest_ms(), number, state) for number, state in enumerate(self.states)]
        heapify(ages)
        while self.held_bytes > enough and ages:
            _, number, state = ages[0]
            state.forget_oldest(_AT_ONCE)
            if state.producers:
                heapreplace(ages, (state.oldest_ms(), number, state))
            else:
                heappop(ages)


class ProducerState:
    """The producers of one log. For any thread: changes and copies take the lock of the memory."""

    __slots__ = ("_memory", "producers")

    def __init__(self, memory: ProducerMemory | None = None) -> None:
        """Begin without producers."""
        self.producers: Producers = {}
        self._memory = memory or ProducerMemory(limit_bytes=64 << 20)

    def check(self, header: BatchHeader) -> SentBatch | None:
        """Return the batch that this one repeats, or None if it is the next; raise if it is neither."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch != _unpack_epoch(producer)[0]:
            self._check_epoch(header, epoch_of(producer))
            return None
        first = header.base_sequence
        expected = (_unpack_batch(producer, len(producer) - _BATCH_BYTES)[0] + 1) & SEQUENCE_MAX
        if first == expected:
            return None
        last = last_sequence(header)
        for batch in batches_of(producer):
            if batch.base_sequence == first and batch.last_sequence == last:
                return batch
        raise OutOfOrderSequence(
            f"producer {header.producer_id}, epoch {epoch_of(producer)}: sequence {first} came where {expected} is next"
        )

    def _check_epoch(self, header: BatchHeader, epoch: int) -> None:
        if header.producer_epoch < epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id}: epoch {header.producer_epoch} is over, {epoch} has begun"
            )
        if header.base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id}: epoch {header.producer_epoch} is new and starts at sequence 0, "
                f"not {header.base_sequence}"
            )

    def note(self, header: BatchHeader, base_offset: int, append_ms: int) -> None:
        """Note a batch that was stored at `base_offset`."""
        delta = header.last_offset_delta
        batch = _BATCH.pack(last_sequence(header), delta, base_offset + delta, append_ms)
        self._add(header.producer_id, header.producer_epoch, batch)

    def _add(self, producer_id: int, epoch: int, batch: bytes) -> None:
        memory = self._memory
        with memory.lock:
            # It goes to the end of the dict: the longest silent producers come first.
            old = self.producers.pop(producer_id, None)
            if old is None:
                memory.held_bytes += PRODUCER_BYTES
                memory.states[self] = None
                new = _EPOCH.pack(epoch) + batch
            else:
                memory.held_bytes -= len(old)
                older = old[_EPOCH.size :][-_OLDER_BYTES:] if _unpack_epoch(old)[0] == epoch else b""
                new = _EPOCH.pack(epoch) + older + batch
            self.producers[producer_id] = new
            memory.held_bytes += len(new)
            if memory.held_bytes > memory.limit_bytes:
                memory.make_room()

    def oldest_ms(self) -> int:
        """Return when the longest silent producer sent last. Call with the lock held."""
        return _last_append_ms(next(iter(self.producers.values())))

    def forget_oldest(self, count: int, before_ms: int | None = None) -> int:
        """Forget up to `count` producers, the longest silent first; return how many. Call with the lock held.

        With `before_ms`, producers that have sent since then stay.
        """
        gone = []
        for producer_id, producer in islice(self.producers.items(), count):
            if before_ms is not None and _last_append_ms(producer) >= before_ms:
                break
            gone.append(producer_id)
        for producer_id in gone:
            self._memory.held_bytes -= PRODUCER_BYTES + len(self.producers.pop(producer_id))
        if not self.producers:
            self._memory.states.pop(self, None)
        return len(gone)

    def expire(self, before_ms: int) -> None:
        """Forget the producers that have sent nothing since, some at a time."""
        while self.producers:
            with self._memory.lock:
                if self.forget_oldest(_AT_ONCE, before_ms) < _AT_ONCE:
                    return

    def clear(self) -> None:
        """Forget all producers."""
        with self._memory.lock:
            self.forget_oldest(len(self.producers))

    def copy(self) -> Producers:
        """Return the producers as they are now, for `encode` on any thread."""
        with self._memory.lock:
            return self.producers.copy()

    def senders(self) -> list[Sender]:
        """Return the producers as they are now, the longest silent first."""
        found = []
        for producer_id, producer in self.copy().items():
            *_, last = batches_of(producer)
            found.append(Sender(producer_id, epoch_of(producer), last))
        return found

    def restore(self, data: bytes) -> bool:
        """Replace the producers by those of a snapshot; False if it is damaged or of another version: then by none."""
        self.clear()
        rows = decode(data)
        # By offset: append times may be bounds, so an earlier batch may have a later time.
        for producer_id, epoch, batch in sorted(rows or (), key=lambda row: row[2].last_offset):
            delta = batch.last_offset - batch.base_offset
            packed = _BATCH.pack(batch.last_sequence, delta, batch.last_offset, batch.append_ms)
            self._add(producer_id, epoch, packed)
        return rows is not None


def encode(producers: Producers) -> bytes:
    """Return a snapshot: a row for each batch, oldest first. Kafka keeps one batch of a producer: the last."""
    body = bytearray(_HEAD.size - _CRC_FROM)
    count = 0
    for producer_id, producer in producers.items():
        epoch = epoch_of(producer)
        for last, delta, last_offset, append_ms in _BATCH.iter_unpack(producer[_EPOCH.size :]):
            body += _ROW.pack(
                producer_id, epoch, last, last_offset, delta, append_ms, _NO_COORDINATOR, _NO_TRANSACTION
            )
            count += 1
    body[: _HEAD.size - _CRC_FROM] = _HEAD.pack(SNAPSHOT_VERSION, 0, count)[_CRC_FROM:]
    return _HEAD.pack(SNAPSHOT_VERSION, crc32c(body), 0)[:_CRC_FROM] + body


def decode(data: bytes) -> list[tuple[int, int, SentBatch]] | None:
    """Return the (producer id, epoch, batch) of a snapshot; None if it is torn, damaged or of another version."""
    if fault(data) is not None:
        return None
    _, _, count = _HEAD.unpack_from(data)
    rows = [_ROW.unpack_from(data, _HEAD.size + number * _ROW.size) for number in range(count)]
    return [
        (
            producer_id,
            epoch,
            SentBatch((last - delta) & SEQUENCE_MAX, last, last_offset - delta, last_offset, append_ms),
        )
        for producer_id, epoch, last, last_offset, delta, append_ms, _, _ in rows
        # Kafka keeps a producer whose batches are all gone; it may start anywhere again.
        if last_offset >= 0
    ]


def fault(data: bytes) -> str | None:
    """Return what is wrong with a snapshot; None if it is as it was written."""
    if is_torn(data):
        return f"ends after {len(data)} bytes, before its last row"
    version, crc, _ = _HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        return f"its version is {version}, not {SNAPSHOT_VERSION}"
    return None if crc == crc32c(data[_CRC_FROM:]) else "does not match its checksum"


def is_torn(data: bytes) -> bool:
    """Tell whether a snapshot ends before the rows that it says it has."""
    return len(data) < _HEAD.size or len(data) < _HEAD.size + _HEAD.unpack_from(data)[2] * _ROW.size
