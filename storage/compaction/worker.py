"""A pass whose work is done in a process of its own, so that it takes neither the GIL nor the memory of the broker.

Owns the process, and what the two processes tell each other. The process opens the sealed segments for itself, writes
the copies, and asks its parent for each change of the log. It waits for its parent after each few megabytes. It lives
as long as the pass, and ends if its parent does. What it is told is pickled: nobody else has the pipes.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from tidelog.config.topic_options import TopicConfig
from tidelog.storage import verification
from tidelog.storage.compaction import copying
from tidelog.storage.compaction.key_map import KeyMap
from tidelog.storage.compaction.one_pass import Changes, Clean, Cleaned, Pass, View
from tidelog.storage.compaction.plan import Plan
from tidelog.storage.errors import Mismatch, OffsetOutOfRange, StorageError, without_frames
from tidelog.storage.key_sample import KeySample
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.segment import Segment, State
from tidelog.storage.shared import Shared
from tidelog.storage.summary import Summary

# The process waits for its parent each time that it has read and written so many bytes.
_TURN_BYTES: Final = 4 << 20
# How long the process may take to end once its pass is given up: it may be waiting for the disk.
_END_S: Final = 60
_PR_SET_PDEATHSIG: Final = 1
# glibc would give the memory of each chunk back to the system, and get it again: a tenth of the time of a pass.
_KEEPS_MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}

_log = logging.getLogger(__name__)
Process = subprocess.Popen[bytes]


# What the parent sends first; its answers to `_Did`, `_Replace` and `_Leave` are True or False.


class _Sealed(NamedTuple):
    base_offset: int
    size: int
    summary: bytes
    sample: KeySample | None


class _Task(NamedTuple):
    folder: Path
    config: TopicConfig
    sampling_secret: bytes
    sealed: list[_Sealed]
    epochs: tuple[tuple[int, int], ...]
    senders: dict[int, int]
    candidates: list[int]  # base offsets, as everywhere
    must: list[int]
    by_yield: bool
    end: int
    now_ms: int
    buffer_bytes: int
    load_factor: float


# What the process sends.


class _Did(NamedTuple):
    size_bytes: int


class _Replace(NamedTuple):
    group: list[int]
    sample: KeySample | None


class _Leave(NamedTuple):
    segment: int
    found: Clean


class _Mismatched(NamedTuple):
    segment: int
    message: str


class _Failed(NamedTuple):
    error: Exception


class _Done(NamedTuple):
    cleaned: Cleaned
    samples: dict[int, KeySample | None]


# The parent.


class WorkerEnded(StorageError):
    """The process of a pass ended before the pass did."""


def started() -> Process | None:
    """Start a process for one pass; return None if the system refuses it."""
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_KEEPS_MEMORY, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Ctrl-C is for the broker, which ends the pass.
        )
    except OSError as error:
        _log.warning("compaction runs in a thread: no process can be started error=%r", str(error))
        return None


def clean(
    process: Process, view: View, plan: Plan, changes: Changes, buffer_bytes: int, load_factor: float
) -> Generator[int, None, Cleaned]:
    """Let a process do the work of a pass; each step yields how many bytes it has read and written.

    The process ends with the generator. Raise OSError or StorageError.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    pipe = _Pipe(process.stdout, process.stdin)
    known = {each.base_offset: each for each in view.sealed}
    try:
        pipe.send(_task(view, plan, buffer_bytes, load_factor))
        while True:
            match pipe.receive():
                case _Did(size_bytes):
                    yield size_bytes
                    pipe.send(True)
                case _Replace(group, sample):
                    sources = [known[base] for base in group]
                    copied = copying.made(sources, view.config, view.shared)
                    copied.sample = sample
                    is_replaced = changes.replace(sources, copied)
                    if is_replaced:
                        known |= dict.fromkeys(group, copied)
                    pipe.send(is_replaced)
                case _Leave(segment, found):
                    changes.note_clean(known[segment], found)
                    pipe.send(True)
                case _Mismatched(segment, message):
                    verification.verify_again(known[segment], 0)
                    raise Mismatch(message, known[segment])
                case _Failed(error):
                    raise error
                case _Done(cleaned, samples):
                    for base, sample in samples.items():
                        known[base].sample = sample
                    return cleaned
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        _end(process)
        raise WorkerEnded(
            f"{view.folder}: the process of a compaction pass ended early, with status {process.returncode}; "
            "-9 may mean that memory ran out"
        ) from None
    finally:
        _end(process)


