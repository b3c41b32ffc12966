"""A separate process for one pass, so that the pass does not take the broker's GIL.

Owns the process, and the messages between it and its parent, the broker. The process opens the sealed segments, writes
the copies, and asks its parent for each change of the log. It waits for its parent after each few megabytes. It ends
with the pass, and with its parent. Messages are pickled: only these two processes have the connection.

A parent that gives a pass up sends a message, and then the process removes its copy. If the connection ends without
one, the parent was killed: `swap` may have decided to use the copy, or a new broker may use the folder. So the process
leaves all files alone.
"""

import logging
import os
import pickle
import select
import signal
import socket  # noqa: TID251  (not of the network)
import subprocess
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import tidelog
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import verification
from tidelog.storage.compaction import copying
from tidelog.storage.compaction.key_map import KeyMap
from tidelog.storage.compaction.one_pass import Changes, Clean, Cleaned, Pass, View
from tidelog.storage.compaction.plan import Plan
from tidelog.storage.errors import Mismatch, OnError, StorageError
from tidelog.storage.key_sample import KeySample
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment, State
from tidelog.storage.shared import Shared
from tidelog.storage.summary import Summary

# After so many bytes read and written, the process waits for its parent.
_TURN_BYTES: Final = 4 << 20
# How long a process may take to begin: a tenth of a second alone, and seconds on a busy machine.
_BEGIN_MS: Final = 30_000
# The parent waits so long for a message before it looks whether the pass is still wanted.
_LOOK_MS: Final = 1000
# How long a process may take to remove its copy when its pass is given up; the disk may be slow. A process that takes
# longer is killed, and the next pass removes the copy. Service managers wait longer for a stop. Docker may kill the
# broker before that, which is safe.
_END_S: Final = 10
_PR_SET_PDEATHSIG: Final = 1
# Otherwise glibc returns the memory of each chunk to the system and gets it again: a tenth of the time of a pass.
_KEEPS_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}

_log = logging.getLogger(__name__)


# After `_Begun` the parent sends a `_Task`. It answers `_Turn`, `_Replace` and `_NoteClean` with True or False.
# _GIVE_UP, which may come at any time, stands for all further answers.

_GIVE_UP: Final = None


class _Sealed(NamedTuple):
    base_offset: int
    size: int
    summary: bytes
    sample: KeySample | None


class _Task(NamedTuple):
    config: TopicConfig
    sampling_secret: bytes
    sealed: list[_Sealed]
    epochs: tuple[tuple[int, int], ...]
    senders: dict[int, int]
    candidates: list[int]  # A message names a segment by its base offset.
    must: list[int]
    by_yield: bool
    end: int
    now_ms: int
    buffer_bytes: int
    load_factor: float


# The process sends these, the first one at its start, and the last one at its end.


class _Begun(NamedTuple):
    """The process reads from now on. A task may be too large for the connection to take it before that."""

    version: str


class _Turn(NamedTuple):
    size_bytes: int


class _Replace(NamedTuple):
    group: list[int]
    sample: KeySample | None


class _NoteClean(NamedTuple):
    segment: int
    found: Clean


class _Mismatched(NamedTuple):
    """A `Mismatch`; that one has a segment, which only the process has."""

    segment: int
    message: str


class _Ended(NamedTuple):
    samples: dict[int, KeySample | None]  # A pass that fails has made them, too.
    result: Cleaned | _Mismatched | Exception


class _Connection:
    """One side of the connection."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._incoming = end.makefile("rb")

    def send(self, message: Any) -> None:
        """Send a message. Raise ConnectionError if the other side has ended, or hangs amid the message."""
        with OnError(TimeoutError, _hangs):
            self._socket.sendall(pickle.dumps(message))

    def receive(self) -> Any:
        """Wait for a message. Raise EOFError or ConnectionError if the other side has ended, or hangs amid it."""
        with OnError(TimeoutError, _hangs):
            return pickle.load(self._incoming)

    def can_receive(self, wait_ms: int) -> bool:
        """Wait for a message, or for the end of the other side; return False if neither comes within `wait_ms`."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(wait_ms))

    def close(self) -> None:
        self._incoming.close()
        self._socket.close()


def _hangs(error: TimeoutError) -> NoReturn:
    raise ConnectionError from error


# The parent.


