"""What can be wrong with a batch, each kind under the error code that a client sees for it.

Knows nothing of requests: whoever answers one reads `code` off the exception.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from tidelog.protocol.error_codes import ErrorCode


class RecordFault(NamedTuple):
    """What is wrong with one record, which is named by its place in its batch, from 0."""

    record: int
    message: str


class RecordsError(Exception):
    """A batch that cannot be stored or read; the message says what is wrong and where.

    `faults` names the records that are to blame (KIP-467), the first FAULTS_MAX of them; none where it is the batch.
    """

    code: ClassVar[ErrorCode]
    FAULTS_MAX: ClassVar = 100

    def __init__(self, message: str, faults: Sequence[RecordFault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults[: self.FAULTS_MAX])


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


class UnsupportedFormat(RecordsError):
    """A batch that the format of its topic has no room for: one of a transaction, where it is older than that."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCodec(RecordsError):
    """A compression codec that does not exist, or not in that format."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class BatchTooLarge(RecordsError):
    """A batch above the size that its topic takes, as sent or decompressed."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordListTooLarge(RecordsError):
    """More messages of an older format at once than a segment takes."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class RecordError(ValueError):
    """Bytes that are not the records or batches they should be; says which, where and why.

    `record` is the number of the record that is wrong, from 0; -1 where it is not one of them.
    """

    def __init__(self, message: str, record: int = -1) -> None:
        super().__init__(message)
        self.record = record
