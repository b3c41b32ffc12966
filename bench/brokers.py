"""The brokers under measurement, as processes: Tidelog, Apache Kafka, and the floor beneath both.

Owns: starting, pausing, stopping, and what a process has spent. Knows nothing of what is measured.
Invariant: no process outlives the rig, however the rig ends; all of them listen on loopback only, keep their data in
the folder that they were given, and run under the same shim, which slows the disk when a row asks for it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import build, machine
from bench.kafka import ApacheKafka, free_port, wait_for_answer

START_TIMEOUT_S = 120
# The kernel ends the process when its parent is gone, even if the parent could not.
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


class Server:
    """A process that can be started, asked what it spent, paused and ended."""

    kind = "?"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self.port = free_port()
        self.delay_file = folder.with_name(folder.name + ".sync-delay")
        self._process: subprocess.Popen[bytes] | None = None
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.delay_sync(0)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.kind} is not running")
        return self._process.pid

    @property
    def environ(self) -> dict[str, str]:
        """Return ours, without broker options, which whoever runs this may have set, and with the shim."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        return {**kept, "LD_PRELOAD": str(build.slow_sync()), "BENCH_SYNC_DELAY": str(self.delay_file)}

    def delay_sync(self, us: int) -> None:
        """Make every fsync and fdatasync of the process take that much longer, from now on."""
        with self.delay_file.open("r+b" if self.delay_file.exists() else "wb") as file:
            file.write(us.to_bytes(8, sys.byteorder))

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the process and wait until it takes connections."""
        self.spawn()
        self.wait_until_listening()

    def wait_until_listening(self) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Ask the process to end in order, and wait until it has."""
        if self._process is not None:
            self.resume()
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """End the process as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def spent(self) -> dict[str, float]:
        """Return what the process uses: `rss_mb` and `threads`."""
        now = machine.status(self.pid)
        return {"rss_mb": now["rss_bytes"] / 1e6, "threads": now["threads"]}


class _Ours(Server):
    """A Python process of this repository, which says in a file that it is ready."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self._ready = folder.with_name(folder.name + ".ready")

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def spawn(self) -> None:
        self._ready.unlink(missing_ok=True)
        with self.folder.with_name(self.folder.name + ".printed").open("wb") as printed:
            self._process = subprocess.Popen(
                [*DIE_WITH_PARENT, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=self.environ,
                cwd=build.ROOT,
                start_new_session=True,
            )

    def wait_until_listening(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._ready.exists():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                printed = self.folder.with_name(self.folder.name + ".printed").read_text()
                raise RuntimeError(f"{self.kind} did not start:\n{printed}")
            time.sleep(0.005)
        self.port = int(self._ready.read_text().rsplit(":", 1)[1])


class Tidelog(_Ours):
    kind = "tidelog"
    program = Path(sys.executable).with_name("tidelog")

    def command(self) -> Sequence[str]:
        overrides = [
            part for name in self.settings for part in ("--override", f"{name}={self.settings[name]}")
        ]
        serve = [str(self.program), "serve", "--log-level", "warning"]
        serve += ["--data-dir", str(self.folder), "--port", str(self.port), "--ready-file", str(self._ready)]
        return [*serve, *overrides]


class Floor(_Ours):
    kind = "floor"
    arguments: tuple[str, ...] = ()

    def command(self) -> Sequence[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return [sys.executable, "-m", "bench.floor", str(self.folder), str(self._ready), *self.arguments]


class FloorOnDisk(Floor):
    kind = "floor on disk"
    arguments = ("--sync",)


class Echo(Floor):
    kind = "floor in C"

    def command(self) -> Sequence[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return [str(build.echo()), str(self.folder), str(self._ready), *self.arguments]


class EchoOnDisk(Echo):
    kind = "floor in C on disk"
    arguments = ("--sync",)


class Kafka(Server):
    kind = "kafka"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self._kafka: ApacheKafka | None = None

    def spawn(self) -> None:
        if self._kafka is None:
            from tests.support.java import jars  # needs Java and Maven, which `--only tidelog` does not

            self._kafka = ApacheKafka(jars(), prefix=DIE_WITH_PARENT, environ=self.environ)
            self._kafka.format(self.port, self.folder, self.settings)
        self._kafka.spawn(self.folder)
        self._process = self._kafka._process

    def wait_until_listening(self) -> None:
        assert self._process is not None
        wait_for_answer("127.0.0.1", self.port, self._process, START_TIMEOUT_S)


KINDS: dict[str, type[Server]] = {
    kind.kind: kind for kind in (Tidelog, Kafka, Floor, FloorOnDisk, Echo, EchoOnDisk)
}