class WorkerEnded(StorageError):
    """The process ended before its pass did."""


class Worker:
    """The process of one pass, as its parent sees it."""

    def __init__(self, process: "subprocess.Popen[bytes]", end: socket.socket) -> None:
        """Take a process, and the parent's end of the connection."""
        self.process = process
        end.settimeout(_END_S)  # Once a message has begun, it takes milliseconds.
        self.connection = _Connection(end)

    def has_begun(self) -> bool:
        """Wait until the process has begun; return False if it cannot, or is of another version."""
        with suppress(EOFError, ConnectionError, pickle.UnpicklingError):
            is_there = self.connection.can_receive(_BEGIN_MS)
            return is_there and self.connection.receive() == _Begun(tidelog.__version__)
        return False

    def close(self) -> None:
        """Give the pass up, and wait until the process has removed an unfinished copy and has ended."""
        with suppress(OSError):  # It has ended already, or this was called before.
            self.connection.send(_GIVE_UP)
        self.connection.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def started(folder: Path) -> Worker | None:
    """Start a process for a pass over the log in `folder`; return None if there cannot be one.

    The folder is the working directory of the process, which knows no other name of it: when a topic is deleted, the
    folder is renamed, and a new topic may have a folder of the old name before the process ends. `ps` shows the name.
    The process writes no bytecode (-B): on a full disk, Python truncates it without an error.
    """
    try:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                worker = Worker(_start(folder, theirs), ours)
            except BaseException:
                ours.close()
                raise
    except OSError as error:
        why = str(error)
    else:
        if worker.has_begun():
            return worker
        worker.close()
        why = f"it did not begin, status {worker.process.returncode}; after an upgrade, restart the broker"
    _log.warning("compaction runs in a thread: no process can be started log=%s error=%r", folder.name, why)
    return None