def _task(view: View, plan: Plan, buffer_bytes: int, load_factor: float) -> _Task:
    return _Task(
        view.folder,
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


def _end(process: Process) -> None:
    """Wait until the process has dropped what it was writing, and has ended."""
    for each in (process.stdin, process.stdout):
        if each is not None:
            with suppress(BrokenPipeError):
                each.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Pipe:
    """The two ends of one side."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    def send(self, what: Any) -> None:
        """Raise BrokenPipeError if the other side has ended."""
        pickle.dump(what, self._outgoing)
        self._outgoing.flush()

    def receive(self) -> Any:
        """Raise EOFError if the other side has ended."""
        return pickle.load(self._incoming)


# The process.


def main() -> None:
    """Do the work of the pass that standard input describes."""
    _end_with_parent()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # They are for the parent, which ends the pass.
    pipe = _Pipe(sys.stdin.buffer, sys.stdout.buffer)
    with suppress(EOFError, BrokenPipeError):  # The pass was given up.
        parent = _Parent(pipe)
        task = pipe.receive()
        pipe.send(_outcome(task, parent))


def _end_with_parent() -> None:
    """Ask the system to kill this process when its parent ends."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Parent:
    """The parent, which makes the changes of the pass."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._pid = os.getppid()

    def ask(self, what: _Did | _Replace | _Leave) -> bool:
        """Raise EOFError or BrokenPipeError if the pass was given up."""
        try:
            self._pipe.send(what)
            return bool(self._pipe.receive())
        except (EOFError, BrokenPipeError):
            if os.getppid() != self._pid:
                os._exit(1)  # A new broker may use the folder already: leave its files alone.
            raise

    def replace(self, group: Sequence[Segment], copied: Segment) -> bool:
        is_replaced = self.ask(_Replace([each.base_offset for each in group], copied.sample))
        if is_replaced:
            copied.become(State.SEALED)
            copied.release()
        return is_replaced

    def note_clean(self, segment: Segment, found: Clean) -> None:
        self.ask(_Leave(segment.base_offset, found))
        found.note(segment)


def _outcome(task: _Task, parent: _Parent) -> _Done | _Mismatched | _Failed:
    """Do the work; return how it ended. Raise EOFError or BrokenPipeError if it was given up."""
    view = _view(task)
    by_base = {each.base_offset: each for each in view.sealed}
    candidates = tuple(by_base[base] for base in task.candidates)
    must = frozenset(by_base[base] for base in task.must)
    plan = Plan(candidates, must, task.by_yield, task.end, 0.0, task.now_ms)
    one = Pass(view, KeyMap(task.buffer_bytes, task.load_factor, task.end), task.now_ms, parent)
    size_bytes = 0
    try:
        with closing(one.run(plan)) as steps:
            for step_bytes in steps:
                size_bytes += step_bytes
                if size_bytes >= _TURN_BYTES:
                    parent.ask(_Did(size_bytes))
                    size_bytes = 0
    except OffsetOutOfRange:
        pass  # Retention has deleted a segment; the next plan is made without it.
    except Mismatch as mismatch:
        return _Mismatched(mismatch.segment.base_offset, str(mismatch))
    except (EOFError, BrokenPipeError):
        raise
    except (OSError, StorageError) as error:
        return _Failed(without_frames(error))
    except Exception:
        return _Failed(RuntimeError(traceback.format_exc()))
    return _Done(one.done, {each.base_offset: each.sample for each in view.sealed})


def _view(task: _Task) -> View:
    shared = Shared(task.folder, 0)
    shared.sampling_secret = task.sampling_secret
    sealed = []
    for base_offset, size, data, sample in task.sealed:
        summary = Summary.decode(data)
        assert summary is not None
        segment = Segment(
            task.folder, base_offset, size, summary, task.config.segment_index_bytes, shared, State.SEALED
        )
        segment.use_summary(summary, finished=True)
        segment.sample = sample
        sealed.append(segment)
    epochs = LeaderEpochs(task.folder, task.epochs)
    return View(task.folder, task.config, shared, tuple(sealed), epochs, task.senders)
