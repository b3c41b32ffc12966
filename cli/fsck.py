"""`tidelog fsck`: a line for each damaged place of a data folder, and a summary. `storage.fsck` finds and repairs."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidelog.cli.arguments import PATH, json_option
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, UNREADABLE, USAGE
from tidelog.cli.output import alarming, to_json
from tidelog.cli.text import called, counted, examples, shown

if TYPE_CHECKING:
    from tidelog.storage.fsck import Fsck, Problem

DAMAGE: Final = "damage"


@click.command("fsck", epilog=examples("tidelog fsck data", "tidelog fsck data/orders-0 --deep"))
@click.argument("folder", type=PATH, required=False, help="A data folder, or the folder of a partition.")
@click.option("--data-dir", type=PATH, help="A data folder, in place of FOLDER.")
@click.option(
    "--repair", is_flag=True, help="Rebuild indexes and summaries from the log. Stop the broker first."
)
@click.option("--deep", is_flag=True, help="Decode every record too.")
@json_option
def fsck(folder: Path | None, data_dir: Path | None, repair: bool, deep: bool, as_json: bool) -> int:
    """Check logs and the files beside them, and list damage. Only --repair writes.

    A running broker is not disturbed. Exit codes: 0 no damage, 1 damage (with --repair: damage that could not be
    repaired), 4 nothing to check, or it cannot be read.
    """
    if (folder is None) == (data_dir is None):
        raise CommandError("name the folder to check, either as FOLDER or with --data-dir", USAGE)
    path = folder or data_dir
    assert path is not None
    from tidelog.broker import catalog_check
    from tidelog.broker.catalog import CATALOG_FILE
    from tidelog.storage.backup import MANIFEST
    from tidelog.storage.errors import DataDirLocked
    from tidelog.storage.fsck import Fsck, NothingToCheck

    problems: list[Problem] = []
    if repair:
        _refuse_other_schema(path)
    try:
        with quiet():
            others = {CATALOG_FILE: catalog_check.faults}
            checked = Fsck(path, deep=deep, repair=repair, is_ours=_in_catalog(path), others=others)
            for problem in checked.problems():
                problems.append(problem)
                print(_line(problem, repair, as_json))
    except (NothingToCheck, DataDirLocked) as error:
        if isinstance(error, NothingToCheck) and (path / MANIFEST).exists():
            what = f"{path}: is a backup; {called()} restore compares its files with their SHA-256"
            raise CommandError(
                f"{what}: restore it to an empty folder, and check that", UNREADABLE
            ) from error
        raise CommandError(str(error), UNREADABLE) from error
    except OSError as error:
        raise CommandError(f"{error.filename or path}: {error.strerror or error}", UNREADABLE) from error
    print(_verdict(checked, problems, repair, as_json))
    if any(_kind(problem) == DAMAGE and not problem.is_repaired for problem in problems):
        return FAILED
    return OK if all(problem.is_seen for problem in problems) else UNREADABLE


def _refuse_other_schema(folder: Path) -> None:
    """Raise CommandError if another version wrote the data folder: a repair would take its files for damaged ones."""
    from tidelog.broker import catalog_check
    from tidelog.broker.catalog import CATALOG_FILE, OtherSchema
    from tidelog.storage.errors import StorageError

    path = folder / CATALOG_FILE
    if not path.exists():  # the folder of a partition
        path = folder.absolute().parent / CATALOG_FILE
    try:
        catalog_check.faults(path)
    except OtherSchema as error:
        raise CommandError(str(error), UNREADABLE) from error
    except StorageError:
        pass  # the check reports it


def _in_catalog(data_folder: Path) -> Callable[[str, int], bool]:
    """Return a function that tells whether the catalogue has a partition; without a catalogue, it has all."""
    from tidelog.broker.catalog import CATALOG_FILE, CatalogError, read
    from tidelog.storage.errors import StorageError

    @cache
    def partitions() -> dict[str, int] | None:
        path = data_folder / CATALOG_FILE
        try:
            return {topic.name: topic.partitions for topic in read(path).topics} if path.exists() else None
        except CatalogError as error:
            raise StorageError(str(error)) from error

    def is_there(topic: str, partition: int) -> bool:
        known = partitions()
        return known is None or partition < known.get(topic, 0)

    return is_there


def _kind(problem: "Problem") -> str:
    return "note" if problem.is_note else DAMAGE if problem.is_seen else "unreadable"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the log messages of storage, which are meant for a broker, out of the output."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _line(problem: "Problem", repair: bool, as_json: bool) -> str:
    if as_json:
        fields = {
            "kind": _kind(problem),
            "file": str(problem.path),
            "position": problem.position,
            "problem": problem.what,
        }
        return to_json(fields | {"repaired": problem.is_repaired, "bounded": problem.is_bounded})
    end = ""
    if problem.is_note:
        end = " (a note, no damage; repaired)" if problem.is_repaired else " (a note, no damage)"
    elif repair and problem.is_seen:
        bounded = " (times lost, replaced by a bound)" if problem.is_bounded else " (cannot be repaired)"
        end = " (repaired)" if problem.is_repaired else bounded
    line = shown(f"{problem.path}@{problem.position}: {problem.what}{end}")
    return line if problem.is_note or problem.is_repaired else alarming(line)


def _verdict(fsck: "Fsck", problems: "list[Problem]", repair: bool, as_json: bool) -> str:
    tally = fsck.tally
    damaged = [problem for problem in problems if _kind(problem) == DAMAGE]
    repaired = sum(problem.is_repaired for problem in damaged)
    unseen = sum(not problem.is_seen for problem in problems)
    if as_json:
        counts = {"damaged": len(damaged), "repaired": repaired, "unreadable": unseen}
        return to_json({"kind": "summary", **tally._asdict(), **counts})
    sizes = [counted(tally.partitions, "partition"), counted(tally.segments, "segment")]
    words = [", ".join([*sizes, f"{counted(tally.log_bytes, 'byte')} of log"])]
    words.append(counted(len(damaged), "damaged place") if damaged else "no damage")
    if repair and damaged:
        words.append(f"{repaired} repaired")
    if unseen:
        words.append(f"{unseen} not checked")
    return ": ".join([words[0], ", ".join(words[1:])])
