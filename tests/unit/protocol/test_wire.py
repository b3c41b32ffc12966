"""What readers and writers promise beyond agreeing with the Struct: bounds, the write rule, views, errors."""

import contextlib
import time
import tracemalloc
from typing import Any

import pytest
from construct import StreamError  # type: ignore[import-untyped]

from tests.support.constructs import Text, Uvarint, plain
from tests.support.wire import EVERYTHING, INTERPRETED, Case, Everything, Leaf, uvarint
from tidelog.protocol.messages.fetch import FETCH, FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import METADATA
from tidelog.protocol.messages.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.compiler import reader_of, writer_of
from tidelog.protocol.wire.errors import CompileError, EncodeError, WireError
from tidelog.protocol.wire.reader import MAX_ELEMENTS
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BYTES, INT32, Array


def written(write: Any, message: object) -> bytes:
    parts, size = write(message)
    whole = b"".join(parts)
    assert len(whole) == size
    return whole


@message
class Blob:
    """A message of nothing but bytes after their length, in its flexible version a varint, and no tags."""

    value: bytes = field(BYTES)


READ_BLOB = reader_of(Blob, 0, True)
WRITE_BLOB = writer_of(Blob, 0, True)


def produce(records: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )


# --- varints


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
        ((1 << 32) - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints_are_kafkas(value: int, encoded: bytes) -> None:
    assert uvarint(value) == encoded
    assert Uvarint().build(value) == encoded
    assert Uvarint().parse(encoded) == value
    if 0 < value < 1 << 16:
        data = encoded + bytes(value - 1) + b"\0"
        blob, position = READ_BLOB(data, 0, len(data))
        assert (len(blob.value), position) == (value - 1, len(data))
        assert written(WRITE_BLOB, blob) == data
    else:
        with pytest.raises(
            WireError, match=f"value: length {value - 1} at position {len(encoded)} does not fit"
        ):
            READ_BLOB(encoded, 0, len(encoded))


@pytest.mark.parametrize(
    "encoded",
    [b"\xff\xff\xff\xff\x10", b"\xff" * 5, b"\x80" * 5 + b"\0", b"\x80" * 5 + b"\x01", b"\xff" * 100],
)
def test_a_varint_ends_after_five_bytes(encoded: bytes) -> None:
    with pytest.raises(WireError, match="wider than 32 bits"):
        READ_BLOB(encoded, 0, len(encoded))


def test_a_varint_of_200_kb_costs_nothing() -> None:
    started = time.thread_time()
    with pytest.raises(WireError):
        METADATA.reader(12)(b"\xff" * 200_000, 0, 200_000)
    assert time.thread_time() - started < 0.1


# --- bounds


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
@pytest.mark.parametrize("huge", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"])
def test_a_frame_that_claims_much_is_given_nothing(api: Any, huge: bytes) -> None:
    """A length or count anywhere in a short frame: what is allocated is bounded by the frame, not by the claim."""
    for version in range(api.min_version, api.max_version + 1):
        read = api.reader(version)
        tracemalloc.start()
        try:
            for zeros in range(24):
                frame = bytes(zeros) + huge + bytes(16)
                with contextlib.suppress(WireError):
                    read(frame, 0, len(frame))
                assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


def test_an_end_that_lies_after_the_buffer_is_not_believed() -> None:
    frame = written(PRODUCE.request_writer(9), produce(b"r" * 100))
    for read in (PRODUCE.reader(9), INTERPRETED.reader_of(ProduceRequest, 9, True)):
        assert read(frame, 0, len(frame) + 200)[1] == len(frame)
        for end in range(len(frame)):
            with pytest.raises(WireError):
                read(frame[:end], 0, len(frame) + 200)


def test_a_count_is_bounded_by_what_its_elements_need() -> None:
    # Three topics of at least three bytes each cannot be in eight.
    frame = b"\xff\xff\xff\xff" + b"\x00" + b"\x04" + b"\x01\x01\x00" * 2 + b"\x00\x00"
    with pytest.raises(WireError, match="topics: length 3 at position 6 does not fit the 8 bytes left"):
        LIST_OFFSETS.reader(6)(frame, 0, len(frame))


def test_a_message_holds_so_many_elements_and_no_more() -> None:
    head, topic = b"\x00" + bytes(6), b"\x01\x02" + bytes(4) + b"\x00\x00\x00"  # one partition each
    for topics in (MAX_ELEMENTS // 2, MAX_ELEMENTS // 2 + 1):
        frame = head + uvarint(topics + 1) + topic * topics + b"\x00"
        if topics * 2 <= MAX_ELEMENTS:
            request, position = PRODUCE.reader(9)(frame, 0, len(frame))
            assert (len(request.topic_data), position) == (topics, len(frame))
        else:
            with pytest.raises(WireError, match="more than 262144 elements"):
                PRODUCE.reader(9)(frame, 0, len(frame))


@pytest.mark.parametrize(("topics", "turns"), [(511, 0), (512, 1), (5120, 10)])
def test_other_threads_have_their_turn_after_a_thousand_elements(
    monkeypatch: pytest.MonkeyPatch, topics: int, turns: int
) -> None:
    """Compiled code gives them none by itself: 260,000 elements took the event loop 0.2 s."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    topic = b"\x01\x02" + bytes(4) + b"\x00\x00\x00"  # one partition each
    frame = b"\x00" + bytes(6) + uvarint(topics + 1) + topic * topics + b"\x00"
    assert len(PRODUCE.reader(9)(frame, 0, len(frame))[0].topic_data) == topics
    assert slept == [0] * turns


def test_numbers_count_as_elements() -> None:
    """Four bytes of a frame become an int: 40 bytes, and as much time as any other."""
    fields = bytes(4 + 4 + 4 + 4 + 1 + 4 + 4) + bytes(4)  # to the topics, of which there are none
    for count in (MAX_ELEMENTS - 1, MAX_ELEMENTS):
        forgotten = (1).to_bytes(4, "big") + b"\0\1t" + count.to_bytes(4, "big") + bytes(4 * count)
        frame = fields + forgotten + b"\0\0"
        if count < MAX_ELEMENTS:
            request, _ = FETCH.reader(11)(frame, 0, len(frame))
            assert len(request.forgotten_topics_data[0].partitions) == count
        else:
            with pytest.raises(WireError, match="more than 262144 elements"):
                FETCH.reader(11)(frame, 0, len(frame))


@pytest.mark.parametrize("version", [9, 13])
def test_tags_count_as_elements(version: int) -> None:
    """Version 9 of the response knows no tags of a partition's, version 13 knows one."""
    tags = uvarint(MAX_ELEMENTS) + b"\x63\x00" * MAX_ELEMENTS
    topic_id = bytes(16) if version == 13 else b"\x01"
    partition = bytes(4 + 2 + 8 + 8 + 8) + b"\x01\x00" + tags
    frame = b"\x02" + topic_id + b"\x02" + partition + b"\x00" + bytes(4) + b"\x00"
    with pytest.raises(WireError, match="more than 262144 elements"):
        PRODUCE.response_reader(version)(frame, 0, len(frame))


def test_nothing_after_the_end_of_the_frame_is_read() -> None:
    frame = written(PRODUCE.request_writer(9), produce(b"r" * 100))
    for end in range(len(frame)):
        with pytest.raises(WireError):
            PRODUCE.reader(9)(frame + bytes(200), 0, end)


@pytest.mark.parametrize(
    ("case", "length"),
    [
        *((EVERYTHING[0], length) for length in (b"\xff\xff", b"\xff\xfe", b"\x80\x00")),
        (EVERYTHING[2], b"\x00"),
    ],
    ids=str,
)
def test_a_string_that_may_not_be_null_is_not(case: Case, length: bytes) -> None:
    frame = case.write(everything(a_string="needle", null_leaf=Leaf()))
    at = frame.index(b"needle") - len(length)
    frame = frame[:at] + length + frame[at + len(length) + len(b"needle") :]
    with pytest.raises(WireError, match="a_string"):
        case.reader(frame, 0, len(frame))
    with pytest.raises(StreamError):
        case.judge(frame)


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00"])
def test_only_minus_one_is_null(length: bytes) -> None:
    frame = written(PRODUCE.request_writer(3), produce(b""))
    assert frame.startswith(b"\xff\xff")
    frame = length + frame[2:]
    with pytest.raises(WireError, match="transactional_id"):
        PRODUCE.reader(3)(frame, 0, len(frame))


def test_a_string_is_strict_utf8() -> None:
    frame = written(PRODUCE.request_writer(3), produce(b"")).replace(b"t", b"\xff")
    with pytest.raises(WireError, match="ProduceRequest v3"):
        PRODUCE.reader(3)(frame, 0, len(frame))


def test_a_string_is_at_most_32767_bytes() -> None:
    topics = [ListOffsetsTopic(name="n" * 0x7FFF, partitions=[])]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    for version in (1, 7):
        frame = written(LIST_OFFSETS.request_writer(version), request)
        assert LIST_OFFSETS.reader(version)(frame, 0, len(frame))[0] == request
    topics[0].name += "n"
    for version in (1, 7):
        with pytest.raises(EncodeError):
            written(LIST_OFFSETS.request_writer(version), request)
    frame = b"\x00\x00\x00\x00" + b"\x00" + b"\x02" + b"\x81\x80\x02" + b"n" * 0x8000 + b"\x01\x00\x00"
    with pytest.raises(WireError, match="string of 32768 bytes"):
        LIST_OFFSETS.reader(7)(frame, 0, len(frame))


# --- records


def test_records_are_a_view_of_the_frame() -> None:
    frame = bytearray(written(PRODUCE.request_writer(9), produce(b"abcd")))
    request, _ = PRODUCE.reader(9)(frame, 0, len(frame))
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"abcd")] = ord("z")
    assert records == b"zbcd"
    records[1] = ord("y")  # its owner may rewrite a header in place
    assert b"zycd" in frame


class Slice:
    """Stands for a part of a log file: it has a length, and nothing else that a codec may use."""

    def __init__(self, length: int = 300) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize("version", [4, 12])
def test_records_are_handed_on_as_they_are(version: int) -> None:
    records = Slice()
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
    )
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    parts, _ = FETCH.writer(version)(response)
    at = parts.index(records)
    length = b"\xad\x02" if version >= 12 else b"\x00\x00\x01\x2c"
    assert b"".join(parts[:at]).endswith(length)


