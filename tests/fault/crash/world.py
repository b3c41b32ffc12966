"""What a scenario can do with the broker's storage, step by step, each with what it promises.

Owns: the steps on topics and logs, and the promise that each makes once it has returned, or may have made before.
Refuses to know: which steps make a scenario, and crashes.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from tests.fault.crash.ledger import LogState, Sent, TopicState, Violation
from tests.fault.crash.process import Process
from tests.support.logs import retain
from tidelog.broker.topics import Topic
from tidelog.protocol.records import batch as record_batch
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.compression import GZIP, NONE
from tidelog.protocol.records.steps import at_once
from tidelog.storage.errors import StorageError

START_MS = 1_700_000_000_000


class World(Process):
    """A life in which something is done."""

    # Topics.

    def create(self, topic: str, partitions: int, options: dict[str, str]) -> None:
        """Create a topic."""
        self.steps.append(f"create {topic}")
        place = len(self.disk.journal)
        try:
            made: Topic = at_once(self.topics.create(topic, partitions, options))
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
            at_once(self.topics.delete(self.topics.by_name[topic]))
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
        data = bytearray(
            build_batch(
                self.records(times, size),
                producer_id=-1 if producer is None else producer,
                producer_epoch=-1 if producer is None else 0,
                base_sequence=sequence,
                # Of messages that are not compressed each is an entry of its own.
                codec=GZIP if target.magic != record_batch.MAGIC and count > 1 else NONE,
            )
        )
        checked = None
        if target.magic != record_batch.MAGIC:
            checked = at_once(target.check(data, self.now_ms))
            data = bytearray(checked[0])  # what is converted is stored in its place
            checked = data, checked[1]
        place = len(self.disk.journal)
        try:
            appended = target.append(data, self.now_ms, checked)
        except (StorageError, OSError) as error:
            self.failed(f"append {topic}-{index}", error)
            return
        append_ms = target.last_append_ms
        if append_ms < max(state.append_ms, self.now_ms):
            raise Violation("S52", f"{target}: appended at {append_ms}, after {state.append_ms}")
        if appended.append_time_ms >= 0:
            times = (append_ms,) * count
        if target.magic == 0:
            times = (-1,) * count
        if appended.duplicate:
            raise Violation(
                "producers", f"{target}: a new batch of producer {producer} is taken for an old one"
            )
        if appended.base_offset != state.end:
            raise Violation("I2", f"{target}: offset {appended.base_offset} given out, {state.end} is next")
        sent = Sent(
            appended.base_offset,
            appended.last_offset,
            bytes(data),
            times,
            append_ms,
            None if producer is None else (producer, sequence),
        )
        state = state._replace(sent=(*state.sent, sent))
        self.put(topic, index, state)
        self.mark(place)
        state = state._replace(
            written=len(state.sent),
            seen=len(state.sent),
            end=sent.last + 1,
            append_ms=max(state.append_ms, sent.append_ms),
        )
        self.put(topic, index, state)
        self.mark()

    def records(self, times: Sequence[int], size: int) -> list[Record]:
        """Return records that nobody has sent before."""
        value = b"%x" % self._serial
        return [Record(n, at, None, value.ljust(size, b"%d" % n)) for n, at in enumerate(times)]

    def resend(self, topic: str, index: int) -> None:
        """Send one of a producer's last five batches again: it is known."""
        state, target = self.state(topic, index), self.log(topic, index)
        by_producer: dict[int, list[Sent]] = {}
        for each in state.sent:
            if each.producer is not None:
                by_producer.setdefault(each.producer[0], []).append(each)
        for producer, all_sent in sorted(by_producer.items()):
            each = self.rng.choice(all_sent[-5:])
            if each.base < state.start or not self.is_remembered(topic, index, each, all_sent):
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

    def is_remembered(self, topic: str, index: int, sent: Sent, all_sent: list[Sent]) -> bool:
        """Tell whether it is promised that a batch is known which is sent again."""
        return True

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
        self.put(topic, index, state._replace(durable=max(durable, state.durable), former=()))

    def flush_all(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Flush all logs as one commit."""
        self.steps.append("flush all")
        keys = self.served()
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

    def write_back(self) -> None:
        """Flush what is much, for nobody who waits."""
        self.steps.append("write back")
        at_once(self.logs.look_after())

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
        starts = {key: self.log(*key).log_start_offset for key in self.served()}
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
        before = {key: self.log(*key).log_start_offset for key in self.served()}
        try:
            retain(self.logs)
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
            former=(*state.former, state.sent),
            durable=min(len(kept), state.durable),
            written=min(len(kept), state.written),
            bounded=len(state.sent),  # what is to go may come back without its append times
            certain_start=min(state.certain_start, kept[-1].last + 1 if kept else 0),
        )
        self.put(topic, index, after)
        self.mark(place)
        try:
            self.logs.truncate(topic, index, offset)
        except (StorageError, OSError) as error:
            self.failed(f"truncate {topic}-{index}", error)
            # Half made: what was to go may be there or not.
            survive = len(kept)
            kept = tuple(each for each in state.sent if each.last < target.log_end_offset)
            after = after._replace(durable=min(survive, state.durable))
        else:
            after = after._replace(
                former=(),
                bounded=min(state.bounded, len(kept)),
                start=min(state.start, target.log_end_offset),
            )
        end = target.log_end_offset
        # The first of the batches that went need not come right after those that stay: a start lay in between.
        if end != (state.sent[len(kept)].base if len(kept) < len(state.sent) else state.end):
            raise Violation("I2", f"{target}: ends at {end} after a cut to {offset}")
        after = after._replace(
            sent=kept,
            written=min(len(kept), after.written),
            seen=len(kept),
            durable=min(len(kept), after.durable),
            end=end,
            certain_start=min(state.certain_start, end),
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
