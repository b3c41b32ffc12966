"""Checks the folders of logs, a partition's or all of a data folder, stopped or while a broker writes.

Owns what is checked and in which order, and what the data folder tells of its logs: its lock, its checkpoints, whether
it was closed in order. It checks the hints, files that a start can do without, with the code that a start reads them
with. `segment_check` checks each segment, and `others` check their own files in a data folder. Only a repair writes,
and it needs the lock. What a broker is writing is checked again until two checks in a row find the same.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.storage import (
    continuity,
    files,
    layout,
    leader_epochs,
    pins,
    producer_snapshots,
    producer_state,
)
from tidelog.storage.checkpoints import OffsetsByPartition, load_offsets, offsets_in
from tidelog.storage.compaction import swap
from tidelog.storage.errors import DataDirLocked, StorageError
from tidelog.storage.layout import (
    APPEND_INDEX,
    CLEAN_SHUTDOWN,
    INDEX,
    LOG,
    LOG_STARTS,
    RECOVERY_POINTS,
    SUFFIXES,
    SUMMARY,
    TIME_INDEX,
    bases_in,
    of_segment,
    partition_of,
)
from tidelog.storage.leader_epochs import LeaderEpochs
from tidelog.storage.recovery import Known
from tidelog.storage.segment_check import Around, Contents, Finding, SegmentCheck
from tidelog.storage.summary import NONE

# How often a file that is being written is checked before a finding counts, and the time in between.
LOOKS_MAX: Final = 20
_PAUSE_S: Final = 0.1

_MADE_AGAIN: Final = "it is made again before it is used"
_CUT: Final = "the next start cuts it"

# Suffix of the checkpoints of offsets, ours and Kafka's.
_OFFSETS: Final = "-offset-checkpoint"
# Parsers of the text files in a partition's folder; their ValueError says what is wrong.
_TEXTS: Final[dict[str, Callable[[bytes], object]]] = {
    layout.LEADER_EPOCHS: leader_epochs.epochs_in,
    layout.PARTITION_METADATA: layout.topic_id_in,
}

# Returns all that is wrong with a file. StorageError or OSError if it cannot be read.
FaultsOf = Callable[[Path], list[str]]


class NothingToCheck(StorageError):
    """The folder is missing, cannot be read, or holds no log."""


class Problem(NamedTuple):
    """Something wrong, and what was done about it; `is_seen` is false if it could not be checked.

    A note (`is_note`) need not be damage. With `is_bounded` append times are lost: bounds have replaced them, and the
    next check will not find it. With `is_flushed` records are concerned that were on disk.
    """

    path: Path
    position: int
    what: str
    is_repaired: bool = False
    is_seen: bool = True
    is_note: bool = False
    is_bounded: bool = False
    is_flushed: bool = False


class Tally(NamedTuple):
    """How much was checked."""

    partitions: int = 0
    segments: int = 0
    log_bytes: int = 0


class _DataFolder(NamedTuple):
    """What the data folder tells; nothing if the partition's folder lies elsewhere.

    `was_cut_off` if its broker did not stop in order and the disk may have lost what no flush covers.
    """

    folder: Path | None
    clean: bool
    points: OffsetsByPartition
    starts: OffsetsByPartition
    was_cut_off: bool = False

    def known_of(self, partition: Path) -> Known:
        """Return what a start would know of the log in a partition's folder."""
        point, start = 0, None
        if (key := partition_of(partition.name)) is not None:
            point, start = self.points.get(key, 0), self.starts.get(key)
        return Known(
            self.clean,
            point,
            start or 0,
            self.folder is not None,
            self.was_cut_off,
            is_start_noted=start is not None,
        )

    def is_live(self) -> bool:
        return self.folder is not None and files.is_locked(self.folder / layout.LOCK)


