"""`tidelog doctor --data-dir`: what it says of a machine and a folder, and where it begins to warn."""

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tidelog.cli.exit_codes import FAILED, OK
from tidelog.cli.main import app
from tidelog.storage import files

GIB = 1 << 30


def doctor(folder: Path) -> tuple[int, dict[str, dict[str, str]]]:
    done = CliRunner().invoke(app, ["doctor", "--data-dir", str(folder), "--json"])
    return done.exit_code, {row["check"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize(
    ("usable_mib", "percent", "state"),
    [
        (102_400, 100, "ok"),
        (10_240, 10, "ok"),
        (10_239, 9, "warning"),
        (256, 0, "warning"),
        (255, 0, "problem"),
    ],
)
def test_little_space_is_a_warning_and_almost_none_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usable_mib: int, percent: int, state: str
) -> None:
    monkeypatch.setattr(files, "space_bytes", lambda _: (100 * GIB, usable_mib << 20))
    code, found = doctor(tmp_path)
    disk = found["disk"]
    assert disk["state"] == state
    assert disk["found"] == f"{tmp_path}: {usable_mib / 1024:.1f} of 100.0 GiB are free, {percent} %"
    assert bool(disk["advice"]) == (state != "ok")
    assert code == (FAILED if state == "problem" else OK)


@pytest.mark.parametrize(("took_ms", "state"), [(50, "ok"), (51, "warning")])
def test_a_slow_flush_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_ms: int, state: str
) -> None:
    monkeypatch.setattr(files, "sync_time_s", lambda _: took_ms / 1000)
    flush = doctor(tmp_path)[1]["flush"]
    assert (flush["state"], flush["found"]) == (state, f"a flush takes {took_ms}.0 ms")


@pytest.mark.parametrize(("reports", "state"), [(True, "ok"), (False, "warning")])
def test_a_file_system_that_hides_lost_writes_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: bool, state: str
) -> None:
    monkeypatch.setattr(files.FileSystem, "reports_errors", lambda _: reports)
    assert doctor(tmp_path)[1]["file system"]["state"] == state


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (0, "ok", "is synchronised"),
        (4, "ok", "is synchronised"),
        (5, "warning", "is not synchronised"),
        (-1, "warning", "does not say"),
    ],
)
def test_a_clock_that_nothing_synchronises_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int, state: str, words: str
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(adjtimex=lambda _: answer))
    clock = doctor(tmp_path)[1]["clock"]
    assert clock["state"] == state
    assert words in clock["found"]
