"""The errors of batches and records; `code` is the error code for the client."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from tidelog.protocol.error_codes import ErrorCode


class RecordFault(NamedTuple):
    """The error of one record, by its index in the batch."""

    record: int
    message: str


class RecordsError(Exception):
    """A batch cannot be stored or read; the message says what is wrong and where.

    `faults` has the invalid records (KIP-467), at most FAULTS_MAX; it is empty if the batch itself is invalid.
    """

    code: ClassVar[ErrorCode]
    FAULTS_MAX: ClassVar = 100

    def __init__(self, message: str, faults: Sequence[RecordFault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults[: self.FAULTS_MAX])


class CorruptBatch(RecordsError):
    """Damaged bytes: a wrong checksum, a cut, a payload that does not decompress."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(RecordsError):
    """Intact bytes that break a rule: counts, offsets, kinds of batches that a producer may not send."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(RecordsError):
    """A timestamp of the wrong type, outside int64, or too far from now."""

    code = ErrorCode.INVALID_TIMESTAMP


class InvalidTxnState(RecordsError):
    """A transactional batch without an open transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class UnsupportedFormat(RecordsError):
    """A batch that the topic's format cannot express: a transactional one in an older format."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCodec(RecordsError):
    """A codec that does not exist, or not in this format."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class BatchTooLarge(RecordsError):
    """A batch larger than its topic allows, as sent or decompressed."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordListTooLarge(RecordsError):
    """More messages of an older format in one set than are accepted."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class RecordError(ValueError):
    """Bytes are not valid records or batches; the message says which, where and why.

    `record` is the index of the invalid record; -1 if it is not a record.
    """

    def __init__(self, message: str, record: int = -1) -> None:
        super().__init__(message)
        self.record = record
