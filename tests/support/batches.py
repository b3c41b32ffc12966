"""Batches for tests: strategies for records, hand-made records, and batches with one field changed and signed anew.

Invariant: what `batch_of` and `changed` make has the right checksum, so that a test reaches the rule behind it.
"""

from crc32c import crc32c
from hypothesis import strategies as st

from tidelog.protocol.records import batch
from tidelog.protocol.records.build import Record

NOW_MS = 1_700_000_000_000

_parts = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=70)
_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
_times = st.integers(-1, 100) | st.integers(NOW_MS - 10_000_000, NOW_MS) | st.integers(0, 2**62)


_forms = st.lists(st.tuples(_parts, _parts, _headers), min_size=1, max_size=3)


@st.composite
def records(draw: st.DrawFn, *, max_size: int = 12, gaps: bool = False) -> list[Record]:
    """Draw records whose offsets start at 0 and follow one another, with gaps if asked for.

    They share up to three keys, values and lists of headers, which take most of the time to draw.
    """
    steps = st.integers(1, 300) if gaps else st.just(1)
    rows = st.lists(st.tuples(steps, _times, st.sampled_from(draw(_forms))), min_size=1, max_size=max_size)
    drawn: list[Record] = []
    offset = 0
    for step, timestamp, form in draw(rows):
        drawn.append(Record(offset, timestamp, *form))
        offset += step
    return drawn


def some_records(count: int, size_bytes: int = 100, timestamp: int = NOW_MS) -> list[Record]:
    return [Record(offset, timestamp, None, b"x" * size_bytes) for offset in range(count)]


def varint(value: int) -> bytes:
    """Encode in zigzag, whatever the size."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def record_bytes(*fields: bytes) -> bytes:
    """Frame one record from its fields as they are."""
    body = b"\0" + b"".join(fields)
    return varint(len(body)) + body


def plain_record(offset_delta: int = 0, timestamp_delta: int = 0, value: bytes = b"v") -> bytes:
    return record_bytes(
        varint(timestamp_delta), varint(offset_delta), varint(-1), varint(len(value)) + value, varint(0)
    )


def batch_of(payload: bytes, *, count: int = 1, signed: bool = True, **fields: int) -> bytearray:
    """Make a batch around payload; fields are those of BatchHeader, by default what a producer would send."""
    header = batch.BatchHeader(
        base_offset=0,
        batch_length=batch.HEADER_BYTES - batch.PREFIX_BYTES + len(payload),
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )._replace(**fields)
    data = bytearray(batch.HEADER.pack(*header) + payload)
    return resign(data) if signed else data


def changed(data: bytes, **fields: int) -> bytearray:
    """Change header fields of a batch and sign it anew."""
    header = batch.read_header(data)._replace(**fields)
    return resign(bytearray(batch.HEADER.pack(*header) + data[batch.HEADER_BYTES :]))


def resign(data: bytearray) -> bytearray:
    data[batch.CRC_POSITION : batch.ATTRIBUTES_POSITION] = crc32c(
        bytes(data[batch.ATTRIBUTES_POSITION :])
    ).to_bytes(4, "big")
    return data
