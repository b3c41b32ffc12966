"""Addresses of brokers; what is none is tested with the command line's errors."""

import pytest

from tidelog.client import address


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("h", ("h", 9092)),
        ("h:09", ("h", 9)),
        ("[::1]", ("::1", 9092)),
        ("[::1]:65535", ("::1", 65535)),
        ("[h]:1", ("h", 1)),
    ],
)
def test_an_address_is_a_host_and_a_port(given: str, known: tuple[str, int]) -> None:
    assert address.parse(given) == known
