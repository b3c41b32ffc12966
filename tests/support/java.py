"""Apache's own programs, from pinned jars: DumpLogSegments, and small Java clients compiled here.

Owns: finding Java and Maven, resolving the jars once, running a main class, reading DumpLogSegments.
Refuses to know: what our files should hold.
Invariant: where Java and Maven are present, a jar that cannot be had is a failure, never a silent skip.
"""

import fcntl
import hashlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT

SOURCES = ROOT / "tests" / "e2e" / "java"
# The last release that writes and converts message formats v0 and v1.
SOURCES_39 = ROOT / "tests" / "e2e" / "java-3.9"
BUILD = ROOT / "build" / "java"
MISSING = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]

needs_java = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (a JDK 17 and Maven)")

# These programs live for a second or less: compile little, collect simply.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")


@cache
def jars(sources: Path = SOURCES) -> Path:
    """Return the folder of the pinned jars, resolving them through Maven the first time."""
    pom = sources / "pom.xml"
    folder = BUILD / f"jars-{_digest([pom])}"
    with _exclusive():
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
            _run(["mvn", "-q", "-B", "-f", str(pom), *goal])
            partial.rename(folder)
    return folder


@cache
def classes(sources: Path = SOURCES) -> Path:
    """Return the folder of our own Java programs' classes, compiling them the first time."""
    files = sorted(sources.glob("*.java"))
    folder = BUILD / f"classes-{_digest(files)}"
    library = jars(sources)
    with _exclusive():
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            _run(["javac", "-cp", f"{library}/*", "-d", str(partial), *map(str, files)])
            partial.rename(folder)
    return folder


def java_command(main: str, *arguments: str, sources: Path = SOURCES) -> list[str]:
    """Return the command that runs a main class over our classes and the pinned jars."""
    class_path = f"{classes(sources)}:{jars(sources)}/*"
    return ["java", *QUICK, "-cp", class_path, main, *arguments]


def run_java(
    main: str, *arguments: str, stdin: str = "", timeout_s: float = 60, sources: Path = SOURCES
) -> "subprocess.CompletedProcess[str]":
    """Run a main class over our classes and the pinned jars; the caller judges its status."""
    return subprocess.run(
        java_command(main, *arguments, sources=sources),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class Dump(NamedTuple):
    """What DumpLogSegments printed, and the status it ended with."""

    stdout: str
    stderr: str
    status: int

    def complaints(self) -> list[str]:
        """Return every line in which the tool finds fault; none for sound files."""
        faults = [line for line in self.stdout.splitlines() if _FAULT.search(line)]
        faults += _faults_of_stderr(self.stderr.splitlines())
        if self.status != 0 and not faults:
            faults.append(f"ended with status {self.status}")
        return faults


# The tool prints a batch's validity as `isvalid`, a record's as `isValid`; all else it finds goes to stderr.
_FAULT = re.compile(r"isvalid: false|invalid bytes at the end", re.IGNORECASE)
_GAP = re.compile(r"(-?\d+) is followed by (-?\d+)")


def _faults_of_stderr(lines: Iterable[str]) -> Iterator[str]:
    """Drop the one complaint that sound files draw: a segment's first batch "follows -1"."""
    heading, base = "", -1
    for line in lines:
        if line.startswith("Non-consecutive offsets in "):
            heading, base = line, int(Path(line.rsplit(" ", 1)[1]).stem)
            continue
        gap = _GAP.search(line)
        if gap is None:
            yield line
        elif gap.groups() != ("-1", str(base)):
            yield f"{heading}: {line.strip()}"


def dump_log_segments(files: Iterable[Path], *flags: str) -> Dump:
    """Run Apache's DumpLogSegments on the files, all of them in one process."""
    names = ",".join(str(path) for path in files)
    done = run_java("org.apache.kafka.tools.DumpLogSegments", *flags, "--files", names)
    return Dump(done.stdout, done.stderr, done.returncode)


def segment_files(folder: Path) -> list[Path]:
    """Return the files under `folder` that DumpLogSegments knows how to judge."""
    kinds = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    found = [path for path in folder.rglob("*") if path.suffix in kinds and path.stem.isdigit()]
    # Logs first: an index that does not fit its log ends the tool, and what it would say of the log is lost.
    return sorted(found, key=lambda path: (path.suffix != ".log", path))


# Deep iteration checks every record and every index entry; the sanity check is what Kafka asks at start-up.
FILES_A_RUN = 500
DEEP, SANITY, VERIFY = "--deep-iteration", "--index-sanity-check", "--verify-index-only"


def complaints_about(folder: Path, flags: Iterable[str] = (DEEP, SANITY, VERIFY)) -> list[str]:
    """Return what DumpLogSegments holds against the files under `folder`, read in each of the ways given."""
    files = segment_files(folder)
    if not files:
        raise AssertionError(f"no segment files under {folder}")
    found: list[str] = []
    # One argument holds 128 KiB at most.
    parts = [files[start : start + FILES_A_RUN] for start in range(0, len(files), FILES_A_RUN)]
    for flag, part in itertools.product(flags, parts):
        found += [f"{flag}: {fault}" for fault in dump_log_segments(part, flag).complaints()]
    return found


def _digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")


class _exclusive:  # noqa: N801 - reads as the statement it is
    """Hold a lock among test processes, so that one of them resolves and the others wait."""

    def __enter__(self) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        self._file = os.open(BUILD / ".lock", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
