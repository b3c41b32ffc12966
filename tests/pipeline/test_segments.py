"""Scans of a data folder against a list of all that was appended: windows, cuts, damage, and what is lost."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.jobs import chosen_of, rows_of
from tests.support.batches import changed
from tests.support.logs import KEEP_ALL, NOW, batch, crash, fill, open_log, scan
from tidelog.config.options import BrokerConfig
from tidelog.config.topic_options import TopicConfig
from tidelog.pipeline.errors import DamagedLog, PipelineError
from tidelog.pipeline.files import from_segments, pieces, snapshot
from tidelog.pipeline.files.pieces import Piece
from tidelog.protocol.records.batch import set_base
from tidelog.storage import files, layout, pins, read_only, walk
from tidelog.storage.checkpoints import save_offsets
from tidelog.storage.fsck import Fsck
from tidelog.storage.layout import (
    CLEAN_SHUTDOWN,
    INDEX,
    LOG_STARTS,
    RECOVERY_POINTS,
    SUFFIXES,
    TIME_INDEX,
)
from tidelog.storage.log import Log
from tidelog.storage.log_manager import LogManager

NAMES = ("offset", "create_time", "append_time")
OUT_OF_ORDER = [[NOW + (n * 37) % 101, NOW + (n * 53) % 97] for n in range(60)]
Row = tuple[int, int, int]


def planned(data: Path | str, keep: bool = False, **options: Any) -> list[Piece]:
    chosen = chosen_of(data, **options)
    return from_segments.plan(chosen, NOW) if keep else from_segments.look(chosen, NOW).pieces


def read(
    data: Path, span: tuple[int, int] | None = None, made: Sequence[Piece] | None = None, **options: Any
) -> list[Row]:
    """Return the rows of a topic, of a span of offsets if one is given."""
    chosen = chosen_of(data, **options)
    if span is not None:
        made = from_segments.between(chosen, {0: span}, NOW)
    made = planned(data, **options) if made is None else made
    found = []
    for piece in made:
        for rows in from_segments.rows(piece, NAMES, chosen):
            columns = [rows.column(0).to_pylist()]
            columns += [
                [None if us is None else us // 1000 for us in rows.column(n).cast("int64").to_pylist()]
                for n in (1, 2)
            ]
            found += list(zip(*columns, strict=True))
    return found


def offsets(rows: Sequence[Row]) -> list[int]:
    return [row[0] for row in rows]


def a_log(data: Path, batches: Sequence[Sequence[int]], step_ms: int = 10, **options: Any) -> Log:
    """Append a batch each step of the clock; batch n at NOW + n * step."""
    codec = options.pop("codec", 0)
    log = open_log(data / "t-0", **{"index_interval_bytes": 200, "segment_bytes": 1500, **options})
    for number, times in enumerate(batches):
        log.append(batch(times, codec=codec), NOW + number * step_ms)
    return log


def closed(log: Log) -> Path:
    log.close()
    return log.directory.parent


def model(batches: Sequence[Sequence[int]], step_ms: int = 10) -> list[Row]:
    flat = [(time, NOW + number * step_ms) for number, times in enumerate(batches) for time in times]
    return [(offset, *times) for offset, times in enumerate(flat)]


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("task_bytes", [1, 400, 1 << 20])
@pytest.mark.parametrize("is_closed", [True, False])
def test_ranges_of_both_clocks_are_exact_sets_on_a_topic_out_of_order(
    tmp_path: Path, codec: int, task_bytes: int, is_closed: bool
) -> None:
    log = a_log(tmp_path, OUT_OF_ORDER, codec=codec)
    if is_closed:
        closed(log)
    rows = model(OUT_OF_ORDER)
    assert len(log.segments) > 3
    for first, end in ((0, 101), (30, 40), (50, 51), (90, 300), (99, 99), (200, 300)):
        wanted = [row for row in rows if NOW + first <= row[1] < NOW + end]
        assert read(tmp_path, taskBytes=task_bytes, **{"from": NOW + first, "to": NOW + end}) == wanted
        since, until = NOW + first * 6, NOW + end * 6
        wanted = [row for row in rows if since <= row[2] < until]
        assert read(tmp_path, taskBytes=task_bytes, clock="append", **{"from": since, "to": until}) == wanted
    for span in ((0, 1), (17, 40), (119, 500), (5, 5)):
        wanted = [row for row in rows if span[0] <= row[0] < span[1]]
        assert read(tmp_path, span, taskBytes=task_bytes) == wanted
        times = {"from": NOW + 20, "to": NOW + 60}
        both = [row for row in wanted if NOW + 20 <= row[1] < NOW + 60]
        assert read(tmp_path, span, taskBytes=task_bytes, **times) == both


def test_a_range_of_times_reads_no_more_than_it_must(tmp_path: Path) -> None:
    closed(a_log(tmp_path, [[NOW + n] for n in range(200)]))
    some = planned(tmp_path, **{"from": NOW + 100, "to": NOW + 103})
    assert sum(piece.size_bytes for piece in some) < 500
    assert sum(piece.size_bytes for piece in planned(tmp_path)) == sum(
        path.stat().st_size for path in tmp_path.glob("t-0/*.log")
    )
    assert planned(tmp_path, **{"from": NOW + 300, "to": NOW + 400}) == []


def test_tasks_are_of_about_the_size_that_is_asked_for(tmp_path: Path) -> None:
    closed(a_log(tmp_path, [[NOW] * 20] * 200, segment_bytes=1 << 20))
    sizes = [piece.size_bytes for piece in planned(tmp_path, taskBytes=5000)]
    assert len(sizes) > 5
    assert max(sizes) <= 5000 + 5000 // 4
    cut = planned(tmp_path, taskBytes=5000)
    assert all(
        len(piece.append_times) < 16 * 60 for piece in cut
    )  # each has its own, not all of the segment's
    assert read(tmp_path, made=cut) == model([[NOW] * 20] * 200)


def test_records_without_a_time_are_in_no_range_of_times(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(batch([NOW, -1, NOW]), NOW)
    closed(log)
    assert offsets(read(tmp_path, to=NOW + 1)) == [0, 2]
    assert read(tmp_path) == [(0, NOW, NOW), (1, None, NOW), (2, NOW, NOW)]


@pytest.mark.parametrize("task_bytes", [1, 1 << 20])
def test_a_range_without_an_end_has_the_last_time_that_there_is(tmp_path: Path, task_bytes: int) -> None:
    last_ms = (1 << 63) - 1
    batches = [[NOW], [NOW + 1, last_ms], [NOW + 2], [last_ms]]
    closed(a_log(tmp_path, batches, message_timestamp_after_max_ms=last_ms))
    assert offsets(read(tmp_path, taskBytes=task_bytes, **{"from": NOW + 1})) == [1, 2, 3, 4]
    assert offsets(read(tmp_path, taskBytes=task_bytes, **{"from": NOW + 1, "to": NOW + 9})) == [1, 3]


def test_a_log_begins_at_its_start_offset_and_ends_at_the_last_whole_batch(tmp_path: Path) -> None:
    log = a_log(tmp_path / "a", OUT_OF_ORDER)
    save_offsets(tmp_path / "a" / LOG_STARTS, {("t", 0): 33})
    data = log.directory.parent
    assert offsets(read(data)) == list(range(33, 120))
    torn = max(data.glob("t-0/*.log"))
    torn.write_bytes(torn.read_bytes() + batch([NOW])[:-1])
    assert offsets(read(data)) == list(range(33, 120))
    before = torn.read_bytes()
    torn.write_bytes(before[:-71])  # into the last batch
    assert offsets(read(data)) == list(range(33, 118))


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        PipelineError, match="nowhere: No such file or directory; name the data folder of a broker"
    ):
        planned(tmp_path / "nowhere")
    closed(a_log(tmp_path, [[NOW]]))
    (tmp_path / "empty-0").mkdir()
    (tmp_path / "other").mkdir()
    with pytest.raises(PipelineError, match=r"no topic u is in it; there are: empty, t$"):
        planned(tmp_path, topic="u")
    with pytest.raises(PipelineError, match="option partitions: t has no partition 7; it has \\[0\\]"):
        planned(tmp_path, partitions="0,7")
    with pytest.raises(PipelineError, match=r"/empty-0: holds no segment of a log; restore it"):
        planned(tmp_path, topic="empty")


# Damage.


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def positions(path: Path) -> list[tuple[int, int, int]]:
    """The position, first and last offset of each batch of a sound log."""
    file = files.File(path, read_only=True)
    return [(at, header.base_offset, header.last_offset) for at, header in walk.headers(file, 0, file.size)]


def findings(data: Path) -> list[str]:
    found = Fsck(data, deep=True, repair=False).problems()
    return [f"{problem.path.name}@{problem.position}" for problem in found if problem.path.suffix == ".log"]


# Fields of a batch: offset, length, leader epoch, magic, checksum, attributes, record count, a record.
PLACES = (7, 0, 11, 8, 15, 16, 20, 22, 60, 66)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("is_known", [True, False], ids=["summary", "no summary"])
def test_a_flipped_bit_is_named_where_it_is_and_costs_its_batch_only(
    tmp_path: Path, place: int, which: str, is_known: bool
) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    path = sorted(data.glob("t-0/*.log"))[1]
    known = positions(path)
    at, first, last = known[{"first": 0, "middle": len(known) // 2, "last": -1}[which]]
    flip(path, at + place)
    if not is_known:
        path.with_suffix(".summary").unlink()
        if place == 15:  # no checksum covers the epoch: nobody can tell, but by the order of offsets
            pytest.skip("nothing vouches for it")
    name = f"{path.name}@{at}"
    assert name in findings(data)
    with pytest.raises(DamagedLog, match=f"{name}: .* are damaged"):
        read(data)
    kept = [row for row in model(OUT_OF_ORDER) if not first <= row[0] <= last]
    assert read(data, bad="skip") == kept
    assert read(data, bad=f"quarantine:{tmp_path}/q", taskBytes=300) == kept
    note = json.loads((tmp_path / "q" / "t-0" / f"{name}.json").read_text())
    raw = (tmp_path / "q" / "t-0" / f"{name}.bin").read_bytes()
    assert raw == path.read_bytes()[at : at + note["bytes"]]
    assert (note["file"], note["position"], note["topic"], note["partition"]) == (str(path), at, "t", 0)


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
@pytest.mark.parametrize("how", ["missing", "empty", "flipped", "of another segment"])
def test_what_lies_beside_a_log_may_be_missing_or_false(tmp_path: Path, suffix: str, how: str) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    paths = sorted(data.glob(f"t-0/*{suffix}"))
    for path, other in zip(paths, reversed(paths), strict=True):
        if how == "missing":
            path.unlink()
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "flipped" and path.stat().st_size:
            flip(path, path.stat().st_size // 2)
        elif path.exists() and path.stat().st_size:
            path.write_bytes(other.read_bytes())
    rows = model(OUT_OF_ORDER)
    found = read(data, taskBytes=400)
    assert [row[:2] for row in found] == [row[:2] for row in rows]
    if suffix in (INDEX, TIME_INDEX) or (suffix == ".summary" and how != "of another segment"):
        assert found == rows
    ranged = read(data, **{"from": NOW + 30, "to": NOW + 40})
    assert [row[:2] for row in ranged] == [row[:2] for row in rows if NOW + 30 <= row[1] < NOW + 40]


def test_a_torn_tail_is_damage_in_a_sealed_segment(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    path = sorted(data.glob("t-0/*.log"))[1]
    at, first, last = positions(path)[-1]
    path.write_bytes(path.read_bytes()[:-9])
    kept = [row for row in model(OUT_OF_ORDER) if not first <= row[0] <= last]
    for _ in range(2):
        with pytest.raises(DamagedLog, match=f"{path.name}@{at}: "):
            read(data)
        assert read(data, bad="skip") == kept
        path.with_suffix(".summary").unlink(missing_ok=True)


def a_data_folder(data: Path, how: str) -> Path:
    """Make a log of ten batches of two records in one segment, whose writer was stopped, was killed, or goes on."""
    manager = LogManager(data, BrokerConfig(log_dir=data), lambda: NOW)
    manager.open()
    log = manager.create("t", 0, bytes(range(16)), TopicConfig(**KEEP_ALL))
    fill(log, [[NOW + n, NOW + n] for n in range(10)])
    if how == "stopped":
        manager.close()
        log.active.path(".summary").unlink()  # else its digests tell
    elif how == "killed":
        manager.abandon()
    return log.active.path(".log")


@pytest.mark.parametrize("how", ["stopped", "killed", "live"])
@pytest.mark.parametrize("place", [7, 18, 26, 60, 66])
def test_a_damaged_last_batch_of_the_active_segment_is_reported_and_kept(
    tmp_path: Path, how: str, place: int
) -> None:
    path = a_data_folder(tmp_path / "d", how)
    at = positions(path)[-1][0]
    flip(path, at + place)
    assert findings(tmp_path / "d") == [f"{path.name}@{at}"]
    with pytest.raises(DamagedLog, match=f"{path.name}@{at}: 79 bytes are damaged, no offset before"):
        read(tmp_path / "d")
    assert offsets(read(tmp_path / "d", bad="skip")) == list(range(18))
    assert offsets(read(tmp_path / "d", bad=f"quarantine:{tmp_path}/q")) == list(range(18))
    kept = tmp_path / "q" / "t-0" / f"{path.name}@{at}.bin"
    assert kept.read_bytes() == path.read_bytes()[at:]
    (segment,) = rows_of(tmp_path / "d", table="segments")
    assert [each["start"] for each in segment["damage"]] == [at]
    assert offsets(read(tmp_path / "d", (0, 18))) == list(range(18))
    if how == "live":
        with open(path, "ab") as file:
            more = batch([NOW])
            set_base(more, 0, 20, 0)
            file.write(more)
        assert offsets(read(tmp_path / "d", bad="skip")) == [*range(18), 20]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_an_incomplete_last_batch_of_the_active_segment_is_damage_if_it_was_flushed(
    tmp_path: Path, is_flushed: bool
) -> None:
    path = a_data_folder(tmp_path / "d", "stopped" if is_flushed else "live")
    data, (at, *_) = path.read_bytes(), positions(path)[-1]
    for size in range(at + 1, len(data)):
        path.write_bytes(data[:size])
        if not is_flushed:
            assert offsets(read(tmp_path / "d")) == list(range(18))
            continue
        with pytest.raises(
            DamagedLog, match=f"{path.name}@{at}: {size - at} bytes are damaged, no offset before 20"
        ):
            read(tmp_path / "d")
    assert offsets(read(tmp_path / "d", bad=f"quarantine:{tmp_path}/q")) == list(range(18))
    kept = [each.read_bytes() for each in (tmp_path / "q").rglob("*.bin")]
    assert kept == ([data[at:-1]] if is_flushed else [])


def test_of_a_damaged_batch_and_one_that_is_being_written_after_it_the_first_is_damage(
    tmp_path: Path,
) -> None:
    path = a_data_folder(tmp_path / "d", "live")
    at = positions(path)[-1][0]
    flip(path, at + 66)
    whole = path.read_bytes()
    path.write_bytes(whole + batch([NOW])[:-1])
    read(tmp_path / "d", bad=f"quarantine:{tmp_path}/q")
    assert [each.read_bytes() for each in (tmp_path / "q").rglob("*.bin")] == [whole[at:]]


@pytest.mark.parametrize("has_summary", [True, False])
def test_a_sealed_segment_cut_between_batches_has_lost_something(tmp_path: Path, has_summary: bool) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    path = sorted(data.glob("t-0/*.log"))[1]
    at, first, last = positions(path)[-1]
    path.write_bytes(path.read_bytes()[:at])
    if not has_summary:
        path.with_suffix(".summary").unlink()
    with pytest.raises(DamagedLog, match=f"{path.name}@{at}: .*offsets {first} to {last} are gone"):
        read(data)
    with pytest.raises(DamagedLog, match=f"{path.name}@{at}: "):
        read(data, **{"from": NOW, "to": NOW + 1})  # their times are not known
    assert offsets(read(data, (last + 1, 120))) == list(range(last + 1, 120))
    kept = [row for row in model(OUT_OF_ORDER) if not first <= row[0] <= last]
    assert read(data, bad="skip") == kept


def test_a_segment_that_is_gone_is_missed(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    paths = sorted(data.glob("t-0/*.log"))
    first, end = int(paths[1].stem), int(paths[2].stem)
    paths[1].unlink()
    with pytest.raises(
        DamagedLog, match=f"{paths[0].name}@{paths[0].stat().st_size}: .*{first} to {end - 1} are gone"
    ):
        read(data)
    assert offsets(read(data, bad="skip")) == [n for n in range(120) if not first <= n < end]


def test_an_end_before_what_was_flushed_and_a_start_that_is_gone_are_missed(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    save_offsets(data / RECOVERY_POINTS, {("t", 0): 125})
    with pytest.raises(DamagedLog, match="offsets 120 to 124 are gone: they had been flushed"):
        read(data)
    save_offsets(data / RECOVERY_POINTS, {("t", 0): 120})
    min(data.glob("t-0/*.log")).unlink()
    save_offsets(data / LOG_STARTS, {("t", 0): 2})
    read(data)  # retention may just have been here
    (data / CLEAN_SHUTDOWN).write_bytes(b"")
    with pytest.raises(DamagedLog, match=r"offsets 2 to .* are gone: the log begins after them"):
        read(data)


def test_a_segment_emptied_after_a_crash_tells_what_it_lost(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    path = max(data.glob("t-0/*.log"))
    path.write_bytes(b"")
    open_log(data / "t-0", recovery_point=120, index_interval_bytes=200, segment_bytes=1500).close()
    with pytest.raises(DamagedLog, match="are gone"):
        read(data)
    assert offsets(read(data, bad="skip")) == list(range(int(path.stem)))


def test_damage_that_may_have_been_in_a_range_of_times_is_not_left_out(tmp_path: Path) -> None:
    in_order = [[NOW + 10 * n] for n in range(60)]
    data = closed(a_log(tmp_path, in_order))
    path = sorted(data.glob("t-0/*.log"))[1]
    at, first, _ = positions(path)[1]
    flip(path, at + 66)
    inside = {"from": NOW + 10 * first, "to": NOW + 10 * first + 10}  # nothing but the damaged record
    with pytest.raises(DamagedLog, match=f"{path.name}@{at}"):
        read(data, **inside)
    assert read(data, bad="skip", **inside) == []
    assert len(read(data, **{"from": NOW, "to": NOW + 20})) == 2  # another segment's, as all summaries say
    assert len(read(data, (0, first))) == first
    assert len(read(data, (first + 1, 60))) == 59 - first
    path.with_suffix(".summary").unlink()  # so that the plan knows of the damage
    every = planned(data, **{"from": NOW, "to": NOW * 2})
    assert sum(piece.size_bytes for piece in every) == sum(p.stat().st_size for p in data.glob("t-0/*.log"))
    open_log(data / "t-0", index_interval_bytes=200, segment_bytes=1500).close()
    assert path.with_suffix(".summary").exists()  # and tells only of what could be read then
    with pytest.raises(DamagedLog, match=f"{path.name}@{at}"):
        read(data, **inside)


def test_what_changes_while_it_is_read_is_not_taken_for_another(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    made = planned(data, taskBytes=300)
    path = sorted(data.glob("t-0/*.log"))[1]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises((PipelineError, DamagedLog), match=path.name):
        read(data, made=made)
    path.unlink()
    with pytest.raises(
        PipelineError, match="retention has deleted it since the read was planned; read it again"
    ):
        read(data, made=made)


def test_batches_larger_than_a_read_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "READ_BYTES", 100)
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    assert read(data) == model(OUT_OF_ORDER)


@pytest.mark.parametrize("place", [7, 66])
def test_offsets_that_fall_and_wrong_checksums_are_seen_where_nothing_else_is_known(
    tmp_path: Path, place: int
) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    path = sorted(data.glob("t-0/*.log"))[1]
    made = [piece._replace(digests=b"") for piece in planned(data)]
    flip(path, positions(path)[2][0] + place)
    with (
        pytest.raises(PipelineError, match=path.name)
        if place == 7
        else pytest.raises(DamagedLog, match=path.name)
    ):
        read(data, made=made)


def test_tasks_are_cut_wherever_the_index_allows_and_what_is_lost_is_reported_once(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    save_offsets(data / RECOVERY_POINTS, {("t", 0): 125})
    made = planned(data, taskBytes=1)
    assert len(made) > 3 * len(planned(data))
    path = sorted(data.glob("t-0/*.log"))[1]
    path.unlink()
    assert sum(bool(piece.lost) for piece in planned(data, taskBytes=1)) == 2  # the hole, and the end


def test_a_quarantine_that_cannot_be_written_fails_the_read(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    flip(min(data.glob("t-0/*.log")), 66)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        PipelineError, match=r"log@0 cannot be kept in .*/file/t-0: Not a directory; name a folder"
    ):
        read(data, bad=f"quarantine:{tmp_path}/file")


def test_records_that_cannot_be_decoded_are_damage_though_their_checksum_is_right(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    good = [bytes(changed(batch([NOW]), base_offset=n)) for n in range(3)]
    for wrong in (
        changed(good[1], attributes=5),
        changed(good[1], attributes=2),
        changed(good[1], record_count=2),
    ):
        (folder / f"{0:020d}.log").write_bytes(good[0] + wrong + good[2])
        with pytest.raises(DamagedLog, match=f"{0:020d}.log@{len(good[0])}: {len(wrong)} bytes are damaged"):
            read(tmp_path)
        assert offsets(read(tmp_path, bad="skip")) == [0, 2]
        assert offsets(read(tmp_path, bad=f"quarantine:{tmp_path}/q")) == [0, 2]
        assert (tmp_path / "q" / "t-0" / f"{0:020d}.log@{len(good[0])}.bin").read_bytes() == wrong


@pytest.mark.parametrize("how", ["fail", "skip", "quarantine"])
def test_of_damage_no_more_is_in_memory_than_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER, segment_bytes=1 << 20))
    path = min(data.glob("t-0/*.log"))
    content = path.read_bytes()
    path.write_bytes(b"\0" * 3000 + content[3000:])
    (made,) = planned(data)
    pread, taken = files.File.pread, []

    def counted(self: files.File, count: int, position: int) -> bytes:
        taken.append(count)
        return pread(self, count, position)

    found = pieces._verified_again(made, 0)  # which is storage's affair
    monkeypatch.setattr(pieces, "_verified_again", lambda *_: found)
    monkeypatch.setattr(pieces, "READ_BYTES", 500)
    monkeypatch.setattr(files.File, "pread", counted)
    if how == "fail":
        with pytest.raises(DamagedLog, match=rf"{path.name}@0: \d+ bytes are damaged"):
            read(data, made=[found])
        assert not taken  # nobody asks for them
        return
    rows = read(data, made=[found], bad=f"quarantine:{tmp_path}/q" if how == "quarantine" else how)
    assert offsets(rows) == list(range(rows[0][0], 120))
    assert max(taken) <= 500
    if how == "quarantine":
        kept = (tmp_path / "q" / "t-0" / f"{path.name}@0.bin").read_bytes()
        assert kept == path.read_bytes()[: len(kept)]
        note = json.loads((tmp_path / "q" / "t-0" / f"{path.name}@0.json").read_text())
        assert note["bytes"] == len(kept) >= 3000


# Retention.


def snapshots(data: Path) -> list[Path]:
    """Return the links of segments."""
    return list(data.glob(f"*/{snapshot.FOLDER}/*/*/*.log"))


def test_retention_pulls_no_file_away_under_a_read(tmp_path: Path) -> None:
    log = a_log(tmp_path, OUT_OF_ORDER)
    made = planned(tmp_path, keep=True)
    assert len(snapshots(tmp_path)) == len(made)
    flip(sorted(tmp_path.glob("t-0/*.log"))[1], 66)
    log.drop_segments(3, NOW)
    assert not made[1].path.exists()
    assert len(read(tmp_path, made=made, bad="skip")) < 120  # the judgement, too, is of files that are gone
    made = planned(tmp_path, keep=True)
    wanted = scan(log)
    log.drop_segments(len(log.segments) - 1, NOW)
    assert offsets(read(tmp_path, made=made)) == [row.offset for row in wanted]
    assert not snapshots(tmp_path)


def test_plans_share_their_links_and_the_last_to_be_read_removes_them(tmp_path: Path) -> None:
    closed(a_log(tmp_path, OUT_OF_ORDER))
    count = len(list(tmp_path.glob("t-0/*.log")))
    first = planned(tmp_path, keep=True, taskBytes=400)
    assert len(first) > count
    second = planned(tmp_path, keep=True)
    assert len(snapshots(tmp_path)) == count
    assert read(tmp_path, made=first) == model(OUT_OF_ORDER)
    assert len(snapshots(tmp_path)) == count
    assert read(tmp_path, made=second) == model(OUT_OF_ORDER)
    assert not (tmp_path / "t-0" / snapshot.FOLDER).exists()


def test_what_a_killed_read_left_is_removed_by_the_next(tmp_path: Path) -> None:
    closed(a_log(tmp_path, OUT_OF_ORDER))
    left = tmp_path / "t-0" / snapshot.FOLDER
    of_gone, of_old = left / f"{pins.process_of(999999999)}1", left / "elsewhere-1-1-abc"
    of_other, foreign = left / "elsewhere-2-1-abc", left / "foreign"
    for folder in (of_gone, of_old, of_other, foreign):
        folder.mkdir(parents=True)
        (folder / "file").touch()
        stamp = (NOW if folder is not of_old else NOW - 11 * 60_000) / 1000
        os.utime(folder, (stamp, stamp))
    first = planned(tmp_path, keep=True)
    second = planned(tmp_path, keep=True)
    assert not of_gone.exists()
    assert not of_old.exists()
    assert of_other.exists()
    assert foreign.exists()
    assert read(tmp_path, made=first) == read(tmp_path, made=second) == model(OUT_OF_ORDER)


def test_where_no_links_can_be_made_files_are_read_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    closed(a_log(tmp_path, OUT_OF_ORDER))
    monkeypatch.setattr(files, "link", refuse)
    made = planned(tmp_path, keep=True)
    assert caplog.text.count("hard links cannot be made") == 1
    assert not snapshots(tmp_path)
    assert read(tmp_path, made=made) == model(OUT_OF_ORDER)


def test_what_retention_deletes_before_it_is_linked_was_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    first, second = sorted(data.glob("t-0/*.log"))[:2]
    link = files.link

    def delete_first(source: Path, target: Path) -> None:
        first.unlink(missing_ok=True)
        link(source, target)

    monkeypatch.setattr(files, "link", delete_first)
    assert offsets(read(data, made=planned(data, keep=True))) == list(range(int(second.stem), 120))
    assert not snapshots(data)


def test_a_snapshot_disturbs_no_broker(tmp_path: Path) -> None:
    closed(a_log(tmp_path, OUT_OF_ORDER))
    made = planned(tmp_path, keep=True)
    log = open_log(tmp_path / "t-0", index_interval_bytes=200, segment_bytes=1500)
    assert [row.offset for row in scan(log)] == list(range(120))
    log.append(batch([NOW]), NOW + 9999)
    assert findings(tmp_path) == []
    assert offsets(read(tmp_path, made=made)) == list(range(120))


def test_what_is_appended_meanwhile_is_not_read(tmp_path: Path) -> None:
    log = a_log(tmp_path, OUT_OF_ORDER)
    made = planned(tmp_path)
    fill(log, [[NOW]] * 50, now_ms=NOW + 9999)
    assert read(tmp_path, made=made) == model(OUT_OF_ORDER)
    assert len(read(tmp_path)) == 170
    assert len(read(crash(log, tmp_path / "c" / "t-0").parent)) == 170


def as_kafka_leaves_it(data: Path) -> Path:
    """Leave what Kafka has, too: logs and the indexes that a clean stop completes."""
    for suffix in (".summary", ".appendindex"):
        for path in data.glob(f"t-0/*{suffix}"):
            path.unlink()
    return data


def test_a_folder_of_kafka_is_read_and_damage_in_it_is_found(tmp_path: Path) -> None:
    data = as_kafka_leaves_it(closed(a_log(tmp_path, OUT_OF_ORDER)))
    made = planned(data)
    rows = [row[:2] for row in model(OUT_OF_ORDER)]
    assert [row[:2] for row in read(data, made=made)] == rows
    assert [row[:2] for row in read(data, taskBytes=400)] == rows
    ranged = read(data, **{"from": NOW + 30, "to": NOW + 40})
    assert [row[:2] for row in ranged] == [row for row in rows if NOW + 30 <= row[1] < NOW + 40]
    path = sorted(data.glob("t-0/*.log"))[1]
    known = positions(path)
    for place in (7, 0, 8, 66):
        before = path.read_bytes()
        at, first, last = known[2]
        flip(path, at + place)
        with pytest.raises(DamagedLog, match=f"{path.name}@{at}: "):
            read(data)
        assert [row[:2] for row in read(data, bad="skip")] == [
            row for row in rows if not first <= row[0] <= last
        ]
        path.write_bytes(before)


def test_two_readers_at_once_read_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed(a_log(tmp_path, [[NOW + n] for n in range(3)]))
    other = tmp_path / "t-0" / snapshot.FOLDER
    make, tries = files.make_folder_in, 0

    def with_another_that_ends(path: Path) -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            other.rmdir()
        make(path)

    monkeypatch.setattr(files, "make_folder_in", with_another_that_ends)
    made = planned(tmp_path, keep=True)
    assert [bool(piece.snapshot) for piece in made] == [True]
    assert offsets(read(tmp_path, made=made)) == [0, 1, 2]
    # And one that never ends: as it is, and said.
    monkeypatch.setattr(files, "make_folder_in", lambda _: None)
    made = planned(tmp_path, keep=True)
    assert not made[0].snapshot
    assert offsets(read(tmp_path, made=made)) == [0, 1, 2]


def test_a_topic_that_is_deleted_while_it_is_planned_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = closed(a_log(tmp_path, [[NOW]])) / "t-0"
    taken = snapshot.taken

    def deleted_before(made: list[Piece], now_ms: int) -> list[Piece]:
        folder.rename(tmp_path / "t-0.0123-delete")
        return taken(made, now_ms)

    monkeypatch.setattr(snapshot, "taken", deleted_before)
    with pytest.raises(PipelineError, match="the topic was deleted"):
        planned(tmp_path, keep=True)
    assert not folder.exists()  # The broker could not make the topic anew.


@pytest.mark.parametrize("keep", [True, False])
def test_a_topic_that_is_made_anew_before_it_is_read(tmp_path: Path, keep: bool) -> None:
    for topic_id in (b"0" * 16, b"1" * 16):
        log = a_log(tmp_path, [[NOW + n] for n in range(5)])
        layout.save_topic_id(log.directory, topic_id)
        closed(log)
        if topic_id == b"0" * 16:
            made = planned(tmp_path, keep=keep)
            assert offsets(read(tmp_path, made=made)) == [0, 1, 2, 3, 4]
            shutil.rmtree(log.directory)
    with pytest.raises(PipelineError, match="created again since the read was planned"):
        read(tmp_path, made=made)


def test_a_range_of_times_that_meets_records_that_cannot_be_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    sound, undecodable, last = batch([NOW]), changed(batch([NOW + 10]), attributes=1), batch([NOW + 20])
    data = b"".join(
        number.to_bytes(8, "big") + each[8:] for number, each in enumerate((sound, undecodable, last))
    )
    (folder / f"{0:020d}.log").write_bytes(data)
    kept = tmp_path / "kept"
    for first, end, wanted in ((0, 1, [0]), (5, 15, []), (0, 21, [0, 2]), (15, 21, [2])):
        times: dict[str, Any] = {"from": NOW + first, "to": NOW + end}
        assert offsets(read(tmp_path, bad="skip", **times)) == wanted
        assert offsets(read(tmp_path, bad=f"quarantine:{kept}", **times)) == wanted
    assert [path.name for path in kept.glob("t-0/*.bin")] == [f"{0:020d}.log@{len(sound)}.bin"]
    with pytest.raises(
        DamagedLog, match=rf"\.log@{len(sound)}: {len(undecodable)} bytes are damaged, the payload"
    ):
        read(tmp_path, bad="fail", **times | {"from": NOW + 5, "to": NOW + 15})
    chosen = chosen_of(tmp_path, **{"from": NOW + 5})
    assert from_segments.first_offsets(chosen, from_segments.topic_offsets(chosen, NOW), NOW) == {0: 0}


def test_a_partition_that_has_lost_its_folder(tmp_path: Path) -> None:
    for partition in range(3):
        fill(log := open_log(tmp_path / f"t-{partition}"), [[NOW]])
        log.close()
    save_offsets(
        tmp_path / RECOVERY_POINTS, {("t", 0): 1, ("t", 1): 1, ("t", 2): 1, ("t", 3): 0, ("u", 4): 1}
    )
    assert len(read(tmp_path)) == 3
    shutil.rmtree(tmp_path / "t-1")
    for root in (tmp_path, tmp_path.as_uri()):
        with pytest.raises(
            DamagedLog, match=r"/t-1: the folder is gone, and offsets up to 0 were .* \[0, 2\]"
        ):
            planned(root)
        assert len(planned(root, partitions="0,2")) == len(planned(root, bad="skip")) == 2
        assert len(planned(root, partitions="2")) == 1
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match="name the data folder"):
        planned(tmp_path / "file")


def test_the_id_of_a_topic_in_a_store(tmp_path: Path) -> None:
    log = a_log(tmp_path, [[NOW]])
    layout.save_topic_id(log.directory, b"0" * 16)
    closed(log)
    for root in (tmp_path, tmp_path.as_uri()):
        chosen = chosen_of(root)
        assert from_segments.topic_offsets(chosen, NOW) == ((b"0" * 16).hex(), {0: (0, 1)})


@pytest.mark.parametrize("times", [{}, {"from": NOW + 100}])
def test_retention_that_deletes_while_a_read_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: dict[str, int]
) -> None:
    folder = closed(a_log(tmp_path, [[NOW + n] for n in range(200)])) / "t-0"
    logs = sorted(folder.glob("*.log"))
    load, link = read_only.load, files.link
    deletes = 1

    def deleted(number: int) -> None:
        for path in folder.glob(f"{logs[number].stem}.*"):
            path.unlink()

    def loaded(*given: Any) -> Log:
        nonlocal deletes
        found = load(*given)
        if deletes:
            deletes -= 1
            for each in folder.glob("*.summary"):
                each.unlink()
            deleted(0)
        return found

    def linked(source: Path, target: Path) -> None:
        link(source, target)
        if source == logs[2]:
            deleted(1), deleted(2), deleted(3)

    monkeypatch.setattr(read_only, "load", loaded)
    monkeypatch.setattr(files, "link", linked)
    rows = offsets(read(tmp_path, made=planned(tmp_path, keep=True, **times)))
    assert rows == list(range(max(int(logs[4].stem), 100 if times else 0), 200))
    assert not (folder / snapshot.FOLDER).exists()


def test_retention_that_deletes_while_a_log_is_opened_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = closed(a_log(tmp_path, [[NOW + n] for n in range(200)])) / "t-0"
    logs = sorted(folder.glob("*.log"))
    open_segment = read_only.open_segment

    def opened(*given: Any) -> Any:
        found = open_segment(*given)
        if given[1] == 0:
            assert found.file.size  # it is open
            for path in logs[:4]:
                path.unlink()  # What lies beside it goes next.
        return found

    monkeypatch.setattr(read_only, "open_segment", opened)
    made = planned(tmp_path, keep=True)
    assert offsets(read(tmp_path, made=made)) == list(range(int(logs[4].stem), 200))
