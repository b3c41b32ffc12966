"""A broker's storage on a disk in memory, driven step by step, with a ledger of what each step has promised.

Owns: one life of the process, from its start to its crash, and the record of it: the disk's journal, and the ledger as
of each place in it. Refuses to know: which steps make a scenario, and which crash states are looked at.
"""

import contextlib
import itertools
import logging
import random
import threading
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.fault.crash.ledger import Judge, Ledger, LogState, Sent, TopicState, Violation, cut
from tests.support.disk.image import Image, Op
from tests.support.disk.system import FOLDER, Disk, Fault, System, installed
from tests.support.reference_index import rebuilt
from tidelog.broker.topics import Topic, Topics
from tidelog.config.options import BrokerConfig
from tidelog.protocol.records import batch as record_batch
from tidelog.protocol.records.build import Record, build_batch
from tidelog.storage import group_sync, log, log_manager
from tidelog.storage.errors import StorageError
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.log_manager import CLEAN_SHUTDOWN, LogManager

START_MS = 1_700_000_000_000
CONFIG = BrokerConfig(log_dir=FOLDER)


class Catalogue:
    """What `Catalog` keeps, and as durable: each change is whole, and on disk once it returns."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        state = disk.image.catalogue or ((), (), 0)
        self._topics = {record.name: record for record in state[0]}
        self._deletions = list(state[1])
        self._next_id = state[2]

    def _save(self) -> None:
        state = (tuple(self._topics.values()), tuple(self._deletions), self._next_id)
        self._disk.do(Op("catalogue", other=state))

    def topics(self) -> list[Any]:
        return [self._topics[name] for name in sorted(self._topics)]

    def add_topic(self, record: Any) -> None:
        assert record.name not in self._topics
        self._topics[record.name] = record
        self._save()

    def remove_topic(self, name: str) -> None:
        if self._topics.pop(name, None) is not None and name not in self._deletions:
            self._deletions.append(name)
        self._save()

    def deletion_done(self, name: str) -> None:
        if name in self._deletions:
            self._deletions.remove(name)
        self._save()

    def deletions(self) -> list[str]:
        return list(self._deletions)

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
            (log, "SAVE_INTERVAL_BYTES", save_bytes),
            (group_sync, "time", SimpleNamespace(monotonic=lambda: next(ticks) * 1.0)),
            (uuid, "uuid4", lambda: uuid.UUID(int=next(system.numbers) << 64)),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        logging.disable(logging.CRITICAL)
        try:
            yield system
        finally:
            logging.disable(level)


class World:
    """One life of the process; `marks` is (place in the journal, ledger) in order."""

    def __init__(
        self,
        system: System,
        image: Image,
        ledger: Ledger,
        now_ms: int,
        rng: random.Random,
        *,
        life: int = 0,
        level: str = "kill",
        fault: Fault | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.rng = rng
        self.disk = system.disk = Disk(image, lambda: self.now_ms, fault)
        self.ledger = dict(ledger)
        self.level = level  # what this life may have lost before it began
        self.steps: list[str] = []
        self.marks: list[tuple[int, Ledger]] = [(0, dict(ledger))]
        self.was_failed = False
        self.logs: LogManager
        self.topics: Topics
        self.sync: GroupSync
        # Alike in all histories, so that a state counts as another only where something else happened.
        self._serial = life * 10_000
        system.numbers = itertools.count(1 + life * 10_000)

    # Promises.

    def mark(self, place: int | None = None) -> None:
        """Write down what is promised from a place in the journal on."""
        self.marks.append((len(self.disk.journal) if place is None else place, dict(self.ledger)))

    def promised(self, place: int) -> Ledger:
        """Return what was promised when the disk had got to a place in its journal."""
        return self.marks[bisect_right(self.marks, place, key=lambda mark: mark[0]) - 1][1]

    def put(self, topic: str, index: int, state: LogState) -> None:
        """Replace what is promised of a log."""
        known = self.ledger[topic]
        logs = (*known.logs[:index], state, *known.logs[index + 1 :])
        self.ledger[topic] = known._replace(logs=logs)

    def keys(self) -> list[tuple[str, int]]:
        """Return the logs that are served."""
        return [
            (name, index)
            for name, state in sorted(self.ledger.items())
            if not state.maybe and name in self.topics.by_name
            for index in range(len(state.logs))
        ]

    def log(self, topic: str, index: int) -> Any:
        """Return a log."""
        return self.topics.by_name[topic].partitions[index].log

    def state(self, topic: str, index: int) -> LogState:
        """Return what is promised of a log."""
        return self.ledger[topic].logs[index]

    def failed(self, step: str, error: Exception) -> None:
        """Take note that a step was refused; without a failure of the disk it must not be."""
        if not self.disk.failed and not self.was_failed:
            raise Violation("refused", f"{step} without any failure: {error!r}") from error
        if not isinstance(error, StorageError):
            raise Violation("error", f"{step} ended in {error!r}, no StorageError") from error

    # Life.

    def start(self) -> None:
        """Start the process, judge what it serves, and go on from that."""
        config = CONFIG
        self.steps.append("start")
        catalogue: Any = Catalogue(self.disk)
        self.logs = LogManager(FOLDER, config, lambda: self.now_ms)
        self.topics = Topics(catalogue, self.logs, config)
        try:
            self.logs.lock()
            self.topics.open()
        except Exception as error:
            if not self.disk.failed:
                raise Violation("start", f"refused: {error!r}") from error
            self.logs.abandon()
            if self.disk.fault is None:
                raise Violation("start", f"refused after the failure was over: {error!r}") from error
            self.disk.heal()
            self.start()
            return
        self.sync = GroupSync(FOLDER)
        self.judge()
        self.mark()

    def judge(self) -> None:
        """Hold everything that is served against the ledger, and promise it from now on."""
        fault, self.disk.fault = self.disk.fault, None
        try:
            self._judge()
        finally:
            self.disk.fault = fault

    def _judge(self) -> None:
        for name, known in list(self.ledger.items()):
            topic = self.topics.by_name.get(name)
            if topic is None or topic.id != known.id:
                if not known.maybe:
                    raise Violation("I1", f"topic {name} is gone")
                del self.ledger[name]
            else:
                states = [
                    Judge(partition.log, state, self.level).judge()
                    for partition, state in zip(topic.partitions, known.logs, strict=True)
                ]
                self.ledger[name] = known._replace(logs=tuple(states), maybe=False)
        for name, topic in list(self.topics.by_name.items()):
            if name not in self.ledger:
                if any(part.log.log_end_offset for part in topic.partitions):
                    raise Violation("deletion", f"topic {name} came back")
                self.ledger[name] = TopicState(topic.id, topic.options, (LogState(),) * len(topic.partitions))

    def kill(self) -> None:
        """End the process without a word, and start it again."""
        self.steps.append("kill")
        self.logs.abandon()
        self._end()
        self.start()

    def view(self) -> Any:
        """Return what clients see, but for leader epochs."""
        return [
            (str(part.log), part.log.log_start_offset, part.log.log_end_offset)
            for _, topic in sorted(self.topics.by_name.items())
            for part in topic.partitions
        ], {path: data for path, data in self.disk.image.tree().files().items() if path.endswith(".log")}

    def start_twice(self) -> None:
        """I9: to start again changes nothing."""
        before = self.view()
        self.kill()
        after = self.view()
        if before != after:
            raise Violation("I9", f"after another start: {_difference(before, after)}")

    def stop(self) -> None:
        """Stop cleanly, look at the indexes, and start again."""
        self.steps.append("stop")
        try:
            self.logs.close()
        except (OSError, StorageError) as error:
            self.failed("stop", StorageError(str(error)))
        tree = self.disk.image.tree()
        clean = any(path == CLEAN_SHUTDOWN for path, _, _ in tree.entries)
        if not clean and not self.disk.failed and not self.was_failed:
            raise Violation("refused", "a clean stop left no marker")
        for name, known in self.ledger.items():
            if clean:
                logs = tuple(state._replace(durable=state.written, former=(), cut_to=None) for state in known.logs)
                self.ledger[name] = known._replace(logs=logs)
        self.mark()
        if clean and not self.disk.failed:
            self._check_indexes(tree.files())
        self.logs.abandon()
        self.disk.heal()
        self._end()
        self.start()

    def _end(self) -> None:
        """Go on as another process: nothing may be lost but what a failed sync gave up."""
        self.level = "kill"
        self.was_failed = self.was_failed or bool(self.disk.failed)
        if self.disk.image.has_given_up:
            self.level, self.ledger = "cut", cut(self.ledger)
            self.mark()

    def _check_indexes(self, files: dict[str, bytes]) -> None:
        """I5: index files are what the log's bytes say."""
        for path, data in files.items():
            if not path.endswith(".log"):
                continue
            folder, _, name = path[: -len(".log")].rpartition("/")
            topic = folder.rpartition("-")[0]
            if topic not in self.ledger:
                continue
            interval = int(self.ledger[topic].options.get("index.interval.bytes", 4096))
            wanted = rebuilt(data, int(name), interval)
            for suffix, index in zip((".index", ".timeindex"), wanted, strict=True):
                if files.get(f"{folder}/{name}{suffix}") != index:
                    raise Violation("I5", f"{folder}/{name}{suffix} is not what the log says")

    # Topics.

    def create(self, topic: str, partitions: int, options: dict[str, str]) -> None:
        """Create a topic."""
        self.steps.append(f"create {topic}")
        place = len(self.disk.journal)
        try:
            made: Topic = self.topics.create(topic, partitions, options)
        except (StorageError, OSError) as error:
            self.failed(f"create {topic}", error)
            return
        state = TopicState(made.id, options, (LogState(),) * partitions)
        self.ledger[topic] = state._replace(maybe=True)
        self.mark(place)
        self.ledger[topic] = state
        self.mark()

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.steps.append(f"delete {topic}")
        self.ledger[topic] = self.ledger[topic]._replace(maybe=True)
        self.mark()
        try:
            self.topics.delete(self.topics.by_name[topic])
        except (StorageError, OSError) as error:
            self.failed(f"delete {topic}", error)
            return
        del self.ledger[topic]
        self.mark()

    # Logs.

    def append(
        self, topic: str, index: int, *, size: int = 60, count: int = 1, producer: int | None = None
    ) -> None:
        """Append a batch of records whose times go up and down."""
        self.steps.append(f"append {topic}-{index}")
        state, target = self.state(topic, index), self.log(topic, index)
        self._serial += 1
        sequence = -1
        if producer is not None:
            numbers = [
                each.producer[1] + len(each.times)
                for each in state.sent
                if each.producer is not None and each.producer[0] == producer
            ]
            sequence = numbers[-1] if numbers else 0
        times = tuple(self.now_ms - self.rng.randrange(8) for _ in range(count))
        value = b"%x" % self._serial
        records = [Record(n, at, None, value.ljust(size, b"%d" % n)) for n, at in enumerate(times)]
        data = bytearray(
            build_batch(
                records,
                producer_id=-1 if producer is None else producer,
                producer_epoch=-1 if producer is None else 0,
                base_sequence=sequence,
            )
        )
        place = len(self.disk.journal)
        try:
            appended = target.append(data, self.now_ms)
        except (StorageError, OSError) as error:
            self.failed(f"append {topic}-{index}", error)
            return
        if appended.append_time_ms >= 0:
            times = (appended.append_time_ms,) * count
            if appended.append_time_ms < state.append_ms:
                raise Violation(
                    "S52", f"{target}: appended at {appended.append_time_ms}, after {state.append_ms}"
                )
        if appended.duplicate:
            raise Violation("producers", f"{target}: a new batch of producer {producer} is taken for an old one")
        if appended.base_offset != state.end:
            raise Violation("I2", f"{target}: offset {appended.base_offset} given out, {state.end} is next")
        sent = Sent(
            appended.base_offset,
            appended.last_offset,
            bytes(data),
            times,
            max(appended.append_time_ms, 0),
            None if producer is None else (producer, sequence),
        )
        state = state._replace(sent=(*state.sent, sent))
        self.put(topic, index, state)
        self.mark(place)
        state = state._replace(
            written=len(state.sent), seen=len(state.sent), end=sent.last + 1, append_ms=max(state.append_ms, sent.append_ms)
        )
        self.put(topic, index, state)
        self.mark()

    def resend(self, topic: str, index: int) -> None:
        """Send one of a producer's last five batches again: it is known."""
        state, target = self.state(topic, index), self.log(topic, index)
        by_producer: dict[int, list[Sent]] = {}
        for each in state.sent:
            if each.producer is not None:
                by_producer.setdefault(each.producer[0], []).append(each)
        for producer, all_sent in sorted(by_producer.items()):
            each = self.rng.choice(all_sent[-5:])
            if each.base < state.start:
                continue
            self.steps.append(f"resend {topic}-{index} {each.producer}")
            data = bytearray(each.data)
            record_batch.set_base(data, 0, 0, -1)
            try:
                appended = target.append(data, self.now_ms)
            except (StorageError, OSError) as error:
                self.failed(f"resend of {each.producer} to {target}", error)
                continue
            if not appended.duplicate or appended.base_offset != each.base:
                raise Violation(
                    "producers",
                    f"{target}: producer {producer} sent the batch at {each.base} again, answered {appended}",
                )

    def flush(self, topic: str, index: int, meanwhile: Callable[[], None] | None = None) -> None:
        """Flush a log; `meanwhile` is done by another thread while the disk is at it."""
        self.steps.append(f"flush {topic}-{index}")
        target, before = self.log(topic, index), self.state(topic, index)
        with self._during_sync(meanwhile):
            try:
                end = target.flush()
            except (StorageError, OSError) as error:
                self.failed(f"flush {topic}-{index}", error)
                return
        if end < before.end and end != target.log_end_offset:
            raise Violation("I1", f"{target}: a flush at {before.end} says that it got to {end}")
        self._flushed(topic, index, before, end)
        self.mark()

    def _flushed(self, topic: str, index: int, before: LogState, end: int) -> None:
        if topic not in self.ledger or self.ledger[topic].maybe:
            return
        state = self.state(topic, index)
        durable = sum(1 for each in before.sent if each.last < end)
        if before.sent != state.sent[: len(before.sent)]:
            return  # cut meanwhile
        self.put(topic, index, state._replace(durable=max(durable, state.durable), former=(), cut_to=None))

    def flush_all(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Flush all logs as one commit."""
        self.steps.append("flush all")
        keys = self.keys()
        before = {key: self.state(*key) for key in keys}
        by_key = {key: self.log(*key) for key in keys}
        with self._during_sync(meanwhile):
            try:
                failures = self.sync.flush(list(by_key.values()))
            except Exception as error:
                self.failed("flush all", error)
                return
        if failures:
            self.failed("flush all", next(iter(failures.values())))
        for key, target in by_key.items():
            if target not in failures:
                self._flushed(*key, before[key], before[key].end)
        self.mark()

    @contextlib.contextmanager
    def _during_sync(self, meanwhile: Callable[[], None] | None) -> Iterator[None]:
        """Run something on another thread within the first sync, after the disk has looked for what it is to write."""
        if meanwhile is None:
            yield
            return
        real, threads, errors = self.disk.sync, list[threading.Thread](), list[BaseException]()

        def run() -> None:
            try:
                meanwhile()
            except BaseException as error:
                errors.append(error)

        def sync(fd: int | None) -> None:
            real(fd)
            if not threads:
                self.steps.append("meanwhile:")
                threads.append(threading.Thread(target=run, daemon=True))
                threads[0].start()
                threads[0].join(0.5)

        self.disk.sync = sync  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.disk.sync
            for thread in threads:
                thread.join(10)
            if errors:
                raise errors[0]

    def roll(self, topic: str, index: int) -> None:
        """Seal the active segment."""
        self.steps.append(f"roll {topic}-{index}")
        try:
            self.log(topic, index).roll(self.now_ms)
        except (StorageError, OSError) as error:
            self.failed(f"roll {topic}-{index}", error)

    def checkpoint(self) -> None:
        """Write the checkpoints."""
        self.steps.append("checkpoint")
        starts = {key: self.log(*key).log_start_offset for key in self.keys()}
        try:
            self.logs.checkpoint()
        except (StorageError, OSError) as error:
            self.failed("checkpoint", StorageError(str(error)))
            return
        for (topic, index), start in starts.items():
            self.put(topic, index, self.state(topic, index)._replace(certain_start=start))
        self.mark()

    def retain(self) -> None:
        """Enforce retention; I8: it takes nothing that has not expired, and leaves nothing that has."""
        self.steps.append(f"retain at {self.now_ms - START_MS}")
        place = len(self.disk.journal)
        before = {key: self.log(*key).log_start_offset for key in self.keys()}
        try:
            self.logs.enforce_retention()
        except (StorageError, OSError) as error:
            self.failed("retain", error)
        for key, old in before.items():
            new = self.log(*key).log_start_offset
            state = self.state(*key)
            if new != old:
                self.put(*key, state._replace(start=max(new, state.start)))
                self._check_retention(*key, old, new)
        self.mark(place)

    def _check_retention(self, topic: str, index: int, old: int, new: int) -> None:
        options, state = self.ledger[topic].options, self.state(topic, index)
        gone = [each for each in state.sent if old <= each.last < new]
        left = sum(len(each.data) for each in state.sent if each.base >= new)
        by_time = int(options.get("retention.ms", -1))
        by_size = int(options.get("retention.bytes", -1))
        oldest = self.now_ms - by_time
        for each in gone:
            expired = by_time >= 0 and max(each.times) < oldest
            surplus = by_size >= 0 and left >= by_size
            if not (expired or surplus):
                raise Violation("I8", f"{topic}-{index}: the batch at {each.base} had not expired")

    def truncate(self, topic: str, index: int, offset: int) -> None:
        """Cut a log."""
        self.steps.append(f"truncate {topic}-{index} to {offset}")
        state, target = self.state(topic, index), self.log(topic, index)
        place = len(self.disk.journal)
        kept = tuple(each for each in state.sent if each.last < offset)
        after = state._replace(
            former=(*state.former, state.sent), durable=min(len(kept), state.durable), written=min(len(kept), state.written)
        )
        self.put(topic, index, after)
        self.mark(place)
        try:
            target.truncate(offset)
        except (StorageError, OSError) as error:
            self.failed(f"truncate {topic}-{index}", error)
            kept = tuple(each for each in state.sent if each.last < target.log_end_offset)
        end = target.log_end_offset
        if end != (kept[-1].last + 1 if kept else 0) and end != state.start:
            raise Violation("I2", f"{target}: ends at {end} after a cut to {offset}")
        after = after._replace(sent=kept, written=len(kept), seen=len(kept), durable=min(len(kept), state.durable))
        after = after._replace(
            end=end, start=min(state.start, end), certain_start=min(state.certain_start, end)
        )
        self.put(topic, index, after)
        self.mark()

    def advance_start(self, topic: str, index: int, offset: int) -> None:
        """Let a log begin later."""
        self.steps.append(f"advance {topic}-{index} to {offset}")
        target, state = self.log(topic, index), self.state(topic, index)
        place = len(self.disk.journal)
        self.put(topic, index, state._replace(start=max(state.start, offset)))
        self.mark(place)
        target.advance_start(offset)


def _difference(before: Any, after: Any) -> str:
    if before[0] != after[0]:
        return f"{before[0]} became {after[0]}"
    names = [name for name in {*before[1], *after[1]} if before[1].get(name) != after[1].get(name)]
    return f"{names} changed"
