"""One life of the broker's storage on a disk in memory, from its start to its crash, and what it has promised so far.

Owns: the record of that life: the disk's journal, and the ledger as of each place in it; start, stop, and the judgement
after each start. Refuses to know: what is done in between (`world`), and which crash states are looked at.
"""

import contextlib
import itertools
import random
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from tests.fault.crash import soundness
from tests.fault.crash.ledger import Judge, Ledger, LogState, TopicState, Violation, cut, maybe_cut
from tests.fault.crash.memory import Catalogue
from tests.support.disk.image import Image
from tests.support.disk.system import FOLDER, Disk, Fault, System
from tests.support.reference_index import rebuilt
from tidelog.broker.topics import Topics
from tidelog.config.options import BrokerConfig
from tidelog.storage import files
from tidelog.storage.errors import StorageError
from tidelog.storage.group_sync import GroupSync
from tidelog.storage.layout import BOOT, CLEAN_SHUTDOWN
from tidelog.storage.log_manager import LogManager
from tidelog.storage.summary import Summary

CONFIG = BrokerConfig(log_dir=FOLDER)


class Loop:
    """An event loop of one thread, that does at once what it is asked to."""

    def call_soon_threadsafe(self, job: Callable[..., object], *arguments: object) -> None:
        """Do it."""
        job(*arguments)


LOOP: Any = Loop()


