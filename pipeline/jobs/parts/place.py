"""A place where jobs write: a local folder, or a prefix in an object store, through Arrow's file systems."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.files import remote
from tidelog.protocol.records.checksum import crc32c
from tidelog.storage import files


class Place(NamedTuple):
    """A folder: the text that names it, and its path in Arrow's file system. Executors can receive it."""

    uri: str
    path: str

    @property
    def files(self) -> fs.FileSystem:
        """The file system."""
        return fs.FileSystem.from_uri(self.uri)[0] if "://" in self.uri else fs.LocalFileSystem()

    @property
    def shown(self) -> str:
        """The text that names it, without credentials."""
        return remote.shown(self.uri)

    def under(self, name: str) -> str:
        """Return the path of a name in it."""
        return f"{self.path}/{name}"

    @property
    def is_local(self) -> bool:
        """Whether it is a local folder."""
        return isinstance(self.files, fs.LocalFileSystem)

    def write(self, name: str, chunks: Iterable[Any]) -> tuple[int, int]:
        """Write a file, which gets its name once it is complete and on disk; return its size and CRC-32C."""
        path, there = self.under(name), self.files
        aside, size, crc = f"{path}.tmp", 0, 0
        try:
            with there.open_output_stream(aside, buffer_size=1 << 20) as out:
                for chunk in chunks:
                    out.write(chunk)
                    size, crc = size + len(chunk), crc32c(chunk, crc)
        except BaseException:
            with suppress(OSError):
                there.delete_file(aside)
            raise
        if self.is_local:
            files.sync(Path(aside))
        there.move(aside, path)
        if self.is_local:
            files.sync_folder(Path(path).parent)
        return size, crc

    def names(self, prefix: str) -> list[str]:
        """Return the names of its files that start with a prefix."""
        found = self.files.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(each.base_name for each in found if each.is_file and each.base_name.startswith(prefix))


def place(flag: str, text: str) -> Place:
    """Parse the value of a flag as a place; WrongOption."""
    if not text:
        raise WrongOption(f"{flag} is missing; name the folder to write to")
    if "://" not in text:
        return Place(text, fs.LocalFileSystem().normalize_path(str(Path(text).absolute())))
    try:
        return Place(text, fs.FileSystem.from_uri(text)[1].rstrip("/"))
    except (OSError, ValueError) as error:
        shown = remote.shown(text)
        reason = str(error).replace(text, shown).splitlines()[0]
        raise WrongOption(f"{flag}: {shown!r} names no place: {reason}") from None
