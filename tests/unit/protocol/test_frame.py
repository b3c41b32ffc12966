"""Frames: the headers of every API and version, and those that cannot be served."""

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernels import load_source
from tests.support.wire import uvarint
from tidelog.broker import dispatch
from tidelog.broker.routes import Served
from tidelog.broker.session import Session
from tidelog.protocol.frame import (
    MAX_HEADER_TAGS,
    decode_response,
    encode_request,
    read_request_header,
    response_encoder,
    response_header_version,
    skip_header_tags,
)
from tidelog.protocol.messages.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tidelog.protocol.messages.list_offsets import LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.wire import reader
from tidelog.protocol.wire.errors import WireError

REQUEST = ListOffsetsRequest(replica_id=-1, topics=[])

Dispatched = Callable[..., list[tuple[int, Any]]]


@pytest.fixture(scope="module")
def session() -> Session:
    """Return a client that nobody has connected."""
    config = SimpleNamespace(advertised=lambda *_: ("?", 0))
    return Session(cast(Any, SimpleNamespace(config=config)), "PLAINTEXT", ("?", 0), ("?", 0))


@pytest.fixture(scope="module")
def dispatched(session: Session) -> Iterator[Dispatched]:
    """Return what dispatches a frame, or its start, and tells what reached a handler: version, request."""
    reached: list[tuple[int, Any]] = []

    def handle(_session: object, request: object, version: int) -> None:
        reached.append((version, request))

    def give(frame: bytes, end: int | None = None) -> list[tuple[int, Any]]:
        reached.clear()
        dispatch.dispatch(session, memoryview(frame), 0, len(frame) if end is None else end)
        return list(reached)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch.dispatch, "__defaults__", (dispatch.Routes(),))
        patch.setattr(dispatch, "SERVED", dict.fromkeys(dispatch.SERVED, Served(handle)))
        yield give


@pytest.mark.parametrize("client_id", [None, "", "me", "ü" * 100])
@pytest.mark.parametrize("version", range(12))
def test_a_request_survives_its_frame(dispatched: Dispatched, version: int, client_id: str | None) -> None:
    frame = encode_request(LIST_OFFSETS, version, 77, client_id, REQUEST)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert dispatched(frame[4:]) == [(version, REQUEST)]
    assert read_request_header(frame, 4, len(frame))[:2] == (2 << 16 | version, 77)


@pytest.mark.parametrize("version", [1, 7])
def test_the_client_id_of_the_last_request_is_kept(
    dispatched: Dispatched, session: Session, version: int
) -> None:
    for client_id in ("me", "me", "you", "", None, "ü" * 100, "me", None):
        dispatched(encode_request(LIST_OFFSETS, version, 77, client_id, REQUEST)[4:])
        assert session.client_id == client_id
    unlike = encode_request(LIST_OFFSETS, version, 77, "me\x01", REQUEST)[4:].replace(b"me\x01", b"me\xff")
    dispatched(unlike)
    assert session.client_id == "me\ufffd"
    null = encode_request(LIST_OFFSETS, version, 77, None, REQUEST)[4:].replace(b"\xff\xff", b"\x80\x00", 1)
    dispatched(null)
    assert session.client_id is None


@pytest.mark.parametrize("version", range(12))
def test_a_response_survives_its_frame(version: int) -> None:
    response = ListOffsetsResponse(topics=[])
    frame = b"".join(response_encoder(LIST_OFFSETS, version)(77, response)[0])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_response(LIST_OFFSETS, version, frame[4:]) == (77, response)


def test_the_bytes_of_a_header_by_hand() -> None:
    legacy = encode_request(LIST_OFFSETS, 1, 258, "me", REQUEST)
    assert legacy[4:16] == b"\x00\x02\x00\x01\x00\x00\x01\x02\x00\x02me"
    # Header version 2 keeps the legacy length of the client id and ends with tags.
    flexible = encode_request(LIST_OFFSETS, 6, 258, "me", REQUEST)
    assert flexible[4:17] == b"\x00\x02\x00\x06\x00\x00\x01\x02\x00\x02me\x00"
    response = ListOffsetsResponse(topics=[])
    assert response_encoder(LIST_OFFSETS, 1)(258, response)[0][0][:8] == b"\x00\x00\x00\x08\x00\x00\x01\x02"
    assert (
        response_encoder(LIST_OFFSETS, 6)(258, response)[0][0][:9] == b"\x00\x00\x00\x0b\x00\x00\x01\x02\x00"
    )


def test_the_response_header_of_api_versions_stays_at_0() -> None:
    assert [response_header_version(API_VERSIONS, version) for version in range(5)] == [0] * 5
    assert [response_header_version(LIST_OFFSETS, version) for version in (5, 6)] == [0, 1]
    assert response_encoder(API_VERSIONS, 3)(1, ApiVersionsResponse(error_code=0, api_keys=[]))[0][0][:8] == (
        b"\x00\x00\x00\x0c\x00\x00\x00\x01"
    )


@pytest.mark.parametrize(("key", "version"), [(0, 14), (0, -1), (1, 19), (4, 0), (-1, 0), (999, 0)])
def test_what_is_not_in_the_table_is_refused(dispatched: Dispatched, key: int, version: int) -> None:
    frame = (
        key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + b"\x00\x00\x00\x01\xff\xff"
    )
    with pytest.raises(WireError, match="is not served"):
        dispatched(frame)


