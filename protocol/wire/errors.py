"""What can go wrong between bytes and messages, and whose fault it was.

`WireError` is the peer's fault: log it and close the connection. `EncodeError` and `CompileError` are ours.
"""

__all__ = ["CompileError", "EncodeError", "UnsupportedRequest", "WireError"]


class WireError(Exception):
    """The bytes of a frame are not the message that they claim to be."""


class UnsupportedRequest(WireError):
    """A request names an API or a version that is not in the table.

    It keeps the header, because ApiVersions must be answered all the same: in version 0, with
    UNSUPPORTED_VERSION and the table (KIP-511).
    """

    def __init__(self, key: int, version: int, correlation_id: int, client_id: str | None) -> None:
        """Describe the refused request by its header."""
        super().__init__(
            f"api key {key} version {version} is not supported (client {client_id!r}, "
            f"correlation {correlation_id})"
        )
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id


class EncodeError(Exception):
    """A message holds a value that its version cannot carry: a mistake in our own code."""


class CompileError(Exception):
    """A declaration uses something that the codec compiler does not know."""
