"""What is remembered of idempotent producers: their epoch and their last five batches, and its snapshot file.

Owns the rule of sequence numbers, which is Kafka's: a batch follows the one before it, or is one of the last five and
then a duplicate, or is refused. A producer id that is not known may start anywhere, because what was known of it may
have expired with its records. A new epoch starts at sequence 0.

The state is a function of the batch headers, so that any snapshot and the headers behind it give it back.
"""

from collections import deque
from itertools import islice
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from tidelog.protocol.records.batch import BatchHeader
from tidelog.storage import files
from tidelog.storage.errors import InvalidProducerEpoch, OutOfOrderSequence

SUFFIX = ".snapshot"
SNAPSHOT_VERSION = 1
# What a producer may have in flight, and so may send again (KAFKA-5494).
REMEMBERED_BATCHES = 5
SEQUENCE_MAX = (1 << 31) - 1
_NO_COORDINATOR = _NO_TRANSACTION = -1

_HEAD = Struct(">hIi")
_ROW = Struct(">qhiqiqiq")
_CRC_FROM = 6


class SentBatch(NamedTuple):
    """A batch as its producer numbered it and the log stored it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_ms: int


class Producer:
    """One producer id: its epoch and its latest batches, oldest first."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        """Begin an epoch that has no batch yet."""
        self.epoch = epoch
        self.batches: deque[SentBatch] = deque(maxlen=REMEMBERED_BATCHES)


def last_sequence(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record; after 2^31 - 1 comes 0."""
    return (header.base_sequence + header.last_offset_delta) & SEQUENCE_MAX


class ProducerState:
    """The producers of one log."""

    __slots__ = ("producers",)

    def __init__(self) -> None:
        """Know nobody."""
        self.producers: dict[int, Producer] = {}

    def check(self, header: BatchHeader) -> SentBatch | None:
        """Return the batch that this one repeats, or None if it is next; raise if it is neither."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        first, last = header.base_sequence, last_sequence(header)
        if header.producer_epoch != producer.epoch:
            self._check_epoch(header, producer)
            return None
        for batch in producer.batches:
            if batch.base_sequence == first and batch.last_sequence == last:
                return batch
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        if first != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id}, epoch {producer.epoch}: sequence {first} came where {expected} is next"
            )
        return None

    def _check_epoch(self, header: BatchHeader, producer: Producer) -> None:
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id}: epoch {header.producer_epoch} is over, {producer.epoch} has begun"
            )
        if header.base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id}: epoch {header.producer_epoch} is new and starts at sequence 0, "
                f"not {header.base_sequence}"
            )

    def note(self, header: BatchHeader, base_offset: int, append_ms: int) -> None:
        """Remember a batch that was stored at `base_offset`."""
        producer = self.producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch)
        last_offset = base_offset + header.last_offset_delta
        producer.batches.append(
            SentBatch(header.base_sequence, last_sequence(header), base_offset, last_offset, append_ms)
        )

    def expire(self, before_ms: int) -> None:
        """Forget those who have sent nothing since."""
        for producer_id, producer in list(self.producers.items()):
            if producer.batches[-1].append_ms < before_ms:
                del self.producers[producer_id]

    def encode(self) -> bytes:
        """Return a snapshot: a row for each batch, oldest first, so that Kafka, which keeps one, keeps the last."""
        rows = [
            _ROW.pack(
                producer_id,
                producer.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.base_offset,
                batch.append_ms,
                _NO_COORDINATOR,
                _NO_TRANSACTION,
            )
            for producer_id, producer in self.producers.items()
            for batch in producer.batches
        ]
        body = b"".join([_HEAD.pack(SNAPSHOT_VERSION, 0, len(rows))[_CRC_FROM:], *rows])
        return _HEAD.pack(SNAPSHOT_VERSION, crc32c(body), 0)[:_CRC_FROM] + body

    @classmethod
    def decode(cls, data: bytes) -> "ProducerState | None":
        """Read a snapshot; None if it is torn, damaged or of another version."""
        try:
            version, crc, count = _HEAD.unpack_from(data)
            if version != SNAPSHOT_VERSION or crc != crc32c(data[_CRC_FROM:]):
                return None
            rows = [_ROW.unpack_from(data, _HEAD.size + number * _ROW.size) for number in range(count)]
        except error:
            return None
        state = cls()
        for producer_id, epoch, last, last_offset, delta, append_ms, _, _ in rows:
            if last_offset < 0:
                continue  # Kafka keeps a producer whose batches are all gone; it may start anywhere again.
            producer = state.producers.get(producer_id)
            if producer is None or producer.epoch != epoch:
                producer = state.producers[producer_id] = Producer(epoch)
            first = (last - delta) & SEQUENCE_MAX
            producer.batches.append(SentBatch(first, last, last_offset - delta, last_offset, append_ms))
        return state


def snapshot_path(folder: Path, offset: int) -> Path:
    """Return the path of the snapshot of all batches before an offset."""
    return folder / f"{offset:020d}{SUFFIX}"


def load_latest(folder: Path, offsets: list[int], end_offset: int) -> tuple[ProducerState, int | None]:
    """Return the newest good snapshot up to `end_offset`, and its offset or None; remove those of no use."""
    for offset in sorted(offsets, reverse=True):
        data = files.load(snapshot_path(folder, offset)) if offset <= end_offset else None
        state = ProducerState.decode(data) if data is not None else None
        if state is not None:
            return state, offset
        files.remove(snapshot_path(folder, offset))
    return ProducerState(), None


def drop_older(folder: Path, offsets: list[int], keep: int) -> list[int]:
    """Remove all snapshots but the newest `keep`; return the offsets of those that are left."""
    newest = sorted(offsets)
    for offset in islice(newest, max(0, len(newest) - keep)):
        files.remove(snapshot_path(folder, offset))
    return newest[-keep:]
