"""Whether the files that a start can do without are sound: beside the segments of a log, and in the data folder.

Owns which files these are, and what becomes of a damaged one. What is in them is read as a start reads it, by the
readers of those who write them. Knows nothing of segments (`segment_check`) and of what checkpoints say of them
(`fsck`). What was made and never filled holds nothing, and so nothing that is wrong.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.storage import checkpoints, files, layout, leader_epochs, producer_snapshots
from tidelog.storage.producer_state import fault as snapshot_fault
from tidelog.storage.producer_state import is_torn

SNAPSHOT: Final = producer_snapshots.SUFFIX
# Ours, and what Kafka has beside them: in one form all of them.
_OFFSETS: Final = "-offset-checkpoint"
# Of each file by its name the reader whose ValueError says what is wrong.
_TEXTS: Final[dict[str, Callable[[bytes], object]]] = {
    layout.LEADER_EPOCHS: leader_epochs.epochs_in,
    layout.PARTITION_METADATA: layout.topic_id_in,
}


def in_partition(folder: Path) -> list[Path]:
    """Return what there is to look at in the folder of a partition."""
    names = [name for name, is_folder in files.list_folder(folder) if not is_folder]
    return [
        folder / name for name in names if name in _TEXTS or producer_snapshots.offset_of(name) is not None
    ]


def in_data_folder(folder: Path) -> list[Path]:
    """Return what there is to look at in a data folder itself."""
    names = [name for name, is_folder in files.list_folder(folder) if not is_folder]
    return [folder / name for name in names if name.endswith(_OFFSETS)]


def faults(path: Path, *, was_killed: bool) -> list[str]:
    """Return what is wrong with a file; nothing is with one that is sound, or gone.

    Snapshots are written in place and nobody waits for the disk to have them: where a broker `was_killed` one that ends
    too early is no damage. OSError where it cannot be read.
    """
    data = files.load(path)
    if data is None:
        return []
    if path.suffix == SNAPSHOT:
        found = None if was_killed and is_torn(data) else snapshot_fault(data)
        return [] if found is None else [found]
    if not data and (was_killed or path.name != layout.PARTITION_METADATA):
        return []
    try:
        _TEXTS.get(path.name, checkpoints.offsets_in)(data)
    except ValueError as error:
        return [str(error)]
    return []


def repaired(path: Path) -> bool:
    """Remove a damaged file if a start makes what it held anew from the log, durably; tell whether it does."""
    if path.suffix != SNAPSHOT and path.name != layout.LEADER_EPOCHS:
        return False
    producer_snapshots.remove(path.parent, [path])
    return True
