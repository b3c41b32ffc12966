"""Where a workload acts: brokers that run, topics, and the clients that drive them.

Owns: the shared brokers, started when first needed, warmed, and paused while another one is measured; private brokers
for what must start or die; every topic and process made, so that all of it can be taken away again.
Invariant: at most one broker runs at a time; all the others are stopped in their tracks (SIGSTOP).
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from bench import build, machine
from bench.brokers import KINDS, Server
from bench.metrics import Measures
from bench.wire import RefusedError, Wire

CLIENT_TIMEOUT_S = 120
LEADER_TIMEOUT_S = 30
WARM_RECORDS, WARM_REQUESTS = 8_000_000, 300_000

# A deleted topic's files go soon, so that five runs of a gigabyte fit on a disk; a paused Kafka is not given up by its
# own controller, and thousands of connections at once do not wait for its short queue of those not yet accepted.
# None of this is in the way of what is measured.
SHARED_SETTINGS = {
    "tidelog": {"log.segment.delete.delay.ms": "1000"},
    "kafka": {
        "log.segment.delete.delay.ms": "1000",
        "broker.session.timeout.ms": "86400000",
        "socket.listen.backlog.size": "4096",
    },
}


class RunFailedError(RuntimeError):
    """A measurement that does not count, and why."""


class Rig:
    """All brokers of one run of the bench."""

    def __init__(self, folder: Path, scale: float, warms: bool = True) -> None:
        self.folder = folder
        self.scale = scale
        self._warms = warms
        self.watch = self.watch_nobody
        self._shared: dict[str, Server] = {}
        self._private: list[Server] = []
        self._made = 0

    watch: Callable[[int], AbstractContextManager[None]]  # held while a client runs; the profiler's hook

    @staticmethod
    def watch_nobody(_pid: int) -> AbstractContextManager[None]:
        return nullcontext()

    def unique(self) -> int:
        self._made += 1
        return self._made

    def shared(self, kind: str) -> Server:
        """Return the one warm broker of a kind, running, and all others paused."""
        self.pause_all(but=kind)
        server = self._shared.get(kind)
        if server is None:
            server = KINDS[kind](self.folder / kind.replace(" ", "-"), SHARED_SETTINGS.get(kind))
            try:
                server.start()
            except BaseException:
                server.kill()
                raise
            self._shared[kind] = server
            if self._warms and kind in SHARED_SETTINGS:
                self.warm(server)
        else:
            server.resume()
        return server

    def pause_all(self, but: str | None = None) -> None:
        for kind, server in self._shared.items():
            if kind != but:
                server.pause()

    @contextmanager
    def private(self, kind: str, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
        """Give a broker of its own to a row, not started; it is gone afterwards with its data."""
        self.pause_all()
        server = KINDS[kind](self.folder / f"private-{self.unique()}" / "data", settings)
        self._private.append(server)
        try:
            yield server
        finally:
            server.kill()
            self._private.remove(server)
            shutil.rmtree(server.folder.parent, ignore_errors=True)

    def warm(self, server: Server) -> None:
        """Do to either broker what it takes to compile a JVM's hot paths."""
        stage = Stage(self, server, {})
        topic = stage.topic()
        stage.rdkafka("produce", topic, records=stage.count(WARM_RECORDS))
        stage.rdkafka("consume", topic, records=stage.count(WARM_RECORDS))
        for mode, part in (("produce", 0.5), ("list-offsets", 0.25), ("fetch", 0.25)):
            requests = stage.count(WARM_REQUESTS * part)
            stage.load(
                mode, topic, connections=10, in_flight=5, requests=requests, fetch_bytes=10_000, seconds=60
            )
        stage.strike()

    def close(self) -> None:
        """End every process."""
        for server in [*self._private, *self._shared.values()]:
            with suppress(Exception):
                server.kill()


