"""A file of fixed-size entries: the base of the indexes. In memory while it grows, mapped once the segment is sealed.

Owns the bytes of an index, and how many of them the file has. Knows nothing of what an entry means. The file is not
synced: the segment's summary has the checksum of the entries, and an index that does not match is rebuilt from the log.
"""

from mmap import mmap
from pathlib import Path
from typing import ClassVar

from tidelog.protocol.records.checksum import crc32c
from tidelog.protocol.records.search import find_entry
from tidelog.storage import files

Data = bytes | bytearray | memoryview | mmap


class IndexFile:
    """Entries of `entry_bytes` each; `data` is a bytearray while the segment is active."""

    __slots__ = ("_file_bytes", "_saved_bytes", "_saved_crc", "data", "path")
    entry_bytes: ClassVar[int]
    key_bytes: ClassVar[int]  # the size of the key that an entry begins with, a signed integer

    def __init__(self, path: Path, data: Data = b"", file_bytes: int | None = None) -> None:
        """Hold entries that are in the file, or none; `file_bytes` is its size if that is known."""
        self.path = path
        self.data = data
        self._file_bytes = file_bytes
        self._saved_bytes = len(data)
        self._saved_crc = crc32c(data)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.data) // self.entry_bytes

    @property
    def crc(self) -> int:
        """The CRC-32C of the entries in the file."""
        return self._saved_crc

    def find(self, key: int) -> tuple[int, int, int]:
        """Return the number of the first entry with at least this key, its key, and its other field.

        Without such an entry, the number of entries and -1 twice.
        """
        found: tuple[int, int, int] = find_entry(self.data, self.entry_bytes, self.key_bytes, key)
        return found

    def keep(self, count: int) -> None:
        """Drop all entries after the first `count`; the next save truncates the file."""
        if count < len(self):
            if not isinstance(self.data, bytearray):
                self.data = bytearray(self.data)
            del self.data[count * self.entry_bytes :]
            if self._saved_bytes > len(self.data):
                self._saved_bytes = len(self.data)
                self._saved_crc = crc32c(self.data)

    def save(self, final: bytes = b"") -> int:
        """Write what the file lacks, and `final` after it; return the CRC-32C of the file. Nothing is synced.

        `final` goes into the file only: other threads may be reading the entries in memory.
        """
        tail = bytes(self.data[self._saved_bytes :])
        end = self._saved_bytes + len(tail)
        if tail or final or self._file_bytes != end:
            self._file_bytes = None
            files.own(self.path, durably=False)  # as the rest of the file
            file = files.File(self.path, create=True)
            if tail or final:
                file.write_at(tail + final, self._saved_bytes)
            if file.size > end + len(final):
                file.truncate(end + len(final))
            self._file_bytes = end + len(final)
        self._saved_bytes = end
        self._saved_crc = crc32c(tail, self._saved_crc)
        return crc32c(final, self._saved_crc)

    def forget_file(self) -> None:
        """Have the next save write all entries, as the file is gone."""
        self._saved_bytes = self._saved_crc = 0
        self._file_bytes = None

    def _append(self, entry: bytes) -> None:
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        self.data += entry
