"""A folder that compaction is at, for who only reads it: a copy that is decided for counts, and no hole is seen."""

from pathlib import Path

import pytest

from tests.support.compaction import clean, keyed, rows_of
from tests.support.logs import NOW, first_at
from tests.unit.storage.test_compaction_swap import MERGING, filled, states
from tidelog.config.topic_options import TopicConfig
from tidelog.storage import fsck, read_only
from tidelog.storage.sources import PATIENT

CONFIG = TopicConfig(**MERGING)


def test_I7_at_each_step_of_a_swap_readers_of_the_files_see_one_or_the_other_and_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "before")
    before = rows_of(log)
    folders = states(log, tmp_path, monkeypatch)
    after = rows_of(log)
    seen = []
    for folder in folders:
        held = sorted(path.name for path in folder.iterdir())
        opened = read_only.load(folder, "topic", 0, CONFIG, 0, NOW)
        rows = rows_of(opened)
        assert rows in (before, after)
        assert first_at(opened, NOW + 2, PATIENT) == (NOW + 2, 2, 0)
        assert not opened.damaged
        seen.append(rows)
        problems = list(fsck.Fsck(folder, deep=True, repair=False).problems())
        # But of the segment that was written to when the process ended.
        assert [each for each in problems if not each.path.name.startswith(f"{12:020d}.")] == []
        assert sorted(path.name for path in folder.iterdir()) == held
    assert seen[0] == before
    assert seen[-1] == after


@pytest.mark.parametrize("is_read_before", [False, True])
def test_who_reads_the_files_looks_again_when_they_were_replaced(
    tmp_path: Path, is_read_before: bool
) -> None:
    log = filled(tmp_path)
    opened = read_only.load(log.directory, "topic", 0, CONFIG, 0, NOW)
    before = rows_of(opened) if is_read_before else rows_of(log)
    for segment in opened.segments:
        segment.release()
    clean(log, NOW + 10)
    after = rows_of(log)
    assert rows_of(opened, start=0) in (before, after)
    assert rows_of(opened, start=4) in (
        [r for r in before if r.offset >= 4],
        [r for r in after if r.offset >= 4],
    )
    assert not opened.damaged
    assert first_at(opened, NOW + 2, PATIENT) == (NOW + 2, 2, 0)


def test_a_copy_that_is_the_only_one_of_its_segment_is_no_damage_to_who_has_opened_that(
    tmp_path: Path,
) -> None:
    log = filled(tmp_path, segments=1)
    log.append(keyed((b"a", b"new")), NOW)
    log.roll(NOW)
    log.append(keyed((b"a", b"newer")), NOW)
    opened = read_only.load(
        log.directory, "topic", 0, TopicConfig(**{**MERGING, "segment_bytes": 80}), 0, NOW
    )
    small = TopicConfig(**{**MERGING, "segment_bytes": 80})
    log.update_config(small)
    clean(log, NOW + 10)
    assert [each.base_offset for each in log.segments] == [0, 3, 5]
    assert rows_of(opened)[-1].value == b"newer"
    assert {row.key for row in rows_of(opened)} == {b"a", b"b", b"c0", b"z"}
    assert not opened.damaged
