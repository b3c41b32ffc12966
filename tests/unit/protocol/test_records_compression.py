"""The codecs: what Kafka's clients write can be read, and what we write can be read by them."""

import gzip
import io
import os
import subprocess
import sys
import tracemalloc

import lz4.frame  # type: ignore[import-untyped]
import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from kafka import codec as kafka_codec

from tidelog.protocol.records.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    gathered,
    stream,
)
from tidelog.protocol.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec

LIMIT = 1 << 24
DATA = os.urandom(1000) + b"tide and time wait for no one " * 5000
XERIAL = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"


def zstd_stream(data: bytes) -> bytes:
    """Compress as Java does: a frame that does not say how much is in it."""
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("data", [b"a", DATA, bytes(1 << 20)], ids=["a", "mixed", "zeros"])
def test_what_goes_in_comes_out(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, LIMIT) == data
    assert decompress(codec, memoryview(packed), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (GZIP, gzip.compress(DATA, mtime=0)),
        (GZIP, kafka_codec.gzip_encode(DATA)),
        (SNAPPY, snappy.compress(DATA)),  # librdkafka sends one raw block
        (SNAPPY, kafka_codec.snappy_encode(DATA, xerial_compatible=True)),
        (SNAPPY, kafka_codec.snappy_encode(DATA, xerial_compatible=True, xerial_blocksize=1024)),
        (LZ4, lz4.frame.compress(DATA, store_size=False)),
        (
            LZ4,
            lz4.frame.compress(
                DATA, block_linked=True, content_checksum=True, block_size=lz4.frame.BLOCKSIZE_MAX4MB
            ),
        ),
        (LZ4, kafka_codec.lz4_encode(DATA)),
        (ZSTD, zstd_stream(DATA)),
        (ZSTD, zstandard.ZstdCompressor(level=22).compress(DATA)),
        (ZSTD, kafka_codec.zstd_encode(DATA)),
    ],
)
def test_S61_what_clients_write_can_be_read(codec: int, packed: bytes) -> None:
    assert decompress(codec, packed, len(DATA)) == DATA
    with pytest.raises(BatchTooLarge, match=r"max\.decompressed\.bytes"):
        decompress(codec, packed, len(DATA) - 1)


@pytest.mark.parametrize(
    ("codec", "decode"),
    [
        (GZIP, kafka_codec.gzip_decode),
        (SNAPPY, kafka_codec.snappy_decode),
        (LZ4, kafka_codec.lz4_decode),
        (ZSTD, kafka_codec.zstd_decode),
    ],
)
def test_what_we_write_clients_can_read(codec: int, decode: object) -> None:
    assert callable(decode)
    assert decode(compress(codec, DATA)) == DATA


def test_lz4_blocks_stand_alone_for_the_java_reader() -> None:
    flags = compress(LZ4, DATA)[4]
    assert flags & 0x20


@pytest.mark.parametrize("level", [1, 22])
@pytest.mark.parametrize("size_bytes", [1, 1 << 17, (1 << 17) + 1, 5 << 20])
def test_zstd_frames_of_every_shape(level: int, size_bytes: int) -> None:
    data = os.urandom(size_bytes // 2) + bytes(size_bytes - size_bytes // 2)
    with zstandard.ZstdCompressor(level=level).stream_writer(buffer := io.BytesIO(), closefd=False) as writer:
        for start in range(0, size_bytes, 70_000):
            writer.write(data[start : start + 70_000])
            writer.flush()
    assert decompress(ZSTD, buffer.getvalue(), size_bytes) == data


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_every_cut_is_corrupt(codec: int) -> None:
    packed = compress(codec, DATA[:3000])
    for end in range(len(packed)):
        if codec == SNAPPY and end == len(XERIAL):
            assert decompress(codec, packed[:end], LIMIT) == b""  # no blocks: nothing
            continue
        with pytest.raises(CorruptBatch, match="is not what"):
            decompress(codec, packed[:end], LIMIT)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("tail", [b"\0", b"tail"])
def test_what_lies_behind_the_stream_is_corrupt(codec: int, tail: bytes) -> None:
    for packed in (compress(codec, DATA), zstd_stream(DATA) if codec == ZSTD else compress(codec, b"a")):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed + tail, LIMIT)


def test_a_zstd_frame_too_large_is_told_from_a_damaged_one() -> None:
    packed = bytearray(zstd_stream(os.urandom(1 << 20)))
    with pytest.raises(BatchTooLarge):
        decompress(ZSTD, bytes(packed), (1 << 20) - 1)
    packed[1000] ^= 0xFF  # a raw block: its content checksum fails, at the end
    with pytest.raises(CorruptBatch):
        decompress(ZSTD, bytes(packed), 1 << 20)


def test_snappy_blocks_count_together() -> None:
    packed = compress(SNAPPY, bytes(100_000))
    with pytest.raises(BatchTooLarge):
        decompress(SNAPPY, packed, 99_999)


def test_codecs_are_imported_on_first_use() -> None:
    code = (
        "import sys, tidelog.protocol.records.validate as v;"
        "print([m for m in ('lz4', 'lz4.frame', 'snappy', 'zstandard', 'cramjam') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


CLIENTS = [
    (NONE, DATA),
    (GZIP, gzip.compress(DATA, mtime=0)),
    (SNAPPY, snappy.compress(DATA)),
    (SNAPPY, kafka_codec.snappy_encode(DATA, xerial_compatible=True, xerial_blocksize=1024)),
    (LZ4, lz4.frame.compress(DATA, store_size=False)),
    (LZ4, lz4.frame.compress(DATA, block_linked=True, content_checksum=True)),
]


def pieces_of(packed: bytes, size: int) -> list[memoryview]:
    return [memoryview(packed)[at : at + size] for at in range(0, len(packed), size)]


@pytest.mark.parametrize(("codec", "packed"), CLIENTS)
@pytest.mark.parametrize("size", [1, 3, 1000, 1 << 20])
def test_a_stream_gives_what_the_whole_does(codec: int, packed: bytes, size: int) -> None:
    assert b"".join(stream(codec, pieces_of(packed, size), len(DATA))) == DATA


@pytest.mark.parametrize(("codec", "packed"), CLIENTS[1:])
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_a_stream_is_refused_where_the_whole_is(codec: int, packed: bytes, size: int) -> None:
    with pytest.raises(BatchTooLarge):
        list(stream(codec, pieces_of(packed, size), len(DATA) - 1))
    spoiled = [packed[:-1], packed[: len(packed) // 2], b"", b"\0" * 40, packed + b"x", packed + b"\0" * 100]
    for wrong in spoiled:
        with pytest.raises(CorruptBatch):
            list(stream(codec, pieces_of(wrong, size), LIMIT))


def test_a_codec_without_a_stream_is_refused() -> None:
    with pytest.raises(UnsupportedCodec):
        list(stream(ZSTD, [compress(ZSTD, DATA)], LIMIT))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_stream_holds_little_however_much_it_gives(codec: int) -> None:
    packed = bytes(compress(codec, bytes(32 << 20)))
    tracemalloc.start()
    try:
        assert sum(map(len, stream(codec, [packed], 32 << 20))) == 32 << 20
        assert tracemalloc.get_traced_memory()[1] < len(packed) + (1 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_stream_is_cut_anew(size: int) -> None:
    found = list(gathered(pieces_of(DATA[:9000], 100), size))
    assert b"".join(found) == DATA[:9000]
    assert {len(piece) for piece in found[:-1]} <= {size}
    assert 0 < len(found[-1]) <= size
    assert list(gathered([], size)) == []
