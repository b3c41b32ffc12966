"""The errors of a client."""

from typing import Final

from tidelog.protocol.error_codes import ErrorCode

STORAGE_FAILS: Final = (
    "the broker cannot use its files; its log says why, and /health does where http.port is set"
)
# Frequent codes, in words.
_EXPLAINED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than max.message.bytes of the topic or the broker",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic name has 1 to 249 ASCII letters, digits, '.', '_' and '-', is not '.' or '..', and differs from "
        "others in more than '.' and '_'"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: STORAGE_FAILS,
}


class ClientError(Exception):
    """A request failed, and sending it again does not help; the base of all errors here."""


class UnknownHost(ClientError):
    """A host name has no address; `reason` is the system's."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"there is no host {host}: {reason}")
        self.reason = reason


class UnknownTopic(ClientError):
    """The cluster does not have the topic, or the partition of it."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(message)
        self.topic = topic


class Unreachable(ClientError):
    """No broker answered before the deadline."""


class Retriable(ClientError):
    """The same request may succeed later."""


class ConnectionLost(Retriable):
    """The connection to a broker could not be made, or ended."""


class CannotConnect(ConnectionLost):
    """A broker did not accept a connection; `reason` is the system's."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} cannot be reached: {reason}")
        self.reason = reason


class BrokerError(ClientError):
    """The answer has an error code that does not pass."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {message or explain(code)}")
        self.code = code


def explain(code: int) -> str:
    """Return an error code in words, with Kafka's name."""
    known = code in ErrorCode._value2member_map_
    name = f"{ErrorCode(code).name}, {code}" if known else f"error {code}"
    return f"{_EXPLAINED[ErrorCode(code)]} ({name})" if code in _EXPLAINED else f"the broker answers {name}"
