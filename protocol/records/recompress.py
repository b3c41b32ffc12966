"""Compresses a valid batch again, in the codec of its topic (`compression.type`).

Only the codec changes: records, producer and the other attributes stay as they were sent. A batch that has the codec
already stays byte for byte.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.protocol.records import batch, build, compression
from tidelog.protocol.records.errors import BatchTooLarge
from tidelog.protocol.records.validate import Rules, ValidBatch

# The codecs of the option's values (BrokerCompressionType.java), except "producer".
_CODECS: Final = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
# For this level of lz4, the default, Kafka uses the fast compressor, and for all others the slow one
# (Lz4BlockOutputStream.java). In the library, the fast compressor is level 0.
_LZ4_FAST: Final = 9
# The highest levels that are used, up to a number of bytes of records, and above it. With bad input, higher levels take
# up to 5 s, and with zstd hundreds of megabytes, for little gain. These take at most 0.5 s for a megabyte, and a tenth
# of that for each further one.
_SMALL_BYTES: Final = 1 << 20
_HIGHEST: Final = {compression.GZIP: 6, compression.LZ4: 8, compression.ZSTD: 12}
_HIGHEST_OF_LARGE: Final = {compression.GZIP: 4, compression.LZ4: 4, compression.ZSTD: 9}
_GZIP_USUAL: Final = 6  # zlib's level for -1


class Target(NamedTuple):
    """The codec of stored batches, and its level for `compression.compress`."""

    codec: int
    level: int | None


def target(compression_type: str, levels: Mapping[str, int]) -> Target | None:
    """Return the codec of a value of `compression.type`; None if batches stay as they are sent."""
    if compression_type == "producer":
        return None
    level = levels.get(compression_type)
    if compression_type == "lz4" and level == _LZ4_FAST:
        level = 0
    return Target(_CODECS[compression_type], level)


def level_for(wanted: Target, size_bytes: int) -> int | None:
    """Return the level for a number of bytes of records: the wanted one, or a lower one that is fast enough."""
    level = _GZIP_USUAL if wanted == (compression.GZIP, -1) else wanted.level
    highest = (_HIGHEST if size_bytes <= _SMALL_BYTES else _HIGHEST_OF_LARGE).get(wanted.codec)
    return level if level is None or highest is None else min(level, highest)


def recompress(
    data: bytearray | memoryview, valid: ValidBatch, wanted: Target, rules: Rules
) -> tuple[bytearray | memoryview, ValidBatch]:
    """Return a valid batch in the wanted codec, and its description. data is not changed.

    BatchTooLarge if it is now larger than its topic's limit.
    """
    header = valid.header
    if header.codec == wanted.codec:
        return data, valid
    packed = memoryview(data)[batch.HEADER_BYTES :]
    records = compression.decompress(header.codec, packed, rules.max_decompressed_bytes)
    payload = compression.compress(wanted.codec, records, level_for(wanted, len(records)))
    del records  # large, and not needed for the next step
    size = batch.HEADER_BYTES + len(payload)
    if size > rules.max_batch_bytes:
        raise BatchTooLarge(
            f"a batch of {valid.size_bytes} bytes, {size} as {compression.NAMES[wanted.codec]}, the topic's "
            f"compression.type; max.message.bytes is {rules.max_batch_bytes}"
        )
    attributes = header.attributes & ~batch.CODEC_MASK | wanted.codec
    made = build.signed(header._replace(attributes=attributes), payload)
    return made, valid._replace(header=batch.read_header(made), size_bytes=size)
