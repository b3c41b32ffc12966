"""Frames: the headers of every API and version, and those that cannot be served."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.frame import (
    decode_request,
    decode_response,
    encode_request,
    read_request_header,
    response_encoder,
    response_header_version,
)
from tidelog.protocol.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tidelog.protocol.messages.list_offsets import LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.errors import UnsupportedRequest, WireError

REQUEST = ListOffsetsRequest(replica_id=-1, topics=[])


@pytest.mark.parametrize("client_id", [None, "", "me", "ü" * 100])
@pytest.mark.parametrize("version", range(12))
def test_a_request_survives_its_frame(version: int, client_id: str | None) -> None:
    frame = encode_request(LIST_OFFSETS, version, 77, client_id, REQUEST)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_request(frame[4:]) == (LIST_OFFSETS, version, 77, client_id, REQUEST)


@pytest.mark.parametrize("version", range(12))
def test_a_response_survives_its_frame(version: int) -> None:
    response = ListOffsetsResponse(topics=[])
    frame = b"".join(response_encoder(LIST_OFFSETS, version)(77, response))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_response(LIST_OFFSETS, version, frame[4:]) == (77, response)


def test_the_bytes_of_a_header_by_hand() -> None:
    legacy = encode_request(LIST_OFFSETS, 1, 258, "me", REQUEST)
    assert legacy[4:16] == b"\x00\x02\x00\x01\x00\x00\x01\x02\x00\x02me"
    # Header version 2 keeps the legacy length of the client id and ends with tags.
    flexible = encode_request(LIST_OFFSETS, 6, 258, "me", REQUEST)
    assert flexible[4:17] == b"\x00\x02\x00\x06\x00\x00\x01\x02\x00\x02me\x00"
    response = ListOffsetsResponse(topics=[])
    assert response_encoder(LIST_OFFSETS, 1)(258, response)[0][:8] == b"\x00\x00\x00\x08\x00\x00\x01\x02"
    assert response_encoder(LIST_OFFSETS, 6)(258, response)[0][:9] == b"\x00\x00\x00\x0b\x00\x00\x01\x02\x00"


def test_the_response_header_of_api_versions_stays_at_0() -> None:
    assert [response_header_version(API_VERSIONS, version) for version in range(5)] == [0] * 5
    assert [response_header_version(LIST_OFFSETS, version) for version in (5, 6)] == [0, 1]
    assert response_encoder(API_VERSIONS, 3)(1, ApiVersionsResponse(error_code=0, api_keys=[]))[0][:8] == (
        b"\x00\x00\x00\x0c\x00\x00\x00\x01"
    )


def test_an_unknown_version_of_api_versions_can_be_answered_in_version_0() -> None:
    # A client of Kafka 4.4 begins with version 5 (KIP-1242), in a flexible header.
    frame = b"\x00\x12\x00\x05\x00\x00\x00\x07\x00\x04java\x00\x05java\x044.4\x00"
    with pytest.raises(UnsupportedRequest, match="api key 18 version 5 is not supported") as caught:
        decode_request(frame)
    refused = caught.value
    assert (refused.key, refused.version, refused.correlation_id, refused.client_id) == (18, 5, 7, "java")
    answer = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    parts = response_encoder(API_VERSIONS, 0)(refused.correlation_id, answer)
    assert b"".join(parts) == (
        b"\x00\x00\x00\x10\x00\x00\x00\x07\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04"
    )


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (0, -1), (1, 3), (4, 0), (-1, 0), (999, 0)])
def test_what_is_not_in_the_table_is_told_apart(key: int, version: int) -> None:
    frame = (
        key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + b"\x00\x00\x00\x01\xff\xff"
    )
    with pytest.raises(UnsupportedRequest) as caught:
        read_request_header(frame, 0, len(frame))
    assert (caught.value.key, caught.value.version) == (key, version)


def test_a_header_lies_anywhere_in_a_buffer() -> None:
    frame = encode_request(LIST_OFFSETS, 7, 1, "me", REQUEST)
    buffer = memoryview(bytearray(b"..." + frame + b"..."))
    end = 3 + len(frame)
    key, version, correlation_id, client_id, position = read_request_header(buffer, 7, end)
    assert (key, version, correlation_id, client_id) == (2, 7, 1, "me")
    assert LIST_OFFSETS.reader(version)(buffer, position, end) == (REQUEST, end)


@pytest.mark.parametrize("version", [1, 7])
def test_a_frame_cut_anywhere_is_a_wire_error(version: int) -> None:
    frame = encode_request(LIST_OFFSETS, version, 1, "me", REQUEST)[4:]
    for end in range(len(frame)):
        with pytest.raises(WireError):
            decode_request(frame[:end])
        with pytest.raises(WireError):
            read_in_place(frame, end)


def read_in_place(buffer: bytes, end: int) -> Any:
    """Read a request whose buffer goes on after its end."""
    *_, version, _, _, position = read_request_header(buffer, 0, end)
    return LIST_OFFSETS.reader(version)(buffer, position, end)


@pytest.mark.parametrize("version", [1, 7])
def test_bytes_after_the_message_are_a_wire_error(version: int) -> None:
    frame = encode_request(LIST_OFFSETS, version, 1, "me", REQUEST)[4:]
    with pytest.raises(WireError, match="ends at position"):
        decode_request(frame + b"\x00")
    response = b"".join(response_encoder(LIST_OFFSETS, version)(1, ListOffsetsResponse(topics=[])))[4:]
    with pytest.raises(WireError, match="ends at position"):
        decode_response(LIST_OFFSETS, version, response + b"\x00")


def test_tags_of_a_header_are_passed_over() -> None:
    header = b"\x00\x02\x00\x07\x00\x00\x00\x01\xff\xff\x01\x07\x03abc"
    assert read_request_header(header, 0, len(header))[-1] == len(header)
    for end in range(10, len(header)):
        with pytest.raises(WireError):
            read_request_header(header[:end], 0, end)


def test_many_tags_of_a_header_are_passed_over_or_refused() -> None:
    header = b"\x00\x02\x00\x07\x00\x00\x00\x01\xff\xff"
    some = header + b"\xac\x02" + b"\x07\x01z" * 300
    assert read_request_header(some, 0, len(some))[-1] == len(some)
    with pytest.raises(WireError, match="elements and tags"):
        read_request_header(header + b"\xff\xff\xff\x7f" + bytes(64), 0, len(header) + 68)


def test_a_client_id_that_crosses_the_end_is_a_wire_error() -> None:
    buffer = b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x02me"
    assert read_request_header(buffer, 0, 12)[3] == "me"
    with pytest.raises(WireError, match="client id: length 2 at position 10 does not fit the 1 bytes left"):
        read_request_header(buffer, 0, 11)


def test_a_client_id_that_is_not_utf8_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="client id"):
        read_request_header(b"\x00\x02\x00\x01\x00\x00\x00\x01\x00\x01\xff", 0, 11)


@given(
    frame=st.binary(max_size=40)
    | st.builds(bytes.__add__, st.just(b"\x00\x03\x00\x0c"), st.binary(max_size=40))
)
def test_any_bytes_give_a_request_or_a_wire_error(frame: bytes) -> None:
    outcome: Any
    try:
        outcome = decode_request(frame)
    except WireError:
        return
    assert outcome[0] in APIS.values()


def test_an_empty_request_has_an_empty_body() -> None:
    frame = encode_request(API_VERSIONS, 0, 1, None, ApiVersionsRequest())
    assert frame == b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00"])
def test_a_response_without_a_header_is_a_wire_error(frame: bytes) -> None:
    with pytest.raises(WireError, match="too short"):
        decode_response(LIST_OFFSETS, 1, frame)
