"""What a topic's options ask of a produced batch, and how much of that is looked at where it is appended.

Owns the choice of rules, of format and of codec, and the bounds of what is prompt. Knows nothing of logs.
"""

import dataclasses
from contextlib import suppress

from tidelog.config.topic_options import TopicConfig
from tidelog.protocol.records import topic_format
from tidelog.protocol.records.batch import MAGIC, MAGIC_POSITION
from tidelog.protocol.records.errors import BatchTooLarge, RecordListTooLarge
from tidelog.protocol.records.recompress import Target, recompress, target
from tidelog.protocol.records.steps import Steps, at_once
from tidelog.protocol.records.topic_format import PLAIN
from tidelog.protocol.records.validate import Rules, ValidBatch, refuse_magic, validate
from tidelog.storage.errors import TakesLong

# What of a batch is checked where it is appended, some milliseconds at most: its size as sent, and decompressed. And
# where its records are walked once more for their keys, where it may have to be compressed, and where it is of an older
# format, whose messages are unpacked in Python.
PROMPT_BYTES = (4 << 20, 1 << 20)
PROMPT_KEYED_BYTES = (1 << 20, 512 << 10)
PROMPT_COMPRESSED_BYTES = (64 << 10, 64 << 10)
PROMPT_MESSAGE_BYTES = 16 << 10

# A batch as it is to be stored, and what is true of it.
Checked = tuple[bytearray | memoryview, ValidBatch]


class BatchRules:
    """The rules of one topic: `rules` in full, `prompt` with the bounds of what is prompt, `codec` to recompress to.

    `prompt_messages` is `prompt` for messages of older formats, `magic` that of the format in which batches are stored.
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
        """Go by these options."""
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
        """How large a batch that is not compressed may be to be checked promptly, in whatever format it is stored."""
        most = self.prompt.max_batch_bytes
        return most if self.magic == MAGIC else min(most, PROMPT_MESSAGE_BYTES)

    def check_promptly(
        self, data: bytearray | memoryview, now_ms: int, end_offset: int, any_format: bool
    ) -> Checked:
        """Do as `check` does; raise TakesLong where that would take long."""
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
        """Check a batch in full, however long that takes, and return it as it is to be stored. Raise RecordsError.

        With `any_format` it may be a message set of an older format. `end_offset` is where it is likely to be stored;
        with `fits_anywhere` it can be stored elsewhere, not compressed if need be, unless it is then too large.
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
        """Tell whether a batch that is too large to be checked promptly is too large for the topic as well."""
        rules = self.rules
        if size_bytes > prompt.max_batch_bytes:
            return size_bytes > rules.max_batch_bytes
        return prompt.max_decompressed_bytes == rules.max_decompressed_bytes
