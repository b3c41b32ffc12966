"""Beside another commit of this repository instead of Apache Kafka: `make bench COMPARE=COMMIT`.

The commit is set up once in a folder of its own, with its own environment: on the same Python, and compiled if ours is.
Then both run in turn in the same rounds, so what drifts on the machine drifts for both. A row fails if it costs the
broker 5 % more CPU.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from bench import build
from bench.brokers import KINDS, Tidelog
from bench.row import OURS, Contender, Goal, Row
from bench.stage import SHARED_SETTINGS
from tidelog import native

BEFORE = "before"
MORE = 1.05
CPU = ("cpu_us", "cpu_s_per_million", "cpu_s_per_gb")


def prepare(commit: str) -> None:
    """Set up a commit, and make it the contender `before`. ValueError if it is none."""
    found = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if found.returncode:
        raise ValueError(
            f"COMPARE={commit}: this repository has no such commit; name a commit, a branch or a tag"
        )
    executable = _set_up(found.stdout.decode().strip())

    class Before(Tidelog):
        kind = BEFORE
        program = executable

    KINDS[BEFORE] = Before
    SHARED_SETTINGS[BEFORE] = SHARED_SETTINGS[Tidelog.kind]


def rows(selected: Iterable[Row]) -> Iterator[Row]:
    """Yield each row with ours and the same of the other commit, where it measures ours."""
    for row in selected:
        ours = row.contenders.get(OURS)
        if ours is not None:
            goals = [goal.metric for goal in row.goals if goal.of == OURS]
            metrics = dict.fromkeys([*goals, *row.shows])
            yield replace(
                row,
                contenders={OURS: ours, BEFORE: Contender(BEFORE, ours.workload, ours.topic)},
                goals=[Goal(metric, at_most=MORE, than=BEFORE) for metric in metrics if metric in CPU],
                shows=list(metrics),
            )


def _set_up(name: str) -> Path:
    """Return the command of a commit, installed in `build/bench/commits`; say if it is not compiled as ours is."""
    requests = native.state()
    is_compiled = requests == native.COMPILED
    made_for = f"{sys.implementation.cache_tag}{'-compiled' if is_compiled else ''}"
    folder = build.FOLDER / "commits" / f"{name}-{made_for}"
    done = folder / ".set-up"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"bench: setting up {name[:12]} (some minutes, the first time)", flush=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=_git("archive", name).stdout, check=True)
        # Named here, because what `make bench` was given reaches this make too.
        wanted = [f"COMPILED={int(is_compiled)}", f"PYTHON={sys.executable}", "VENV=.venv"]
        subprocess.run(["make", "-C", str(folder), "setup", *wanted], stdout=subprocess.DEVNULL, check=True)
        done.touch()
    command = folder / ".venv" / "bin" / "tidelog"
    said = subprocess.run(
        [command, "version", "--verbose"], capture_output=True, text=True, check=False
    ).stdout
    if (f"requests: {native.COMPILED}" in said.splitlines()) != is_compiled:
        differs = "not " if is_compiled else ""
        print(f"bench: {name[:12]} is {differs}compiled, and these sources are {requests}", flush=True)
    return command


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(build.ROOT), *arguments], stdout=subprocess.PIPE, check=False)
