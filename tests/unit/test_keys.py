"""The loops of compaction, compiled and interpreted: the map of keys, what it lets go, and the copying of the rest."""

from typing import Any

import pytest

from tests.support.kernels import BOTH

pytestmark = pytest.mark.parametrize("kernel", BOTH, ids=["installed", "interpreted"])

SECRET = bytes(range(16))
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
NO_END = 2**63
# Two blocks of Wang and Yu (2005), whose MD5 is the same; they differ in six bits.
WANG = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f89"
    "55ad340609f4b30283e488832571415a085125e8f7cdc99fd91dbdf280373c5b"
    "d8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
)
FLIPPED = {19: 0x80, 45: 0x80, 59: 0x80, 83: 0x80, 109: 0x80, 123: 0x80}


def test_the_hash_is_siphash_2_4_of_128_bits(kernel: Any) -> None:
    table = bytearray(24)
    assert kernel.put(table, SECRET, b"", 5, 1) == (1, 1)
    assert table[:16].hex() == "a3817f04ba25a8e66df67214c7550293"