def test_what_is_listed_and_not_routed_yet_is_refused(
    dispatched: Dispatched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(dispatch.SERVED, LIST_OFFSETS.key)
    monkeypatch.setattr(dispatch.dispatch, "__defaults__", (dispatch.Routes(),))
    with pytest.raises(WireError, match="api key 2 is not served"):
        dispatched(encode_request(LIST_OFFSETS, 7, 1, "me", REQUEST)[4:])


def test_a_header_lies_anywhere_in_a_buffer() -> None:
    frame = encode_request(LIST_OFFSETS, 7, 1, "me", REQUEST)
    buffer = memoryview(bytearray(b"..." + frame + b"..."))
    end = 3 + len(frame)
    key_version, correlation_id, client_id, position = read_request_header(buffer, 7, end)
    assert (key_version, correlation_id, client_id) == (2 << 16 | 7, 1, b"me")
    position = skip_header_tags(buffer, position, end)
    assert LIST_OFFSETS.reader(7)(buffer, position, end) == (REQUEST, end)


@pytest.mark.parametrize("module", [reader, load_source(reader)], ids=["installed", "interpreted"])
def test_a_header_ends_where_its_buffer_ends(module: ModuleType) -> None:
    header = encode_request(LIST_OFFSETS, 1, 1, "a client", REQUEST)[4:22]
    assert module.read_request_header(header, 0, 100) == (2 << 16 | 1, 1, b"a client", 18)
    with pytest.raises(WireError, match="client id: length 8 at position 10 does not fit the 7 bytes left"):
        module.read_request_header(header[:-1], 0, 100)


@pytest.mark.parametrize("version", [1, 7])
def test_a_frame_cut_anywhere_is_a_wire_error(dispatched: Dispatched, version: int) -> None:
    frame = encode_request(LIST_OFFSETS, version, 1, "me", REQUEST)[4:]
    for end in range(len(frame)):
        with pytest.raises(WireError):
            dispatched(frame[:end])
        with pytest.raises(WireError):
            dispatched(frame, end)  # The buffer goes on behind the frame.


@pytest.mark.parametrize("version", [1, 7])
@pytest.mark.parametrize("spare", [b"\x00", b"\x00\x00\x00", b"whatever it is"])
def test_bytes_behind_a_request_are_passed_over(dispatched: Dispatched, version: int, spare: bytes) -> None:
    frame = encode_request(LIST_OFFSETS, version, 1, "me", REQUEST)[4:]
    assert dispatched(frame + spare) == [(version, REQUEST)]


@pytest.mark.parametrize("version", [1, 7])
def test_bytes_behind_a_response_are_a_wire_error(version: int) -> None:
    response = b"".join(response_encoder(LIST_OFFSETS, version)(1, ListOffsetsResponse(topics=[]))[0])[4:]
    with pytest.raises(WireError, match="ends at position"):
        decode_response(LIST_OFFSETS, version, response + b"\x00")


def test_tags_of_a_header_are_passed_over() -> None:
    tags = b"\x01\x07\x03abc"
    assert skip_header_tags(tags, 0, len(tags)) == len(tags)
    for end in range(len(tags)):
        with pytest.raises(WireError):
            skip_header_tags(tags[:end], 0, end)


def test_many_tags_of_a_header_are_passed_over_or_refused() -> None:
    some = b"\xac\x02" + b"\x07\x01z" * 300
    assert skip_header_tags(some, 0, len(some)) == len(some)
    most = uvarint(MAX_HEADER_TAGS) + b"\x07\x01z" * MAX_HEADER_TAGS
    assert skip_header_tags(most, 0, len(most)) == len(most)
    more = uvarint(MAX_HEADER_TAGS + 1) + b"\x07\x01z" * (MAX_HEADER_TAGS + 1)
    for tags in (more, b"\xff\xff\xff\x7f" + bytes(64)):
        with pytest.raises(WireError, match="elements and tags"):
            skip_header_tags(tags, 0, len(tags))


def test_a_client_id_that_crosses_the_end_is_a_wire_error() -> None:
    buffer = b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x02me"
    assert read_request_header(buffer, 0, 12)[-1] == 12
    with pytest.raises(WireError, match="client id: length 2 at position 10 does not fit the 1 bytes left"):
        read_request_header(buffer, 0, 11)


@given(
    frame=st.binary(max_size=40)
    | st.builds(bytes.__add__, st.just(b"\x00\x03\x00\x0c"), st.binary(max_size=40))
)
def test_any_bytes_give_a_request_or_a_wire_error(dispatched: Dispatched, frame: bytes) -> None:
    with contextlib.suppress(WireError):
        assert len(dispatched(frame)) == 1


def test_an_empty_request_has_an_empty_body() -> None:
    frame = encode_request(API_VERSIONS, 0, 1, None, ApiVersionsRequest())
    assert frame == b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00"])
def test_a_response_without_a_header_is_a_wire_error(frame: bytes) -> None:
    with pytest.raises(WireError, match="too short"):
        decode_response(LIST_OFFSETS, 1, frame)