def test_bytes_outlive_their_frame() -> None:
    frame = bytearray(EVERYTHING[0].write(everything(some_bytes=b"kept", null_leaf=Leaf())))
    value, _ = EVERYTHING[0].reader(frame, 0, len(frame))
    frame[:] = bytes(len(frame))
    assert value.some_bytes == b"kept"


@pytest.mark.parametrize("presence", [0, 2, 0x80])
def test_a_nullable_struct_is_there_or_not(presence: int) -> None:
    """KIP-893 knows 1 and -1."""
    case = EVERYTHING[1]
    present, absent = case.write(everything(null_leaf=Leaf(number=9))), case.write(everything())
    at = next(i for i, (one, other) in enumerate(zip(present, absent, strict=False)) if one != other)
    assert (present[at], absent[at]) == (1, 0xFF)
    frame = present[:at] + bytes([presence]) + present[at + 1 :]
    with pytest.raises(WireError, match="null_leaf"):
        case.reader(frame, 0, len(frame))


# --- the write rule


def test_a_value_that_the_version_lacks_is_an_error() -> None:
    topics = [
        ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=1, max_num_offsets=2)]
        )
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    written(LIST_OFFSETS.request_writer(0), request)
    with pytest.raises(
        EncodeError, match=r"ListOffsetsPartition.max_num_offsets does not exist in version 1, and is 2"
    ):
        written(LIST_OFFSETS.request_writer(1), request)


