"""What a topic's options ask of a produced batch, and how much of that is looked at where it is appended.

Owns the choice of rules and of codec, and the bounds of what is prompt. Knows nothing of logs.
"""

import dataclasses

from tidelog.config.options import TopicConfig
from tidelog.protocol.records.recompress import recompress, target
from tidelog.protocol.records.validate import Rules, ValidBatch, validate

# What of a batch is checked where it is appended, some milliseconds at most: its size as sent, and decompressed. And
# where it may have to be compressed.
PROMPT_BYTES = (4 << 20, 1 << 20)
PROMPT_COMPRESSED_BYTES = (64 << 10, 64 << 10)

# A batch as it is to be stored, and what is true of it.
Checked = tuple[bytearray | memoryview, ValidBatch]


class BatchRules:
    """The rules of one topic: `rules` in full, `prompt` with the bounds of what is prompt, `codec` to recompress to."""

    __slots__ = ("codec", "log_append_time", "prompt", "rules")

    def __init__(self, config: TopicConfig) -> None:
        """Go by these options."""
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        before_ms, after_ms = config.timestamp_bounds_ms
        self.rules = Rules(
            log_append_time=self.log_append_time,
            timestamp_before_max_ms=before_ms,
            timestamp_after_max_ms=after_ms,
            max_batch_bytes=config.max_message_bytes,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        self.codec = target(config.compression_type, levels)
        most, most_decompressed = PROMPT_BYTES if self.codec is None else PROMPT_COMPRESSED_BYTES
        self.prompt = dataclasses.replace(
            self.rules,
            max_batch_bytes=min(config.max_message_bytes, most),
            max_decompressed_bytes=min(config.max_decompressed_bytes, most_decompressed),
        )

    def check(self, data: bytearray | memoryview, now_ms: int) -> Checked:
        """Check a batch in full, however long that takes. Raise RecordsError."""
        return self.recompressed(data, validate(data, self.rules, now_ms))

    def recompressed(self, data: bytearray | memoryview, valid: ValidBatch) -> Checked:
        """Return a valid batch in the codec that the topic asks for; itself where that is its own."""
        return (data, valid) if self.codec is None else recompress(data, valid, self.codec, self.rules)

    def are_exceeded(self, size_bytes: int) -> bool:
        """Tell whether a batch that is too large to be checked promptly is too large for the topic as well."""
        prompt, rules = self.prompt, self.rules
        if size_bytes > prompt.max_batch_bytes:
            return size_bytes > rules.max_batch_bytes
        return prompt.max_decompressed_bytes == rules.max_decompressed_bytes
