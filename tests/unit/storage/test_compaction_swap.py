"""How a copy takes the place of segments, whatever a crash comes upon: what a start makes of a folder.

Kafka's own states are those that its LogCleanerTest walks through, and those of a group that becomes several.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compaction import COMPACTED, clean, keyed, latest_of, rows_of
from tests.support.logs import NOW, crash, log_bytes, new_shared, open_log
from tidelog.storage import files, fsck
from tidelog.storage.compaction import swap
from tidelog.storage.layout import SUFFIXES
from tidelog.storage.log import Log

MERGING = {**COMPACTED, "segment_bytes": 1 << 20}


def filled(folder: Path, segments: int = 4) -> Log:
    """Return a log of segments that one pass makes one of: three keys, all but the last of each replaced."""
    log = open_log(folder / "topic-0", **MERGING)
    for n in range(segments):
        log.append(keyed((b"a", b"%d" % n), (b"b", b"%d" % n), (b"c%d" % n, b"x")), NOW + n)
        log.roll(NOW + n)
    log.append(keyed((b"z", b"1")), NOW + 9)
    log.flush()
    return log


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def states(log: Log, to: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Make the pass that is due, and return the folder as it was before each change of a name."""
    found: list[Path] = []

    def before(change: Callable[..., None]) -> Callable[..., None]:
        def changing(*paths: Path) -> None:
            found.append(crash(log, to / f"{len(found)}" / "topic-0"))
            change(*paths)

        return changing

    with monkeypatch.context() as patch:
        for name in ("rename", "remove"):
            patch.setattr(files, name, before(getattr(files, name)))
        clean(log, NOW + 10)
    return [*found, crash(log, to / "last" / "topic-0")]


def test_I7_I9_S96_whatever_a_kill_comes_upon_a_start_has_the_copy_or_what_it_was_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "before")
    before = rows_of(log)
    folders = states(log, tmp_path, monkeypatch)
    after = rows_of(log)
    assert len(log.segments) == 2
    assert {row.key for row in after} == {row.key for row in before}
    seen = []
    for folder in folders:
        again = open_log(folder, shared=new_shared(folder), was_cut_off=False, recovery_point=13, **MERGING)
        rows = rows_of(again)
        assert rows in (before, after)
        assert not seen or seen[-1] == before or rows == after, "what had gone came back"
        seen.append(rows)
        assert not [name for name in names(folder) if name.endswith((".cleaned", ".swap"))]
        again.close()
        assert list(fsck.Fsck(folder, deep=True, repair=False).problems()) == []
        held = log_bytes(folder)
        open_log(folder, shared=new_shared(folder), was_cut_off=False, recovery_point=13, **MERGING)
        assert log_bytes(folder) == held
    assert before in seen
    assert seen[-1] == after


# Kafka's names and no sidecar of ours. What it has made of 0, 10, 20 and 30 is 0 and 20.

KAFKAS = (".log", ".index", ".timeindex")


def copy_of(*offsets: int) -> bytes:
    from tidelog.protocol.records.build import Record, build_batch

    return b"".join(build_batch([Record(offset, NOW, b"k", b"v")]) for offset in offsets)


