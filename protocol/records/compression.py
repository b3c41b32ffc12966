"""The four codecs, with a bound on the decompressed size.

`decompress` uses at most about twice limit_bytes of memory, whatever the input claims (P26), and accepts exactly one
stream. Libraries are imported on first use.
"""

import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tidelog.protocol.records.errors import BatchTooLarge, CorruptBatch, UnsupportedCodec

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Buffer = bytes | bytearray | memoryview

_of_thread = threading.local()

# zlib's number for its largest window within a gzip wrapper.
_GZIP_WBITS: Final = 31
# The first chunk of a streaming decoder; each following one is twice as large.
_CHUNK_BYTES: Final = 128 << 10
# The input of a decoder at a time.
_SLICE_BYTES: Final = 32 << 10
# The window of zstd's highest level, which Java's decoder accepts. It takes no memory until a frame fills it.
_ZSTD_WINDOW_BYTES: Final = 128 << 20
# The largest window up to level 15. Making a decoder with its window takes a tenth of the time of decompressing.
_ZSTD_KEPT_WINDOW_BYTES: Final = 4 << 20
# RFC 8878: no block is larger when decompressed; a block of type RLE has one byte.
_ZSTD_BLOCK_BYTES: Final = 128 << 10
_ZSTD_RLE_BLOCK: Final = 1
# snappy-java's framing: magic, version 1, compatible from 1, then blocks, each after its int32 length.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES: Final = 32 << 10


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress data as Kafka's clients do; UnsupportedCodec for an unknown codec.

    level is that of the codec's library, None for its default; snappy has none.
    """
    if codec == NONE:
        return data
    if codec == GZIP:
        return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WBITS)
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        import lz4.frame  # type: ignore[import-untyped]

        # Java's reader rejects linked blocks.
        return bytes(lz4.frame.compress(data, compression_level=level or 0, block_linked=False))
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(3 if level is None else level).compress(data)
    raise _unsupported(codec)


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """Decompress one payload; BatchTooLarge above limit_bytes, CorruptBatch if it is damaged."""
    if codec == NONE:
        return data
    if codec in (GZIP, LZ4):
        return _decompress_frame(codec, data, limit_bytes)
    if codec == SNAPPY:
        return _joined(_stream_snappy((data,), limit_bytes))
    if codec == ZSTD:
        return _decompress_zstd(data, limit_bytes)
    raise _unsupported(codec)


def stream(codec: int, pieces: Iterable[Buffer], limit_bytes: int) -> Iterator[Buffer]:
    """Decompress one payload from pieces, and yield it in pieces; errors as in `decompress`, also at the end.

    zstd is not supported here, as no reader of older formats knows it. A snappy block is decompressed whole, and may be
    the whole payload if librdkafka wrote it; the others 128 KiB at a time.
    """
    if codec == NONE:
        yield from pieces
    elif codec in (GZIP, LZ4):
        yield from _bounded(codec, _stream_frame(codec, _slices(pieces), _CHUNK_BYTES), limit_bytes)
    elif codec == SNAPPY:
        yield from _stream_snappy(pieces, limit_bytes)
    else:
        raise _unsupported(codec)


def _bounded(codec: int, pieces: Iterable[bytes], limit_bytes: int) -> Iterator[bytes]:
    left = limit_bytes
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise _too_large(codec, limit_bytes)
        yield piece


def gathered(pieces: Iterable[Buffer], size_bytes: int) -> Iterator[bytes]:
    """Regroup a stream into pieces of one size, and the rest."""
    held = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        while view:
            missing = size_bytes - len(held)
            held += view[:missing]
            view = view[missing:]
            if len(held) == size_bytes:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


def _slices(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    """Cut pieces into small slices, as a decoder copies the rest of its input on each call."""
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), _SLICE_BYTES):
            yield view[at : at + _SLICE_BYTES]


def _stream_frame(codec: int, pieces: Iterable[Buffer], chunk_bytes: int) -> Iterator[bytes]:
    """Decompress exactly one frame of gzip or lz4, at most chunk_bytes at a time."""
    decoder: Any
    if codec == GZIP:
        decoder = zlib.decompressobj(wbits=_GZIP_WBITS)
    else:
        import lz4.frame

        decoder = lz4.frame.LZ4FrameDecompressor()
    try:
        for piece in pieces:
            if decoder.eof:
                raise _left_over(codec)
            out = decoder.decompress(piece, chunk_bytes)
            while out:
                yield out
                # The decoder may have more output even without input.
                rest = decoder.unconsumed_tail if codec == GZIP else b""
                out = b"" if decoder.eof else decoder.decompress(rest, chunk_bytes)
    except (zlib.error, RuntimeError) as error:
        raise _corrupt(codec, str(error)) from error
    if not decoder.eof:
        raise _cut_short(codec)
    if decoder.unused_data:
        raise _left_over(codec)


def _decompress_frame(codec: int, data: Buffer, limit_bytes: int) -> bytes:
    # The decoder of lz4 allocates the size that it is asked for, so ask for a usual one.
    chunk_bytes = min(limit_bytes + 1, max(_CHUNK_BYTES, 4 * len(data)))
    return _joined(_bounded(codec, _stream_frame(codec, (data,), chunk_bytes), limit_bytes))


def _joined(pieces: Iterable[bytes]) -> bytes:
    """Join pieces; a single one is not copied."""
    parts = list(pieces)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_snappy(data: Buffer) -> bytes:
    """Frame raw snappy blocks like snappy-java, which every client can read."""
    import snappy  # type: ignore[import-untyped]

    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(data[start : start + _XERIAL_BLOCK_BYTES])
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _stream_snappy(pieces: Iterable[Buffer], limit_bytes: int) -> Iterator[bytes]:
    """Decompress snappy-java's blocks, or one raw block as librdkafka sends it.

    The decoder allocates the size in a block's header, so that is checked first.
    """
    import snappy

    left = limit_bytes
    for block in _snappy_blocks(_slices(pieces)):
        size = shift = 0
        for byte in block[:5]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if size > left:
            raise _too_large(SNAPPY, limit_bytes)
        if size == 0:
            # No client writes them, and a megabyte of them would take a second to read.
            raise _corrupt(SNAPPY, "a block is empty")
        try:
            yield snappy.uncompress(block)
        except snappy.UncompressError as error:
            raise _corrupt(SNAPPY, "a block does not decompress") from error
        left -= size


def _snappy_blocks(slices: Iterable[memoryview]) -> Iterator[bytes]:
    held = bytearray()
    is_framed = False
    for part in slices:
        held += part
        if not is_framed and len(held) >= len(_XERIAL_HEADER) and held.startswith(_XERIAL_MAGIC):
            is_framed = True
            del held[: len(_XERIAL_HEADER)]
        while is_framed and 4 <= len(held) >= (end := 4 + int.from_bytes(held[:4], "big")):
            yield bytes(held[4:end])
            del held[:end]
    if is_framed and held:
        raise _corrupt(SNAPPY, "a block's length leads past the end")
    if held.startswith(_XERIAL_MAGIC):
        raise _cut_short(SNAPPY)
    if not is_framed:
        yield bytes(held)


def _zstd_decoder(window_bytes: int) -> "ZstdDecompressor":
    """Return a decoder: usually the thread's own, with its window; a very large window is not kept."""
    import zstandard

    if window_bytes > _ZSTD_KEPT_WINDOW_BYTES:
        return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    decoder: ZstdDecompressor | None = getattr(_of_thread, "zstd_decoder", None)
    if decoder is None:
        decoder = _of_thread.zstd_decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    return decoder


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    import zstandard

    try:
        frame = zstandard.get_frame_parameters(data)
        header_bytes = zstandard.frame_header_size(data)
    except zstandard.ZstdError as error:
        raise _corrupt(ZSTD, str(error)) from error
    # The decoder allocates the size in the header; without one, at most that of the blocks.
    size = _most_of_zstd_blocks(data, header_bytes, 4 if frame.has_checksum else 0)
    if frame.content_size != zstandard.CONTENTSIZE_UNKNOWN:
        size = frame.content_size
        if size > limit_bytes:
            raise _too_large(ZSTD, limit_bytes)
    decoder = _zstd_decoder(frame.window_size)
    try:
        return decoder.decompress(data, max_output_size=min(size, limit_bytes))
    except zstandard.ZstdError as error:
        if size > limit_bytes and _gives_more(decoder, data, limit_bytes):
            raise _too_large(ZSTD, limit_bytes) from error
        raise _corrupt(ZSTD, str(error)) from error


