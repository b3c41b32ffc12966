"""Topics whose records have known times, written fast: a few patterns of batches, sent again and again, ever later.

Times in a batch are relative to its base timestamp, which lies outside of what is compressed: a pattern is made, and
compressed, once, and only its header changes.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from bench.wire import Wire
from tidelog.protocol.records.build import Record, build_batch

REQUESTS_AHEAD = 50
RECORDS_OF_PATTERNS = 40_000  # in all patterns of a topic together
LATE_MAX_MS = 3_600_000
STEP_MS = 1  # between a record and the next

Times = NDArray[np.int64]


class Filled(NamedTuple):
    """A topic's times: of all records in the order of their offsets, and where the first batch begins."""

    times: Times
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class Shape:
    """How the records of a topic lie in batches and in time."""

    records_a_batch: int = 100
    late: float = 0.0  # this part of the records is late, up to an hour
    late_max_ms: int = LATE_MAX_MS
    codec: int = 0
    value_bytes: int = 100

    def patterns(self, rng: np.random.Generator) -> list[tuple[bytearray, Times]]:
        """Return batches and the times of their records, from the first record's time on."""
        made = []
        for _ in range(max(4, RECORDS_OF_PATTERNS // self.records_a_batch)):
            times = np.arange(self.records_a_batch, dtype=np.int64) * STEP_MS
            is_late = rng.random(self.records_a_batch) < self.late
            times[is_late] -= rng.integers(1, self.late_max_ms, is_late.sum())
            records = [
                Record(i, LATE_MAX_MS + int(t), None, self._value(rng), ()) for i, t in enumerate(times)
            ]
            made.append((bytearray(build_batch(records, base_offset=0, codec=self.codec)), times - times[0]))
        return made

    def _value(self, rng: np.random.Generator) -> bytes:
        """Return something like what people log."""
        user, trace = rng.integers(1_000_000), rng.bytes(self.value_bytes).hex()
        return f'{{"user":"u{user:06}","event":"view","ok":true,"trace":"{trace}"}}'.encode()[
            : self.value_bytes
        ]


def fill(wire: Wire, topic: str, shape: Shape, records: int, rng: np.random.Generator) -> Filled:
    """Produce so many records, the last of them now."""
    patterns = shape.patterns(rng)
    batches = -(-records // shape.records_a_batch)
    span_ms = shape.records_a_batch * STEP_MS
    start_ms = base = int(time.time() * 1000) - batches * span_ms
    in_flight, all_times = 0, []
    for _ in range(batches):
        data, times = patterns[int(rng.integers(len(patterns)))]
        data[27:35] = base.to_bytes(8, "big", signed=True)
        data[35:43] = (base + int(times.max())).to_bytes(8, "big", signed=True)
        data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
        wire.send_batch(topic, data)
        in_flight += 1
        if in_flight == REQUESTS_AHEAD:
            wire.receive_ack()
            in_flight -= 1
        all_times.append(base + times)
        base += span_ms
    for _ in range(in_flight):
        wire.receive_ack()
    return Filled(np.concatenate(all_times), start_ms, base)


def scan(times: Times, wanted: Times) -> list[int]:
    """Return what a scan from the first record finds: the first offset at or after each time, or -1."""
    largest_so_far = np.maximum.accumulate(times)
    found = np.searchsorted(largest_so_far, wanted, side="left")
    return [int(offset) if offset < len(times) else -1 for offset in found]
