"""Frames: a 4-byte size, a header, a message.

Headers have rules of their own. The client id keeps its legacy length in every version, and the response header of
ApiVersions stays at version 0, because both sides must be able to read them before they know each other's versions
(KIP-482, KIP-511).
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from tidelog.protocol.wire import reader
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import WireError
from tidelog.protocol.wire.layout import MessageLayout
from tidelog.protocol.wire.reader import Reader
from tidelog.protocol.wire.types import Buffer

__all__ = [
    "SIZE_BYTES",
    "ResponseEncoder",
    "decode_client_id",
    "decode_response",
    "encode_request",
    "read_request_header",
    "response_encoder",
    "response_header_version",
    "skip_header_tags",
]

ResponseEncoder = Callable[[int, Any], tuple[list[Any], int]]  # (correlation id, message)

SIZE_BYTES: Final = 4
# Kafka defines two so far. Each takes half a microsecond to skip.
MAX_HEADER_TAGS: Final = 1024
_API_VERSIONS_KEY: Final = 18

# API key, version, correlation id, length of the client id.
_REQUEST_HEADER: Final = Struct(">hhih")
_CORRELATION_ID: Final = Struct(">i")


class _HeaderTags:
    """The tags of a header, none of which are kept."""


# With its type, which mypyc uses: the decorators of Cython hide it.
read_request_header: Final[Callable[[Buffer, int, int], tuple[int, int, bytes | None, int]]] = (
    reader.read_request_header
)

_HEADER_TAGS: Final = Reader(MessageLayout(_HeaderTags, 0, (), (), True, ()))


def decode_client_id(raw: bytes | None) -> str | None:
    """Return a client id as text; bytes that are not UTF-8 are replaced."""
    return None if raw is None else raw.decode(errors="replace")


def response_header_version(api: Api, version: int) -> int:
    """Return the version of the response header; always 0 for ApiVersions."""
    return int(api.is_flexible(version) and api.key != _API_VERSIONS_KEY)


def response_encoder(api: Api, version: int) -> ResponseEncoder:
    """Return the encoder of responses in a version: (correlation id, message) -> the parts of a frame, its size.

    The first part starts with the size and the header. In a large frame, the `records` of the message are parts of
    their own, and are not copied.
    """
    write = api.writer(version)
    pack = Struct(">ix" if response_header_version(api, version) else ">i").pack  # x: no tags

    def encode(correlation_id: int, message: object) -> tuple[list[Any], int]:
        return write(message, pack(correlation_id))

    return encode


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, message: object
) -> bytes:
    """Encode a whole request frame with its size, for clients."""
    text = b"" if client_id is None else client_id.encode()
    header = _REQUEST_HEADER.pack(api.key, version, correlation_id, -1 if client_id is None else len(text))
    head = header + text + bytes(1) * api.is_flexible(version)
    return b"".join(api.request_writer(version)(message, head)[0])


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, Any]:
    """Decode a whole response frame, without its size; return the correlation id and the message."""
    end = len(frame)
    if end < SIZE_BYTES:
        raise WireError(f"frame of {end} bytes is too short for a response header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    position = SIZE_BYTES
    if response_header_version(api, version):
        position = skip_header_tags(frame, position, end)
    # No limit of elements: the frame has the answer to our own request.
    message, position = api.response_reader(version)(frame, position, end, end)
    _demand_end(api, version, position, end)
    return correlation_id, message


def skip_header_tags(buffer: Buffer, position: int, end: int) -> int:
    """Skip the tagged section of a header, which is empty unless the client is newer than this code."""
    if position < end and buffer[position] == 0:
        return position + 1
    _, position = _HEADER_TAGS.read(buffer, position, end, MAX_HEADER_TAGS)
    return position


def _demand_end(api: Api, version: int, position: int, end: int) -> None:
    if position != end:
        raise WireError(f"{api.name} v{version} ends at position {position}, its frame at {end}")
