"""The codecs of payloads in wrappers of format v0 and v1.

Unlike in batches, there is no zstd, and in v0 the checksum of an lz4 frame's header starts four bytes too early, which
brokers and clients of v0 require (KAFKA-3160). Both checksums are read in both formats, unless `strict`. As in Kafka,
frames are written without the size of their content.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.protocol.records import compression
from tidelog.protocol.records.batch import Buffer
from tidelog.protocol.records.errors import UnsupportedCodec

# Magic, flags, block size; then the size of the content if a flag is set, then the checksum.
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS_POSITION: Final = 4
_CHECKSUM_POSITION: Final = 6
_CONTENT_SIZE: Final = 0x08
_CONTENT_SIZE_BYTES: Final = 8

_MASK: Final = 0xFFFFFFFF
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def compress(codec: int, data: Buffer, magic: int, level: int | None = None) -> Buffer:
    """Compress the payload of a wrapper; UnsupportedCodec if the format does not have the codec."""
    check_codec(codec, magic)
    if codec != compression.LZ4:
        return compression.compress(codec, data, level)
    import lz4.frame  # type: ignore[import-untyped]

    # Readers of that time accept neither linked blocks nor, in v0, the size of the content.
    frame: bytes = lz4.frame.compress(
        data, compression_level=level or 0, block_linked=False, store_size=False
    )
    return frame if magic else _with_checksum(frame, _CHECKSUM_POSITION, 0)


def decompress(codec: int, data: Buffer, magic: int, limit_bytes: int, *, strict: bool = False) -> Buffer:
    """Decompress the payload of a wrapper; see compression.decompress.

    With `strict`, a frame in v1 with the checksum of v0 is a CorruptBatch too.
    """
    check_codec(codec, magic)
    if codec == compression.LZ4 and not (strict and magic):
        data = _mended(data, magic)
    return compression.decompress(codec, data, limit_bytes)


def stream(codec: int, pieces: Iterable[Buffer], magic: int, limit_bytes: int) -> Iterator[Buffer]:
    """Decompress a payload from pieces; the first must have the frame's header. See compression.stream."""
    check_codec(codec, magic)
    if codec == compression.LZ4:
        pieces = _first_mended(iter(pieces), magic)
    return compression.stream(codec, pieces, limit_bytes)


def _first_mended(pieces: Iterator[Buffer], magic: int) -> Iterator[Buffer]:
    for first in pieces:
        yield _mended(first, magic)
        break
    yield from pieces


def check_codec(codec: int, magic: int) -> None:
    """Raise UnsupportedCodec if the format does not have the codec."""
    if codec > compression.LZ4:
        name = "zstd" if codec == compression.ZSTD else f"codec {codec}"
        raise UnsupportedCodec(
            f"a message of format v{magic} is never compressed with {name}: 0 to 3, no more"
        )


def _mended(frame: Buffer, magic: int) -> Buffer:
    """Return a frame with the right checksum of its header if it has the wrong one; in v0 always."""
    if bytes(frame[:_FLAGS_POSITION]) != _LZ4_MAGIC or len(frame) == _FLAGS_POSITION:
        return frame
    at = _CHECKSUM_POSITION + (_CONTENT_SIZE_BYTES if frame[_FLAGS_POSITION] & _CONTENT_SIZE else 0)
    if at >= len(frame) or frame[at] == _checksum(frame[_FLAGS_POSITION:at]):
        return frame
    if magic and frame[at] != _checksum(frame[:at]):
        return frame
    return _with_checksum(frame, at, _FLAGS_POSITION)


def _with_checksum(frame: Buffer, position: int, start: int) -> bytes:
    """Set the checksum at position, of the bytes from start to there."""
    return b"".join((frame[:position], bytes((_checksum(frame[start:position]),)), frame[position + 1 :]))


def _checksum(header: Buffer) -> int:
    return _xxh32(bytes(header)) >> 8 & 0xFF


def _xxh32(data: bytes) -> int:
    """Hash less than 16 bytes, with seed 0, by xxHash's specification; not worth a dependency."""
    value = _PRIMES[4] + len(data)
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        value += int.from_bytes(data[at : at + 4], "little") * _PRIMES[2]
        value = _rotated(value, 17) * _PRIMES[3]
    for byte in data[words:]:
        value = _rotated(value + byte * _PRIMES[4], 11) * _PRIMES[0]
    value &= _MASK
    value = (value ^ value >> 15) * _PRIMES[1] & _MASK
    value = (value ^ value >> 13) * _PRIMES[2] & _MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return value << bits & _MASK | value >> (32 - bits)
