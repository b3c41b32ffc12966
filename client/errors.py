"""What can go wrong between a client and a cluster."""

from typing import Final

from tidelog.protocol.error_codes import ErrorCode

STORAGE_FAILS: Final = (
    "the broker cannot use its files; its log says why, and /health does where http.port is set"
)
# Codes that people meet often, and what to do about them.
_EXPLAINED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.MESSAGE_TOO_LARGE: "larger than max.message.bytes, which is the topic's or the broker's",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic name has 1 to 249 ASCII letters, digits, '.', '_' and '-', is not '.' or '..', and differs from "
        "others in more than '.' and '_'"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: STORAGE_FAILS,
}


class ClientError(Exception):
    """A request that cannot be done."""


class UnknownHost(ClientError):
    """A host name without an address; `reason` is the system's."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"there is no host {host}: {reason}")
        self.reason = reason


class UnknownTopic(ClientError):
    """A topic that the cluster does not have, or no longer has, or a partition of it."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(message)
        self.topic = topic


class Unreachable(ClientError):
    """No broker has answered until the deadline."""


class Retriable(ClientError):
    """An error that may be gone when the request is sent again."""


class ConnectionLost(Retriable):
    """There is no connection to a broker, or none any more."""


class CannotConnect(ConnectionLost):
    """A broker does not accept connections; `reason` is the system's."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address} cannot be reached: {reason}")
        self.reason = reason


class BrokerError(ClientError):
    """An error code in an answer, which sending the request again does not change."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {message or explain(code)}")
        self.code = code


def explain(code: int) -> str:
    """Return what an error code means, with Kafka's name for it."""
    known = code in ErrorCode._value2member_map_
    name = f"{ErrorCode(code).name}, {code}" if known else f"error {code}"
    return f"{_EXPLAINED[ErrorCode(code)]} ({name})" if code in _EXPLAINED else f"the broker answers {name}"