def _start(folder: Path, connection: socket.socket) -> "subprocess.Popen[bytes]":
    # An import ignores entries that are not text.
    paths = [str(Path(each).absolute()) for each in sys.path if isinstance(each, str)]
    code = f"from {__name__} import main; main()"
    return subprocess.Popen(
        [sys.executable, "-B", "-P", "-c", code, str(os.getpid()), str(folder)],
        stdin=connection.fileno(),
        stdout=subprocess.DEVNULL,  # Python's start may print, if `sitecustomize` does.
        cwd=folder,
        env={**os.environ, **_KEEPS_MEMORY, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,  # Ctrl-C stops the broker, which ends the pass.
    )


def clean(
    worker: Worker, view: View, plan: Plan, changes: Changes, buffer_bytes: int, load_factor: float
) -> Generator[int, None, Cleaned]:
    """Make a pass in a process; each step yields how many bytes the process has read and written.

    The process ends when the generator does. Raise OSError or StorageError.
    """
    connection = worker.connection
    known = {each.base_offset: each for each in view.sealed}
    with closing(worker):
        try:
            connection.send(_task(view, plan, buffer_bytes, load_factor))
            while True:
                while not connection.can_receive(_LOOK_MS):
                    yield 0
                match connection.receive():
                    case _Turn(size_bytes):
                        yield size_bytes
                        connection.send(True)
                    case _Replace(group, sample):
                        sources = [known[base] for base in group]
                        copied = copying.made(sources, view.config, view.shared)
                        copied.sample = sample
                        is_replaced = changes.replace(sources, copied)
                        if is_replaced:
                            known |= dict.fromkeys(group, copied)
                        connection.send(is_replaced)
                    case _NoteClean(segment, found):
                        changes.note_clean(known[segment], found)
                        connection.send(True)
                    case _Ended(samples, result):
                        for base, sample in samples.items():
                            known[base].sample = sample
                        if isinstance(result, _Mismatched):
                            verification.verify_again(known[result.segment], 0)
                            raise Mismatch(result.message, known[result.segment])
                        if isinstance(result, Exception):
                            raise result
                        return result
        except (EOFError, ConnectionError, pickle.UnpicklingError):
            worker.close()
            status = worker.process.returncode
            raise WorkerEnded(
                f"{view.folder}: the process of a compaction pass ended early, with status {status}"
                + (": killed, perhaps because memory ran out" if status == -signal.SIGKILL else "")
            ) from None


def _task(view: View, plan: Plan, buffer_bytes: int, load_factor: float) -> _Task:
    return _Task(
        view.config,
        view.shared.sampling_secret,
        [_Sealed(each.base_offset, each.size, each.summary.encode(), each.sample) for each in view.sealed],
        view.epochs.entries,
        view.senders,
        [each.base_offset for each in plan.candidates],
        [each.base_offset for each in plan.must],
        plan.by_yield,
        plan.end,
        plan.now_ms,
        buffer_bytes,
        load_factor,
    )


# The process.


class _GivenUp(BaseException):
    """The parent has given the pass up. Not an error."""


def main() -> None:
    """Make the pass that the parent describes. The arguments are the parent's process id and the log's folder."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # The parent gets them too, and ends the pass.
    _end_with_parent(int(sys.argv[1]))
    with suppress(OSError):  # When memory runs out, the kernel kills this process before the broker.
        Path("/proc/self/oom_score_adj").write_text("1000")
    connection = _Connection(socket.socket(fileno=sys.stdin.fileno()))
    # The parent may be killed amid the task.
    with closing(connection), suppress(_GivenUp, EOFError, ConnectionError, pickle.UnpicklingError):
        connection.send(_Begun(tidelog.__version__))
        task = connection.receive()
        if task is not _GIVE_UP:
            connection.send(_work(task, _Parent(connection)))


def _end_with_parent(parent: int) -> None:
    """Ask the system to kill this process when its parent ends; exit if the parent has ended already.

    To the system, the parent is the thread that started the process. That thread stays until the pass ends.
    """
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Parent:
    """Asks the parent for the changes of the pass."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def ask(self, request: _Turn | _Replace | _NoteClean) -> bool:
        """Send a request and return the answer. Raise _GivenUp if the pass was given up."""
        try:
            with suppress(ConnectionError):  # A parent that has given the pass up may have closed its side.
                self._connection.send(request)
            answer = self._connection.receive()
        except (EOFError, ConnectionError):
            # The parent was killed. It may still count as running: its files are closed first.
            os._exit(1)
        if answer is _GIVE_UP:
            raise _GivenUp
        return bool(answer)

    def replace(self, group: Sequence[Segment], copied: Segment) -> bool:
        is_replaced = self.ask(_Replace([each.base_offset for each in group], copied.sample))
        if is_replaced:
            copied.become(State.SEALED)
            copied.release()
        return is_replaced

    def note_clean(self, segment: Segment, found: Clean) -> None:
        self.ask(_NoteClean(segment.base_offset, found))
        found.note(segment)


def _work(task: _Task, parent: _Parent) -> _Ended:
    """Make the pass; return how it ended. Raise _GivenUp if it was given up."""
    view = _view(task)
    by_base = {each.base_offset: each for each in view.sealed}
    candidates = tuple(by_base[base] for base in task.candidates)
    must = frozenset(by_base[base] for base in task.must)
    plan = Plan(candidates, must, task.by_yield, task.end, 0.0, task.now_ms)
    one = Pass(view, plan, KeyMap(task.buffer_bytes, task.load_factor, task.end), parent)
    result: Cleaned | _Mismatched | Exception = one.done
    size_bytes = 0
    try:
        with closing(one.run()) as steps:
            for step_bytes in steps:
                size_bytes += step_bytes
                if size_bytes >= _TURN_BYTES:
                    parent.ask(_Turn(size_bytes))
                    size_bytes = 0
    except Mismatch as mismatch:
        result = _Mismatched(mismatch.segment.base_offset, str(mismatch))
    except (OSError, StorageError) as error:
        result = error
    except Exception:
        result = RuntimeError(traceback.format_exc())
    return _Ended({each.base_offset: each.sample for each in view.sealed}, result)


def _view(task: _Task) -> View:
    folder = Path()  # see `started`
    shared = Shared(folder, 0)
    shared.sampling_secret = task.sampling_secret
    sealed = []
    for base_offset, size, data, sample in task.sealed:
        summary = Summary.decode(data)
        assert summary is not None
        segment = Segment(
            folder, base_offset, size, summary, task.config.segment_index_bytes, shared, State.SEALED
        )
        segment.use_summary(summary, finished=True)
        segment.sample = sample
        sealed.append(segment)
    epochs = LeaderEpochs(folder, task.epochs)
    return View(folder, task.config, shared, tuple(sealed), epochs, task.senders)
