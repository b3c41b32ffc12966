"""Readers and writers, compiled and interpreted, against their judge, the Struct: every message, every version."""

from typing import Any

import pytest
from construct import ConstructError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.constructs import plain
from tests.support.strategies import damaged, messages
from tests.support.wire import CASES, EVERYTHING, Case
from tidelog.protocol.wire.compiler import Reader
from tidelog.protocol.wire.errors import WireError

# Every version is drawn from on its own, so few examples each go a long way.
each_case = pytest.mark.parametrize("case", CASES, ids=str)
few = settings(max_examples=4)


@each_case
@few
@given(data=st.data())
def test_bytes_are_the_structs_in_both_directions(case: Case, data: st.DataObject) -> None:
    value = data.draw(messages(case.message, case.version))
    encoded = case.write(value)
    assert case.interpreted.writer_of(*case)(value, b"head") == case.writer(value, b"head")
    assert encoded == case.struct.build(plain(value))
    assert case.judge(encoded) == (plain(value), len(encoded))
    # The frame lies somewhere in a larger buffer.
    buffer = bytearray(b"\x01\x02\x03" + encoded + b"\x04\x05\x06")
    assert case.reader(buffer, 3, 3 + len(encoded)) == (value, 3 + len(encoded))
    if encoded:
        with pytest.raises(WireError):
            case.reader(buffer, 3, 3 + data.draw(st.integers(0, len(encoded) - 1)))


@each_case
@few
@given(data=st.data())
def test_any_bytes_give_a_message_or_a_wire_error_as_the_struct_says(case: Case, data: st.DataObject) -> None:
    assert_judged(case, data.draw(st.binary(max_size=64)))
    assert_judged(case, data.draw(damaged(case.write(data.draw(messages(case.message, case.version))))))


@pytest.mark.parametrize("case", EVERYTHING, ids=str)
@settings(max_examples=60)
@given(data=st.data())
def test_every_type_survives_damage(case: Case, data: st.DataObject) -> None:
    value = data.draw(messages(case.message, case.version))
    assert_judged(case, data.draw(damaged(case.write(value))))


def assert_judged(case: Case, data: bytes) -> None:
    """Assert that the compiled reader and the Struct agree on bytes, down to the position where they stop."""
    judged: Any
    assert outcome(case.interpreted.reader_of(*case), data) == outcome(case.reader, data)
    try:
        judged = case.judge(data)
    except (ConstructError, UnicodeDecodeError):
        judged = None
    if judged is None:
        with pytest.raises(WireError):
            case.reader(data, 0, len(data))
    else:
        value, position = case.reader(data, 0, len(data))
        # NaN is not equal to itself, but its text is.
        assert (repr_of(plain(value)), position) == (repr_of(judged[0]), judged[1])


def outcome(read: Reader, data: bytes) -> Any:
    """Read; return what was read, as plain values, and the position after it, or the error."""
    try:
        value, position = read(data, 0, len(data), 40)
    except WireError as error:
        return type(error), str(error)
    return repr_of(plain(value)), position


def repr_of(value: Any) -> Any:
    """Make values comparable: containers as dicts, views as bytes, floats as text."""
    if isinstance(value, dict):
        return {key: repr_of(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [repr_of(inner) for inner in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return repr(value) if isinstance(value, float) else value
