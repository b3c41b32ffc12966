"""What can be wrong with a batch, each kind under the error code that a client sees for it.

Knows nothing of requests: whoever answers one reads `code` off the exception.
"""

from typing import ClassVar

from tidelog.protocol.error_codes import ErrorCode


class RecordsError(Exception):
    """A batch that cannot be stored or read; the message says what is wrong and where."""

    code: ClassVar[ErrorCode]


class CorruptBatch(RecordsError):
    """Bytes that are not what their writer meant: a checksum, a cut, a payload that does not decompress."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(RecordsError):
    """Whole bytes that break a rule: counts, offsets, kinds of batch that a producer may not send."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(RecordsError):
    """A time of the wrong kind, beyond what an int64 holds, or too far from now."""

    code = ErrorCode.INVALID_TIMESTAMP


class InvalidTxnState(RecordsError):
    """A transactional batch where no transaction is open."""

    code = ErrorCode.INVALID_TXN_STATE


class UnsupportedCodec(RecordsError):
    """A compression codec that does not exist."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class BatchTooLarge(RecordsError):
    """A batch above the size that its topic takes, as sent or decompressed."""

    code = ErrorCode.MESSAGE_TOO_LARGE
