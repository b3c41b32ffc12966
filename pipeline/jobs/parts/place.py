"""Where tables are written: a folder of this machine, or a prefix of an object store.

Owns the way from the text of `--out` to a file system of Arrow's. It can be sent to executors.
"""

from pathlib import Path
from typing import NamedTuple

from pyarrow import fs

from tidelog.pipeline.errors import WrongOption
from tidelog.pipeline.files import remote


class Place(NamedTuple):
    """A folder: by the text that names it, and what Arrow calls it."""

    uri: str
    path: str

    @property
    def files(self) -> fs.FileSystem:
        """Return the file system that it is in."""
        return fs.FileSystem.from_uri(self.uri)[0] if "://" in self.uri else fs.LocalFileSystem()

    @property
    def shown(self) -> str:
        """Return the text that names it, without what may be secret in it."""
        return remote.shown(self.uri)

    def under(self, name: str) -> str:
        """Return the path of what is in it."""
        return f"{self.path}/{name}"

    def names(self, prefix: str) -> list[str]:
        """Return the names of the files in it that begin so."""
        found = self.files.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(each.base_name for each in found if each.is_file and each.base_name.startswith(prefix))


def place(flag: str, text: str) -> Place:
    """Return the place that a flag names; WrongOption if it names none."""
    if not text:
        raise WrongOption(f"{flag} is missing; name the folder that is to be written")
    if "://" not in text:
        return Place(text, fs.LocalFileSystem().normalize_path(str(Path(text).absolute())))
    try:
        return Place(text, fs.FileSystem.from_uri(text)[1].rstrip("/"))
    except (OSError, ValueError) as error:
        shown = remote.shown(text)
        said = str(error).replace(text, shown).splitlines()[0]
        raise WrongOption(f"{flag}: {shown!r} names no place: {said}") from None