class Process:
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
        # Where files are taken away, which nobody does outside of a test, up to the end of the start after that.
        self.as_kafka_places: list[tuple[int, int]] = []
        self.is_left_by_us = True  # what this life began with
        self.was_cut = False  # the power, in a life before
        self.is_checked = False  # whether `fsck` looks at what this life makes
        self.was_refused = fault is not None  # the disk has failed, in this life or in one before
        self.has_holes = False  # something is damaged, as may be: such a life is not gone on with
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

    def served(self) -> list[tuple[str, int]]:
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
        if BOOT not in self.disk.image.tree().files():
            # The disk has refused something: this start takes nothing for granted, no append time either.
            self._bound_times()
        catalogue: Any = Catalogue(self.disk)
        self.logs = LogManager(FOLDER, config, lambda: self.now_ms)
        self.topics = Topics(catalogue, self.logs, config, LOOP)
        try:
            self.logs.lock()
            self.topics.open()
            for log in self.logs.logs.values():
                if log.unopened is not None:
                    raise StorageError(log.unopened)  # It is served after a start that finds the disk well.
            self.sync = GroupSync(FOLDER, self.logs.trust)
        except Exception as error:
            if not self.disk.failed:
                raise Violation("start", f"refused: {error!r}") from error
            self.logs.abandon()
            if self.disk.fault is None:
                raise Violation("start", f"refused after the failure was over: {error!r}") from error
            self.disk.heal()
            if self.disk.image.has_given_up:
                self.level, self.ledger = "cut", cut(self.ledger)
            self.start()
            return
        self.judge()
        self.mark()
        self.check_soundness(self.disk, "served")

    def check_soundness(self, disk: Disk, moment: str) -> None:
        """Hold what is there against what `fsck` says of it, in some lives."""
        if self.is_checked and not self.has_holes:
            was_refused = bool(self.disk.failed) or self.was_refused
            soundness.check(disk, moment, was_refused=was_refused, was_cut=self.was_cut)

    def judge(self) -> None:
        """Hold everything that is served against the ledger, and promise it from now on."""
        with self.disk.at_rest():
            self._judge()

    def _judge(self) -> None:
        for name, known in list(self.ledger.items()):
            topic = self.topics.by_name.get(name)
            if topic is None or topic.id != known.id:
                if not known.maybe:
                    raise Violation("I1", f"topic {name} is gone")
                del self.ledger[name]
            else:
                pairs = zip(topic.partitions, known.logs, strict=True)
                judges = [self.judge_of(partition.log, state) for partition, state in pairs]
                states = tuple(judge.judge() for judge in judges)
                self.has_holes = self.has_holes or any(judge.holes for judge in judges)
                self.ledger[name] = known._replace(logs=states, maybe=False)
        for name, topic in list(self.topics.by_name.items()):
            if name not in self.ledger:
                if any(part.log.log_end_offset for part in topic.partitions):
                    raise Violation("deletion", f"topic {name} came back")
                self.ledger[name] = TopicState(topic.id, topic.options, (LogState(),) * len(topic.partitions))

    def judge_of(self, log: Any, state: LogState) -> Judge:
        """Return who holds a log against what is promised of it."""
        return Judge(log, state, self.level)

    def kill(self) -> None:
        """End the process without a word, and start it again."""
        self.steps.append("kill")
        self.logs.abandon()
        self._end()
        self.start()

    def view(self) -> Any:
        """Return what clients see, but for leader epochs."""
        # What lies behind the end of a log that a failing disk kept from being cut nobody sees; a later start cuts it.
        sizes = {
            f"{part.log}/{segment.path('.log').name}": segment.size
            for topic in self.topics.by_name.values()
            for part in topic.partitions
            for segment in part.log.segments
        }
        found = self.disk.image.tree().files()
        return [
            (str(part.log), part.log.log_start_offset, part.log.log_end_offset)
            for _, topic in sorted(self.topics.by_name.items())
            for part in topic.partitions
        ], {
            # What a failing disk leaves of a deleted partition or segment nobody sees, and each start tries to remove
            # it. The file of an empty segment that could not be made is made by the next: nobody sees that either.
            path: found.get(path, b"")[:size]
            for path, size in sizes.items()
        }

    def start_twice(self) -> None:
        """I9: to start again changes nothing, unless a failed sync has given up data that this start has still seen."""
        if self.disk.image.has_given_up:
            return
        before = self.view()
        self.kill()
        after = self.view()
        if before != after:
            raise Violation("I9", f"after another start: {_difference(before, after)}")

    def stop(self) -> None:
        """Stop cleanly, look at the indexes, and start again."""
        self.steps.append("stop")
        self._stop()

    def as_kafka(self) -> None:
        """Stop cleanly, take away what Kafka would not have written, and start again (S15)."""
        self.steps.append("as Kafka leaves it")
        place = len(self.disk.journal)
        self._stop(self._forget)
        self.as_kafka_places.append((place, len(self.disk.journal)))

    def _bound_times(self) -> None:
        for name, known in self.ledger.items():
            logs = tuple(
                state._replace(bounded=max(len(sent) for sent in (state.sent, *state.former)))
                for state in known.logs
            )
            self.ledger[name] = known._replace(logs=logs)

    def _forget(self) -> None:
        self._bound_times()
        for name, known in self.ledger.items():
            logs = tuple(state._replace(of_kafka=len(state.sent)) for state in known.logs)
            self.ledger[name] = known._replace(logs=logs)
        self.mark()
        left = self.disk.image.tree().files()
        for suffix in (".summary", ".appendindex"):  # A summary would vouch for append times that are gone.
            for path in (each for each in left if each.endswith(suffix)):
                with contextlib.suppress(OSError):
                    files.remove(FOLDER / path)
                    files.sync_folder((FOLDER / path).parent)

    def _stop(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        try:
            self.logs.close()
        except (OSError, StorageError) as error:
            self.failed("stop", StorageError(str(error)))
        tree = self.disk.image.tree()
        clean = CLEAN_SHUTDOWN in tree.files()
        if not clean and not self.disk.failed and not self.was_failed:
            raise Violation("refused", "a clean stop left no marker")
        for name, known in self.ledger.items():
            if clean:
                logs = tuple(state._replace(durable=state.written, former=()) for state in known.logs)
                self.ledger[name] = known._replace(logs=logs)
        self.mark()
        if clean and not self.disk.failed:
            self._check_indexes(tree.files())
            meanwhile()
        self.logs.abandon()
        if clean:
            self.check_soundness(self.disk, "closed")
        self.disk.heal()
        self._end()
        self.start()

    def _end(self) -> None:
        """Go on as another process: nothing may be lost but what a failed sync gave up."""
        self.level = "kill"
        self.was_failed = self.was_failed or bool(self.disk.failed)
        if self.was_failed:
            self.ledger = maybe_cut(self.ledger)
        if self.disk.image.has_given_up:
            self.level, self.ledger = "cut", cut(self.ledger)
            self.mark()

    def _check_indexes(self, found: dict[str, bytes]) -> None:
        """I5: index files are what the log's bytes say.

        One may be missing of a segment before the log's start, whose deletion a power cut has undone in part: no
        lookup comes to it, whoever reads it nevertheless makes the index anew, and the next retention deletes it.
        """
        to_be_deleted = {
            f"{log}/{segment.base_offset:020d}"
            for log in (self.log(*key) for key in self.served())
            for segment, following in itertools.pairwise(log.segments)
            if following.base_offset <= log.log_start_offset
        }
        for path, data in found.items():
            if not path.endswith(".log"):
                continue
            folder, _, name = path[: -len(".log")].rpartition("/")
            topic = folder.rpartition("-")[0]
            if topic not in self.ledger:
                continue
            interval = int(self.ledger[topic].options.get("index.interval.bytes", 4096))
            summary = Summary.decode(found.get(f"{folder}/{name}.summary", b""))
            if summary is not None and summary.damage:
                continue  # which a failed sync has left; what can be read of it is held against the ledger
            wanted = rebuilt(data, int(name), interval)
            for suffix, index in zip((".index", ".timeindex"), wanted, strict=True):
                there = found.get(f"{folder}/{name}{suffix}")
                if there is None and f"{folder}/{name}" in to_be_deleted:
                    continue
                if (there or b"") != index:
                    raise Violation("I5", f"{folder}/{name}{suffix} is not what the log says")


def _difference(before: Any, after: Any) -> str:
    if before[0] != after[0]:
        return f"{before[0]} became {after[0]}"
    names = [name for name in {*before[1], *after[1]} if before[1].get(name) != after[1].get(name)]
    return f"{names} changed"
