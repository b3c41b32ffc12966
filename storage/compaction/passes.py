"""A pass over a log: where it runs, and how it changes the log.

A long pass runs in a separate process (`worker`), a short one in the calling thread, in steps of a tenth of a
millisecond. The thread that owns the structure of logs makes the changes. When a pass is given up, the segments that it
has replaced stay replaced, and it removes its unfinished copy.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

from tidelog.storage.compaction.key_map import KeyMap
from tidelog.storage.compaction.one_pass import Clean, Cleaned, Pass, View
from tidelog.storage.compaction.plan import Plan
from tidelog.storage.compaction.swap import Outdated, swap, sweep
from tidelog.storage.errors import Mismatch
from tidelog.storage.log import Log
from tidelog.storage.segment import Segment
from tidelog.storage.sources import PATIENT

# Errors after which the next pass may succeed: the log was truncated, or a segment was rebuilt.
OVERTAKEN = (Outdated, Mismatch)

# Runs a function on the thread that owns the structure of logs, waits for it, and returns its result.
Structural = Callable[[Callable[[], Any]], Any]

# A pass over at least so many bytes runs in a separate process, which takes a tenth of a second to start.
WORKER_BYTES: Final = 64 << 20


def clean(
    log: Log,
    plan: Plan,
    *,
    buffer_bytes: int,
    load_factor: float,
    structural: Structural,
    worker_bytes: int = WORKER_BYTES,
) -> Generator[int, None, Cleaned]:
    """Make a pass; each step yields how many bytes it has read and written.

    Damaged segments are left out. If retention deletes a segment that the pass needs, the pass ends with what it has
    done so far. Raise OSError or StorageError.
    """
    changes = _Changes(log, structural)
    sweep(log.directory)
    if any(not each.summary.flushed for each in plan.candidates):
        structural(log.flush)
    plan = yield from _all_known(log, plan)
    view, plan = _view(log, plan)
    try:
        if sum(each.size for each in plan.candidates) >= worker_bytes:
            # Imported here: the import of `pickle` takes a hundredth of the start of a broker.
            from tidelog.storage.compaction import worker

            process = worker.started(view.folder)
            if process is not None:
                if log.health.failure is not None:
                    process.close()
                    raise Outdated(f"{log}: deleted or failed; its folder may be that of a new topic")
                return (yield from worker.clean(process, view, plan, changes, buffer_bytes, load_factor))
        with closing(KeyMap(buffer_bytes, load_factor, plan.end)) as keys:
            one = Pass(view, plan, keys, changes)
            yield from one.run()
            return one.done
    except Mismatch as mismatch:
        log.recheck(mismatch.segment, PATIENT)
        raise


def _all_known(log: Log, plan: Plan) -> Generator[int, None, Plan]:
    """Check the segments that Kafka wrote and that nobody has read yet; return the plan with their replacements."""
    unread = [each for each in plan.candidates if each.is_known_by_index]
    if not unread:
        return plan
    for each in unread:
        log.recheck(each, PATIENT)
        yield each.size
    by_base = {each.base_offset: each for each in log.segments[:-1]}
    found = {each: by_base.get(each.base_offset, each) for each in plan.candidates}
    candidates = tuple(each for each in found.values() if not each.summary.damage)
    return plan._replace(
        candidates=candidates, must=frozenset(found[each] for each in plan.must).intersection(candidates)
    )


def _view(log: Log, plan: Plan) -> tuple[View, Plan]:
    """Return what a pass knows of a log, and the plan without segments that retention has deleted since."""
    sealed = log.segments[:-1]
    senders = {sender.producer_id: sender.last.last_offset for sender in log.producers.senders()}
    view = View(log.directory, log.config, log.shared, sealed, log.epochs, senders)
    candidates = tuple(each for each in plan.candidates if each in sealed)
    return view, plan._replace(candidates=candidates, must=plan.must.intersection(sealed))


class _Changes:
    """Makes the changes of one pass, on the thread that owns the structure of logs."""

    def __init__(self, log: Log, structural: Structural) -> None:
        self._log = log
        self._structural = structural
        self._cuts = log.durability.cuts

    def replace(self, group: Sequence[Segment], copied: Segment) -> bool:
        return bool(self._structural(partial(swap, self._log, group, copied, self._cuts)))

    def note_clean(self, segment: Segment, found: Clean) -> None:
        self._structural(partial(self._note_clean, segment, found))

    def _note_clean(self, segment: Segment, found: Clean) -> None:
        """Record in a segment's summary what a pass has found, unless the log was truncated since the pass began."""
        log = self._log
        with log.lock:
            if segment in log.segments and log.durability.cuts == self._cuts:
                found.note(segment)
                segment.write_summary(segment.summary.encode())
