#!/usr/bin/env python3
"""Exit with 0 if the broker answers ApiVersions, with 1 and a line on stderr if not.

Needs nothing but the standard library, so that a check every few seconds costs next to nothing; finds the broker
by the file that it writes once it is ready.
"""

import os
import socket
import struct
import sys
from pathlib import Path

READY_FILE = Path(os.environ.get("TIDELOG_READY_FILE", "/tmp/tidelog.ready"))
TIMEOUT_S = 2
CORRELATION_ID = 0x7469
# Size, then header version 1 without a client id: ApiVersions (18), version 0, which has no body.
REQUEST = struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1)
RESPONSE = struct.Struct(">iih")  # size, correlation id, error code


def address() -> tuple[str, int]:
    """Return where the broker listens, as seen from inside the container."""
    host, _, port = READY_FILE.read_text().strip().rpartition(":")
    host = host.strip("[]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)


def check() -> None:
    """Ask, and raise OSError or ValueError unless the answer is an ApiVersions response without an error."""
    with socket.create_connection(address(), TIMEOUT_S) as connection:
        connection.sendall(REQUEST)
        answer = b""
        while len(answer) < RESPONSE.size:
            part = connection.recv(RESPONSE.size - len(answer))
            if not part:
                raise ValueError("the connection was closed before an answer")
            answer += part
    _size, correlation_id, error = RESPONSE.unpack(answer)
    if correlation_id != CORRELATION_ID or error != 0:
        raise ValueError(f"not the answer to ApiVersions: correlation id {correlation_id}, error {error}")


if __name__ == "__main__":
    try:
        check()
    except (OSError, ValueError) as error:
        sys.exit(f"unhealthy: {error}")
