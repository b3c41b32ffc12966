"""Beside another commit of this repository instead of Apache Kafka: `make bench COMPARE=COMMIT`.

The commit is set up once in a folder of its own, with its own environment, as its README says. Then both run in turn in
the same rounds, so what drifts on the machine drifts for both. A row fails if it costs the broker 5 % more CPU.
"""

import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from bench import build
from bench.brokers import KINDS, Tidelog
from bench.row import OURS, Contender, Goal, Row
from bench.stage import SHARED_SETTINGS

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
    """Return the command of a commit, installed in `build/bench/commits`."""
    folder = build.FOLDER / "commits" / name
    done = folder / ".set-up"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"bench: setting up {name[:12]} (some minutes, the first time)", flush=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=_git("archive", name).stdout, check=True)
        subprocess.run(["make", "-C", str(folder), "setup"], stdout=subprocess.DEVNULL, check=True)
        done.touch()
    return folder / ".venv" / "bin" / "tidelog"


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(build.ROOT), *arguments], stdout=subprocess.PIPE, check=False)
