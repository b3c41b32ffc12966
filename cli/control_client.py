"""A client of the sockets in a data folder: DATA/.admin, and DATA/.control with `--test-control`; a JSON object a line.

Any thread may use it; commands run one after the other. It imports little of the broker, so that a test starts fast.
"""

import json
import os
import socket
from pathlib import Path
from threading import Lock
from typing import Any

from tidelog.broker.control_protocol import CONTROL, short_path

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True

# Longer than the broker's own limit for due work.
ANSWERED_WITHIN_S = 90.0
Answer = dict[str, Any]


class ControlError(ValueError):
    """The broker refused a command; the message is the broker's."""


class NoControl(ConnectionError):
    """There is no broker to control, or it has ended."""


class ControlClient:
    """One connection to the broker of a data folder."""

    def __init__(
        self,
        data_dir: Path,
        name: str = CONTROL,
        advice: str = "start the broker with --test-control on that data folder",
        answered_within_s: float | None = ANSWERED_WITHIN_S,
    ) -> None:
        """Connect; NoControl, with this advice, if no broker listens there."""
        self._path = data_dir.absolute() / name
        self._advice = advice
        self._answered_within_s = answered_within_s
        self._connect()

    def _connect(self) -> None:
        path = self._path
        self._process = os.getpid()
        self._lock = Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(self._answered_within_s)
        try:
            with short_path(path) as name:
                self._socket.connect(name)
        except OSError as error:
            self._socket.close()
            raise NoControl(f"{path}: {error.strerror or error}; {self._advice}") from error
        self._lines = self._socket.makefile("rb")

    def ask(self, do: str, **arguments: Any) -> Answer:
        """Run a command, and return the answer. ControlError if it is refused, NoControl if there is no broker."""
        line = json.dumps({"do": do, **arguments}).encode() + b"\n"
        if self._process != os.getpid():
            self._connect()  # after a fork, a shared connection would mix up the answers of both processes
        with self._lock:
            try:
                self._socket.sendall(line)
                answer = self._lines.readline()
            except OSError as error:
                raise NoControl(f"{do}: the broker does not answer: {error}") from error
        if not answer:
            raise NoControl(f"{do}: the broker closed the connection")
        result: Answer = json.loads(answer)
        if not result.pop("ok"):
            raise ControlError(result["error"])
        return result

    def close(self) -> None:
        """End the connection."""
        self._lines.close()
        self._socket.close()
