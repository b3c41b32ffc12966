"""CRC-32C, whether or not the package's compiled module is where we look for it."""

import sys
from importlib.machinery import PathFinder

import crc32c
import pytest

from tidelog.protocol.records import checksum

CHECK = (b"123456789", 0xE3069283)  # of the Rocksoft catalogue


def test_it_is_crc32c() -> None:
    data, crc = CHECK
    assert checksum.crc32c(data) == crc
    assert checksum.crc32c(memoryview(data)[4:], checksum.crc32c(data[:4])) == crc


@pytest.mark.parametrize("missing", ["crc32c", "crc32c._crc32c"])
def test_the_package_serves_where_its_compiled_module_is_not_found(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find = PathFinder.find_spec
    monkeypatch.setattr(
        PathFinder, "find_spec", lambda name, path=None: None if name == missing else find(name, path)
    )
    assert checksum._implementation() is crc32c


def test_a_missing_package_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.raises(ImportError, match="crc32c"):
        checksum._implementation()
