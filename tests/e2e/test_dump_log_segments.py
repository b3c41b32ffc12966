"""F15: Apache's DumpLogSegments as the judge of segment files: it must pass sound ones and fault damaged ones.

The golden folders were written by Kafka itself. The damage cases show that the judge, and our reading of it,
can say no: without them "no complaint" would mean nothing.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.java import DEEP, complaints_about, needs_java
from tests.support.paths import KAFKA_WRITTEN

pytestmark = [needs_java, pytest.mark.java]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Copy one partition that Kafka wrote."""
    return Path(shutil.copytree(KAFKA_WRITTEN / "m2-none-ct-0", tmp_path / "t-0"))


def test_golden_folders_draw_no_complaint() -> None:
    assert complaints_about(KAFKA_WRITTEN) == []


def only(partition: Path, suffix: str) -> Path:
    (path,) = partition.glob(f"*{suffix}")
    return path


def overwrite(path: Path, position: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(new)] = new
    path.write_bytes(data)


def swap_first_time_entries(partition: Path) -> None:
    path = only(partition, ".timeindex")
    data = path.read_bytes()
    path.write_bytes(data[12:24] + data[:12] + data[24:])


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "offset index, wrong offset": (
        lambda p: overwrite(only(p, ".index"), 0, b"\0\0\0\x09"),
        "Index offset: 5009, log offset: 5011",
    ),
    "offset index, position inside a batch": (
        lambda p: overwrite(only(p, ".index"), 4, b"\0\0\0\x09"),
        "Exception",
    ),
    "time index, wrong timestamp": (
        lambda p: overwrite(only(p, ".timeindex"), 7, b"\x09"),
        "Index timestamp: 1700000000009",
    ),
    "time index, wrong offset": (
        lambda p: overwrite(only(p, ".timeindex"), 8, b"\0\0\0\x09"),
        "Indexed offset: 5009, found log offset: 5011",
    ),
    "time index, out of order": (swap_first_time_entries, "Previously indexed timestamp"),
    "log, torn tail": (
        lambda p: only(p, ".log").write_bytes(only(p, ".log").read_bytes()[:-5]),
        "invalid bytes at the end",
    ),
    "log, flipped bit": (lambda p: overwrite(only(p, ".log"), 100, b"\x09"), "isvalid: false"),
    "log, zeros at the end": (
        lambda p: only(p, ".log").write_bytes(only(p, ".log").read_bytes() + bytes(100)),
        "CorruptRecordException",
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_complained_about(partition: Path, damage: Callable[[Path], None], words: str) -> None:
    damage(partition)
    complaints = complaints_about(partition, [DEEP])
    assert any(words in line for line in complaints), complaints
