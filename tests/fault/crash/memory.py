"""The surroundings in which storage runs alike each time: no threads, no chance, no clock, no real disk.

Owns: what of storage is replaced for that, by name, so that a name that has gone is an error. Refuses to know: what is
done with it.
"""

import contextlib
import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.support.disk.image import Op
from tests.support.disk.system import Disk, System, installed
from tidelog.storage import durability, group_sync, log_manager


class Catalogue:
    """What `Catalog` keeps, and as durable: each change is whole, and on disk once it returns."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        state = disk.image.catalogue or ((), (), 0, 0)
        self._topics = {record.name: record for record in state[0]}
        self._deletions = list(state[1])
        self._next_id, self._first_epoch = state[2:]

    def _save(self) -> None:
        state = (tuple(self._topics.values()), tuple(self._deletions), self._next_id, self._first_epoch)
        self._disk.do(Op("catalogue", other=state))

    def topics(self) -> list[Any]:
        return [self._topics[name] for name in sorted(self._topics)]

    def add_topic(self, record: Any) -> None:
        self.add_topics([record])

    def add_topics(self, records: Iterable[Any]) -> None:
        for record in records:
            assert record.name not in self._topics
            self._topics[record.name] = record
        self._save()

    def remove_topic(self, name: str, next_epoch: int = 0) -> None:
        self._first_epoch = max(self._first_epoch, next_epoch)
        if self._topics.pop(name, None) is not None and name not in self._deletions:
            self._deletions.append(name)
        self._save()

    def deletion_done(self, name: str) -> None:
        if name in self._deletions:
            self._deletions.remove(name)
        self._save()

    def deletions(self) -> list[str]:
        return list(self._deletions)

    def first_epoch(self) -> int:
        return self._first_epoch

    def raise_first_epoch(self, epoch: int) -> None:
        self._first_epoch = max(self._first_epoch, epoch)
        self._save()

    def next_producer_id(self) -> int:
        self._next_id += 1
        self._save()
        return self._next_id - 1

    def close(self) -> None:
        pass


class _Inline:
    """A pool of threads that has none: what storage does at once is done in order."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> "_Inline":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *lists: Any) -> list[Any]:
        return list(map(function, *lists))


@contextlib.contextmanager
def memory(save_bytes: int = 1500) -> Iterator[System]:
    """Let storage run on disks in memory, alike each time: no threads, no chance, no clock."""
    ticks = itertools.count()
    level = logging.root.manager.disable
    with installed() as system, contextlib.ExitStack() as stack:
        for owner, name, value in (
            (log_manager, "ThreadPoolExecutor", _Inline),
            (durability, "SAVE_INTERVAL_BYTES", save_bytes),
            (group_sync, "time", SimpleNamespace(monotonic=lambda: next(ticks) * 1.0)),
            (uuid, "uuid4", lambda: uuid.UUID(int=next(system.numbers) << 64)),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        logging.disable(logging.CRITICAL)
        try:
            yield system
        finally:
            logging.disable(level)
