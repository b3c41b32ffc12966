"""Declarations: ranges of versions, and the classes that `@message` makes."""

import pytest

from tests.support.wire import Everything, Leaf
from tidelog.protocol.wire.schema import (
    EVERY_VERSION,
    NO_VERSION,
    Versions,
    default_of,
    field,
    fields_of,
    message,
)
from tidelog.protocol.wire.types import INT32, Array


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("4+", Versions(4, None)),
        ("0-12", Versions(0, 12)),
        ("3", Versions(3, 3)),
        ("", NO_VERSION),
        ("0+", EVERY_VERSION),
    ],
)
def test_versions_are_written_as_kafka_writes_them(text: str, versions: Versions) -> None:
    assert Versions.parse(text) == versions
    assert str(versions) == (text or "none")


@pytest.mark.parametrize("text", ["+", "4-", "-4", "four", "1-2-3", "4 +"])
def test_a_range_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a range of versions"):
        Versions.parse(text)


def test_versions_have_both_their_ends() -> None:
    assert [v for v in range(8) if Versions(2, 4).has(v)] == [2, 3, 4]
    assert [v for v in range(8) if Versions(5, None).has(v)] == [5, 6, 7]
    assert not any(NO_VERSION.has(v) for v in range(8))


@message
class Sample:
    """A message of its own, so that no test sees another's constructor."""

    needed: int = field(INT32)
    counted: int = field(INT32, default=3)
    listed: list[int] = field(Array(INT32), default=[])

    def doubled(self) -> int:
        return self.counted * 2


def test_a_message_is_a_slotted_value() -> None:
    sample = Sample(needed=1)
    assert (sample.needed, sample.counted, sample.listed) == (1, 3, [])
    assert repr(sample) == "Sample(needed=1, counted=3, listed=[])"
    assert sample == Sample(needed=1, counted=3)
    assert sample != Sample(needed=2)
    assert sample != (1, 3, [])
    assert sample.doubled() == 6
    assert Sample.__doc__ is not None
    with pytest.raises(AttributeError):
        sample.missing = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(sample)


def test_the_constructor_demands_what_has_no_default() -> None:
    with pytest.raises(TypeError, match="needed"):
        Sample(counted=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="wrong"):
        Sample(needed=1, wrong=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Sample(1)  # type: ignore[misc]
    with pytest.raises(TypeError, match="keyword arguments only"):
        Sample(1, needed=2)  # type: ignore[misc]


def test_every_object_has_a_list_of_its_own() -> None:
    first, second = Sample(needed=1), Sample(needed=1)
    first.listed.append(1)
    assert second.listed == []


def test_fields_keep_their_order_and_names() -> None:
    assert [f.name for f in fields_of(Sample)] == ["needed", "counted", "listed"]


def test_an_absent_field_has_the_zero_of_its_type_unless_declared() -> None:
    defaults = {f.name: default_of(f) for f in fields_of(Everything) if f.name not in ("a_leaf", "null_leaf")}
    assert defaults["a_bool"] is False
    assert defaults["a_float64"] == 0.0
    assert defaults["a_uuid"] == bytes(16)
    assert defaults["a_string"] == ""
    assert defaults["some_bytes"] == b""
    assert defaults["some_records"] is None
    assert defaults["leaves"] == []
    assert defaults["only_zero"] == 7
    assert defaults["tagged_leaf"] == Leaf()


def test_a_nested_message_that_can_be_absent_must_declare_its_default() -> None:
    declared = next(f for f in fields_of(Everything) if f.name == "a_leaf")
    with pytest.raises(ValueError, match=r"declare its default, Leaf\(\)"):
        default_of(declared)


def test_a_tag_needs_the_versions_in_which_it_is_one() -> None:
    with pytest.raises(ValueError, match="tagged"):
        field(INT32, tag=1)
    with pytest.raises(ValueError, match="tagged"):
        field(INT32, tagged="3+")
