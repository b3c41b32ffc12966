"""The records that client tests send and expect back: every shape a record may have, the same every time.

Owns: the records, batches of them, and ways to spoil a batch. Refuses to know: any client.
"""

import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import lz4.frame
import snappy
import zstandard
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


def bomb(codec: int, value_bytes: int) -> bytes:
    """Return a sound batch of one record whose value is so many zeros, compressed piece by piece."""
    record = b"\0\0\0\x01" + _varint(value_bytes)
    start = _varint(len(record) + value_bytes + 1) + record
    pieces = itertools.chain([start], itertools.repeat(_ZEROS, value_bytes // len(_ZEROS)), [b"\0"])
    assert value_bytes % len(_ZEROS) == 0
    payload = b"".join(_compressed(codec, pieces))
    hollow = build_batch([Record(0, START_MS, None, None)])
    size = batch.HEADER_BYTES - batch.PREFIX_BYTES + len(payload)
    return damaged(hollow[: batch.HEADER_BYTES] + payload, batch_length=size, attributes=codec)


_ZEROS = bytes(1 << 20)


def _varint(number: int) -> bytes:
    """Return a number that is not negative, zigzag, in groups of seven bits."""
    left, groups = number << 1, bytearray()
    while left > 0x7F:
        groups.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*groups, left])


def _compressed(codec: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    if codec == 1:
        packer = zlib.compressobj(9, wbits=31)
        yield from map(packer.compress, pieces)
        yield packer.flush()
    elif codec == 2:
        yield b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2
        for piece in pieces:
            block = snappy.compress(piece)
            yield len(block).to_bytes(4, "big") + block
    elif codec == 3:
        frame = lz4.frame.LZ4FrameCompressor()
        yield frame.begin()
        yield from map(frame.compress, pieces)
        yield frame.flush()
    else:
        zstd = zstandard.ZstdCompressor().compressobj()
        yield from map(zstd.compress, pieces)
        yield zstd.flush()
