"""Compiled modules in a folder of their own: used while they match the sources, and never after."""

import re
import runpy
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tidelog import native

SAY = "from tidelog import native; import tidelog.broker.clock as m; print(native.state()); print(m.__file__)"


def run(folder: Path | str) -> list[str]:
    """Return the state of a new process, and the file that it imports a module from."""
    done = subprocess.run(
        [sys.executable, "-c", SAY],
        env={"TIDELOG_COMPILED": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    record(tmp_path)
    return tmp_path


def record(folder: Path) -> None:
    (folder / native.RECORD).write_text(native.full_record(native.record(), folder))


def test_modules_in_the_folder_are_found_by_their_names(folder: Path) -> None:
    suffix = native.EXTENSION_SUFFIXES[0]
    (folder / "tidelog" / "storage").mkdir(parents=True)
    for name in ("tidelog__mypyc", "tidelog/storage/log"):
        (folder / f"{name}{suffix}").touch()
    (folder / "tidelog" / "storage" / "log.other-python.so").touch()
    finder = native.Finder(folder)
    assert sorted(finder.files) == ["tidelog.storage.log", "tidelog__mypyc"]
    spec = finder.find_spec("tidelog__mypyc", None)
    assert spec is not None
    assert spec.origin == str(folder / f"tidelog__mypyc{suffix}")
    assert finder.find_spec("tidelog.storage.segment", None) is None


def test_without_a_record_the_sources_run(tmp_path: Path) -> None:
    state, file = run(tmp_path)
    assert (state, Path(file).suffix) == (
        f"interpreted: {tmp_path}/sources: No such file or directory",
        ".py",
    )


def test_one_asks_for_those_of_a_checkout() -> None:
    asked, usual = run("1"), run("")
    assert asked == usual or (usual[0] == "interpreted" and "No such file" in asked[0])


def test_modules_of_another_python_are_not_used(folder: Path) -> None:
    (folder / "tidelog__mypyc.other-python.so").touch()
    record(folder)
    state, file = run(folder)
    assert state == f"interpreted: no modules for this Python in {folder}"
    assert file.endswith("clock.py")


def test_modules_that_cannot_be_loaded_are_not_used(folder: Path) -> None:
    suffix = native.EXTENSION_SUFFIXES[0]
    (folder / "tidelog" / "broker").mkdir(parents=True)
    for name in ("tidelog__mypyc", "tidelog/broker/clock"):
        (folder / f"{name}{suffix}").write_bytes(b"no module")
    record(folder)
    state, file = run(folder)
    assert re.match(r"interpreted: .*tidelog__mypyc.*", state)
    assert file.endswith("clock.py")


@pytest.mark.parametrize("name", ["tidelog__mypyc", "tidelog/broker/clock"])
@pytest.mark.parametrize("is_gone", [True, False])
def test_if_a_module_is_gone_or_was_cut_off_none_is_used(folder: Path, name: str, is_gone: bool) -> None:
    """To load the first part of a module can end the process, and a class may need its base compiled too."""
    suffix = native.EXTENSION_SUFFIXES[0]
    (folder / "tidelog" / "broker").mkdir(parents=True)
    for each in ("tidelog__mypyc", "tidelog/broker/clock"):
        (folder / f"{each}{suffix}").write_bytes(b"whole")
    record(folder)
    damaged = folder / f"{name}{suffix}"
    damaged.unlink() if is_gone else damaged.write_bytes(b"who")
    state, file = run(folder)
    assert state == native.DAMAGED.format(folder)
    assert file.endswith("clock.py")


def test_modules_older_than_a_source_are_not_used(folder: Path) -> None:
    lines = (folder / native.RECORD).read_text().splitlines(keepends=True)
    (folder / native.RECORD).write_text("".join(lines[1:]))
    state, file = run(folder)
    assert "sources have changed since they were compiled; run make setup COMPILED=1" in state
    assert file.endswith("clock.py")


def test_a_damaged_record_is_one_of_other_sources(folder: Path) -> None:
    (folder / native.RECORD).write_bytes(b"\xff")
    state, _ = run(folder)
    assert state == native.STALE.format(folder)


def test_the_lock_of_an_editor_is_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in native.PACKAGES:
        (tmp_path / package).mkdir()
    monkeypatch.setattr(native, "ROOT", tmp_path)
    (tmp_path / "storage" / "log.py").touch()
    before = native.record()
    (tmp_path / "storage" / ".#log.py").symlink_to("user@host.1:2")
    assert native.record() == before


def test_they_can_be_turned_off(folder: Path) -> None:
    assert run("0")[0] == "interpreted: TIDELOG_COMPILED=0"


def test_the_record_names_every_source_that_compiled_code_is_made_from() -> None:
    named = {line.rsplit(" ", 2)[0] for line in native.record().splitlines()}
    assert {
        "storage/log.py",
        "protocol/wire/layout.pxd",
        "config/options.py",
        "broker/net/connection.py",
    } <= named


def test_no_class_and_its_base_are_compiled_and_interpreted() -> None:
    """An interpreted class cannot inherit from a compiled one, and the other way round a weak reference crashes."""
    compiled = {Path(f"{name}.py") for name in runpy.run_path(str(ROOT / "setup.py"))["REQUESTS"]}
    defined: dict[str, set[Path]] = defaultdict(set)
    bases: list[tuple[Path, str, str]] = []
    for package in (*native.PACKAGES, "cli", "client", "pipeline", "testing"):
        for file in (ROOT / package).rglob("*.py"):
            path = file.relative_to(ROOT)
            for name, listed in re.findall(
                r"^ *class (\w+)(?:\(([^)]*)\))?:", file.read_text(), re.MULTILINE
            ):
                defined[name].add(path)
                bases += [(path, name, base) for base in re.findall(r"(?:\w+\.)*(\w+)", listed)]
    assert all((ROOT / path).exists() for path in compiled)
    mixed = [
        f"{path}: {name}({base})"
        for path, name, base in bases
        for other in ({path} & defined[base] or defined[base])
        if (path in compiled) != (other in compiled)
    ]
    assert not mixed


def test_constants_of_compiled_modules_are_final() -> None:
    """The value of a constant that is `Final` is in the compiled code; any other is looked up by its name each time."""
    constant = re.compile(r"^_?[A-Z][A-Z0-9_, ]+ = .*", re.MULTILINE)
    assert constant.findall("MOST, _LEAST = 2, 1\nMOST: Final = 2\nT = TypeVar('T')\n") == [
        "MOST, _LEAST = 2, 1"
    ]
    compiled = runpy.run_path(str(ROOT / "setup.py"))["REQUESTS"]
    assert not [
        f"{name}.py: {line}"
        for name in compiled
        for line in constant.findall((ROOT / f"{name}.py").read_text())
    ]
