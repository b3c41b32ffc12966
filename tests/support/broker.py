"""A broker as a process: started on a folder, asked to stop, killed, started again.

Owns: the process, its ready-file, what it printed. Refuses to know: what is asked of it over the wire.
Invariant: a `Broker` used as a context manager leaves no process behind, whatever its test did.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

COMMAND = Path(sys.executable).with_name("tidelog")
POLL_S = 0.005
# A start takes half a second alone, and took more than 20 beside other tests on a busy machine.
START_S = 60.0


class Running(Protocol):
    """What a test may ask of any running broker, ours or Apache's."""

    host: str
    port: int

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int: ...


class BrokerEndedError(AssertionError):
    """The broker ended when it should have served."""


class Broker:
    """One `tidelog serve` on one data folder; its port stays the same from one start to the next."""

    def __init__(
        self, data_dir: Path, overrides: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
    ) -> None:
        self.data_dir = data_dir
        self.overrides = dict(overrides or {})
        self.arguments = list(arguments)
        self.host, self.port = "127.0.0.1", 0
        self._side = data_dir.with_name(data_dir.name + ".broker")
        self.ready_file = self._side / "ready"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def printed(self) -> str:
        """Return what the latest start printed, standard output and error together."""
        return (self._side / "printed").read_text(errors="replace")

    @property
    def rss_bytes(self) -> int:
        return memory_bytes(self.pid, "VmRSS")

    @property
    def peak_rss_bytes(self) -> int:
        return memory_bytes(self.pid, "VmHWM")

    def start(self, timeout_s: float = START_S) -> Self:
        """Start the broker and wait until it says that it serves."""
        self.spawn()
        deadline = time.monotonic() + timeout_s
        while not self.ready_file.exists():
            if not self.is_running:
                raise BrokerEndedError(
                    f"status {self._process and self._process.returncode}:\n{self.printed}"
                )
            if time.monotonic() > deadline:
                raise BrokerEndedError(f"not ready after {timeout_s} s:\n{self.printed}")
            time.sleep(POLL_S)
        host, _, port = self.ready_file.read_text().strip().rpartition(":")
        # A broker that listens on every address is reached on this one.
        self.host, self.port = "127.0.0.1" if host in {"0.0.0.0", "[::]"} else host, int(port)
        return self

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        assert not self.is_running, "the broker runs already"
        self._side.mkdir(parents=True, exist_ok=True)
        self.ready_file.unlink(missing_ok=True)
        with (self._side / "printed").open("wb") as printed:
            self._process = subprocess.Popen(
                serve_command(self.data_dir, self.port, self.ready_file, self.overrides, self.arguments),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment(),
            )

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout_s: float = 20) -> None:
        """Ask the broker to stop in order; it must end with status 0."""
        self.send_signal(how)
        status = self.wait(timeout_s)
        assert status == 0, f"status {status} after {how.name}:\n{self.printed}"

    def send_signal(self, which: signal.Signals) -> None:
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(which)

    def wait(self, timeout_s: float = 20) -> int:
        """Wait until the broker has ended by itself; return its status."""
        assert self._process is not None, "the broker is not running"
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """End the broker as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def serve_command(
    data_dir: Path,
    port: int,
    ready_file: Path,
    overrides: Mapping[str, str],
    arguments: Sequence[str] = (),
) -> list[str]:
    command = [str(COMMAND), "serve", "--data-dir", str(data_dir), "--port", str(port)]
    command += ["--ready-file", str(ready_file)]
    for name, value in overrides.items():
        command += ["--config", f"{name}={value}"]
    return [*command, *arguments]


def environment() -> dict[str, str]:
    """Return the environment without what changes a broker or its output, which whoever runs the tests may have set."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("KAFKA_") and name != "PYTHONUNBUFFERED"
    }


def run_to_end(
    *arguments: str, timeout_s: float = 20, environ: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a `tidelog` command that should end by itself."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**environment(), **(environ or {})},
        check=False,
    )


def wait_until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    """Look again and again whether something has happened that another process tells nobody."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen in {timeout_s} s"
        time.sleep(POLL_S)


def memory_bytes(pid: int, what: str) -> int:
    """Return one of the sizes in /proc/PID/status (VmRSS, VmHWM), in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no {what}")
