"""A data folder in an object store: `segments:s3://bucket/prefix`, or any other URI that pyarrow supports.

Files have the same names as in a data folder. The files beside a log are fetched into a local folder. The log itself is
a sparse file of the same size there, so storage sees an ordinary data folder; its bytes are read from the store
(`open_file`). pyarrow takes credentials from the environment or the URI. Errors never show them.
"""

import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from tidelog.pipeline.errors import PipelineError
from tidelog.storage import files
from tidelog.storage.layout import LEADER_EPOCHS, LOG, PARTITION_METADATA, SUFFIXES

_FETCHES: Final = 16  # concurrent: each mostly waits for the store


def is_remote(place: str) -> bool:
    """Return whether a place is a URI, not a local folder."""
    return "://" in place


def shown(root: str) -> str:
    """Return a place for messages: a URI without its credentials and query."""
    if not is_remote(root):
        return root
    scheme, _, rest = root.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


@lru_cache(maxsize=8)
def _store(root: str) -> tuple[Any, str]:
    try:
        store, path = fs.FileSystem.from_uri(root)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise PipelineError(
            f"{shown(root)}: {str(error).replace(root, shown(root))}; write segments:s3://BUCKET/PREFIX"
        ) from None
    return store, str(path).rstrip("/")


class RemoteLog(files.File):
    """The `.log` file of a segment in the store."""

    __slots__ = ("_input",)

    def __init__(self, path: Path, opened: Any) -> None:
        self._fd = -1
        self.path = path
        self._input = opened
        self.size = opened.size()

    def pread(self, count: int, position: int) -> bytes:
        """Read up to `count` bytes; fewer only at the end of the file."""
        count = min(count, self.size - position)
        data: bytes = self._input.read_at(count, position) if count > 0 else b""
        return data


def open_file(root: str, path: Path) -> files.File:
    """Open a file in the store to read; PipelineError if it is not there."""
    store, prefix = _store(root)
    try:
        return RemoteLog(path, store.open_input_file(f"{prefix}/{path}"))
    except FileNotFoundError:
        raise PipelineError(f"{shown(root)}/{path} is not there any more; read it again") from None
    except OSError as error:
        raise PipelineError(f"{shown(root)}/{path}: it cannot be opened: {error}") from None


def folders(root: str) -> list[str]:
    """Return the names of the folders in the store. PipelineError if it cannot be listed."""
    return [info.base_name for info in _listed(root, "") if info.type == fs.FileType.Directory]


def _listed(root: str, folder: str) -> list[Any]:
    store, prefix = _store(root)
    try:
        found: list[Any] = store.get_file_info(fs.FileSelector(f"{prefix}/{folder}".rstrip("/")))
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(f"{shown(root)}: it cannot be listed: {error}") from None
    return found


@contextmanager
def mirrored(root: str, folder: Path, bases: Iterable[int] | None = None) -> Iterator[Path]:
    """Yield a temporary folder with the files beside the logs of a partition, for all or some segments."""
    with tempfile.TemporaryDirectory(prefix="tidelog-") as place:
        fetch(root, str(folder), Path(place), None if bases is None else {f"{base:020d}" for base in bases})
        yield Path(place)


def fetch(root: str, folder: str, place: Path, stems: set[str] | None = None) -> None:
    """Copy a folder of the store, without the bytes of logs, into a local folder."""
    store, prefix = _store(root)
    files.make_folder(place)
    small: list[str] = []
    for info in _listed(root, folder):
        name = info.base_name
        stem, dot, suffix = name.partition(".")
        if info.type != fs.FileType.File or not (
            name in (LEADER_EPOCHS, PARTITION_METADATA)
            or not folder
            or (dot + suffix in SUFFIXES and (stems is None or stem in stems))
        ):
            continue
        if dot + suffix == LOG:
            files.File(place / name, create=True).truncate(info.size)
        else:
            small.append(name)

    def get(name: str) -> None:
        with store.open_input_stream(f"{prefix}/{folder}/{name}".replace("//", "/")) as source:
            files.write(place / name, source.read())

    with ThreadPoolExecutor(_FETCHES) as pool:
        try:
            list(pool.map(get, small))
        except OSError as error:
            raise PipelineError(f"{shown(root)}/{folder}: it cannot be read: {error}") from None
