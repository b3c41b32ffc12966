"""Frames: a 4-byte size, a header, a message.

Owns the request and response headers, which are older than the messages and have rules of their own: the
client id keeps its legacy length in every version, and the response header of ApiVersions stays at version 0,
because both must be readable before the two sides know one another's versions (KIP-482, KIP-511). Knows
nothing of sockets.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import UnsupportedRequest, WireError
from tidelog.protocol.wire.runtime import MAX_ELEMENTS, misfit, read_uvarint, skip_tagged_fields, too_many
from tidelog.protocol.wire.types import Buffer

__all__ = [
    "SIZE_BYTES",
    "ResponseEncoder",
    "decode_request",
    "decode_response",
    "encode_request",
    "read_request_header",
    "response_encoder",
    "response_header_version",
    "skip_header_tags",
]

ResponseEncoder = Callable[[int, object], list[Any]]

SIZE_BYTES = 4
# Up to here copying a frame into one piece costs less than sending its pieces.
SMALL_FRAME_BYTES = 4096
_API_VERSIONS_KEY = 18

# API key, version, correlation id, length of the client id.
_REQUEST_HEADER = Struct(">hhih")
_RESPONSE_HEAD = Struct(">ii")
_SIZE = Struct(">i")


def read_request_header(buffer: Buffer, position: int, end: int) -> tuple[int, int, int, str | None, int]:
    """Read a request header; give API key, version, correlation id, client id and the position of the body.

    Raises `UnsupportedRequest`, which keeps the header, for an API or version that is not in the table.
    """
    body = position + _REQUEST_HEADER.size
    if body > end:
        raise WireError(f"frame of {end - position} bytes is too short for a request header")
    key, version, correlation_id, client_id_bytes = _REQUEST_HEADER.unpack_from(buffer, position)
    client_id = None
    if client_id_bytes >= 0:
        stop = body + client_id_bytes
        if stop > end:
            raise misfit("client id", client_id_bytes, body, end)
        try:
            client_id = str(buffer[body:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"client id at position {body}: {error}") from error
        body = stop
    api = APIS.get(key)
    if api is None or not api.supports(version):
        raise UnsupportedRequest(key, version, correlation_id, client_id)
    if api.is_flexible(version):
        body = skip_header_tags(buffer, body, end)
    return key, version, correlation_id, client_id, body


def response_header_version(api: Api, version: int) -> int:
    """Give the version of the response header; always 0 for ApiVersions."""
    return int(api.is_flexible(version) and api.key != _API_VERSIONS_KEY)


def response_encoder(api: Api, version: int) -> ResponseEncoder:
    """Give what encodes the responses of one version: (correlation id, message) -> the parts of a frame.

    The first part holds the size and the header. A small frame is one part; of a large one, a part is bytes or whatever
    object stands for `records` in the message, never copied here.
    """
    write = api.writer(version)
    tags = b"\x00" * response_header_version(api, version)
    pack, header_bytes = _RESPONSE_HEAD.pack, _RESPONSE_HEAD.size - SIZE_BYTES + len(tags)

    def encode(correlation_id: int, message: object) -> list[Any]:
        parts: list[Any] = [b""]
        write(message, parts.append)
        size = header_bytes + sum(map(len, parts))
        parts[0] = pack(size, correlation_id) + tags
        return [b"".join(parts)] if size <= SMALL_FRAME_BYTES else parts

    return encode


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, message: object
) -> bytes:
    """Encode a whole request frame, its size included: the client's side, for tests and tools."""
    text = b"" if client_id is None else client_id.encode()
    header = _REQUEST_HEADER.pack(api.key, version, correlation_id, -1 if client_id is None else len(text))
    parts = [header, text, bytes(1) if api.is_flexible(version) else b""]
    api.request_writer(version)(message, parts.append)
    return _SIZE.pack(sum(map(len, parts))) + b"".join(parts)


def decode_request(frame: Buffer) -> tuple[Api, int, int, str | None, Any]:
    """Decode a request frame without its size, to the last byte; give API, version, ids and the message."""
    end = len(frame)
    key, version, correlation_id, client_id, position = read_request_header(frame, 0, end)
    api = APIS[key]
    message, position = api.reader(version)(frame, position, end)
    _demand_end(api, version, position, end)
    return api, version, correlation_id, client_id, message


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, Any]:
    """Decode a response frame without its size, to the last byte; give the correlation id and the message."""
    end = len(frame)
    if end < SIZE_BYTES:
        raise WireError(f"frame of {end} bytes is too short for a response header")
    (correlation_id,) = _SIZE.unpack_from(frame)
    position = SIZE_BYTES
    if response_header_version(api, version):
        position = skip_header_tags(frame, position, end)
    message, position = api.response_reader(version)(frame, position, end)
    _demand_end(api, version, position, end)
    return correlation_id, message


def skip_header_tags(buffer: Buffer, position: int, end: int) -> int:
    """Pass over the tagged section of a header, which is empty but for clients newer than we know."""
    if position < end and buffer[position] == 0:
        return position + 1
    view = memoryview(buffer)[:end]
    try:
        count = view[position]
        position += 1
        if count > 127:
            count, position = read_uvarint(view, position, count)
        if count > MAX_ELEMENTS:
            raise too_many(position)
        return skip_tagged_fields(view, position, count)
    except IndexError as error:
        raise WireError(f"header is cut short near position {position}") from error


def _demand_end(api: Api, version: int, position: int, end: int) -> None:
    if position != end:
        raise WireError(f"{api.name} v{version} ends at position {position}, its frame at {end}")