def _most_of_zstd_blocks(data: Buffer, at: int, checksum_bytes: int) -> int:
    """Walk a frame's block headers to its end, which must be that of data; return the largest possible size.

    zstandard's one-shot decoder does not notice bytes after a frame of unknown size, which readers fail on.
    """
    size = len(data)
    most = 0
    last = False
    while not last:
        header = int.from_bytes(data[at : at + 3], "little")
        last, kind, block_bytes = bool(header & 1), header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == _ZSTD_RLE_BLOCK else block_bytes)
        if at > size:
            raise _cut_short(ZSTD)
        most += _ZSTD_BLOCK_BYTES
    if at + checksum_bytes != size:
        raise _corrupt(ZSTD, "the frame does not end where the payload does")
    return most


def _gives_more(decoder: "ZstdDecompressor", data: Buffer, limit_bytes: int) -> bool:
    """Decompress again in chunks, to distinguish a frame that is too large from a damaged one."""
    import zstandard

    total = 0
    reader = decoder.stream_reader(data)
    with suppress(zstandard.ZstdError):
        while total <= limit_bytes and (part := reader.read(_CHUNK_BYTES)):
            total += len(part)
    return total > limit_bytes


def _unsupported(codec: int) -> UnsupportedCodec:
    return UnsupportedCodec(
        f"compression codec {codec} does not exist; it is 0 to {ZSTD}: {', '.join(NAMES)}"
    )


def _too_large(codec: int, limit_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"a {NAMES[codec]} payload gives more than {limit_bytes} bytes, max.decompressed.bytes; "
        "send fewer or smaller records in a batch"
    )


def _corrupt(codec: int, reason: str) -> CorruptBatch:
    return CorruptBatch(f"the payload is not what {NAMES[codec]} writes: {reason}")


def _cut_short(codec: int) -> CorruptBatch:
    return _corrupt(codec, "it is cut short")


def _left_over(codec: int) -> CorruptBatch:
    return _corrupt(codec, "bytes are left over after it")
