"""Installing without a working compiler: it succeeds, says so in a line, and what it would compile runs interpreted."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
SAY_WHICH = (
    "from tidelog.protocol.compiled import COMPILED;"
    "from tidelog.protocol.messages.list_offsets import LIST_OFFSETS;"
    "from tidelog.protocol.records import kernel;"
    "walked = kernel.scan(bytes([14, 0, 4, 0, 1, 2, 65, 0]), 0, 8, 1);"
    "request, _ = LIST_OFFSETS.reader(1)(bytes([0, 0, 0, 7, 0, 0, 0, 0]), 0, 8);"
    "print(COMPILED, kernel.__file__, *walked, request.replica_id)"
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """As much of the repository as a build needs, with nothing built in it."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    built = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", symlinks=True, ignore=built)
    shutil.copytree(ROOT / "protocol", tree / "protocol", ignore=built)
    return tree


def run(tree: Path, *command: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tree,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_in_place(tree: Path, compiler: str) -> str:
    return run(tree, "setup.py", "-q", "build_ext", "--inplace", CC=compiler)


def which_kernel(path: Path) -> list[str]:
    """Import from path and nowhere else: all compiled or not, the kernel's file, what kernel and reader answer."""
    said = run(path, "-P", "-c", SAY_WHICH, PYTHONPATH=str(path), PYTHONDONTWRITEBYTECODE="1")
    return said.strip().split(" ", 2)


@pytest.mark.parametrize("compiler", [pytest.param("/bin/false", marks=pytest.mark.all), "/no/such/compiler"])
def test_without_a_compiler_the_build_succeeds_and_the_kernel_is_interpreted(
    tree: Path, compiler: str
) -> None:
    stale = tree / "protocol" / "records" / f"kernel{SUFFIX}"
    stale.write_bytes(b"from an earlier build")
    os.utime(stale, (0, 0))
    said = [line for line in build_in_place(tree, compiler).splitlines() if line]
    assert len(said) == 1
    assert said[0].startswith("tidelog: the loops over bytes were not compiled and will run interpreted")
    assert (
        "apt-get install gcc python3-dev, then install Tidelog again (in its folder: make setup)" in said[0]
    )
    assert not stale.exists()
    compiled, path, answer = which_kernel(tree / "src")
    assert compiled == "False"
    assert path.endswith("kernel.py")
    assert answer == "2 0 2 7"


def test_a_wheel_built_without_a_compiler_holds_the_kernels_source(tree: Path, tmp_path: Path) -> None:
    pip = ("-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    run(tree, *pip, "-w", str(tmp_path), ".", CC="/bin/false")
    (wheel,) = tmp_path.glob("tidelog-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "tidelog/protocol/records/kernel.py" in names
    assert not [name for name in names if name.endswith((".so", ".c"))]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tidelog"}
    assert which_kernel(tmp_path / "site")[0] == "False"


@pytest.mark.all  # what `make setup` does for every environment, once more
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_with_a_compiler_the_extension_lands_beside_its_source(tree: Path) -> None:
    assert build_in_place(tree, "cc").strip() == ""
    built = {path.name.removesuffix(SUFFIX) for path in tree.glob("protocol/*/*.so")}
    assert built == {
        "batch",
        "encode",
        "kept",
        "kernel",
        "key_hashes",
        "keys",
        "lines",
        "search",
        "tally",
        "validate",
        "layout",
        "reader",
        "writer",
    }
    assert which_kernel(tree / "src")[::2] == ["True", "2 0 2 7"]


def test_a_checkout_is_installed_without_a_network(tmp_path: Path) -> None:
    """As docs/testing.md says, but for the build tools and dependencies, which are here."""
    tree, site = tmp_path / "tree", tmp_path / "site"
    built = shutil.ignore_patterns(".*", "*.so", "*.c", "__pycache__", "*.egg-info", "build", "data", "dist")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=built)
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--no-compile", "-q")
    run(tree, "-m", "pip", "install", *offline, "--target", str(site), ".", CC="/bin/false")
    shutil.rmtree(tree)
    code = "import tidelog.testing.plugin, tidelog.pipeline; print(tidelog.__file__)"
    found = run(tmp_path, "-P", "-c", code, PYTHONPATH=str(site))
    assert found.strip() == str(site / "tidelog" / "__init__.py")
    assert "serve" in run(tmp_path, "-P", "-m", "tidelog", "--help", PYTHONPATH=str(site))
    with (next(site.glob("tidelog-*.dist-info")) / "entry_points.txt").open() as entries:
        assert "pytest11" in entries.read()