class Stage:
    """One contender's view: its broker, and the topics that it made."""

    def __init__(
        self, rig: Rig, broker: Server | None, topic_settings: Mapping[str, str], kind: str = ""
    ) -> None:
        self.rig = rig
        self.kind = kind or (broker.kind if broker else "")
        self._broker = broker
        self.topic_settings = topic_settings
        self._topics: list[str] = []

    @property
    def broker(self) -> Server:
        """The warm broker, running; or the private one that `alone` gave."""
        return self._broker or self.rig.shared(self.kind)

    @contextmanager
    def alone(self, settings: Mapping[str, str] | None = None) -> Iterator["Stage"]:
        """Give a stage with a private broker, not started."""
        with self.rig.private(self.kind, settings) as server:
            yield Stage(self.rig, server, self.topic_settings)

    def count(self, full: float) -> int:
        """Scale a number of records, requests or partitions."""
        return max(1, int(full * self.rig.scale))

    def span(self, full_s: float) -> float:
        """Scale a span of time."""
        return max(0.05, full_s * self.rig.scale)

    # -- topics ----------------------------------------------------------------------------------------------

    def topic(self, partitions: int = 1) -> str:
        """Create a topic, wait until all of it can be written to, and return its name."""
        broker = self.broker
        name = f"bench-{self.rig.unique()}"
        if broker.kind.startswith("floor"):
            return name
        self._topics.append(name)
        with Wire(broker.port) as wire:
            wire.create_topics([name], partitions, self.topic_settings)
            wire.wait_for_leaders(name, partitions, LEADER_TIMEOUT_S)
        return name

    def strike(self) -> None:
        """Delete the topics that were made, and remove what the floor wrote."""
        topics, self._topics = self._topics, []
        if topics:
            with suppress(OSError, RefusedError), Wire(self.broker.port) as wire:
                wire.delete_topics(topics)

    # -- clients ---------------------------------------------------------------------------------------------

    def load(self, mode: str, topic: str, **options: Any) -> Measures:
        """Run the generator of raw requests; return its figures, and the broker's CPU a request."""
        raw = self._run([build.load(), "--mode", mode], topic, options)
        requests = raw["requests"]
        if not requests:
            raise RunFailedError(f"{mode}: no answer within the time measured")
        measures = {name: raw[name] for name in ("requests_s", "p50_us", "p99_us", "p999_us", "max_us")}
        measures["cpu_us"] = raw["broker_cpu_s"] / requests * 1e6
        measures["client_cpu_us"] = raw["client_cpu_s"] / requests * 1e6
        measures["cpu_percent"] = raw["broker_cpu_s"] / raw["seconds"] * 100
        measures["empty"] = raw["empty"] / requests
        return {**measures, "mb_s": raw["fetched_bytes"] / raw["seconds"] / 1e6, **self.broker.spent()}

    def rdkafka(self, what: str, topic: str, *settings: str, **options: Any) -> Measures:
        """Run librdkafka; return its figures, and the broker's CPU a record and a byte."""
        raw = self._run([build.rdkafka(), what], topic, options, settings)
        millions, gigabytes = raw["records"] / 1e6, raw["bytes"] / 1e9
        measures: Measures = {
            name: raw[name] for name in ("records_s", "p50_us", "p99_us", "p999_us") if name in raw
        }
        measures["mb_s"] = raw["bytes_s"] / 1e6
        measures["cpu_s_per_million"] = raw["broker_cpu_s"] / millions
        measures["cpu_s_per_gb"] = raw["broker_cpu_s"] / gigabytes
        measures["client_cpu_s_per_million"] = raw["client_cpu_s"] / millions
        return {**measures, **self.broker.spent()}

    def command(
        self, program: list[Any], topic: str, options: Mapping[str, Any], settings: tuple[str, ...] = ()
    ) -> list[str]:
        """Return a client's command line."""
        broker = self.broker
        command = [*map(str, program), "--port", str(broker.port), "--pid", str(broker.pid), "--topic", topic]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            command += [flag] if value is True else [flag, str(value)]
        return [*command, *settings]

    def _run(
        self, program: list[Any], topic: str, options: Mapping[str, Any], settings: tuple[str, ...] = ()
    ) -> dict[str, float]:
        command = self.command(program, topic, options, settings)
        timeout_s = 60 + float(options.get("seconds", CLIENT_TIMEOUT_S))
        with self.rig.watch(self.broker.pid):
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise RunFailedError(f"{said}; status {done.returncode} of {' '.join(command)}")
        figures: dict[str, float] = json.loads(done.stdout)
        return figures

    def settle(self) -> None:
        """Bring the disk and the page cache to rest."""
        machine.settle()
