"""Whether `fsck` finds a folder sound that a start recovers: left by a crash, served, or closed.

Owns: what it may say all the same. Refuses to know: how a folder came to be as it is.
"""

from pathlib import Path

from tests.fault.crash.ledger import Violation
from tests.fault.crash.memory import Catalogue
from tests.support.disk.system import FOLDER, Disk
from tidelog.storage.fsck import Fsck, NothingToCheck
from tidelog.storage.layout import APPEND_INDEX, partition_of


def check(disk: Disk, moment: str, *, was_refused: bool, was_cut: bool) -> None:
    """Raise Violation where `fsck` calls something damaged; the life of the disk goes on as if nobody had looked.

    Where the disk has refused something (`was_refused`), files may be damaged that a start makes again, and bytes of
    a log outside of what is served: then `fsck` has to come to an end, whatever it says. Append times that a power cut
    took (`was_cut`) are lost, and are named until a start that needs them puts a bound in their place. A power cut may
    also bring back the folder of a deleted topic. What it tore there is named until a start removes the folder: `fsck`
    takes it for a topic that was copied here.
    """
    fault, calls = disk.fault, disk.calls.copy()
    disk.fault = None
    partitions = {record.name: record.partitions for record in Catalogue(disk).topics()}

    def is_ours(topic: str, partition: int) -> bool:
        return partition < partitions.get(topic, 0)

    try:
        fsck = Fsck(
            FOLDER,
            deep=True,
            repair=False,
            is_ours=is_ours,
            pause=lambda _: None,
        )
        found = [each for each in fsck.problems() if not each.is_note]
    except NothingToCheck:
        return
    finally:
        disk.fault, disk.calls = fault, calls
    if was_cut:
        found = [
            each
            for each in found
            if each.path.suffix != APPEND_INDEX
            and ((key := _partition_of(each.path)) is None or is_ours(*key))
        ]
    if found and not was_refused:
        path, position, what, *_ = found[0]
        raise Violation("fsck", f"{moment}: {path.relative_to(FOLDER)}@{position}: {what}")


def _partition_of(path: Path) -> tuple[str, int] | None:
    """Return the partition of a file or of its folder; None for other files."""
    return partition_of(path.name) or partition_of(path.parent.name)
