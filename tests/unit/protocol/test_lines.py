"""The lines that the installed and the interpreted loop make of plain records."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kernels import load_source
from tidelog.protocol.records import kernel, lines
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.columns import Columns
from tidelog.protocol.records.errors import RecordError

INTERPRETED = load_source(lines)
BOTH = pytest.mark.parametrize("module", [lines, INTERPRETED], ids=["installed", "interpreted"])
HEADER_BYTES = 61
MOST = (1 << 63) - 1


def scanned(records: list[Record]) -> tuple[bytes, Columns]:
    data, columns = build_batch(records)[HEADER_BYTES:], Columns()
    kernel.scan(data, 0, len(data), len(records), columns, False)
    return data, columns


def made(module: ModuleType, records: list[Record], first: int = 0, quotes: bool = True, **bases: Any) -> Any:
    data, columns = scanned(records)
    shape = module.Shape(lambda at: (b"%d " % at, b": "), b" = ", b";\n", b"null", quotes)
    given = {
        "base_offset": records[0].offset,
        "base_timestamp": records[0].timestamp,
        "append_timestamp": None,
    }
    found, others = module.write(data, columns, shape, **(given | bases), first_offset=first)
    return [(line.offset, line.timestamp, line.text) for line in found], [record for _, record in others]


@BOTH
def test_plain_records_have_lines(module: ModuleType) -> None:
    records = [
        Record(8, 5, None, None),
        Record(9, 5, b"", b"x"),
        Record(10, -1, b'a"b', b"c\\d" + 5000 * b"~"),
        Record(11, 7, b"\xc3\xbc", b""),
        Record(12, 7, b"", b"\x1f"),
        Record(13, 7, b"", b"\x7f"),
        Record(14, 7, b"", b"v", (("h", None),)),
    ]
    found, others = made(module, records, 9)
    assert found[:2] == [
        (9, 5, b'5 9: "" = "x";\n'),
        (10, -1, b'-1 10: "a\\"b" = "c\\\\d' + 5000 * b"~" + b'";\n'),
    ]
    assert [each[:2] for each in found] == [(each.offset, each.timestamp) for each in records[1:]]
    assert others == [3, 4, 5, 6]
    found, others = made(module, [*records[:3], Record(11, 5, b"\\", b"")], quotes=False)
    assert [each[2] for each in found[:3]] == [
        b"5 8: null = null;\n",
        b"5 9:  = x;\n",
        b'-1 10: a"b = c\\d' + 5000 * b"~" + b";\n",
    ]
    assert others == [3]


@BOTH
def test_records_that_leave_an_int64_are_refused(module: ModuleType) -> None:
    records = [Record(0, 0, None, b"x"), Record(1, 1, None, b"y")]
    assert made(module, records, base_offset=MOST - 1, base_timestamp=MOST - 1)[0][1][:2] == (MOST, MOST)
    assert made(module, records, append_timestamp=MOST)[0][1][:2] == (1, MOST)
    with pytest.raises(RecordError, match="record 1: its offset or its timestamp leaves an int64"):
        made(module, records, base_offset=MOST)
    with pytest.raises(RecordError, match="leaves an int64"):
        made(module, [Record(0, 0, None, None), Record(1, -1, None, None)], base_timestamp=-(1 << 63))
    assert made(module, records, -1, base_offset=-1)[1] == [0], "a negative offset is for the caller"


@given(st.data())
def test_nothing_outside_of_the_data_is_read(data: st.DataObject) -> None:
    records = [Record(n, 0, b"key", b"value") for n in range(3)]
    bytes_there, columns = scanned(records)
    for column in (columns.key_position, columns.key_length, columns.value_position, columns.value_length):
        column[1] = data.draw(st.integers(-(1 << 63), MOST) | st.integers(-2, 100))
    results = []
    for module in (lines, INTERPRETED):
        shape = module.Shape(lambda _: (b"", b""), b"", b"", b"", True)
        found, others = module.write(bytes_there, columns, shape, 0, 0, None, 0)
        results.append(([line.text for line in found], [record for _, record in others]))
    assert results[0] == results[1]


@BOTH
def test_columns_that_are_not_those_of_a_scan_are_refused(module: ModuleType) -> None:
    data, columns = scanned([Record(0, 0, b"key", b"value")])
    columns.count = 10_000
    with pytest.raises(ValueError, match="10000 rows"):
        module.write(data, columns, module.Shape(lambda _: (b"", b""), b"", b"", b"", True), 0, 0, None, 0)
