"""`tidelog fsck`: what is damaged in a data folder, a line each, and a verdict at the end.

Owns the lines and the exit code. Refuses to know what damage is, or how it is mended.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREADABLE, USAGE
from tidelog.cli.output import to_json
from tidelog.cli.text import counted, shown
from tidelog.storage.errors import DataDirLocked
from tidelog.storage.fsck import Fsck, NothingToCheck, Problem


def run(folder: Path | None, data_dir: Path | None, repair: bool, deep: bool, as_json: bool) -> int:
    """Check a folder; return the exit code."""
    if (folder is None) == (data_dir is None):
        raise CommandError("name the folder to check, either as FOLDER or with --data-dir", USAGE)
    path = folder or data_dir
    assert path is not None
    problems: list[Problem] = []
    try:
        with quiet():
            fsck = Fsck(path, deep=deep, repair=repair)
            for problem in fsck.problems():
                problems.append(problem)
                print(_line(problem, repair, as_json))
    except (NothingToCheck, DataDirLocked) as error:
        raise CommandError(str(error), UNREADABLE) from error
    except OSError as error:
        raise CommandError(f"{error.filename or path}: {error.strerror or error}", UNREADABLE) from error
    print(_verdict(fsck, problems, repair, as_json))
    if any(problem.is_seen and not problem.is_repaired for problem in problems):
        return FAILED
    return OK if all(problem.is_seen for problem in problems) else UNREADABLE


@contextmanager
def quiet() -> Iterator[None]:
    """Say nothing but what is found: storage tells a broker's log of what it meets."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _line(problem: Problem, repair: bool, as_json: bool) -> str:
    if as_json:
        kind = "damage" if problem.is_seen else "unreadable"
        fields = {
            "kind": kind,
            "file": str(problem.path),
            "position": problem.position,
            "problem": problem.what,
        }
        return to_json(fields | {"repaired": problem.is_repaired})
    end = ""
    if repair and problem.is_seen:
        end = " (repaired)" if problem.is_repaired else " (cannot be repaired)"
    return shown(f"{problem.path}@{problem.position}: {problem.what}{end}")


def _verdict(fsck: Fsck, problems: list[Problem], repair: bool, as_json: bool) -> str:
    tally = fsck.tally
    damaged = [problem for problem in problems if problem.is_seen]
    repaired = sum(problem.is_repaired for problem in damaged)
    unseen = len(problems) - len(damaged)
    if as_json:
        counts = {"damaged": len(damaged), "repaired": repaired, "unreadable": unseen}
        return to_json({"kind": "summary", **tally._asdict(), **counts})
    sizes = [counted(tally.partitions, "partition"), counted(tally.segments, "segment")]
    words = [", ".join([*sizes, f"{counted(tally.log_bytes, 'byte')} of log"])]
    words.append(counted(len(damaged), "damaged place") if damaged else "no damage")
    if repair and damaged:
        words.append(f"{repaired} repaired")
    if unseen:
        words.append(f"{unseen} not looked at")
    return ": ".join([words[0], ", ".join(words[1:])])