def test_an_ignorable_value_that_the_version_lacks_is_dropped() -> None:
    request = ListOffsetsRequest(replica_id=-1, topics=[], timeout_ms=9)
    for version, timeout_ms in ((9, 0), (10, 9)):
        frame = written(LIST_OFFSETS.request_writer(version), request)
        assert LIST_OFFSETS.reader(version)(frame, 0, len(frame))[0].timeout_ms == timeout_ms


def everything(**changed: Any) -> Everything:
    values: dict[str, Any] = {
        "a_bool": True,
        "an_int8": 1,
        "a_uint16": 2,
        "a_float64": 0.5,
        "a_uuid": b"u" * 16,
        "a_string": "s",
        "some_bytes": b"b",
        "null_bytes": None,
        "some_records": None,
        "null_string": None,
        "uuids": [],
        "strings": [],
        "flags": [],
        "null_numbers": None,
        "a_leaf": Leaf(),
        "null_leaf": None,
        "leaves": [],
    }
    return Everything(**(values | changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"a_string": None},
        {"some_bytes": None},
        {"strings": None},
        {"strings": [None]},
        {"a_leaf": None},
        {"leaves": [None]},
        {"an_int8": 128},
        {"a_uint16": -1},
        {"a_string": b"bytes"},
        {"a_string": "\ud800"},
        {"a_uuid": b"short"},
        {"uuids": [b"u" * 17]},
        {"only_zero": 8},
        {"an_int8": "text"},
    ],
    ids=str,
)
@pytest.mark.parametrize("case", EVERYTHING[1:], ids=str)
def test_a_value_that_does_not_fit_is_an_encode_error(case: Case, changed: dict[str, Any]) -> None:
    case.write(everything())
    with pytest.raises(EncodeError):
        case.write(everything(**changed))


