"""The records that client tests send and expect back: every shape a record may have, the same every time.

Owns: the records and their comparison form. Refuses to know: any client.
"""

from typing import NamedTuple

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = 1_700_000_000_000
STEP_MS = 10
# Kafka's default of max.message.bytes, and what a batch of one record without a key adds to a value near it.
MAX_BATCH_BYTES = 1_048_588
LONE_RECORD_OVERHEAD_BYTES = 72


class Sample(NamedTuple):
    """One record as a producer gives it and a consumer gets it."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def samples(count: int, name: str = "", first: int = 0) -> list[Sample]:
    """Return `count` records, of which some lack a key or a value, and some have them empty."""
    return [_sample(name, number) for number in range(first, first + count)]


def _sample(name: str, number: int) -> Sample:
    key = {0: None, 1: b""}.get(number % 7, f"key {name} {number}".encode())
    # Never null together with the key: some clients refuse to send such a record.
    value = {3: None, 4: b""}.get(number % 7, f"value {name} {number} ".encode() * (1 + number % 20))
    headers = tuple((f"header ü {i}", bytes([number % 256]) * i) for i in range(number % 4))
    return Sample(START_MS + number * STEP_MS, key, value, headers)
