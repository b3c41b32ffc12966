"""`tidelog backup`: copy the data of a running broker, as of one moment.

The broker links its files in its data folder (`broker.backup`). This command copies and verifies them, so a kill of
either leaves the other as it was.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from tidelog.cli.arguments import PATH, Integer, bootstrap_option, json_option
from tidelog.cli.connect import connected
from tidelog.cli.data_folder import DataFolder, data_folder
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import FAILED, OK, USAGE
from tidelog.cli.output import progress, to_json
from tidelog.cli.text import counted, examples, note, shown
from tidelog.config.kinds import LONG_MAX
from tidelog.storage.errors import StorageError

# Room for the names of the copies, and for what else is written to that disk meanwhile.
_SPARE_BYTES: Final = 1 << 20


@click.command(
    "backup",
    epilog=examples(
        "tidelog backup --to /mnt/backups/monday", "tidelog backup --to /mnt/backups/monday --rate 50000000"
    ),
)
@click.option(
    "--to",
    type=PATH,
    required=True,
    help="A folder that is empty or missing, or holds a backup that was not finished.",
)
@click.option(
    "--rate", type=Integer(1, LONG_MAX), help="Copy at most this many bytes a second. Default: no limit."
)
@bootstrap_option
@json_option
def backup(to: Path, rate: int | None, bootstrap: str, as_json: bool) -> int:
    """Copy the data of a running broker, as of one moment.

    The broker keeps serving. The backup holds all records, committed offsets, topics and options as of one moment. Run
    this on the broker's machine, as the user that the broker runs as. Exit code 1 if a partition is not in the backup.
    """
    began_s = time.monotonic()
    with connected(bootstrap) as cluster, data_folder(cluster) as folder:
        about, total = _back_up(folder, to, rate or 0)
    problems: dict[str, str] = about["problems"]
    for log, problem in sorted(problems.items()):
        note(f"{log}: {problem}")
    seconds = time.monotonic() - began_s
    if as_json:
        print(to_json({**about, "bytes": total, "seconds": round(seconds, 3)}))
    else:
        topics, partitions = counted(about["topics"], "topic"), counted(about["partitions"], "partition")
        print(
            f"{shown(str(to))}: {topics}, {partitions}, {counted(total, 'byte')}, verified, in {seconds:.1f} s"
        )
    return FAILED if any(problem.startswith("not in the backup") for problem in problems.values()) else OK


def _back_up(folder: DataFolder, to: Path, rate: int) -> tuple[dict[str, Any], int]:
    from tidelog.storage import cut, pins

    process = pins.process_of(os.getpid())
    with _target(to, folder.path):
        try:
            folder.ask("backup", process=process)
            made = cut.folder_of(folder.path, process)
            with cut.in_use(made):
                return _copy(made, to, rate)
        except StorageError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{to}: not backed up: {error}") from error
        finally:
            cut.remove(cut.folder_of(folder.path, process))


@contextmanager
def _target(to: Path, data: Path) -> Iterator[None]:
    """Make the folder of the backup, and lock it; remove what was made if the block fails."""
    from tidelog.storage import backup as made
    from tidelog.storage import files

    if to.resolve().is_relative_to(data.resolve()):
        raise CommandError(f"{to}: is in the data folder {data}; use a folder on another disk", USAGE)
    is_new = not to.exists()
    if is_new and to.is_symlink():
        raise CommandError(
            f"{to}: is a link to {to.readlink()}, which does not exist; make that folder", USAGE
        )
    with _usable(to):
        to.mkdir(parents=True, exist_ok=True)
        _check_unused(to, is_empty=not any(to.iterdir()))
        lock = files.FolderLock(to / made.MANIFEST)
    try:
        _check_unused(to)  # another command may have finished meanwhile
        try:
            with _usable(to):
                files.remove_folder(to / made.FILES)
                (to / made.FILES).mkdir()
                files.sync_folder(to)
            yield
        except BaseException:
            files.remove_folder(to if is_new else to / made.FILES)
            if not is_new:
                for left in to.glob(f"{made.MANIFEST}*"):
                    left.unlink(missing_ok=True)
            raise
    finally:
        lock.release()


@contextmanager
def _usable(to: Path) -> Iterator[None]:
    """Raise CommandError for an error of the system."""
    try:
        yield
    except BlockingIOError:
        raise CommandError(f"{to}: another command makes a backup there; use another folder", USAGE) from None
    except OSError as error:
        raise CommandError(f"{to}: cannot be used: {error.strerror}", USAGE) from error


def _check_unused(to: Path, *, is_empty: bool = False) -> None:
    """Raise CommandError unless a folder is empty or holds a backup that was not finished."""
    from tidelog.storage import backup as made

    if not is_empty and not made.is_unfinished(to):
        raise CommandError(f"{to}: is not empty; each backup needs a folder of its own", USAGE)


def _copy(source: Path, to: Path, rate: int) -> tuple[dict[str, Any], int]:
    """Copy the files of a cut, and write the manifest; return what the cut says, and the bytes."""
    import json

    from tidelog.storage import backup as made
    from tidelog.storage import cut, layout

    plan = json.loads((source / cut.PLAN).read_bytes())
    sizes: dict[str, int] = plan["sizes"]
    # The ids come last: without them, an incomplete copy of these files is no data folder either.
    names = sorted(made.names_in(source), key=lambda name: name == layout.META)
    wanted = {name: sizes.get(name, (source / name).stat().st_size) for name in names if name != cut.PLAN}
    total = sum(wanted.values())
    free = shutil.disk_usage(to).free
    if total + _SPARE_BYTES > free:
        raise CommandError(f"{to}: the backup needs {counted(total, 'byte')}, and its disk has {free} free")
    copied, pace = {}, made.Rate(rate)
    with progress("Copying", total) as report:

        def step(count: int) -> None:
            report(count)
            pace.wait(count)

        for name, size in wanted.items():
            target = to / made.FILES / name
            target.parent.mkdir(exist_ok=True)
            copied[name] = made.copy(source / name, target, size, step)
    made.sync_folders(to)
    made.save(to, made.Manifest(copied, plan["about"]))
    return plan["about"], total
