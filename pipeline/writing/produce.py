"""Records that a task sends, each acknowledged before the task is done.

Owns the client that sends, how much may be under way, and what is said of a record that the broker refuses. Invariant:
`finish` returns only if every record was acknowledged by a broker with all that it promises, else it raises. Records of
a task to one partition keep their order, and a request that is sent again is not appended again (an idempotent
producer). Knows nothing of Spark.
"""

import time
from collections import deque
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kafka import KafkaProducer
from kafka.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from kafka.serializer import Serializer

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.writing import target

# Of a task so much is under way at most, or one record if it is larger: a broker is busy, memory is bounded.
UNDER_WAY_BYTES: Final = 16 << 20
_A_RECORD_BYTES: Final = 1_000  # what the client keeps of each, besides its bytes
_DELIVERY_S: Final = 120  # until then a request is sent again, as when a broker starts anew
_ANSWER_MS: Final = 10_000
_ABANDON_S: Final = 5

_ADVICE: Final[dict[type[Exception], str]] = {
    MessageSizeTooLargeError: "it is larger than the topic takes: raise max.message.bytes of the topic",
    InvalidTimestampError: "the topic refuses its timestamp: see message.timestamp.before.max.ms and after.max.ms",
    InvalidRecordError: "the topic refuses it: a compacted topic wants a key in each record",
    KafkaTimeoutError: f"no broker took it in {_DELIVERY_S} s: is it running?",
}


class Record(NamedTuple):
    """What is sent; `place` says which row of which task it was."""

    place: str
    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None  # None for now


class _Values(Serializer):  # type: ignore[misc]
    """Lets a record through that has neither key nor value, which the client takes for a mistake."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> bytes | None:  # noqa: ARG002
        """Return the value."""
        return None if data is _NO_VALUE else data


_NO_VALUE: Final = object()


class Sender:
    """Sends the records of one task."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._partitions: dict[str, frozenset[int]] = {}
        self._under_way: deque[tuple[Record, int, Any]] = deque()
        self._bytes = 0
        self.sent = 0
        self.oldest_ms: dict[str, int] = {}  # by topic, of the records with a time of their own
        try:
            self._producer = KafkaProducer(
                bootstrap_servers=address,
                enable_idempotence=True,
                value_serializer=_Values(),
                allow_auto_create_topics=False,  # a name that is mistyped makes no topic
                bootstrap_timeout_ms=_ANSWER_MS,
                delivery_timeout_ms=_DELIVERY_S * 1000,
                request_timeout_ms=_DELIVERY_S * 250,  # so a request that is lost is sent again
                batch_size=256 << 10,
                linger_ms=5,
                max_request_size=100 << 20,  # how large a record may be the broker says
            )
        except KafkaError as error:
            raise PipelineError(
                f"no broker answers at {address} ({type(error).__name__}: {error}); is it running?"
            ) from error

    def send(self, record: Record) -> None:
        """Send one, and wait where too much is under way; PipelineError of this or an earlier one that was refused."""
        self._check(record)
        try:
            future = self._producer.send(
                record.topic,
                _NO_VALUE if record.value is None else record.value,
                record.key,
                list(record.headers),
                record.partition,
                record.timestamp_ms,
            )
        except (KafkaError, ValueError, TypeError) as error:
            raise self._refused(record, error) from error
        at_ms = record.timestamp_ms
        if at_ms is not None:
            self.oldest_ms[record.topic] = min(at_ms, self.oldest_ms.get(record.topic, at_ms))
        size = _A_RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
        size += sum(len(key) + len(value) for key, value in record.headers)
        self._under_way.append((record, size, future))
        self._bytes += size
        while self._bytes > UNDER_WAY_BYTES:
            self._settle()

    def finish(self) -> None:
        """Return when all are acknowledged; PipelineError where one is not."""
        # Not by the client's `flush`, which fails where it cuts a batch that is too large for the topic in two.
        while self._under_way:
            self._settle()
        self._producer.close()

    def abandon(self) -> None:
        """Let go of what is under way: it may be appended or not; later it is not, if a broker answers."""
        give_up = time.monotonic() + _ABANDON_S
        for _, _, future in self._under_way:
            with suppress(KafkaError):
                future.get(timeout=max(0.0, give_up - time.monotonic()))
        # `close` gives up where a record is still under way, and leaves a thread that sends on.
        self._producer._sender.force_close()
        self._producer._sender.join(_ABANDON_S)
        self._producer.close(timeout=0)

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

    def _settle(self) -> None:
        """Wait for the record that was sent first."""
        record, size, future = self._under_way.popleft()
        try:
            future.get(timeout=_DELIVERY_S + 30)
        except KafkaError as error:
            raise self._to_blame(record, error) from error
        self._bytes -= size
        self.sent += 1

    def _to_blame(self, record: Record, error: Exception) -> PipelineError:
        """Return what to say: of a batch that is refused whole, the record for which it was."""
        if type(error) is KafkaError:  # so the client marks those that came with a wrong one
            for other, _, future in self._under_way:
                if future.is_done and future.failed() and type(future.exception) is not KafkaError:
                    return self._refused(other, future.exception)
        return self._refused(record, error)

    def _refused(self, record: Record, error: Exception) -> PipelineError:
        to = record.topic if record.partition is None else f"{record.topic}-{record.partition}"
        advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), "")
        return PipelineError(
            f"{record.place}: not written to {to} at {self._address}: {type(error).__name__}: {error}"
            + (f"; {advice}" if advice else "")
        )
