"""The process of a test's broker: its start, its end, and its log.

The broker stops when its standard input ends, so it does not outlive the test run. Its standard output ends with it, so
no polling is needed to wait for its end.
"""

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True

# The lines of its log that an error shows.
TAIL_LINES = 20


class BrokerError(RuntimeError):
    """A call of the broker failed; the message says why."""


class BrokerDied(BrokerError):
    """The broker's process ended by itself; the message has the end of its log."""


class Process:
    """One run of `tidelog serve`."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        """Start it; append its log to a file."""
        self.log = log
        self._owner = os.getpid()
        # -P, so that it does not import from the current folder, which is the tests'.
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
        """The process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit code, or the negative number of a signal; None while it runs."""
        if os.getpid() != self._owner and not self._has_ended():
            return None  # only its parent can get the exit code
        return self._process.poll()

    def check_owner(self) -> None:
        """Raise BrokerError in a fork of the process that started it."""
        if os.getpid() != self._owner:
            raise BrokerError(
                f"the broker belongs to process {self._owner}: only that process can stop it, not a fork"
            )

    def _has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._stdout, 0)
        return bool(poll.poll(0))

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it answers clients. BrokerError if it ends or takes too long; it has ended then."""
        poll = select.poll()
        stdout = self._stdout
        poll.register(stdout, select.POLLIN)
        # The greeting is printed when the broker is ready.
        if not poll.poll(timeout_s * 1000):
            self.kill()
            raise BrokerError(f"the broker was not ready within {timeout_s} s{self.tail()}")
        if not os.read(stdout, 4096):
            status = self._reap()
            *_, reason = ["", *self.log.read_text(errors="replace").splitlines()]
            reason = f"{reason.removeprefix('tidelog: ')}: " if reason else ""
            raise BrokerError(f"{reason}the broker did not start: exit code {status}{self.tail()}")

    def stop(self, timeout_s: float) -> int:
        """Stop it in order, and return its exit code. BrokerError if it took too long and was killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if not self.ends_within(timeout_s):
            self.kill()
            raise BrokerError(f"the broker did not stop within {timeout_s} s, and was killed{self.tail()}")
        return self._reap()

    def kill(self) -> None:
        """End it with SIGKILL, like a crash."""
        self._process.kill()
        self._reap()

    def tail(self) -> str:
        """Return the last lines of its log, to append to a message."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"; the end of its log ({self.log}):", *(f"    {line}" for line in lines)])

    @property
    def _stdout(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for its end; return whether it has ended."""
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        # Discard what it prints, up to the end.
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
        """Free the resources of a process that has ended."""
        self._reap()
