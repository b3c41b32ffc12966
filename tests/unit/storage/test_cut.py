"""Cuts of backups: which of them a broker sweeps."""

import os
from pathlib import Path

import pytest

from tests.support.logs import NOW
from tidelog.storage import cut, layout, pins

# A process of another container: of its state nothing is known here.
ELSEWHERE = "elsewhere-1-2-3"


def cut_of(data: Path, process: str, at_ms: int = NOW) -> Path:
    folder = cut.folder_of(data, process)
    folder.mkdir(parents=True)
    (folder / cut.PLAN).write_text("{}")
    os.utime(folder, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
    return folder


@pytest.mark.parametrize("process", [ELSEWHERE, pins.process_of(os.getpid())], ids=["elsewhere", "here"])
def test_a_cut_stays_while_its_process_may_still_lock_it_and_while_it_is_locked(
    tmp_path: Path, process: str
) -> None:
    folder = cut_of(tmp_path, process)
    cut.sweep(tmp_path, NOW + pins.LEASE_MS)
    with cut.in_use(folder):
        cut.sweep(tmp_path, NOW + pins.LEASE_MS + 1)
        assert folder.exists()
    cut.sweep(tmp_path, NOW + pins.LEASE_MS + 1)
    assert not (tmp_path / layout.CUTS).exists()


def test_a_cut_that_a_kill_of_the_broker_has_left_unfinished_is_swept(tmp_path: Path) -> None:
    folder = cut_of(tmp_path, ELSEWHERE)
    (folder / cut.PLAN).unlink()
    os.utime(folder, ns=(NOW * 1_000_000, NOW * 1_000_000))
    cut.sweep(tmp_path, NOW + pins.LEASE_MS + 1)
    assert not folder.exists()


def test_a_cut_that_is_gone_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), cut.in_use(cut.folder_of(tmp_path, ELSEWHERE)):
        pass
