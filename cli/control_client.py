"""A client of the control channel of a broker under `--test-control`: DATA/.control, one JSON object a line.

It loads nothing of the broker's, so that a test starts quickly. Any thread may ask; commands are done one after the
other.
"""

import json
import os
import socket
from pathlib import Path
from threading import Lock
from typing import Any

from tidelog.broker.control_protocol import NAME, short_path

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True

# Longer than a broker lets itself take for what is due.
ANSWERED_WITHIN_S = 90.0
Answer = dict[str, Any]


class ControlError(ValueError):
    """The broker has refused a command: why, in its words."""


class NoControl(ConnectionError):
    """No broker is there that could be controlled, or it has ended meanwhile."""


class ControlClient:
    """One connection to the broker of a data folder."""

    def __init__(self, data_dir: Path) -> None:
        """Connect; NoControl if no broker runs there with --test-control."""
        self._path = data_dir.absolute() / NAME
        self._connect()

    def _connect(self) -> None:
        path = self._path
        self._process = os.getpid()
        self._lock = Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWERED_WITHIN_S)
        try:
            with short_path(path) as name:
                self._socket.connect(name)
        except OSError as error:
            self._socket.close()
            raise NoControl(
                f"{path}: {error.strerror or error}; start the broker with --test-control on that data folder"
            ) from error
        self._lines = self._socket.makefile("rb")

    def ask(self, do: str, **arguments: Any) -> Answer:
        """Have a command done; return the answer. ControlError if it is refused, NoControl if nobody is there."""
        line = json.dumps({"do": do, **arguments}).encode() + b"\n"
        if self._process != os.getpid():
            self._connect()  # A fork that shared the connection would read answers of its parent's.
        with self._lock:
            try:
                self._socket.sendall(line)
                answer = self._lines.readline()
            except OSError as error:
                raise NoControl(f"{do}: the broker does not answer: {error}") from error
        if not answer:
            raise NoControl(f"{do}: the broker has ended the connection")
        said: Answer = json.loads(answer)
        if not said.pop("ok"):
            raise ControlError(said["error"])
        return said

    def close(self) -> None:
        """End the connection."""
        self._lines.close()
        self._socket.close()
