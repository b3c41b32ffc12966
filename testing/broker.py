"""`Broker`: a broker process for a test, with a clock that can be held, and faults on demand.

Any thread may use it. After the process has died, each use raises BrokerDied.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidelog.cli.control_client import ControlClient, ControlError, NoControl
from tidelog.storage import files
from tidelog.testing import snapshot as snapshots
from tidelog.testing.clock import Clock, Moment, to_datetime, to_ms
from tidelog.testing.faults import Faults
from tidelog.testing.own_folder import OwnFolder
from tidelog.testing.process import BrokerDied, BrokerError, Process
from tidelog.testing.snapshot import Snapshot

if TYPE_CHECKING:
    from tidelog.protocol.records.build import Record

# A failed test shows its own lines, not these; `pytest --full-trace` shows both.
__tracebackhide__ = True

# Clients send the system's time, while the broker's clock may be held long before it.
DEFAULTS = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}
START_TIMEOUT_S = 30.0
# Longer than a stopping broker waits for clients that do not read.
STOP_TIMEOUT_S = 60.0
# The longest time between the end of the control channel and that of the process.
END_TIMEOUT_S = 5.0
# The data goes with the broker, so it need not wait for a disk.
MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 << 30
Option = bool | int | float | str

_serial = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a broker."""

    name: str
    partitions: int
    broker: "Broker"

    @property
    def bootstrap(self) -> str:
        """The address of its broker, "127.0.0.1:PORT"."""
        return self.broker.bootstrap

    def records(self, partition: int = 0) -> "Sequence[Record]":
        """Return the records of a partition; see `Broker.records`."""
        return self.broker.records(self, partition)

    def delete(self) -> None:
        """Delete it. ControlError if it does not exist."""
        self.broker.ask("delete_topic", name=self.name)

    def __str__(self) -> str:
        return self.name


