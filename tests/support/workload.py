"""The records that client tests send and expect back: every shape a record may have, the same every time.

Owns: the records, batches of them, and ways to spoil a batch. Refuses to know: any client.
"""

import itertools
import os
from typing import NamedTuple

from crc32c import crc32c

from tidelog.protocol.records import batch
from tidelog.protocol.records.build import Record, build_batch

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = 1_700_000_000_000
STEP_MS = 10
# Kafka's default of max.message.bytes, and what a batch of one record without a key adds to a value near it.
MAX_BATCH_BYTES = 1_048_588
LONE_RECORD_OVERHEAD_BYTES = 72

_serial = itertools.count()


def unique_topic(test_name: str) -> str:
    """Return a topic name that no other test of this run uses."""
    return f"{test_name.replace('_', '-')[:60]}-{os.getpid()}-{next(_serial)}"


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


def one_batch(
    count: int,
    *,
    first_timestamp: int = START_MS,
    value_bytes: int = 10,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return one batch of `count` records; `producer` is its id, its epoch and the first sequence."""
    records = [Record(i, first_timestamp + i, b"key %d" % i, b"v" * value_bytes) for i in range(count)]
    producer_id, epoch, sequence = producer
    return build_batch(
        records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def damaged(data: bytes, **fields: int) -> bytes:
    """Return a batch with header fields replaced, and a checksum that is right all the same."""
    header = batch.read_header(data)._replace(**fields)
    changed = bytearray(batch.HEADER.pack(*header) + data[batch.HEADER_BYTES :])
    if "crc" not in fields:
        crc = crc32c(memoryview(changed)[batch.ATTRIBUTES_POSITION :])
        changed[batch.CRC_POSITION : batch.ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(changed)
