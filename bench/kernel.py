"""The record kernel, compiled and interpreted, and what it costs to validate a batch: `python -m bench.kernel`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.codec import median_us
from tests.support.kernels import INSTALLED, INTERPRETED
from tidelog.protocol.records.batch import HEADER_BYTES
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.validate import Rules, validate

NOW_MS = 1_700_000_000_000
RECORDS = 5_000
RULES = Rules(
    log_append_time=False,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=3_600_000,
    max_batch_bytes=1 << 20,
    max_decompressed_bytes=64 << 20,
)


@dataclass(frozen=True)
class Shape:
    """A batch of records of one kind."""

    name: str
    count: int
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def build(self) -> memoryview:
        """Build it as a produce request would bring it, in a writable view."""
        records = [
            Record(index, NOW_MS + index * 3 % 1000, self.key, b"x" * 100, self.headers)
            for index in range(self.count)
        ]
        return memoryview(bytearray(build_batch(records)))


SHAPES = (
    Shape("100 B, no key", RECORDS),
    Shape("100 B, key of 16", RECORDS, b"k" * 16),
    Shape("100 B, key, 2 headers", RECORDS, b"k" * 16, (("trace", b"0123456789"), ("v", None))),
)


def kernels() -> Iterator[tuple[str, Any]]:
    """Give both, or the one that there is."""
    if INSTALLED.COMPILED:
        yield "compiled", INSTALLED
    yield "interpreted", INTERPRETED


def scan_ns(kernel: Any, shape: Shape, with_columns: bool) -> float:
    """Give the median time of a walk, in nanoseconds a record."""
    data = shape.build()
    size, count = len(data), shape.count
    columns = kernel.Columns(count) if with_columns else None
    return median_us(lambda: kernel.scan(data, HEADER_BYTES, size, count, columns)) / count * 1000


def main() -> None:
    """Print medians of five."""
    one = Shape("one record of 100 B", 1)
    for name, kernel in kernels():
        print(f"{name}, ns a record:{'plain':>20}{'columns':>12}")
        for shape in SHAPES:
            print(
                f"  {shape.name:<26}{scan_ns(kernel, shape, False):>11.1f}{scan_ns(kernel, shape, True):>12.1f}"
            )
        print(
            f"  {'a call, one record':<26}{scan_ns(kernel, one, False):>11.0f}{scan_ns(kernel, one, True):>12.0f}"
        )
    running = "compiled" if INSTALLED.COMPILED else "interpreted"
    for shape in (one, SHAPES[0]):
        data = shape.build()
        took = median_us(partial(validate, data, RULES, NOW_MS))
        print(f"validate, {running}, {shape.count:>5} of 100 B: {took:.2f} us")


if __name__ == "__main__":
    main()
