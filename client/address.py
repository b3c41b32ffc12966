"""Addresses of brokers as people write them."""

import re
from typing import Final

from tidelog.config.kinds import check_host

DEFAULT_PORT: Final = 9092
_PORT_MAX: Final = 65535
_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]+)\]|(?P<host>[^:\[\]]+))(?::(?P<port>[0-9]+))?")


def parse(text: str) -> tuple[str, int]:
    """Return the host and port of HOST, HOST:PORT or [IPV6]:PORT; ValueError says what is wrong."""
    if "," in text:
        raise ValueError("name one broker; the client learns the others from it")
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError("write it as host:port, with an IPv6 address as [::1]:9092")
    host, digits = found["v6"] or found["host"], (found["port"] or str(DEFAULT_PORT)).lstrip("0")
    if not digits or len(digits) > len(str(_PORT_MAX)) or int(digits) > _PORT_MAX:
        raise ValueError(f"the port is out of range, 1 to {_PORT_MAX}")
    check_host(host)
    return host, int(digits)