def settled(folder: Path) -> dict[str, bytes]:
    swap.settle(folder)
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    swap.settle(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == found
    return {name.lstrip("0") or name: data for name, data in found.items() if name.endswith(".log")}


def put(folder: Path, base: int, data: bytes, mark: str = "") -> None:
    for suffix in KAFKAS:
        (folder / f"{base:020d}{suffix}{mark}").write_bytes(data if suffix == ".log" else b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "topic-0"
    made.mkdir()
    for base in (0, 10, 20, 30, 40):
        put(made, base, copy_of(*range(base, base + 10)))
    return made


FIRST, SECOND = copy_of(3, 15), copy_of(25, 39)


def bases(folder: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in folder.glob("*.log"))


def test_kafka_crashed_before_it_had_renamed_any_copy(folder: Path) -> None:
    put(folder, 0, FIRST, ".cleaned")
    put(folder, 20, SECOND, ".cleaned")
    settled(folder)
    assert bases(folder) == [0, 10, 20, 30, 40]
    assert len(names(folder)) == 15


def test_kafka_crashed_when_it_had_renamed_the_last_copy_only(folder: Path) -> None:
    put(folder, 0, FIRST, ".cleaned")
    put(folder, 20, SECOND, ".swap")
    settled(folder)
    assert bases(folder) == [0, 10, 20, 30, 40]
    assert (folder / f"{20:020d}.log").read_bytes() != SECOND
    assert len(names(folder)) == 15


def test_kafka_crashed_when_all_copies_were_renamed(folder: Path) -> None:
    put(folder, 0, FIRST, ".swap")
    put(folder, 20, SECOND, ".swap")
    settled(folder)
    assert bases(folder) == [0, 20, 40]
    assert [(folder / f"{base:020d}.log").read_bytes() for base in (0, 20)] == [FIRST, SECOND]
    assert len(names(folder)) == 9


def test_kafka_crashed_while_it_put_aside_what_was_replaced(folder: Path) -> None:
    put(folder, 0, FIRST, ".swap")
    put(folder, 20, SECOND, ".swap")
    for suffix in KAFKAS:
        path = folder / f"{10:020d}{suffix}"
        path.rename(path.with_name(path.name + ".deleted"))
    settled(folder)
    assert bases(folder) == [0, 20, 40]
    assert [(folder / f"{base:020d}.log").read_bytes() for base in (0, 20)] == [FIRST, SECOND]


def test_kafka_crashed_when_the_first_copy_had_its_name(folder: Path) -> None:
    put(folder, 0, FIRST)
    put(folder, 20, SECOND, ".swap")
    for base in (10, 20, 30):
        for suffix in KAFKAS:
            path = folder / f"{base:020d}{suffix}"
            path.rename(path.with_name(path.name + ".deleted"))
    settled(folder)
    assert bases(folder) == [0, 20, 40]
    assert [(folder / f"{base:020d}.log").read_bytes() for base in (0, 20)] == [FIRST, SECOND]


def test_kafka_crashed_when_all_copies_had_their_names(folder: Path) -> None:
    put(folder, 0, FIRST)
    put(folder, 20, SECOND)
    for base in (10, 30):
        for suffix in KAFKAS:
            path = folder / f"{base:020d}{suffix}"
            path.rename(path.with_name(path.name + ".deleted"))
    settled(folder)
    assert bases(folder) == [0, 20, 40]


def test_what_lies_between_the_copies_of_kafka_was_replaced_too(folder: Path) -> None:
    put(folder, 0, copy_of(3), ".swap")
    put(folder, 30, copy_of(31), ".swap")
    settled(folder)
    assert bases(folder) == [0, 30, 40]


def test_a_copy_whose_offsets_are_damaged_takes_no_segment_away_that_takes_appends(folder: Path) -> None:
    damaged = bytearray(copy_of(3, 15))
    at = len(damaged) // 2
    damaged[at : at + 8] = (1 << 20).to_bytes(8, "big")  # which no checksum covers
    put(folder, 0, bytes(damaged), ".swap")
    settled(folder)
    assert bases(folder)[-1] == 40


def test_files_that_only_look_like_copies_stay(folder: Path) -> None:
    for name in ("notes.swap", "notes.log.cleaned", "0.log.cleaned"):
        (folder / name).write_bytes(b"mine")
    put(folder, 0, FIRST, ".swap")
    settled(folder)
    assert bases(folder) == [0, 20, 30, 40]
    assert {"notes.swap", "notes.log.cleaned", "0.log.cleaned"} <= names(folder)


def test_no_name_is_removed_before_the_decision_is_on_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, 0, copy_of(3, 29), ".swap")
    done: list[str] = []

    def noting(name: str, real: Callable[..., None]) -> Callable[..., None]:
        def noted(*args: Path) -> None:
            done.append(name)
            real(*args)

        return noted

    for name in ("sync_folder", "remove", "rename"):
        monkeypatch.setattr(files, name, noting(name, getattr(files, name)))
    swap.settle(folder)
    assert done[0] == "sync_folder"
    assert done[-3:] == ["sync_folder", "rename", "sync_folder"]


def test_P13_what_a_pass_could_not_remove_goes_before_the_next(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = rows_of(log)
    for suffix in SUFFIXES:
        (log.directory / f"{0:020d}{suffix}.cleaned").write_bytes(b"x" * 100_000)
    (log.directory / f"{6:020d}.index.swap").write_bytes(b"x")
    clean(log, NOW + 10)
    assert latest_of(rows_of(log), 13) == latest_of(before, 13)
    log.close()
    assert list(fsck.Fsck(log.directory, deep=True, repair=False).problems()) == []
    again = open_log(log.directory, clean=True, shared=new_shared(tmp_path), **MERGING)
    assert rows_of(again) == rows_of(log)
    assert not again.damaged


def test_an_append_index_that_is_made_anew_begins_with_its_segment(tmp_path: Path) -> None:
    """Though compaction has left nothing of its first batches."""
    options = {**COMPACTED, "message_timestamp_type": "LogAppendTime"}
    log = open_log(tmp_path / "topic-0", **options)
    for n in range(30):
        log.append(keyed((b"a", b"%d" % n)), NOW + n)
    log.roll(NOW + 30)
    log.append(keyed((b"z", b"1")), NOW + 31)
    log.flush()
    clean(log, NOW + 40)
    rows = rows_of(log)
    assert rows[0].offset > 0
    log.close()
    for suffix in (".appendindex", ".summary"):
        (log.directory / f"{0:020d}{suffix}").unlink()
    again = open_log(log.directory, **options)
    assert rows_of(again) == rows
    again.close()
    assert list(fsck.Fsck(log.directory, deep=True, repair=False).problems()) == []