class Fsck:
    """The check of a folder; `tally` counts what `problems` has checked so far."""

    def __init__(
        self,
        folder: Path,
        *,
        deep: bool,
        repair: bool,
        is_ours: Callable[[str, int], bool] = lambda *_: True,
        others: Mapping[str, FaultsOf] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Find the logs in a folder; nothing is written yet. NothingToCheck if there are none.

        `is_ours` tells whether a partition without a folder should exist; StorageError if it cannot tell. `others` are
        the checks of files in a data folder that belong to other rooms, by file name.
        """
        self.tally = Tally()
        self._deep = deep
        self._repair = repair
        self._is_ours = is_ours
        self._others = others or {}
        self._pause = pause
        self._is_all, self._partitions, self._data_folder = _found(files.real(folder))

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong, log by log. DataDirLocked for a repair of a folder that a broker has open."""
        with self._locked():
            data = _read_data_folder(self._data_folder)
            is_live = not self._repair and data.is_live()
            for folder in self._partitions:
                try:
                    yield from self._partition(folder, data.known_of(folder), is_live)
                except FileNotFoundError:
                    if not is_live or files.status(folder) is not None:
                        raise
                    continue  # Its topic was deleted.
                except OSError as error:
                    yield _unseen(Path(error.filename or folder), error)
                self.tally = self.tally._replace(partitions=self.tally.partitions + 1)
            if self._is_all:
                yield from self._of_data_folder(data, is_live)
                if not is_live:
                    yield from self._lost(data)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep brokers out during a repair."""
        if not self._repair or self._data_folder is None:
            yield
            return
        try:
            lock = files.FolderLock(self._data_folder / layout.LOCK)
        except BlockingIOError:
            raise DataDirLocked(
                f"{self._data_folder}: a broker has this data folder open; stop it before a repair, or leave "
                "--repair out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _partition(self, folder: Path, known: Known, is_live: bool) -> Iterator[Problem]:
        _, misplaced = layout.look_through(folder)
        if misplaced:
            for name, what in misplaced:
                yield Problem(folder / name, 0, f"{what}: this partition is not read", is_flushed=True)
            return
        epochs = LeaderEpochs.load(folder)
        recovery_point = known.recovery_point
        is_open = is_live or not known.clean
        # These are what compaction decided on, also where a kill interrupted its renames.
        present = swap.present(folder)
        bases = [base for base, _ in present]
        checks: list[SegmentCheck] = []
        for (base, mark), following in zip(present, [*bases[1:], None], strict=False):
            lags = following is None and is_open
            epoch_at = (epochs or LeaderEpochs(folder)).at
            is_closed = following is None and known.ours and known.clean
            around = Around(epoch_at, lags, recovery_point, following, recovery_point if is_closed else None)
            try:
                check = self._looked_at(folder, base, around, is_live, mark)
            except FileNotFoundError:
                if not is_live:
                    raise
                continue  # Retention was here.
            except (StorageError, OSError) as error:
                yield _unseen(folder / f"{base:020d}{LOG}", error)
                continue
            if not self._is_repair_due(check):
                check.release()
            checks.append(check)
            self.tally = self.tally._replace(
                segments=self.tally.segments + 1, log_bytes=self.tally.log_bytes + check.size
            )
        # The summary of a later segment may prove that a flush covers damage in an earlier one.
        flushed_to = max([recovery_point, *(check.flushed_to for check in checks)])
        found = self._of_log(folder, known, is_live, checks, flushed_to)
        if is_live or known.clean:
            yield from found
            return
        segments = [check.as_a_start_finds_it() for check in checks]
        cut = None
        if (
            known.may_lack_unflushed
            and self._is_in_catalog(folder)
            and not any(check.beside.has_other_summary for check in checks)
        ):
            cut = continuity.find_cut(segments, known.log_start_offset, flushed_to)
        if cut is None:
            cut = continuity.find_torn_tail(segments, flushed_to)
        numbered = {check.path: (number, check.size) for number, check in enumerate(checks)}
        for problem in found:
            number, size = numbered.get(problem.path, (NONE, NONE))
            is_cut = cut is not None and (number, problem.position) >= cut
            if not known.may_lack_unflushed:
                # A kill takes nothing that was written.
                yield problem._replace(what=f"{problem.what}; {_CUT}") if is_cut else problem
            elif problem.path.suffix != LOG:
                yield _as_note(problem, _MADE_AGAIN)
            elif is_cut:
                yield _as_note(problem, _CUT)
            elif problem.position == size:
                yield _as_note(problem, "no flush covers them")
            else:
                yield problem

    def _of_log(
        self, folder: Path, known: Known, is_live: bool, checks: list[SegmentCheck], flushed_to: int
    ) -> Iterator[Problem]:
        """Yield what is wrong in a partition whose segments have been checked; all before `flushed_to` is on disk."""
        is_open = is_live or not known.clean
        for check in checks:
            for problem in self._problems_of(check, flushed_to):
                yield _as_note(problem, _MADE_AGAIN) if is_open and _is_replaced(problem, check) else problem
        others = sum(check.beside.are_rebuilt(check.size) for check in checks)
        if others:
            what = (
                f"summaries and append indexes of {others} segments are of another version; a start rebuilds them "
                "from the log, and append times become bounds"
            )
            yield Problem(folder, 0, what, self._repair, is_note=True)
        yield from self._hints(_hints_in(folder, _is_hint_of_partition), known.clean, is_live)
        yield from self._abandoned(folder)
        if not is_live:
            yield from _between(checks, known, flushed_to)
            yield from self._cut_short(checks, known)
            bases = [*(base for base, _ in swap.present(folder)), *bases_in(folder)]
            if not bases and known.recovery_point:
                what = f"holds no log, but {_flushed(known.recovery_point)}"
                yield Problem(folder, 0, what, is_flushed=True)
            yield from _orphans(folder, bases, None if known.clean else known.recovery_point)

    def _cut_short(self, checks: list[SegmentCheck], known: Known) -> Iterator[Problem]:
        """Find offsets that are gone from the end: they were flushed, or other files tell of them."""
        if not checks or checks[-1].ends_in_damage:
            return
        last = checks[-1]
        ends = f"ends before offset {last.next_offset}, but"
        if last.next_offset < known.recovery_point:
            yield Problem(last.path, last.size, f"{ends} {_flushed(known.recovery_point)}", is_flushed=True)
            return
        folder = last.path.parent
        key = partition_of(folder.name)
        if key is None or not known.vouches_for_files:
            return
        try:
            if not self._is_ours(*key):
                return
        except StorageError as error:
            yield _unseen(folder, error)
            return
        snapshots = [
            producer_snapshots.offset_of(name)
            for name, is_folder in files.list_folder(folder)
            if not is_folder
        ]
        bases = [each.base_offset for each in checks]
        end = continuity.known_end(folder, bases, [each for each in snapshots if each is not None])
        if last.next_offset < end:
            what = (
                f"{ends} snapshots, leader epochs or append times beside it tell of offsets up to {end - 1}"
            )
            yield Problem(last.path, last.size, what)

    def _abandoned(self, folder: Path) -> Iterator[Problem]:
        """Find the links of readers that were killed; a running broker removes them soon."""
        held = pins.held_bytes(folder)
        for left in pins.abandoned(folder):
            if self._repair:
                files.remove_folder(left)
                files.remove_empty_folder(left.parent)
            what = (
                "links of segments, left by a reader that was killed; all links in this partition keep "
                f"{held} bytes of deleted segments on the disk; --repair removes these, and so does a broker "
                "when it starts"
            )
            yield Problem(left, 0, what, self._repair, is_note=True)

    def _of_data_folder(self, data: _DataFolder, is_live: bool) -> Iterator[Problem]:
        assert data.folder is not None
        yield from self._hints(_hints_in(data.folder, _is_checkpoint), data.clean, is_live)
        for name, faults_of in self._others.items():
            yield from self._faults(data.folder / name, faults_of, is_live)

    def _hints(self, paths: list[Path], clean: bool, is_live: bool) -> Iterator[Problem]:
        was_killed = not clean and not is_live
        for path in paths:
            yield from self._faults(path, partial(_hint_faults, was_killed=was_killed), is_live)

    def _faults(self, path: Path, faults_of: FaultsOf, is_live: bool) -> Iterator[Problem]:
        """Check a file other than a segment's, and repair it if asked to."""
        is_repaired = False
        try:
            found = self._settled(partial(faults_of, path), is_live)
            if found and self._repair:
                is_repaired = _repaired(path)
        except (StorageError, OSError) as error:
            yield _unseen(path, error)
            return
        for what in found:
            yield Problem(path, 0, what, is_repaired)

    def _settled(self, look: Callable[[], list[str]], is_live: bool) -> list[str]:
        """Return what a look finds; if the file may be being written, look until two in a row find the same."""
        last: list[str] = []
        for left in reversed(range(LOOKS_MAX if is_live else 1)):
            try:
                found = look()
            except StorageError:
                if not left:
                    raise
                found = []
            else:
                if found in ([], last):
                    break
            last = found
            if left:
                self._pause(_PAUSE_S)
        return found

    def _lost(self, data: _DataFolder) -> Iterator[Problem]:
        """Find partitions in the checkpoints that have no folder, though nobody has deleted their topic."""
        assert data.folder is not None
        found = {partition_of(folder.name) for folder in self._partitions}
        for (topic, partition), flushed_to in sorted(data.points.items()):
            if not flushed_to or (topic, partition) in found:
                continue
            folder = data.folder / f"{topic}-{partition}"
            try:
                if self._is_ours(topic, partition):
                    yield Problem(folder, 0, f"is gone, but {_flushed(flushed_to)}")
            except StorageError as error:
                yield _unseen(folder, error)

    def _is_in_catalog(self, folder: Path) -> bool:
        """Tell whether a partition's topic was created here; a start cuts nothing of one that was copied here."""
        key = partition_of(folder.name)
        try:
            return key is not None and self._is_ours(*key)
        except StorageError:
            return True

    def _looked_at(self, folder: Path, base: int, around: Around, is_live: bool, mark: str) -> SegmentCheck:
        """Check a segment; if it may be being written, until two checks in a row find the same."""
        last: tuple[list[Finding], Contents] | None = None
        for _ in range(LOOKS_MAX):
            check = SegmentCheck(folder, base, around, mark)
            findings = check.check(deep=self._deep)
            if not is_live or not findings or (findings, check.contents) == last:
                break
            last = findings, check.contents
            self._pause(_PAUSE_S)
        return check

    def _is_repair_due(self, check: SegmentCheck) -> bool:
        return self._repair and (bool(check.findings) or check.beside.is_other_version)

    def _problems_of(self, check: SegmentCheck, flushed_to: int) -> Iterator[Problem]:
        repaired: set[str] = set()
        if self._is_repair_due(check):
            try:
                repaired = check.repair()
            except OSError as error:
                yield Problem(check.path, 0, f"what lies beside it cannot be written: {error}")
            check.release()
        for path, position, what, offset in check.findings:
            is_flushed = offset is not None and offset < flushed_to
            is_bounded = path.suffix == APPEND_INDEX and check.has_bounds
            is_repaired = path.suffix in repaired
            yield Problem(path, position, what, is_repaired, is_bounded=is_bounded, is_flushed=is_flushed)


def _hints_in(folder: Path, is_hint: Callable[[str], bool]) -> list[Path]:
    return [folder / name for name, is_folder in files.list_folder(folder) if not is_folder and is_hint(name)]


def _is_hint_of_partition(name: str) -> bool:
    return name in _TEXTS or producer_snapshots.offset_of(name) is not None


def _is_checkpoint(name: str) -> bool:
    return name.endswith(_OFFSETS)


def _hint_faults(path: Path, *, was_killed: bool) -> list[str]:
    """Return what is wrong with a hint; nothing if it is missing, or empty because nobody has written to it yet.

    Snapshots are written in place and never synced: if a broker `was_killed`, a torn one is no damage.
    """
    data = files.load(path)
    if data is None:
        return []
    if path.suffix == producer_snapshots.SUFFIX:
        fault = None if was_killed and producer_state.is_torn(data) else producer_state.fault(data)
        return [] if fault is None else [fault]
    if not data and (was_killed or path.name != layout.PARTITION_METADATA):
        return []
    try:
        _TEXTS.get(path.name, offsets_in)(data)
    except ValueError as error:
        return [str(error)]
    return []


def _repaired(path: Path) -> bool:
    """Remove a damaged hint, durably, if a start rebuilds it from the log; tell whether it does."""
    if path.suffix != producer_snapshots.SUFFIX and path.name != layout.LEADER_EPOCHS:
        return False
    producer_snapshots.remove(path.parent, [path])
    return True


def _flushed(offset: int) -> str:
    return f"all before {offset} had been flushed"


def _is_replaced(problem: Problem, check: SegmentCheck) -> bool:
    """Tell whether the broker that has a log open, or the next start, rebuilds a file before it uses it.

    A broker compares an index with the summary when a lookup first needs it, so one that a power cut tore before the
    start may still be there. A kill may come while it replaces the files of a segment one by one.
    """
    if problem.path.suffix == SUMMARY:
        return not check.is_described
    return problem.path.suffix in (INDEX, TIME_INDEX)


def _as_note(problem: Problem, end: str) -> Problem:
    """Return a note of what a power cut or a kill may have done to bytes that no flush covers, and how that ends."""
    if problem.is_note or not problem.is_seen or problem.is_flushed:
        return problem
    return problem._replace(what=f"{problem.what}; {end}", is_note=True)


def _unseen(path: Path, error: Exception) -> Problem:
    why = str(error).removeprefix(f"{path}: ")
    return Problem(path, 0, f"cannot be looked at: {why}", is_seen=False)


def _found(folder: Path) -> tuple[bool, list[Path], Path | None]:
    """Return whether a folder is a data folder, the partitions' folders in it (or itself), and their data folder."""
    try:
        is_data = not bases_in(folder) and partition_of(folder.name) is None
        data_folder = folder if is_data else folder.parent
        is_known = files.status(data_folder / layout.META) is not None
        found = [folder]
        if is_data:
            names = [
                name for name, is_folder in files.list_folder(folder) if is_folder and partition_of(name)
            ]
            found = [folder / name for name in names]
        named = load_offsets(data_folder / RECOVERY_POINTS) if is_data or is_known else {}
        found = [each for each in found if partition_of(each.name) in named or _holds_log(each)]
    except OSError as error:
        raise NothingToCheck(f"{error.filename or folder}: cannot be looked at: {error.strerror}") from error
    if not found and not (is_data and is_known):
        raise NothingToCheck(
            f"{folder}: holds no log; name a data folder, or the folder of a partition, with its .log files"
        )
    return is_data, found, data_folder if is_data or is_known else None


def _holds_log(folder: Path) -> bool:
    """Tell whether a folder has a segment or the remains of one. Other folders may have a partition's name, too."""
    try:
        return bool(bases_in(folder)) or any(_orphans(folder, []))
    except FileNotFoundError:
        return False  # It was just deleted.


def _read_data_folder(folder: Path | None) -> _DataFolder:
    if folder is None:
        return _DataFolder(None, True, {}, {})
    clean = files.status(folder / CLEAN_SHUTDOWN) is not None
    is_ours = files.status(folder / layout.META) is not None
    was_cut_off = is_ours and not clean and not layout.is_same_boot(folder)
    points, starts = load_offsets(folder / RECOVERY_POINTS), load_offsets(folder / LOG_STARTS)
    return _DataFolder(folder, clean, points, starts, was_cut_off)


def _between(checks: list[SegmentCheck], known: Known, flushed_to: int) -> Iterator[Problem]:
    """Find offsets that no segment has, before the first or between two, and offsets that two have."""
    start = known.log_start_offset
    if checks and known.clean and known.is_start_noted and start < checks[0].base_offset:
        what = f"offsets {start} to {checks[0].base_offset - 1} before it are gone"
        yield Problem(checks[0].path, 0, what, is_flushed=start < flushed_to)
    for before, after in pairwise(checks):
        end, base = before.next_offset, after.base_offset
        if end > base and after.size:
            what = f"begins with offset {base}, and {before.path.name} ends with {end - 1}"
            yield Problem(after.path, 0, what, is_flushed=True)  # A start refuses the log.
        elif max(end, start) < base and not before.ends_in_damage:
            offsets = f"offsets {end} to {base - 1} before it are"
            if continuity.is_gap_lost(before.found, after.found):
                yield Problem(after.path, 0, f"{offsets} gone", is_flushed=end < flushed_to)


def _orphans(folder: Path, bases: list[int], killed_at: int | None = None) -> Iterator[Problem]:
    """Find the sidecars of logs that are gone; empty ones belong to a segment that was never begun.

    If a kill may have come between the removal of a log and that of its sidecars, `killed_at` is the offset before
    which all was flushed. Retention deletes from the front, and a cut from the end.
    """
    for name, is_folder in files.list_folder(folder):
        base, suffix = of_segment(name) or (NONE, "")
        if is_folder or suffix not in SUFFIXES or base in bases:
            continue
        if killed_at is not None and bases and not min(bases) < base < max(killed_at, *bases):
            continue
        status = files.status(folder / name)
        if status is not None and status.size:
            yield Problem(folder / name, 0, "the log that it belongs to is gone")
