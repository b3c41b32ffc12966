"""How pieces are shared out among tasks: in their order, so many bytes each, and enough of them for all cores."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.test_segments import OUT_OF_ORDER, a_log, closed, model, planned
from tests.support.logs import NOW
from tidelog.pipeline import tasks
from tidelog.pipeline.files import snapshot
from tidelog.pipeline.options import parse
from tidelog.pipeline.tasks import packed

MIB = 1 << 20


class Sized(NamedTuple):
    number: int
    size_bytes: int


def sized(*sizes: int) -> list[Sized]:
    return [Sized(number, size) for number, size in enumerate(sizes)]


def counts(pieces: list[Sized], task_bytes: int) -> list[int]:
    return [len(task.pieces) for task in packed(pieces, task_bytes)]


@given(st.lists(st.integers(0, 80 * MIB), max_size=60), st.integers(1, 80 * MIB))
def test_pieces_keep_their_order_and_tasks_their_size(sizes: list[int], task_bytes: int) -> None:
    pieces = sized(*sizes)
    found = packed(pieces, task_bytes)
    assert [piece for task in found for piece in task.pieces] == pieces
    for task in found:
        assert len(task.pieces) == 1 or sum(piece.size_bytes for piece in task.pieces) <= task_bytes


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 160])
@pytest.mark.parametrize("count", [1, 10, 100, 1000])
@pytest.mark.parametrize("size", [1_000, 300_000, 3 * MIB, 70 * MIB])
def test_there_is_a_task_for_each_core_where_there_is_enough_to_do(
    monkeypatch: pytest.MonkeyPatch, cores: int, count: int, size: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    found = counts(sized(*[size] * count), 64 * MIB)
    whole = size * count
    # Each of 4 MiB at least, which a few pieces do not make exactly.
    assert len(found) >= min(cores, count, whole // (6 * MIB))
    assert len(found) <= max(cores, whole // (32 * MIB), 1) or size > 32 * MIB
    assert max(found) - min(found) <= max(found) // 2 + 1  # they have alike much to do


def test_small_pieces_are_one_task_and_large_ones_are_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert counts(sized(*[20_000] * 100), 64 * MIB) == [100]
    assert counts(sized(*[64 * MIB] * 5), 64 * MIB) == [1] * 5
    assert counts(sized(*[MIB] * 100), 64 * MIB) == [50, 50]
    assert counts(sized(*[20_000] * 100), 1) == [1] * 100
    assert counts([], 64 * MIB) == []


@pytest.mark.parametrize("task_bytes", [1, 2000, 64 * MIB])
def test_a_task_reads_its_pieces_in_order_and_lets_go_of_all(tmp_path: Path, task_bytes: int) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    chosen = parse({"source": f"segments:{data}", "topic": "t", "taskBytes": str(task_bytes)}, NOW)
    cut = planned(data, keep=True, taskBytes=task_bytes)
    made = packed(cut, task_bytes)
    assert {1: len(made) == len(cut), 2000: 1 < len(made) < len(cut), 64 * MIB: len(made) == 1}[task_bytes]
    rows = [rows["offset"].to_pylist() for task in made for rows in task.rows(("offset",), chosen)]
    assert [offset for some in rows for offset in some] == [row[0] for row in model(OUT_OF_ORDER)]
    assert not list(data.glob(f"*/{snapshot.FOLDER}/*"))


def test_a_task_that_stops_early_lets_go_of_what_it_has_not_read(tmp_path: Path) -> None:
    data = closed(a_log(tmp_path, OUT_OF_ORDER))
    chosen = parse({"source": f"segments:{data}", "topic": "t"}, NOW)
    (task,) = packed(planned(data, keep=True), tasks._LEAST_BYTES)
    assert len(task.pieces) > 3
    rows = task.rows(("offset",), chosen)
    next(rows)
    assert list(data.glob(f"*/{snapshot.FOLDER}/*"))
    rows.close()
    assert not list(data.glob(f"*/{snapshot.FOLDER}/*"))
