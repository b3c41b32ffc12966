"""What the options of a topic demand of a produced batch, and how much of that is checked where it is appended.

Owns the choice of rules, of format and of codec, and the limits of a prompt check. Knows nothing of logs.
"""

import dataclasses
from contextlib import suppress
from typing import Final

from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records import topic_format
from tidelog.protocol.records.batch import MAGIC, MAGIC_POSITION
from tidelog.protocol.records.errors import BatchTooLarge, RecordListTooLarge
from tidelog.protocol.records.recompress import Target, recompress, target
from tidelog.protocol.records.steps import Steps, at_once
from tidelog.protocol.records.topic_format import PLAIN
from tidelog.protocol.records.validate import Rules, ValidBatch, refuse_magic, validate
from tidelog.storage.errors import TakesLong

# The largest batch that is checked where it is appended, in some milliseconds: its size as sent, and decompressed. It
# is less if its records are walked once more for their keys, if it may have to be compressed, or if it is of an older
# format, whose messages are unpacked in Python.
PROMPT_BYTES: Final = (4 << 20, 1 << 20)
PROMPT_KEYED_BYTES: Final = (1 << 20, 512 << 10)
PROMPT_COMPRESSED_BYTES: Final = (64 << 10, 64 << 10)
PROMPT_MESSAGE_BYTES: Final = 16 << 10

# A batch as it will be stored, and what is known of it.
Checked = tuple[bytearray | memoryview, ValidBatch]


class BatchRules:
    """The rules of one topic: `rules` in full, `prompt` with the limits of a prompt check.

    `prompt_messages` is `prompt` for messages of older formats. Batches are stored in the format of `magic`, compressed
    with `codec` unless it is None.
    """

    __slots__ = (
        "_segment_bytes",
        "codec",
        "config",
        "log_append_time",
        "magic",
        "prompt",
        "prompt_messages",
        "rules",
    )

    def __init__(self, config: TopicConfig) -> None:
        """Derive the rules from the options of a topic."""
        self.config = config
        self.magic = topic_format.magic_of(config.message_format_version)
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self._segment_bytes = config.segment_bytes
        before_ms, after_ms = config.timestamp_bounds_ms
        self.rules = Rules(
            log_append_time=self.log_append_time,
            timestamp_before_max_ms=before_ms,
            timestamp_after_max_ms=after_ms,
            max_batch_bytes=config.max_message_bytes,
            max_decompressed_bytes=config.max_decompressed_bytes,
            needs_keys=config.compacts,
        )
        levels = {
            "gzip": config.compression_gzip_level,
            "lz4": config.compression_lz4_level,
            "zstd": config.compression_zstd_level,
        }
        self.codec = target(config.compression_type, levels)
        most, most_decompressed = PROMPT_KEYED_BYTES if config.compacts else PROMPT_BYTES
        if self.codec is not None:
            most, most_decompressed = PROMPT_COMPRESSED_BYTES
        self.prompt = dataclasses.replace(
            self.rules,
            max_batch_bytes=min(config.max_message_bytes, most),
            max_decompressed_bytes=min(config.max_decompressed_bytes, most_decompressed),
        )
        self.prompt_messages = dataclasses.replace(
            self.rules, max_decompressed_bytes=min(config.max_decompressed_bytes, PROMPT_MESSAGE_BYTES)
        )

    @property
    def prompt_bytes(self) -> int:
        """The size up to which an uncompressed batch is checked promptly, in any format."""
        most = self.prompt.max_batch_bytes
        return most if self.magic == MAGIC else min(most, PROMPT_MESSAGE_BYTES)

    def keeps(self, size_bytes: int) -> bool:
        """Tell whether a valid, uncompressed batch of this size is stored as it is."""
        is_changed = self.magic != MAGIC or self.codec is not None or self.log_append_time
        return not is_changed and size_bytes <= self.prompt.max_batch_bytes

    def check_promptly(
        self, data: bytearray | memoryview, now_ms: int, end_offset: int, any_format: bool
    ) -> Checked:
        """Check a batch as `check` does; raise TakesLong if that would take long."""
        if self.magic != MAGIC or any_format:
            if len(data) > PROMPT_MESSAGE_BYTES:
                raise TakesLong(f"{len(data)} bytes of messages")
            try:
                rules = self.prompt_messages
                return at_once(self._converted(data, rules, now_ms, end_offset, any_format, self.codec))
            except BatchTooLarge as error:
                if self._are_exceeded(len(data), self.prompt_messages):
                    raise
                raise TakesLong(str(error)) from None
        try:
            valid = validate(data, self.prompt, now_ms)
        except BatchTooLarge as error:
            if self._are_exceeded(len(data), self.prompt):
                raise
            raise TakesLong(str(error)) from None
        return (data, valid) if self.codec is None else recompress(data, valid, self.codec, self.rules)

    def check(
        self,
        data: bytearray | memoryview,
        now_ms: int,
        end_offset: int,
        any_format: bool,
        fits_anywhere: bool = False,
    ) -> Steps[Checked]:
        """Check a batch in full, however long that takes, and return it as it will be stored. Raise RecordsError.

        With `any_format` it may be a message set of an older format. It will probably be stored at `end_offset`. With
        `fits_anywhere` it can be stored at any offset, if need be uncompressed, unless that makes it too large.
        """
        if self.magic != MAGIC or any_format:
            if fits_anywhere and self.magic == 0:
                with suppress(BatchTooLarge, RecordListTooLarge):
                    return (
                        yield from self._converted(data, self.rules, now_ms, end_offset, any_format, PLAIN)
                    )
            return (yield from self._converted(data, self.rules, now_ms, end_offset, any_format, self.codec))
        valid = validate(data, self.rules, now_ms)
        return (data, valid) if self.codec is None else recompress(data, valid, self.codec, self.rules)

    def _converted(
        self,
        data: bytearray | memoryview,
        rules: Rules,
        now_ms: int,
        end_offset: int,
        any_format: bool,
        wanted: Target | None,
    ) -> Steps[Checked]:
        if not any_format and len(data) > MAGIC_POSITION:
            refuse_magic(data[MAGIC_POSITION])
        made, valid = yield from topic_format.validate_as(self.magic, data, rules, now_ms, wanted, end_offset)
        if valid.header.magic != MAGIC and len(made) > self._segment_bytes:
            raise RecordListTooLarge(
                f"{len(made)} bytes of messages for one partition; segment.bytes is {self._segment_bytes}"
            )
        return made, valid

    def _are_exceeded(self, size_bytes: int, prompt: Rules) -> bool:
        """Tell whether a batch that is too large for a prompt check is too large for the topic too."""
        rules = self.rules
        if size_bytes > prompt.max_batch_bytes:
            return size_bytes > rules.max_batch_bytes
        return prompt.max_decompressed_bytes == rules.max_decompressed_bytes
