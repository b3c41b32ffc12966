"""The control socket, by whatever may be written to it: one clear answer, or the end of the connection."""

import json
import os
import socket
from contextlib import suppress
from typing import Any

import pytest

from tidelog.testing import Broker

pytestmark = pytest.mark.e2e


def _answer(broker: Broker, line: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(30)
        there.connect(str(broker.data_dir / ".control"))
        there.sendall(line)
        there.shutdown(socket.SHUT_WR)
        answer: dict[str, Any] = json.loads(there.makefile("rb").readline())
        return answer


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"now\n", "not a JSON object"),
        (b"\xff\xfe\n", "not a JSON object"),
        (b'{"do": "now"', "not a JSON object"),
        (b"[" * 100_000 + b"\n", "not a JSON object"),
        (b'{"do":' * 100_000 + b"\n", "not a JSON object"),
        (b"null\n", "a command is an object"),
        (b'{"do": 1}\n', "a command is an object"),
        (b'{"do": "advanse"}\n', "did you mean 'advance'"),
        (b'{"do": "advance"}\n', "ms is missing"),
        (b'{"do": "advance", "ms": 1e400}\n', "ms cannot be inf"),
        (b'{"do": "advance", "ms": 1' + b"0" * 400 + b"}\n", "1970 to the end of 9999"),
        (b'{"do": "advance", "ms": true}\n', "ms cannot be True"),
        (b'{"do": "advance", "ms": 1, "at": 1}\n', "there is no argument 'at'"),
        (b'{"do": "fault", "api": [["produce"]], "error": 1}\n', "the name of an API cannot be"),
        (b'{"do": "fault", "api": "produce", "error": 1, "probability": NaN}\n', "between 0 and 1"),
    ],
)
def test_what_is_no_command_is_refused(tidelog: Broker, line: bytes, why: str) -> None:
    answer = _answer(tidelog, line)
    assert not answer["ok"]
    assert why in answer["error"]
    assert "Traceback" not in tidelog.log()
    assert tidelog.ask("now")


def test_a_command_is_complete_at_the_end_of_what_comes(tidelog: Broker) -> None:
    assert _answer(tidelog, b'{"do": "hello"}')["pid"] == tidelog.pid


def test_a_line_that_is_too_long_ends_the_connection(tidelog: Broker) -> None:
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(30)
        there.connect(str(tidelog.data_dir / ".control"))
        with suppress(ConnectionError):
            there.sendall(b"x" * (4 << 20))
        with suppress(ConnectionError):
            assert not there.recv(1)
    assert tidelog.ask("now")


def test_hundreds_connect_at_once(tidelog: Broker) -> None:
    there = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    try:
        for each in there:
            each.setblocking(False)
            each.connect(str(tidelog.data_dir / ".control"))
        for each in there:
            each.settimeout(30)
            each.sendall(b'{"do": "hello"}\n')
        assert all(f'"pid": {tidelog.pid}'.encode() in each.recv(1000) for each in there)
    finally:
        for each in there:
            each.close()


def test_only_the_owner_of_the_folder_may_connect(tidelog: Broker) -> None:
    assert os.stat(tidelog.data_dir / ".control").st_mode & 0o777 == 0o600
