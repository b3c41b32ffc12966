"""One Apache Kafka node (KRaft, broker and controller in one process), for comparing with.

Owns: its folder, its settings, its process. Knows nothing of what is measured or asserted against it.
Invariant: `start` returns only once the broker answers requests, and `stop` only once the process is gone.
"""

import secrets
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

# What Apache's own start script gives the JVM, so that a comparison is with Kafka as people run it.
START_SCRIPT_JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# For tests, where starting soon and staying small counts for more than speed once warm.
QUICK_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

LOG4J = """status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:broker.log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class ApacheKafka:
    """Run one broker from a folder of jars; keep its logs beside its data folder."""

    def __init__(
        self,
        jars: Path,
        jvm: Sequence[str] = START_SCRIPT_JVM,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`prefix` is a command that ends by running the one after it, as `setpriv` does."""
        self._java = ["java", *jvm, "-cp", f"{jars}/*"]
        self._prefix = list(prefix)
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._side = Path()
        self.host, self.port = "127.0.0.1", 0

    @property
    def pid(self) -> int:
        """Return the process id of the broker."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    @property
    def address(self) -> str:
        """Return `host:port`, as clients take it."""
        return f"{self.host}:{self.port}"

    def start(self, port: int, data_dir: Path, settings: Mapping[str, str] | None = None) -> Self:
        """Format `data_dir` if it is new, start the broker on `port` (0: a free one), and wait for it."""
        self.format(port, data_dir, settings)
        self.spawn(data_dir)
        assert self._process is not None
        try:
            wait_for_answer(self.host, self.port, self._process, timeout_s=60)
        except BaseException:
            self.kill()
            raise
        return self

    def last_words(self) -> str:
        """Return the broker's exit status (None: it runs), and the end of what it printed and logged."""
        assert self._process is not None
        said = [f"Apache Kafka's exit status: {self._process.poll()}"]
        for path in (self._side / "stdout", self._side / "server.log"):
            said += [f"{path.name}:", *path.read_text(errors="replace").splitlines()[-40:]]
        return "\n".join(said)

    def spawn(self, data_dir: Path) -> None:
        """Start the process on a formatted folder, without waiting for it."""
        side = self._side = data_dir.with_name(data_dir.name + ".kafka")
        command = [*self._logging(side, "server.log"), "kafka.Kafka", str(side / "server.properties")]
        with (side / "stdout").open("wb") as stdout:
            self._process = subprocess.Popen(
                [*self._prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                env=self._environ,
            )

    def format(self, port: int, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        """Write the settings, take `port` (0: a free one), and format `data_dir` if it is new."""
        side = data_dir.with_name(data_dir.name + ".kafka")
        side.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        properties = self._write_properties(side, data_dir, settings or {})
        if not (data_dir / "meta.properties").exists():
            self._format(side, properties)

    def stop(self, timeout_s: float = 30) -> None:
        """Ask the broker to stop in order, and wait until it has."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._process = None

    def kill(self) -> None:
        """End the broker as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _write_properties(self, side: Path, data_dir: Path, settings: Mapping[str, str]) -> Path:
        controller = f"{self.host}:{free_port()}"
        properties = {
            **SINGLE_NODE,
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            # Static voters, not the dynamic quorum: a restart may then take another controller port.
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(data_dir),
            **settings,
        }
        path = side / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        (side / "log4j2.properties").write_text(LOG4J)
        return path

    def _format(self, side: Path, properties: Path) -> None:
        cluster_id = secrets.token_urlsafe(16)
        command = [*self._logging(side, "format.log"), "kafka.tools.StorageTool"]
        # With an equals sign: an id may begin with a dash.
        command += ["format", f"--cluster-id={cluster_id}", "-c", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Apache Kafka did not format its folder:\n{done.stdout}{done.stderr}")

    def _logging(self, side: Path, name: str) -> list[str]:
        configuration = f"-Dlog4j2.configurationFile={side / 'log4j2.properties'}"
        return [self._java[0], configuration, f"-Dbroker.log={side / name}", *self._java[1:]]


def free_port() -> int:
    """Return a TCP port that was free a moment ago.

    It is below the ports that Linux picks itself (32768 and up). The kernel could give one of those to another socket
    before the broker binds it, and the tests would then talk to that socket's owner.
    """
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def wait_for_answer(host: str, port: int, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Ask ApiVersions until it is answered: a listening port alone is not a broker that serves."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with status {process.returncode} while starting")
        try:
            with socket.create_connection((host, port), timeout=5) as connection:
                connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
                if connection.recv(4):
                    return
        except OSError:
            time.sleep(0.02)
    raise TimeoutError(f"the broker at {host}:{port} did not answer within {timeout_s} s")
