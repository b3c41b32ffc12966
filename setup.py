"""What pyproject.toml cannot say: compile where that can be done, and go on where not.

Cython compiles the loops over bytes in each build. mypyc compiles the modules of requests (ADR 14), which takes some
minutes, and so only for a wheel, or where a checkout asks for it:

    setup.py build_native --folder=FOLDER [--checked]

A wheel and an sdist contain the commit that they were made from: TIDELOG_COMMIT, or what `tidelog.commit` finds.

All of it is plain Python: what is not compiled runs interpreted, slower. All modules of a kind are compiled, or none.
setuptools' `optional=True` does not forgive a compiler that fails or is missing, so every failure is caught here.
"""

import io
import os
import runpy
import shutil
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

LOOPS = (
    "records/batch",
    "records/encode",
    "records/kept",
    "records/kernel",
    "records/key_hashes",
    "records/keys",
    "records/lines",
    "records/search",
    "records/tally",
    "records/validate",
    "wire/layout",
    "wire/reader",
    "wire/writer",
)
EXTENSIONS = [
    Extension(
        f"tidelog.protocol.{path.replace('/', '.')}",
        [f"src/tidelog/protocol/{path}.py"],
        # Aligned, because where the linker happens to put a walk is worth a fifth of its speed.
        extra_compile_args=["-O3", "-g0", "-falign-functions=64"],
    )
    for path in LOOPS
]


# Plain typed modules on the way of a request, and those that inherit from their classes: an interpreted class cannot.
REQUESTS = (
    "broker/answers",
    "broker/clock",
    "broker/dispatch",
    "broker/flusher",
    "broker/groups/services",
    "broker/handlers/fetch",
    "broker/handlers/list_offsets",
    "broker/handlers/produce",
    "broker/maintenance",
    "broker/net/busy_poll",
    "broker/net/connection",
    "broker/net/outbox",
    "broker/net/pending",
    "broker/net/receive_buffer",
    "broker/partition",
    "broker/running",
    "broker/topics",
    "broker/turns",
    "broker/waiting",
    "protocol/frame",
    "storage/append_index",
    "storage/batch_rules",
    "storage/durability",
    "storage/group_sync",
    "storage/index_file",
    "storage/log",
    "storage/minima",
    "storage/offset_index",
    "storage/read_only",
    "storage/search/by_offset",
    "storage/search/by_time",
    "storage/search/in_batch",
    "storage/search/times_cache",
    "storage/segment",
    "storage/shared",
    "storage/sources",
    "storage/summary",
    "storage/time_index",
    "storage/unflushed",
    "storage/unopened",
)


def compile_requests(folder: Path, *, checked: bool = False) -> str:
    """Compile the modules of requests into a folder; return why that failed, in a line, or nothing.

    With `checked`, the compiled code checks its own assertions, and is slower.
    """
    said = io.StringIO()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        from mypyc.build import mypycify

        with tempfile.TemporaryDirectory() as built, redirect_stdout(said), redirect_stderr(said):
            extensions = mypycify(
                [
                    "--config-file=",
                    "--ignore-missing-imports",
                    *(f"src/tidelog/{name}.py" for name in REQUESTS),
                ],
                opt_level="0" if checked else "3",
                debug_level="1" if checked else "0",
                target_dir=built,
                group_name="tidelog",
            )
            for extension in extensions:
                if checked:
                    extension.extra_compile_args.append("-UNDEBUG")
            command = Distribution({"name": "tidelog", "ext_modules": extensions}).get_command_obj(
                "build_ext"
            )
            command.build_lib, command.build_temp = str(folder), built
            command.ensure_finalized()
            command.run()
    except (Exception, SystemExit) as error:
        shutil.rmtree(folder, ignore_errors=True)
        lines = [line for line in said.getvalue().splitlines() if line.strip() and ": warning: " not in line]
        return f"{error!s:.100}: {lines[-1]:.200}" if lines else f"{error!s:.100}"
    return ""


class BuildNative(Command):
    """Compile the modules of requests for `tidelog.native`, unless no source has changed since the last time."""

    description = "compile the modules of requests with mypyc"
    user_options: ClassVar = [
        ("folder=", None, "where the modules go"),
        ("checked", None, "let the compiled code check its assertions"),
    ]
    boolean_options: ClassVar = ["checked"]

    def initialize_options(self) -> None:
        """By default, compile for speed."""
        self.folder, self.checked = None, False

    def finalize_options(self) -> None:
        """By default, compile to where this Python looks."""
        from tidelog import native

        self.folder = Path(self.folder or native.FOLDER)

    def run(self) -> None:
        """Compile, or say in a line what went wrong and exit with 1."""
        from tidelog import native

        sources, record = native.record(), self.folder / native.RECORD
        if record.exists() and record.read_text(errors="replace") == native.full_record(sources, self.folder):
            return
        print("setup: compiling the modules of requests (some minutes)", file=sys.stderr)
        if why := compile_requests(self.folder, checked=self.checked):
            sys.exit(
                f"setup: the modules of requests were not compiled and will run interpreted, slower: {why}"
            )
        # The sources as they were before: one that was changed meanwhile is not in the modules.
        record.write_text(native.full_record(sources, self.folder))


class BuildKernel(build_ext):
    """Compile the loops, and for a wheel the modules of requests too; say in a line what will be interpreted."""

    def run(self) -> None:
        """Build in place or into build/; leave no half-built and no stale extension behind."""
        inplace = self.inplace
        requests = None if inplace else Path(self.build_lib) / "tidelog" / "_compiled"
        if requests:
            shutil.rmtree(requests, ignore_errors=True)
        try:
            from Cython.Build import cythonize

            for extension in self.extensions:
                (translated,) = cythonize(
                    extension, build_dir=self.build_temp, include_path=["src"], quiet=True
                )
                extension.sources = translated.sources
            super().run()
        except (Exception, SystemExit) as error:
            # An extension of an earlier build would be imported in place of the source that it no longer matches.
            self.inplace = inplace
            for extension in self.distribution.ext_modules:
                with suppress(OSError):
                    Path(self.get_ext_fullpath(extension.name)).unlink()
            self.extensions = []
            print(
                "tidelog: the loops over bytes were not compiled and will run interpreted, slower, by Cython; "
                "apt-get install gcc python3-dev, then install Tidelog again (in its folder: make setup): "
                f"{error!s:.100}"
            )
        else:
            if requests and os.environ.get("TIDELOG_COMPILED") != "0":
                why = compile_requests(requests)
                if why:
                    print(
                        f"tidelog: the modules of requests were not compiled and will run interpreted, slower: {why}"
                    )


def write_commit(package: Path) -> None:
    """Write the commit of the sources into a package that is built from them."""
    found = runpy.run_path("src/tidelog/commit.py")  # the package is not importable in every build
    (package / found["FILE"].name).write_text(os.environ.get("TIDELOG_COMMIT") or found["commit"]())


class BuildPython(build_py):
    """Copy the modules, and say which commit they are of."""

    def run(self) -> None:
        """Leave the sources of an editable installation as they are: git knows their commit."""
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib) / "tidelog")


class SourceDistribution(sdist):
    """Pack the sources, and say which commit they are of."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Add the commit to the copies of the files."""
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir) / "src" / "tidelog")


if __name__ == "__main__":
    setup(
        ext_modules=EXTENSIONS,
        cmdclass={
            "build_ext": BuildKernel,
            "build_native": BuildNative,
            "build_py": BuildPython,
            "sdist": SourceDistribution,
        },
    )
