"""Store a batch in the codec of its topic: compress its records again, and change nothing else of it.

Owns what `compression.type` means for a batch that was found valid. Knows nothing of logs. Invariant: the records,
their offsets, times and headers, the producer's id, epoch and sequence, and every attribute but the codec stay as they
were sent; a batch that is of the codec already stays byte for byte.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.protocol.records import batch, build, compression
from tidelog.protocol.records.errors import BatchTooLarge
from tidelog.protocol.records.validate import Rules, ValidBatch

# What the option's values mean (BrokerCompressionType.java); "producer" is none of them.
_CODECS: Final = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
# Kafka takes its fast compressor for this level of lz4, its default, and the slow one for all others
# (Lz4BlockOutputStream.java). The library's number for that is 0.
_LZ4_FAST: Final = 9
# The highest levels that are used, up to so many bytes of records and beyond: those above them take up to 5 s and, of
# zstd, hundreds of megabytes for what these do in some hundredths of a second, whenever a client sends what suits them
# badly. Half a second a megabyte at most, and beyond the first a tenth of that.
_SMALL_BYTES: Final = 1 << 20
_HIGHEST: Final = {compression.GZIP: 6, compression.LZ4: 8, compression.ZSTD: 12}
_HIGHEST_OF_LARGE: Final = {compression.GZIP: 4, compression.LZ4: 4, compression.ZSTD: 9}
_GZIP_USUAL: Final = 6  # what zlib makes of -1


class Target(NamedTuple):
    """The codec that batches are to have, and its level as `compression.compress` takes it."""

    codec: int
    level: int | None


def target(compression_type: str, levels: Mapping[str, int]) -> Target | None:
    """Return what a value of `compression.type` asks for; None where batches stay as they come."""
    if compression_type == "producer":
        return None
    level = levels.get(compression_type)
    if compression_type == "lz4" and level == _LZ4_FAST:
        level = 0
    return Target(_CODECS[compression_type], level)


def level_for(wanted: Target, size_bytes: int) -> int | None:
    """Return the level at which so many bytes of records are compressed: the wanted one, or what is affordable."""
    level = _GZIP_USUAL if wanted == (compression.GZIP, -1) else wanted.level
    highest = (_HIGHEST if size_bytes <= _SMALL_BYTES else _HIGHEST_OF_LARGE).get(wanted.codec)
    return level if level is None or highest is None else min(level, highest)


def recompress(
    data: bytearray | memoryview, valid: ValidBatch, wanted: Target, rules: Rules
) -> tuple[bytearray | memoryview, ValidBatch]:
    """Return a batch that `validate` has passed in the wanted codec, and what is true of it then.

    BatchTooLarge where it has outgrown its topic's limit. data is not changed.
    """
    header = valid.header
    if header.codec == wanted.codec:
        return data, valid
    packed = memoryview(data)[batch.HEADER_BYTES :]
    records = compression.decompress(header.codec, packed, rules.max_decompressed_bytes)
    payload = compression.compress(wanted.codec, records, level_for(wanted, len(records)))
    del records  # as large as a batch may be, and not needed while its copy is made
    size = batch.HEADER_BYTES + len(payload)
    if size > rules.max_batch_bytes:
        raise BatchTooLarge(
            f"a batch of {valid.size_bytes} bytes, {size} as {compression.NAMES[wanted.codec]}, the topic's "
            f"compression.type; max.message.bytes is {rules.max_batch_bytes}"
        )
    attributes = header.attributes & ~batch.CODEC_MASK | wanted.codec
    made = build.signed(header._replace(attributes=attributes), payload)
    return made, valid._replace(header=batch.read_header(made), size_bytes=size)