def test_an_equal_default_is_left_out_like_the_default_itself() -> None:
    case = EVERYTHING[2]
    assert case.write(everything(tagged_leaf=Leaf())) == case.write(everything())
    assert case.write(everything(tagged_leaf=Leaf(number=0))) != case.write(everything())


# --- tagged fields


def test_unknown_tags_are_passed_over() -> None:
    frame = written(LIST_OFFSETS.request_writer(7), ListOffsetsRequest(replica_id=1, topics=[]))
    assert frame.endswith(b"\x00")
    tags = b"\x02" + b"\x05\x03abc" + b"\xac\x02\x80\x01" + b"x" * 128
    request, position = LIST_OFFSETS.reader(7)(frame[:-1] + tags, 0, len(frame) - 1 + len(tags))
    assert (request.replica_id, position) == (1, len(frame) - 1 + len(tags))


def test_any_number_of_unknown_tags_is_passed_over() -> None:
    frame = bytes(5) + b"\x01" + b"\xac\x02" + b"\x05\x01z" * 300
    assert LIST_OFFSETS.reader(7)(frame, 0, len(frame))[1] == len(frame)
    with pytest.raises(WireError, match="tagged field: length 1 at position 907 does not fit the 0 bytes"):
        LIST_OFFSETS.reader(7)(frame, 0, len(frame) - 1)


def test_unknown_tags_beside_known_ones_are_passed_over() -> None:
    case = EVERYTHING[2]
    frame = case.write(everything(tagged_string="x"))
    assert frame.endswith(b"\x01\x00\x02\x02x")
    more = frame[:-5] + b"\x02" + b"\x63\x01z" + b"\x00\x02\x02x"
    assert case.reader(more, 0, len(more)) == (everything(tagged_string="x"), len(more))


@pytest.mark.parametrize(
    "tags", [b"\x01\x00\x01\x02x", b"\x01\x00\x04\x02x..", b"\x01\x63\x02z", b"\x01\x63\x05z", b"\x01\x00"]
)
def test_a_tag_whose_size_is_wrong_is_a_wire_error(tags: bytes) -> None:
    case = EVERYTHING[2]
    frame = case.write(everything())[:-1] + tags
    with pytest.raises(WireError):
        case.reader(frame, 0, len(frame))


# --- pieces


@pytest.mark.parametrize("size", [4096, 4097])
def test_large_records_are_a_piece_of_their_own_and_small_ones_are_copied(size: int) -> None:
    records = b"r" * size
    parts, written_bytes = PRODUCE.request_writer(9)(produce(records))
    assert written_bytes == sum(map(len, parts))
    assert len(parts) == (1 if size == 4096 else 3)
    assert (parts[-2] is records) is (size == 4097) if len(parts) > 1 else True
    assert b"".join(parts) == written(PRODUCE.request_writer(9), produce(b"")).replace(
        b"\x01" + bytes(3), uvarint(size + 1) + records + bytes(3)
    )


def test_what_is_long_comes_in_pieces_that_are_bounded() -> None:
    topics = [ListOffsetsTopic(name=f"{number:010d}", partitions=[]) for number in range(20_000)]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    head = b"the head"
    parts, frame_bytes = LIST_OFFSETS.request_writer(7)(request, head)
    assert len(parts) > 3
    assert max(map(len, parts)) <= 65536
    assert min(map(len, parts[:-1])) > 32_000
    whole = b"".join(parts)
    assert frame_bytes == len(whole)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert whole[4:] == head + written(LIST_OFFSETS.request_writer(7), request)
    assert LIST_OFFSETS.reader(7)(whole, 12, len(whole)) == (request, len(whole))


def test_a_frame_begins_with_its_size() -> None:
    assert LIST_OFFSETS.request_writer(1)(ListOffsetsRequest(replica_id=-1, topics=[]), b"head") == (
        [b"\x00\x00\x00\x0chead\xff\xff\xff\xff\x00\x00\x00\x00"],
        16,
    )


