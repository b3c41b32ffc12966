"""The cleaners: threads that compact logs with `cleanup.policy=compact`, the most urgent first.

This module decides which log is next, keeps the rate, and retries a failed pass with growing delays while the other
logs go on. `Passes` says when a log is due and what a pass does. The maintenance thread makes the changes to a log's
structure (`Maintenance.call`).

A thread looks at all logs once it has worked off the last look's finds. It waits `log.cleaner.backoff.ms` between
looks, unless the last look found something, or a topic or an option has changed. So a broker without compacted topics
never looks. One thread works on a log at a time. A pass runs in steps, and a stop ends it at its next step. A step of a
short pass takes a tenth of a millisecond; a step of a long one is the work of another process. While the event loop
works, the thread rests between steps, for a millisecond at most, and uses what is left of the processors and of the
interpreter's lock. The cleaners' lock is held only for a few lookups, so the event loop may take it.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.broker.clock import Clock
from tidelog.broker.maintenance import LONGEST_WAIT_S
from tidelog.broker.partition import Partition
from tidelog.broker.threads import Ended, new_thread
from tidelog.broker.work import Stopping
from tidelog.config.options import BrokerConfig
from tidelog.storage.compaction.one_pass import Cleaned
from tidelog.storage.compaction.plan import Plan
from tidelog.storage.errors import logged
from tidelog.storage.log import Log
from tidelog.storage.troubles import Troubles

# Outcomes of a pass.
DONE, GIVEN_UP, FAILED = OUTCOMES = ("done", "given_up", "failed")
# The longest delay before a failed log is tried again.
LONGEST_RETRY_MS: Final = 600_000
# The shortest wait, whatever the options say: a look takes time, too.
SHORTEST_WAIT_MS: Final = 100
# The rest after a step, repeated at most MOST_RESTS times while the event loop works. Both threads want the
# interpreter's lock, and a processor if there are few. The kernel lets a thread run for 3 ms before the event loop gets
# the processor, unless the thread sleeps. A lower priority does not help: the event loop would wait for a lock that a
# thread holds which hardly runs. Rests are real time, whatever the broker's clock says.
REST_S: Final = 0.0001
MOST_RESTS: Final = 10
# This many passes in a row may find that their log has changed before that counts as a failure.
TRANSIENT_MAX: Final = 3
# The result of `_turn` that means a look at all logs.
_LOOK: Final = "look"

_log = logging.getLogger(__name__)
_sleep: Final = time.sleep


class Passes(NamedTuple):
    """How logs are compacted. `clean` yields the bytes of each step; closing it ends the pass."""

    due: Callable[[Log, int], Plan | None]
    next_due_ms: Callable[[Log, int], int | None]
    clean: Callable[..., Generator[int, None, Cleaned]]
    # Errors after which the next pass may succeed: the log, or what is known of it, has changed.
    transient: tuple[type[Exception], ...] = ()


@dataclass(slots=True)
class Figures:
    """Counts since the start."""

    passes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0.0))
    read_bytes: int = 0  # of completed passes, as are the next three
    written_bytes: int = 0
    records_dropped: int = 0
    tombstones_dropped: int = 0
    under_way: int = 0
    began_ms: int | None = None  # the start of the last pass, by the monotonic clock


class _Failure(NamedTuple):
    times: int
    retry_ms: int
    why: str
    is_reported: bool  # in the log and in `failing`


class Cleaners:
    """The threads, and the logs that they compact."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        passes: Passes,
        structural: Callable[[Callable[[], Any]], Any],
        ended: Ended,
        loop_cpu_s: Callable[[], float],
    ) -> None:
        """Begin without threads and topics.

        `structural` makes a change on the thread that owns the structure of logs, and waits for it. `loop_cpu_s`
        returns the CPU seconds that the event loop has used.
        """
        self._config = config
        self._clock = clock
        self._passes = passes
        self._structural = structural
        self._ended = ended
        self._loop_cpu_s = loop_cpu_s
        self._changed = threading.Condition()
        self._threads: dict[int, threading.Thread] = {}
        self._wanted = 0  # threads
        self._is_stopping = False
        self._served: dict[Hashable, Sequence[Partition]] = {}
        self._look_ms = 0  # when the next look is due
        self._is_looking = False
        self._found: list[Log] = []  # the most urgent last
        self._busy: set[Log] = set()
        self._resting: dict[Log, int] = {}  # until when a log rests, because a pass over it dropped nothing
        self._failures: dict[Log, _Failure] = {}
        # The bytes that exceed the rate, and when they were last reduced for the time that has passed.
        self._excess_bytes = 0.0
        self._reduced_ms = 0
        self._figures = Figures()
        self._troubles = Troubles()
        clock.watch(self._wake)

    def start(self) -> None:
        """Start the threads."""
        self.configure(self._config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply these options. Maintenance thread, or before it starts."""
        with self._changed:
            self._config = config
            self._wanted = config.log_cleaner_threads if config.log_cleaner_enable else 0
            self._look_soon()
            if self._is_stopping:
                return
            for number in range(self._wanted):
                if number not in self._threads and not self._begin(number):
                    break

    def _begin(self, number: int) -> bool:
        thread = new_thread(f"cleaner_{number}", partial(self._run, number), self._ended)
        try:
            thread.start()
        except RuntimeError as error:
            template = "cleaner cannot be started number=%d error=%r: the next change of options tries again"
            _log.error(template, number, str(error))
            return False
        self._threads[number] = thread
        return True

    def serve(self, key: Hashable, partitions: Sequence[Partition], compacts: bool) -> None:
        """Compact a topic soon, as it is now; stop if it is not compacted any more. Event loop only."""
        if compacts:
            with self._changed:
                self._served[key] = partitions
                self._look_soon()
        elif key in self._served:
            self.leave(key)

    def leave(self, key: Hashable) -> None:
        """Stop compacting a topic. Event loop only."""
        if key not in self._served:
            return
        with self._changed:
            partitions = self._served.pop(key)
            if self._failures:
                for partition in partitions:
                    self._failures.pop(partition.log, None)
                    self._troubles.end(partition.log)
            self._look_soon()

    def drop(self) -> None:
        """End every pass at its next step, and begin no other: the broker stops."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End the threads. The maintenance thread must still run: a pass may wait for it."""
        self.drop()
        for thread in list(self._threads.values()):
            thread.join()

    def figures(self) -> Figures:
        """Return a copy of the counts."""
        with self._changed:
            now = self._figures
            return replace(now, passes=now.passes.copy(), seconds=now.seconds.copy())

    def failing(self) -> list[tuple[Log, str]]:
        """Return the logs whose compaction fails, each with the reason."""
        with self._changed:
            return [(log, failure.why) for log, failure in self._failures.items() if failure.is_reported]

    def look_soon(self) -> None:
        """Look at all logs at once. Any thread."""
        with self._changed:
            self._look_soon()

    @property
    def is_settled(self) -> bool:
        """Tell whether no log is being compacted, and no look is due. Any thread."""
        with self._changed:
            is_busy = self._is_looking or self._busy or (self._found and self._wanted)
            return not is_busy and (not self._wanted or self._wait_s() > 0)

    # With the lock.

    def _look_soon(self) -> None:
        self._resting.clear()
        self._look_ms = self._clock.monotonic_ms()
        self._changed.notify_all()

    def _backoff_ms(self) -> int:
        return max(self._config.log_cleaner_backoff_ms, SHORTEST_WAIT_MS)

    def _wait_s(self) -> float:
        """Return the seconds until the next look; 0 or less if it is due."""
        if self._is_looking or not self._served:
            return LONGEST_WAIT_S
        return min((self._look_ms - self._clock.monotonic_ms()) / 1000, LONGEST_WAIT_S)

    def _resting_until(self, log: Log) -> int:
        failure = self._failures.get(log)
        return max(self._resting.get(log, 0), 0 if failure is None else failure.retry_ms)

    def _is_wanted(self, log: Log) -> bool:
        """Tell whether a log is still to be compacted: it may have been deleted, closed, or given another policy."""
        return not self._is_stopping and log.config.compacts and log.health.failure is None

    # The threads.

    def _wake(self) -> None:
        """Wake all threads: the clock was moved. Any thread."""
        with self._changed:
            self._changed.notify_all()

    def _run(self, number: int) -> None:
        while True:
            try:
                while (turn := self._turn(number)) is not None:
                    if isinstance(turn, Log):
                        self._clean_if_due(turn)
                    else:
                        self._look()
                    del turn  # an idle thread must not refer to a log
                return
            except BaseException as fault:
                _log.critical("cleaner ended by a fault, and started again number=%d", number, exc_info=fault)
                with self._changed:  # The finds are kept, but the look itself may have failed.
                    self._look_ms = self._clock.monotonic_ms() + self._backoff_ms()

    def _turn(self, number: int) -> Log | str | None:
        """Wait for work: a log to compact, or _LOOK; None ends this thread."""
        with self._changed:
            while not self._is_stopping and number < self._wanted:
                if self._found:  # none of them is busy: a look skips busy logs
                    log = self._found.pop()
                    self._busy.add(log)
                    return log
                wait_s = self._wait_s()
                if wait_s <= 0:
                    self._is_looking = True
                    self._look_ms = self._clock.monotonic_ms() + self._backoff_ms()
                    return _LOOK
                self._changed.wait(wait_s)
            if not self._is_stopping:
                del self._threads[number]
        return None

    def _look(self) -> None:
        """Look at all logs: note which are due, and when the next will be."""
        found: list[tuple[float, int, Log]] = []
        next_ms: list[int] = []
        try:
            now_ms, at_ms = self._clock.now_ms(), self._clock.monotonic_ms()
            with self._changed:
                served = list(self._served.values())
            for log in [partition.log for partitions in served for partition in partitions]:
                if self._is_stopping:
                    return
                with self._changed:
                    is_busy, rests_until_ms = log in self._busy, self._resting_until(log)
                if is_busy:
                    continue
                if rests_until_ms > at_ms:
                    next_ms.append(rests_until_ms)
                    continue
                urgency, due_ms = self._ask(log, now_ms)
                if urgency is not None:
                    found.append((urgency, len(found), log))
                elif due_ms is not None:
                    next_ms.append(at_ms + max(due_ms - now_ms, SHORTEST_WAIT_MS))
        finally:
            with self._changed:
                self._is_looking = False
                self._found = [log for *_, log in sorted(found)]
                # There may be more after these.
                self._look_ms = 0 if found else min([self._look_ms, *next_ms])
                self._changed.notify_all()

    def _ask(self, log: Log, now_ms: int) -> tuple[float | None, int | None]:
        """Return (urgency, None) if a pass is due, else (None, when one will be)."""
        try:
            due = self._passes.due(log, now_ms)
            if due is not None:
                return due.urgency, None
            due_ms = self._passes.next_due_ms(log, now_ms)
        except Exception as error:
            self._failed(log, error)
            return None, None
        if log.health.failure is None:
            self._succeeded(log)
        return None, due_ms

    def _clean_if_due(self, log: Log) -> None:
        """Make a pass over a log, if it is still due."""
        try:
            try:
                plan = self._passes.due(log, self._clock.now_ms())
            except Exception as error:
                self._failed(log, error)
                return
            if plan is not None:
                self._counted_pass(log, plan)
        finally:
            with self._changed:
                self._busy.discard(log)
                self._changed.notify_all()

    def _counted_pass(self, log: Log, plan: Plan) -> None:
        """Make a pass, and count it."""
        began_s, outcome = time.monotonic(), FAILED
        with self._changed:
            self._figures.under_way += 1
            self._figures.began_ms = self._clock.monotonic_ms()
        try:
            outcome = self._try(log, plan)
        finally:
            with self._changed:
                self._figures.under_way -= 1
                self._figures.passes[outcome] += 1
                self._figures.seconds[outcome] += time.monotonic() - began_s

    def _try(self, log: Log, plan: Plan) -> str:
        """Make a pass; return its outcome."""
        try:
            cleaned = self._pass(log, plan)
        except Stopping:
            return GIVEN_UP
        except Exception as error:
            return self._failed(log, error)
        except BaseException as fault:
            self._failed(log, fault)
            raise
        if cleaned is None:
            return GIVEN_UP
        with self._changed:
            figures = self._figures
            figures.read_bytes += cleaned.read_bytes
            figures.written_bytes += cleaned.written_bytes
            figures.records_dropped += cleaned.records_dropped
            figures.tombstones_dropped += cleaned.tombstones_dropped
            if not cleaned.records_dropped and self._is_wanted(log):
                # Otherwise a log that stays due, but that a pass leaves as it was, would be read again and again.
                self._resting[log] = self._clock.monotonic_ms() + self._backoff_ms()
        self._succeeded(log)
        return DONE

    def _pass(self, log: Log, plan: Plan) -> Cleaned | None:
        """Make a pass at the configured rate; return its counts, or None if it was given up."""
        config = self._config
        steps = self._passes.clean(
            log,
            plan,
            buffer_bytes=config.log_cleaner_dedupe_buffer_size // max(config.log_cleaner_threads, 1),
            load_factor=config.log_cleaner_io_buffer_load_factor,
            structural=self._structural,
        )
        loop_cpu_s = self._loop_cpu_s()
        with closing(steps):
            while True:
                try:
                    size_bytes = next(steps)
                except StopIteration as end:
                    cleaned: Cleaned = end.value
                    return cleaned
                loop_cpu_s = self._rest(loop_cpu_s)
                if not self._paced(log, size_bytes):
                    return None

    def _rest(self, loop_cpu_s: float) -> float:
        """Rest a while if the event loop works; take and return the CPU time that it had used at the last look."""
        for _ in range(MOST_RESTS):
            before_s, loop_cpu_s = loop_cpu_s, self._loop_cpu_s()
            if loop_cpu_s == before_s:
                break
            _sleep(REST_S)
        return loop_cpu_s

    def _paced(self, log: Log, size_bytes: int) -> bool:
        """Wait until the rate allows more; tell whether the pass is to go on."""
        with self._changed:
            self._reduce_excess()
            self._excess_bytes += size_bytes
            while self._is_wanted(log):
                rate = self._reduce_excess()
                wait_ms = int(
                    self._excess_bytes * 1000 / rate
                )  # a wait of less than 1 ms is left for the next step
                if wait_ms <= 0:
                    return True
                self._changed.wait(min(wait_ms / 1000, LONGEST_WAIT_S))
        return False

    def _reduce_excess(self) -> float:
        """Reduce the excess for the time that has passed; return the rate in bytes a second."""
        rate, now_ms = self._config.log_cleaner_io_max_bytes_per_second, self._clock.monotonic_ms()
        self._excess_bytes = max(0.0, self._excess_bytes - rate * (now_ms - self._reduced_ms) / 1000)
        self._reduced_ms = now_ms
        return rate

    # Logs whose compaction fails.

    def _failed(self, log: Log, error: BaseException) -> str:
        """Schedule another try, later each time; return the outcome of the pass."""
        with self._changed:
            if not self._is_wanted(log):
                return GIVEN_UP
            before = self._failures.get(log)
            times = 1 if before is None else before.times + 1
            is_reported = times >= TRANSIENT_MAX or not isinstance(error, self._passes.transient)
            is_reported = is_reported or (before is not None and before.is_reported)
            backoff_ms = self._backoff_ms()
            # Not 2 ** times, which would have thousands of digits some day.
            doublings = min(times - 1, math.ceil(math.log2(max(LONGEST_RETRY_MS / backoff_ms, 1))))
            wait_ms = max(min(backoff_ms << doublings, LONGEST_RETRY_MS), backoff_ms)
            retry_ms = self._clock.monotonic_ms() + wait_ms
            self._failures[log] = _Failure(times, retry_ms, _reason(error), is_reported)
            if not is_reported:
                return GIVEN_UP
            is_news = self._troubles.begin(log, _kind(error))
        if is_news:
            _log_failure(log, error, wait_ms)
        return FAILED

    def _succeeded(self, log: Log) -> None:
        """Note that a log was compacted, or need not be."""
        with self._changed:
            self._failures.pop(log, None)
            was_reported = self._troubles.any and self._troubles.end(log)
        if was_reported:
            _log.info("compaction works again log=%s", log)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _kind(error: BaseException) -> str:
    """Return the kind of an error, which is logged once for a log: without the place, which may differ each time."""
    return f"{type(error).__name__} {getattr(error, 'errno', '')}"


def _log_failure(log: Log, error: BaseException, wait_ms: int) -> None:
    text, fault = logged(error)
    _log.error(
        "compaction fails log=%s error=%r: tried again in %d s, the others go on",
        log,
        text,
        wait_ms // 1000,
        exc_info=fault,
    )
