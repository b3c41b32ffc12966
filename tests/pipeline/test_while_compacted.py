"""Reads that are planned from the files of a log while compaction puts other segments in the place of some."""

from pathlib import Path

import pytest

from tests.support.compaction import clean, rows_of
from tests.support.logs import NOW
from tests.unit.storage.test_compaction_swap import MERGING, filled
from tidelog.config.topic_options import TopicConfig
from tidelog.pipeline.decode import Window
from tidelog.pipeline.files import pieces, segments, snapshot
from tidelog.pipeline.files.snapshot import Replaced
from tidelog.storage import read_only
from tidelog.storage.errors import OffsetOutOfRange
from tidelog.storage.log import Log


def plan(log: Log) -> list[pieces.Piece]:
    opened = read_only.load(log.directory, "topic", 0, TopicConfig(**MERGING), 0, NOW)
    return list(segments.plan(opened, Window(), 1 << 20))


def refuse(*given: object) -> None:
    raise AssertionError(f"damage: {given}")


def offsets_of(taken: list[pieces.Piece]) -> list[int]:
    return [found.header.base_offset for piece in taken for found in pieces.batches(piece, refuse)]


def test_what_is_replaced_before_it_is_kept_is_planned_anew_and_not_left_out(tmp_path: Path) -> None:
    log = filled(tmp_path)
    planned = plan(log)
    assert [piece.base_offset for piece in planned] == [0, 3, 6, 9, 12]
    clean(log, NOW + 10)
    with pytest.raises(Replaced):
        snapshot.taken(planned, NOW)
    taken = snapshot.taken(plan(log), NOW)
    assert [piece.base_offset for piece in taken] == [0, 12]
    assert offsets_of(taken) == [0, 3, 6, 9, 12]


def test_what_is_replaced_once_it_is_kept_is_read_as_it_was(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = len(rows_of(log))
    taken = snapshot.taken(plan(log), NOW)
    clean(log, NOW + 10)
    assert (
        sum(found.header.record_count for piece in taken for found in pieces.batches(piece, refuse)) == before
    )


def test_a_log_whose_segments_are_replaced_amid_the_plan_is_planned_anew(tmp_path: Path) -> None:
    log = filled(tmp_path)
    opened = read_only.load(log.directory, "topic", 0, TopicConfig(**MERGING), 0, NOW)
    going = segments.plan(opened, Window(start=4), 1 << 20)
    clean(log, NOW + 10)
    with pytest.raises(OffsetOutOfRange):
        list(going)
