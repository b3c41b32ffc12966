"""A broker as a process of a test: its start, its end, its log.

The broker stops when its standard input ends, so it does not outlive the test run. Its standard output ends when it
does, so waiting for its end takes no polling.
"""

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Whose test fails sees their own line; `pytest --full-trace` shows these too.
__tracebackhide__ = True

# Of its log, what an error shows.
TAIL_LINES = 20


class BrokerError(RuntimeError):
    """The broker cannot do what was asked of it; the message says why."""


class BrokerDied(BrokerError):
    """The broker's process has ended by itself; the message has the end of its log."""


class Process:
    """One run of `tidelog serve`."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        """Start it; its log is appended to a file."""
        self.log = log
        self._owner = os.getpid()
        # Started where the tests are, it must not take a folder of theirs for a module of its own: -P.
        command = [sys.executable, "-P", "-m", "tidelog", "serve", *arguments]
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
            )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit code, the number of a signal below 0; None while it runs."""
        if os.getpid() != self._owner and not self._has_ended():
            return None  # Only its parent can wait for it.
        return self._process.poll()

    def check_owner(self) -> None:
        """Raise BrokerError in a fork of the process that has started it: that one ends it."""
        if os.getpid() != self._owner:
            raise BrokerError(
                f"the broker belongs to process {self._owner}: that one stops it, no fork of it"
            )

    def _has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._stdout, 0)
        return bool(poll.poll(0))

    def wait_ready(self, timeout_s: float) -> None:
        """Return once it answers clients. BrokerError, and the process is gone, if it ends or takes too long."""
        poll = select.poll()
        stdout = self._stdout
        poll.register(stdout, select.POLLIN)
        # The greeting is written at once.
        if not poll.poll(timeout_s * 1000):
            self.kill()
            raise BrokerError(f"the broker was not ready within {timeout_s} s{self.tail()}")
        if not os.read(stdout, 4096):
            status = self._reap()
            *_, reason = ["", *self.log.read_text(errors="replace").splitlines()]
            reason = f"{reason.removeprefix('tidelog: ')}: " if reason else ""
            raise BrokerError(f"{reason}the broker did not start: exit code {status}{self.tail()}")

    def stop(self, timeout_s: float) -> int:
        """Have it stop in order, and return its exit code. BrokerError if it took too long and was killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not self.ends_within(timeout_s):
            self.kill()
            raise BrokerError(f"the broker did not stop within {timeout_s} s, and was killed{self.tail()}")
        return self._reap()

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._reap()

    def tail(self) -> str:
        """Return the last lines of its log, as what follows a sentence."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"; the end of its log ({self.log}):", *(f"    {line}" for line in lines)])

    @property
    def _stdout(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for its end; return whether it came."""
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        # What it prints is read away: then comes the end.
        while poll.poll(timeout_s * 1000):
            if not os.read(self._stdout, 4096):
                self._process.wait()
                return True
        return False

    def _reap(self) -> int:
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return status

    def close(self) -> None:
        """Let go of what is held of a process that has ended."""
        self._reap()
