"""The form of a message in a record of the coordinator: its version, an int16, and its fields in that version."""

from struct import Struct
from typing import Any

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.compiler import Writer
from tidelog.protocol.wire.errors import WireError

_VERSION = Struct(">h")


class Form:
    """Reads and writes a message in its versions."""

    __slots__ = ("_codecs", "_writers")

    def __init__(self, message: type, versions: str, flexible: str) -> None:
        """Declare the form of a message class."""
        self._codecs = Api(key=-1, versions=versions, flexible=flexible, request=message, response=message)
        self._writers: dict[int, Writer] = {}  # those that have been used, by version

    def read(self, data: bytes, as_version: int | None = None) -> Any:
        """Return the message in data, and ignore bytes after it; WireError if it is invalid.

        It is read in its own version, or in `as_version`, which must start with the same fields.
        """
        version = version_of(data) if as_version is None else as_version
        if not self._codecs.supports(version):
            known = f"{self._codecs.min_version} to {self._codecs.max_version}"
            raise WireError(f"{self._codecs.name} has versions {known}, not {version}")
        return self._codecs.reader(version)(data, _VERSION.size, len(data))[0]

    def write(self, message: Any, version: int) -> bytes:
        """Return the bytes of a message; EncodeError if a text is longer than 32,767 bytes."""
        write = self._writers.get(version)
        if write is None:
            write = self._writers[version] = self._codecs.writer(version)
        parts, _ = write(message)
        return b"".join((_VERSION.pack(version), *parts))


def version_of(data: bytes) -> int:
    """Return the version of a message; WireError if it is too short."""
    if len(data) < _VERSION.size:
        raise WireError(f"a record of {len(data)} bytes has no version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
