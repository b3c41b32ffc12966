"""Kafka's codes for errors of the log and of records, and the exception that carries a code."""

from typing import Final

from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records.errors import RecordsError
from tidelog.storage import errors

# Errors of the storage. An error in records carries its own code.
_CODES: dict[type[errors.StorageError], ErrorCode] = {
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.CorruptLog: ErrorCode.CORRUPT_MESSAGE,
    errors.LogOffline: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LogDeleted: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.FlushPostponed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.FormatNotServed: ErrorCode.UNSUPPORTED_VERSION,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
}

NO_TRANSACTIONS: Final = (
    "transactions are not supported: leave out transactional.id, idempotent producers need none"
)
# Kafka's messages for some codes.
NO_PARTITION: Final = "This server does not host this topic-partition."
NO_TOPIC_ID: Final = "This server does not host this topic ID."


class Refused(Exception):
    """One item of a request is refused, with Kafka's code for the reason."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def error_code(error: Exception) -> ErrorCode:
    """Return Kafka's code for an error of the storage or in records."""
    if isinstance(error, RecordsError):
        return error.code
    return _CODES.get(type(error), ErrorCode.KAFKA_STORAGE_ERROR)  # type: ignore[arg-type]
