"""Finds the modules that mypyc has compiled.

A wheel contains them in a folder of its own. In a checkout, `make setup COMPILED=1` compiles them into a folder for
each Python, beside a record of the sources that they were made from, and of themselves. If a source has changed since,
or if one of them is gone, cut off or cannot be loaded, none of them is used, and `state()` says why: the interpreted
modules do the same, slower.

TIDELOG_COMPILED=0 turns them off; a path names another folder.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUNDLED: Final = Path(__file__).parent / "_compiled"
FOLDER: Final = ROOT / "build" / "native" / str(sys.implementation.cache_tag)
# Compiled code contains constants and layouts of these packages, also of modules that are not compiled.
PACKAGES: Final = ("broker", "config", "protocol", "storage")
RECORD: Final = "sources"
COMPILED: Final = "compiled"
INTERPRETED: Final = "interpreted"
STALE: Final = (
    "interpreted: sources have changed since they were compiled; run make setup COMPILED=1, or remove {}"
)
DAMAGED: Final = (
    "interpreted: compiled modules are gone or were cut off; run rm -r {}, then make setup COMPILED=1"
)
_SUFFIX: Final = EXTENSION_SUFFIXES[0]
# All modules are compiled into this one; what they are imported from are shims.
_ALL: Final = "tidelog__mypyc"


class Finder:
    """Finds compiled modules before the import system finds their sources."""

    def __init__(self, folder: Path) -> None:
        """Take all compiled modules in a folder."""
        self.files = {
            str(file.relative_to(folder)).removesuffix(_SUFFIX).replace(os.sep, "."): file
            for file in folder.rglob(f"*{_SUFFIX}")
        }
        self._why = "" if self.files else f"no modules for this Python in {folder}"

    def state(self) -> str:
        """Return whether the modules run compiled; load them if that is still to be seen."""
        if self.files and _ALL not in sys.modules:
            try:
                importlib.import_module(_ALL)
            except ImportError as error:
                self.files.clear()
                self._why = str(error)
        return f"{INTERPRETED}: {self._why}" if self._why else COMPILED

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return where a compiled module is; None for other modules."""
        file = self.files.get(name)
        if file is None or (name != _ALL and self.state() != COMPILED):
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, str(file)), origin=str(file))
        spec.has_location = True
        return spec


def record() -> str:
    """Return a line for each source: its path, its size in bytes, and when it was last changed."""
    lines = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.p[yx]*"):
            # The lock of an editor is a link to nothing.
            if path.suffix in (".py", ".pxd") and path.is_file():
                status = path.stat()
                lines.append(f"{path.relative_to(ROOT)} {status.st_size} {status.st_mtime_ns}\n")
    return "".join(sorted(lines))


def built(folder: Path) -> str:
    """Return a line for each compiled module in a folder: its path, and its size in bytes."""
    return "".join(
        sorted(f"{file.relative_to(folder)} {file.stat().st_size}\n" for file in folder.rglob("*.so"))
    )


def full_record(sources: str, folder: Path) -> str:
    """Return what is recorded beside compiled modules: `sources` (`record()`), an empty line, and the modules."""
    return f"{sources}\n{built(folder)}"


def _find() -> Finder | str:
    """Return a finder of the modules that match the sources, or why there is none."""
    wanted = os.environ.get("TIDELOG_COMPILED", "")
    if wanted == "0":
        return f"{INTERPRETED}: TIDELOG_COMPILED=0"
    folder = Path(wanted) if wanted not in ("", "1") else FOLDER
    if folder is FOLDER and BUNDLED.exists():
        return Finder(BUNDLED)
    try:
        made_from = (folder / RECORD).read_text(errors="replace")
    except OSError as error:
        return f"{INTERPRETED}: {error.filename}: {error.strerror}" if wanted else INTERPRETED
    sources, _, modules = made_from.partition("\n\n")
    if f"{sources}\n" != record():
        return STALE.format(folder)
    return Finder(folder) if modules == built(folder) else DAMAGED.format(folder)


def state() -> str:
    """Return whether the modules of requests run compiled, and if not, why."""
    return _FOUND if isinstance(_FOUND, str) else _FOUND.state()


_FOUND: Final = _find()
if isinstance(_FOUND, Finder):
    sys.meta_path.insert(0, _FOUND)