BOTH_WRITERS = pytest.mark.parametrize(
    "write", [PRODUCE.request_writer(9), INTERPRETED.writer_of(ProduceRequest, 9, True)]
)


@BOTH_WRITERS
@pytest.mark.parametrize("size", [4097, 100_000])
def test_the_size_of_a_frame_counts_what_is_a_piece_of_its_own(write: Any, size: int) -> None:
    request = produce(b"r" * size)
    whole = b"".join(write(request, b"head")[0])
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert whole[4:] == b"head" + written(write, request)


@BOTH_WRITERS
def test_a_frame_whose_size_has_no_place_in_its_four_bytes_is_an_encode_error(write: Any) -> None:
    size = 1 << 30
    others = write(produce(Slice(size)), b"head")[1] - size
    largest = 0x7FFFFFFF - (others - 4)
    assert write(produce(Slice(largest)), b"head")[0][0].startswith(b"\x7f\xff\xff\xffhead")
    with pytest.raises(EncodeError, match="a frame of 2147483648 bytes"):
        write(produce(Slice(largest + 1)), b"head")


# --- the compiler


@message
class Empty:
    """A message that takes no bytes in a version that is not flexible."""


@message
class ManyEmpty:
    """Any number of them."""

    empty: list[Empty] = field(Array(Empty))
    number: int = field(INT32)


def test_an_array_whose_elements_take_no_bytes_is_an_error() -> None:
    with pytest.raises(
        CompileError, match="empty has elements of 0 bytes, so a frame does not bound their number"
    ):
        reader_of(ManyEmpty, 0, False)
    assert reader_of(ManyEmpty, 0, True)(bytes([3, 0, 0, 0, 0, 0, 7, 0]), 0, 8)[0].number == 7


def test_an_encode_error_names_the_field() -> None:
    with pytest.raises(EncodeError, match=r"Everything v\d+: a_string: .*NoneType"):
        EVERYTHING[2].write(everything(a_string=None))
    with pytest.raises(EncodeError, match=r"Everything v\d+: an_int8: 128 does not fit in 1 bytes"):
        EVERYTHING[2].write(everything(an_int8=128))
    with pytest.raises(EncodeError, match=r"Everything v\d+: a_string: string of 32768 bytes"):
        EVERYTHING[2].write(everything(a_string="x" * 32768))


def test_readers_and_writers_are_made_once() -> None:
    assert PRODUCE.reader(9) is PRODUCE.reader(9)
    assert PRODUCE.writer(9) is not PRODUCE.writer(8)


def test_a_version_out_of_range_has_no_codec() -> None:
    for version in (-1, 14):
        with pytest.raises(ValueError, match=f"Produce has versions 0-13, not {version}"):
            PRODUCE.reader(version)


def test_the_judge_refuses_what_the_version_lacks() -> None:
    from construct import ConstructError

    with pytest.raises(ConstructError, match="only_zero"):
        EVERYTHING[1].struct.build(plain(everything(only_zero=8)))
    with pytest.raises(ConstructError):
        Text(Uvarint(), nullable=False).build(None)


# --- the table


def test_these_apis_are_served_and_no_others() -> None:
    assert [(api.key, api.min_version, api.max_version) for api in APIS.values()] == [
        (0, 0, 13),
        (1, 0, 18),
        (2, 0, 11),
        (3, 0, 13),
        (8, 0, 9),
        (9, 0, 9),
        (10, 0, 6),
        (11, 0, 9),
        (12, 0, 4),
        (13, 0, 5),
        (14, 0, 5),
        (15, 0, 6),
        (16, 0, 5),
        (18, 0, 5),
        (19, 0, 7),
        (20, 0, 6),
        (21, 0, 2),
        (22, 0, 5),
        (23, 2, 4),
        (29, 0, 3),
        (32, 1, 4),
        (33, 0, 2),
        (35, 0, 5),
        (37, 0, 3),
        (42, 0, 3),
        (43, 0, 2),
        (44, 0, 1),
        (45, 0, 1),
        (46, 0, 0),
        (47, 0, 0),
        (48, 0, 1),
        (50, 0, 0),
        (55, 0, 2),
        (60, 0, 2),
        (61, 0, 0),
        (66, 0, 2),
        (68, 0, 1),
        (69, 0, 1),
        (74, 0, 1),
        (75, 0, 0),
    ]
