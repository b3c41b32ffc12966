"""Frames: a 4-byte size, a header, a message.

Owns the request and response headers, which are older than the messages and have rules of their own: the
client id keeps its legacy length in every version, and the response header of ApiVersions stays at version 0,
because both must be readable before the two sides know one another's versions (KIP-482, KIP-511). Knows
nothing of sockets.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.errors import WireError
from tidelog.protocol.wire.runtime import misfit, read_uvarint, skip_tagged_fields, too_many
from tidelog.protocol.wire.types import Buffer

__all__ = [
    "CLIENT_ID_POSITION",
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

ResponseEncoder = Callable[..., list[Any]]  # (correlation id, message, join=False)

SIZE_BYTES = 4
# In a request, without its size: where its client id begins, with its length.
CLIENT_ID_POSITION = 8
# Up to here copying a frame into one piece costs less than sending its pieces.
SMALL_FRAME_BYTES = 4096
# Kafka defines two so far. Each takes half a microsecond to pass over.
MAX_HEADER_TAGS = 1024
# A part of joined bytes is no larger than this and one more.
JOINED_BYTES = 65536
_API_VERSIONS_KEY = 18

# API key, version, correlation id, length of the client id.
_REQUEST_HEADER = Struct(">hhih")
_RESPONSE_HEAD = Struct(">ii")
_SIZE = Struct(">i")
_LENGTH = Struct(">h")
_read_request_header = Struct(">Iih").unpack_from
_REQUEST_HEADER_BYTES = _REQUEST_HEADER.size


def read_request_header(buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Read what all request headers begin with, up to the client id, which is passed over unread.

    Give the API key and version as one number (key << 16 | version), the correlation id, and the position of the
    header's tags where the version is flexible (`skip_header_tags`), of the body where it is not. The client id lies
    between position + CLIENT_ID_POSITION and there, for `decode_client_id`.
    """
    body = position + _REQUEST_HEADER_BYTES
    if body > end:
        raise WireError(
            f"a request of {end - position} bytes: its header alone has {_REQUEST_HEADER_BYTES} or more"
        )
    key_version, correlation_id, client_id_bytes = _read_request_header(buffer, position)
    if client_id_bytes > 0:
        if client_id_bytes > end - body:
            raise misfit("client id", client_id_bytes, body, end)
        body += client_id_bytes
    return key_version, correlation_id, body


def decode_client_id(raw: bytes) -> str | None:
    """Give the client id that lies in these bytes of a header, its length first; what is not UTF-8 is replaced."""
    (length,) = _LENGTH.unpack_from(raw)
    return None if length < 0 else raw[_LENGTH.size :].decode(errors="replace")


def response_header_version(api: Api, version: int) -> int:
    """Give the version of the response header; always 0 for ApiVersions."""
    return int(api.is_flexible(version) and api.key != _API_VERSIONS_KEY)


def response_encoder(api: Api, version: int) -> ResponseEncoder:
    """Give what encodes the responses of one version: (correlation id, message) -> the parts of a frame.

    The first part holds the size and the header. A small frame is one part; of a large one, a part is bytes or whatever
    object stands for `records` in the message, never copied here. With `join` what stands between those is one part:
    that takes longer, and a tenth of the memory where an answer has very many.
    """
    write = api.writer(version)
    tags = b"\x00" * response_header_version(api, version)
    pack, header_bytes = _RESPONSE_HEAD.pack, _RESPONSE_HEAD.size - SIZE_BYTES + len(tags)

    def encode(correlation_id: int, message: object, join: bool = False) -> list[Any]:
        parts: list[Any] = [b""]
        write(message, _joining(parts) if join else parts.append)
        size = header_bytes + sum(map(len, parts))
        parts[0] = pack(size, correlation_id) + tags
        return [b"".join(parts)] if size <= SMALL_FRAME_BYTES else parts

    return encode


def _joining(parts: list[Any]) -> Callable[[Any], None]:
    """Return what adds a part to others: to the last one, if both are bytes."""

    def put(part: Any) -> None:
        if not isinstance(part, bytes):
            parts.append(part)
        elif type(parts[-1]) is bytearray and len(parts[-1]) < JOINED_BYTES:
            parts[-1] += part
        else:
            parts.append(bytearray(part))

    return put


def encode_request(
    api: Api, version: int, correlation_id: int, client_id: str | None, message: object
) -> bytes:
    """Encode a whole request frame, its size included: the client's side, for tests and tools."""
    text = b"" if client_id is None else client_id.encode()
    header = _REQUEST_HEADER.pack(api.key, version, correlation_id, -1 if client_id is None else len(text))
    parts = [header, text, bytes(1) if api.is_flexible(version) else b""]
    api.request_writer(version)(message, parts.append)
    return _SIZE.pack(sum(map(len, parts))) + b"".join(parts)


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, Any]:
    """Decode a response frame without its size, to the last byte; give the correlation id and the message."""
    end = len(frame)
    if end < SIZE_BYTES:
        raise WireError(f"frame of {end} bytes is too short for a response header")
    (correlation_id,) = _SIZE.unpack_from(frame)
    position = SIZE_BYTES
    if response_header_version(api, version):
        position = skip_header_tags(frame, position, end)
    # Whoever asked can take the answer, however many elements it has.
    message, position = api.response_reader(version)(frame, position, end, end)
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
        if count > MAX_HEADER_TAGS:
            raise too_many(MAX_HEADER_TAGS, position)
        return skip_tagged_fields(view, position, count)
    except IndexError as error:
        raise WireError(f"header is cut short near position {position}") from error


def _demand_end(api: Api, version: int, position: int, end: int) -> None:
    if position != end:
        raise WireError(f"{api.name} v{version} ends at position {position}, its frame at {end}")