class Broker:
    """A broker for tests: `with Broker() as broker:`, `async with`, or `start` and `stop`.

    `clock` holds its clock from the start: a datetime, milliseconds since the epoch, or ISO text; with None it follows
    the system's. `config` has broker options by Kafka's names, in addition to `DEFAULTS`. With `data_dir` None it has a
    folder of its own, which is removed with it unless `keep`. `port` 0 takes a free port, which stays over restarts.
    """

    def __init__(
        self,
        clock: Moment | None = None,
        config: Mapping[str, Option] | None = None,
        data_dir: Path | str | None = None,
        port: int = 0,
        *,
        keep: bool = False,
        log_level: str = "info",
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Start nothing yet. ValueError for an invalid clock."""
        self.config = DEFAULTS | {name: _text(value) for name, value in (config or {}).items()}
        self.keep = keep
        self.clock = Clock(self.ask)
        self.faults = Faults(self.ask)
        self._clock_ms = None if clock is None else to_ms(clock)
        self._data_dir = None if data_dir is None else Path(data_dir).absolute()
        self._origin: Snapshot | None = None
        self._own: OwnFolder | None = None  # for the log, and for the data without `data_dir`
        self._port = port
        self._log_level = log_level
        self._start_timeout_s = start_timeout_s
        self._bootstrap = ""
        self._process: Process | None = None
        self._control: ControlClient | None = None
        self._why_not = "has not been started: call start(), or write `with Broker() as broker:`"

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot,
        clock: Moment | None = None,
        config: Mapping[str, Option] | None = None,
        **how: Any,
    ) -> "Broker":
        """Return a broker with the data of a snapshot, not started yet; `how` is as for `Broker`.

        It has the options and the held clock of the snapshot's broker, unless `config` and `clock` say otherwise.
        """
        at = snapshot.held_ms if clock is None else clock
        broker = cls(at, {**snapshot.config, **(config or {})}, **how)
        broker._origin = snapshot
        return broker

    # -- its life ------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it, and wait until it answers. BrokerError, with the end of its log, if that fails."""
        if self._process is not None:
            raise BrokerError(f"the broker is already running: {self._bootstrap}")
        is_first = self._own is None
        if self._own is None:
            self._own = OwnFolder(self._beside())
        try:
            if self._origin is not None:
                snapshots.double(self._origin.folder, self.data_dir)
                self._origin = None
            self._process, self._control = self._started()
            about = self.ask("hello")  # which also has its clock
        except BaseException:
            if is_first:
                self._remove()
            raise
        self._bootstrap = about["bootstrap"]
        self._port = int(self._bootstrap.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Stop it in order, and remove its folder unless `keep`; do nothing if it is not running.

        BrokerError if it does not stop, or its exit code is not 0; BrokerDied if it had already ended.
        """
        if self._process is not None:
            self._process.check_owner()
        try:
            self._stop()
        finally:
            self._remove()

    def restart(self) -> Self:
        """Stop it in order if it runs, and start it on the same folder and port.

        A held clock stays held. Faults are removed.
        """
        self._see_clock()
        self._stop()
        return self.start()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would; `restart` starts it again."""
        process = self._running()
        process.check_owner()
        self._let_go("was killed: call restart()")
        process.kill()

    def snapshot(self) -> Snapshot:
        """Take a snapshot of its data, from which `from_snapshot` makes brokers quickly.

        The broker is restarted for it, and all logs start a new segment.
        """
        self.ask("roll")
        self._see_clock()
        held_ms = self.clock.held_ms
        self._stop()
        # Outside of both folders, so that it is not removed with them, but on the same file system.
        own = self._folder
        place = self.data_dir.parent if own != self.data_dir.parent else own.parent
        try:
            return snapshots.take(self.data_dir, place, self.config, held_ms)
        finally:
            self.start()

    def check(self) -> None:
        """Raise BrokerDied if it ended by itself, BrokerError if it was not started, or was stopped or killed."""
        self._running()

    @property
    def is_running(self) -> bool:
        """Whether it is running."""
        return self._process is not None and self._process.status is None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except BrokerError:
            if error is None:  # else the test fails with that one
                raise

    async def __aenter__(self) -> Self:
        await _in_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(lambda: self.__exit__(kind, error, trace))

    # -- what a test uses ----------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Its address for clients, "127.0.0.1:PORT"."""
        self._running()
        return self._bootstrap

    @property
    def port(self) -> int:
        """The port of its first listener; 0 before the first start."""
        return self._port

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running().pid

    @property
    def data_dir(self) -> Path:
        """Its data folder."""
        if self._data_dir is not None:
            return self._data_dir
        return self._folder / "data"

    @property
    def log_file(self) -> Path:
        """The file of its log."""
        return self._folder / "broker.log"

    @property
    def _folder(self) -> Path:
        if self._own is None:
            raise BrokerError(f"the broker {self._why_not}")
        return self._own.path

    def log(self) -> str:
        """Return its log, since the first start."""
        return self.log_file.read_text(errors="replace")

    def topic(self, name: str | None = None, partitions: int = 1, **config: Option) -> Topic:
        """Create a topic, by default with a unique name. ControlError if the broker refuses.

        Options have Kafka's names: `broker.topic(**{"retention.ms": 1000})`.
        """
        name = new_name() if name is None else name
        answer = self.ask("create_topic", name=name, partitions=partitions, config=config)
        return Topic(answer["name"], answer["partitions"], self)

    def records(self, topic: Topic | str, partition: int = 0) -> "Sequence[Record]":
        """Return the records of a partition, each with offset, timestamp, key, value and headers.

        They are read from the files; the broker may be running or not. Records of all transactions are included, but
        not control records. ControlError if there is no such partition.
        """
        # Imported here, as that takes a while.
        from tidelog.testing import records

        name = str(topic)
        folder = self.data_dir / f"{name}-{partition}"
        start, end = records.log_start(self.data_dir, name, partition), None
        if self._process is not None:
            offsets = self.ask("offsets", topic=name, partition=partition)
            start, end = offsets["log_start_offset"], offsets["log_end_offset"]
        try:
            return records.read_log(folder, start, end)
        except FileNotFoundError:
            raise ControlError(f"there is no partition {partition} of topic {name!r}: {folder}") from None

    def ask(self, do: str, /, **arguments: Any) -> dict[str, Any]:
        """Send a command of the control channel, and return the answer. ControlError if it is refused."""
        process = self._running()
        assert self._control is not None
        try:
            answer = self._control.ask(do, **arguments)
        except NoControl as why:
            if process.ends_within(END_TIMEOUT_S):
                self._running()
            raise BrokerError(f"the broker does not answer: {why}{process.tail()}") from why
        if "held" in answer:
            self.clock.follow(answer)
        return answer

    # -- how -----------------------------------------------------------------------------------------------------

    def _arguments(self) -> list[str]:
        arguments = [
            "--data-dir",
            str(self.data_dir),
            "--port",
            str(self._port),
            "--log-level",
            self._log_level,
        ]
        arguments += ["--test-control", "--stop-at-eof"]
        if self._clock_ms is not None:
            arguments += ["--test-clock", to_datetime(self._clock_ms).isoformat()]
        for name, value in self.config.items():
            arguments += ["--config", f"{name}={value}"]
        return arguments

    def _started(self) -> tuple[Process, ControlClient]:
        process = Process(self._arguments(), self.log_file)
        try:
            process.wait_ready(self._start_timeout_s)
            return process, ControlClient(self.data_dir)
        except BaseException:
            process.kill()
            raise

    def _beside(self) -> Path | None:
        """Return where to make its folder: beside its snapshot, to share files, or in memory."""
        return _roomy_memory() if self._origin is None else self._origin.folder.parent

    def _running(self) -> Process:
        process = self._process
        if process is None:
            raise BrokerError(f"the broker {self._why_not}")
        if process.status is not None:
            raise BrokerDied(f"the broker has died: {_how(process.status)}{process.tail()}")
        return process

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.check_owner()
        try:
            self._running()
        finally:
            self._let_go("was stopped: call start()")
            if process.status is not None:
                process.close()
        status = process.stop(STOP_TIMEOUT_S)
        if status != 0:
            raise BrokerError(f"the broker did not stop in order: {_how(status)}{process.tail()}")

    def _let_go(self, why: str) -> None:
        self._process, self._why_not = None, why
        self._clock_ms = self.clock.held_ms
        if self._control is not None:
            self._control.close()
            self._control = None

    def _see_clock(self) -> None:
        """Update `held_ms`: another process may have moved the clock."""
        if self._process is not None:
            # If it does not answer or has died, the stop reports that, and the last known clock is used.
            with suppress(ControlError, BrokerError):
                self.ask("now")

    def _remove(self) -> None:
        if self._own is None:
            return
        if self.keep:
            self._own.keep()
        else:
            self._own.remove()
            self._own = None


def _roomy_memory() -> Path | None:
    """Return a folder in memory if it has room; None for the default of `tempfile`, which is TMPDIR if that is set."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK | os.X_OK):
        with suppress(OSError):
            return MEMORY if files.free_bytes(MEMORY) >= ROOM_BYTES else None
    return None


def new_name(prefix: str = "topic") -> str:
    """Return a unique name for a topic."""
    # Random, since another process may have named topics in an existing folder.
    return f"{prefix[:60]}-{next(_serial)}-{os.urandom(4).hex()}"


def _text(value: Option) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _how(status: int) -> str:
    return f"exit code {status}" if status >= 0 else f"signal {-status}"


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Run a call that takes a while without blocking asyncio's event loop; another event loop is blocked."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    try:
        return await asyncio.to_thread(call)
    except BrokerError as error:
        # Without the frames of asyncio and its threads, which do not help in a test's report.
        raise error.with_traceback(None) from None
