"""What `make setup` says where something that it needs is missing."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SETUP = ROOT / "scripts" / "setup"


def setup(venv: Path, python: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SETUP, venv, python], check=False, capture_output=True, text=True, timeout=30)


def interpreter(folder: Path, refuses: str) -> Path:
    """Make an interpreter that fails on one import or check, and is the real one otherwise."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\ncase "$*" in *"{refuses}"*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("refuses", "message"),
    [
        ("import ensurepip", "apt-get install python3-venv"),
        ("version_info", "3.11 or newer is needed"),
        ("print(sys.version)", "does not start here"),
    ],
)
def test_what_is_missing_is_named_with_the_package_that_brings_it(
    tmp_path: Path, refuses: str, message: str
) -> None:
    result = setup(tmp_path / "venv", interpreter(tmp_path, refuses))
    assert result.returncode == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "venv").exists()


def test_an_interpreter_that_is_not_there_is_named() -> None:
    result = setup(Path("unused"), "python9.9")
    assert (result.returncode, "python9.9 does not start here" in result.stderr) == (1, True)


def test_a_change_of_whatever_is_compiled_is_a_reason_to_build_again() -> None:
    """An extension of an earlier build runs in place of its source."""
    root = SETUP.parents[1]
    (listing,) = re.findall("^mapfile .*$", SETUP.read_text(), re.MULTILINE)
    told = subprocess.run(
        ["bash", "-c", f"{listing}; printf '%s\\n' \"${{compiled[@]}}\""],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    (paths,) = re.findall(r"^LOOPS = \((.*?)\)$", (root / "setup.py").read_text(), re.DOTALL | re.MULTILINE)
    assert told == [f"protocol/{path}.py" for path in re.findall('"(.+?)"', paths)]
    source = (root / "protocol" / "compiled.py").read_text()
    packages = re.findall(r"from tidelog\.protocol\.(\w+) import (\([^)]*\)|.*)", source)
    asked = [
        f"protocol/{package}/{name}.py" for package, names in packages for name in re.findall(r"\w+", names)
    ]
    assert told == asked, "`tidelog version` asks each of them whether it is compiled"
    assert len(told) > 5
    assert all((root / path).is_file() for path in told)


@pytest.mark.parametrize("damage", ["gone", "cut off"])
def test_an_extension_that_is_gone_or_was_cut_off_is_built_again(tmp_path: Path, damage: str) -> None:
    """Or the broker's advice to run make setup does nothing."""
    extension = tmp_path / "protocol" / "records" / f"kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
    for name in ("build.txt", "run.txt"):
        (tmp_path / "requirements").mkdir(exist_ok=True)
        (tmp_path / "requirements" / name).touch()
    extension.parent.mkdir(parents=True)
    (tmp_path / "src" / "tidelog" / "protocol").mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "protocol/records/kernel.py", "protocol/records/kernel.pxd"):
        (tmp_path / name).touch()
    (tmp_path / "setup.py").write_text('"records/kernel"')
    script = tmp_path / "scripts" / "setup"
    script.parent.mkdir()
    shutil.copy(SETUP, script)
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
    *--editable*) echo extension >{extension}; echo built >>{tmp_path}/log ;;
    *"-m venv"*) mkdir -p {tmp_path}/venv/bin; cp {python} {tmp_path}/venv/bin/python ;;
    *sys.version*|*sysconfig*) exec {sys.executable} "$@" ;;
esac
"""
    )
    python.chmod(0o755)

    def builds() -> int:
        subprocess.run([script, tmp_path / "venv", python], check=True, capture_output=True, timeout=30)
        return len((tmp_path / "log").read_text().splitlines())

    assert (builds(), builds()) == (1, 1)
    extension.unlink() if damage == "gone" else extension.write_bytes(b"")
    assert (builds(), builds()) == (2, 2)
    assert extension.read_text() == "extension\n"


def test_the_tests_that_make_test_leaves_out_are_named_by_make_help() -> None:
    root = SETUP.parents[1]
    told = subprocess.run(["make", "-s", "help"], cwd=root, check=True, capture_output=True, text=True).stdout
    assert re.search("^  make test-all +Run the tests, and those that take long", told, re.MULTILINE)
    assert "make test-all" in (root / "CONTRIBUTING.md").read_text()
