"""The broker as a process: start and stop, the ready file, and settings of the interpreter."""

import asyncio
import gc
import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog.broker.broker import Broker, BrokerFailed
from tidelog.broker.clock import Clock
from tidelog.broker.net import freed_memory
from tidelog.broker.net.server import Server
from tidelog.config.kinds import host_and_port
from tidelog.config.options import BrokerConfig
from tidelog.storage import files
from tidelog.storage.log_manager import LogManager

SWITCH_INTERVAL_S: Final = 20e-6
# New objects before the collector runs. Five hundred waiting fetches are some 7,500 objects, none of them garbage. With
# Python's 700 the collector looked at each again and again, for a tenth of the cost of a poll.
NEW_OBJECTS: Final = 10_000
# The collector runs once for so many new partitions, which takes some 20 ms, and then ignores their objects. One
# collection of all objects of 27,000 partitions stops the broker for 0.4 to 0.9 s.
SET_ASIDE_PARTITIONS: Final = 1_000


async def serve(
    config: BrokerConfig,
    ready: Callable[[Broker, list[tuple[str, int]]], None],
    *,
    clock: Clock | None = None,
    test_control: bool = False,
    stop_at_eof: bool = False,
) -> None:
    """Run a broker until it is stopped; `ready` is called once it answers.

    `test_control` lets a test control it (`broker.control`); `stop_at_eof` stops it when standard input ends.

    Raises StorageError, CatalogError, OSError or CannotListen if the data folder or an address cannot be used. Raises
    BrokerFailed after a stop because a thread ended with an exception, or if not everything could be written to disk.
    """
    # The flusher returns from the disk to a busy interpreter, and must not wait for Python's default of 5 ms.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    freed_memory.keep_some()
    gc.set_threshold(NEW_OBJECTS)
    broker = Broker(config, clock or Clock())
    broker.start()
    try:
        _set_aside()
        created = _Created(broker.logs)
        broker.topics.watch(created.look, created.look)
        freed_memory.give_back()  # The imports and the start have freed some.
        server = Server(broker, test_control=test_control)
        if stop_at_eof:
            threading.Thread(target=_watch_input, args=(broker.loop, server.stop), daemon=True).start()
        await server.run(lambda addresses: ready(broker, addresses))
    finally:
        broker.stop()
    if broker.failure is not None:
        raise BrokerFailed(
            f"{broker.failure}; the log says how; what was acknowledged with acks=all is on disk: start it again"
        )


def _set_aside() -> None:
    """Collect garbage, and exclude all present objects from later collections: most of them stay."""
    gc.collect()
    gc.freeze()


class _Created:
    """Excludes partitions from garbage collection that are created while the broker runs."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._count = len(logs.logs)  # of partitions that were set aside, at most

    def look(self, *_: object) -> None:
        """Set partitions aside if there are many new ones, after a topic was created, changed or deleted."""
        count = len(self._logs.logs)
        if count - self._count >= SET_ASIDE_PARTITIONS:
            _set_aside()
            self._count = count
        self._count = min(self._count, count)


def _watch_input(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Stop when standard input ends: the process at its other end has gone."""
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    with suppress(RuntimeError):  # the loop is closed: the broker has stopped already
        loop.call_soon_threadsafe(stop)


def ready_file_problem(path: Path, data_folder: Path) -> str | None:
    """Return why a ready file cannot be written here, or None. Only regular files are replaced, and links not followed.

    The data folder may be missing: it is created before the file.
    """
    try:
        for written in (path, files.temporary_of(path)) if path.name else (path,):
            if not _may_be_replaced(written):
                return f"{written} is no regular file, and nothing else is replaced"
    except OSError as error:
        return str(error.strerror)
    folder = path.parent
    if not folder.exists():
        return None if folder.resolve() == data_folder.resolve() else f"there is no folder {folder}"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"no file can be made in {folder}"


def _may_be_replaced(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def write_ready_file(path: Path, address: tuple[str, int]) -> None:
    """Write `host:port` to a file that appears complete or not at all."""
    files.write_atomically(path, f"{host_and_port(*address)}\n".encode())
