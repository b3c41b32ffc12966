"""A message as it stands in a record of the coordinator: its version, an int16, and its fields in that version."""

from struct import Struct
from typing import TYPE_CHECKING, Any

from tidelog.protocol.wire.errors import WireError
from tidelog.protocol.wire.schema import Versions

if TYPE_CHECKING:
    from tidelog.protocol.wire.compiler import Reader, Writer

__all__ = ["Form"]

_VERSION = Struct(">h")


class Form:
    """How one message is read and written, in the versions that it has. Codecs are made when first used."""

    __slots__ = ("_flexible", "_message", "_readers", "_versions", "_writers")

    def __init__(self, message: type, versions: str, flexible: str) -> None:
        """Declare a form."""
        self._message = message
        self._versions = Versions.parse(versions)
        self._flexible = Versions.parse(flexible)
        self._readers: dict[int, Reader] = {}
        self._writers: dict[int, Writer] = {}

    def read(self, data: bytes, as_version: int | None = None) -> Any:
        """Return the message that data is; what follows it is passed over. WireError where it is none.

        It is read in the version that it says, or in another that begins alike.
        """
        version = version_of(data) if as_version is None else as_version
        if not self._versions.has(version):
            raise WireError(f"{self._message.__name__} has versions {self._versions}, not {version}")
        reader = self._readers.get(version)
        if reader is None:
            from tidelog.protocol.wire import (
                compiler,
            )  # it imports construct, 50 ms that no import should cost

            is_flexible = self._flexible.has(version)
            reader = self._readers[version] = compiler.reader_of(self._message, version, is_flexible)
        return reader(data, _VERSION.size, len(data))[0]

    def write(self, message: Any, version: int) -> bytes:
        """Return the bytes of a message. EncodeError where they cannot say it: a text is longer than 32,767 bytes."""
        writer = self._writers.get(version)
        if writer is None:
            from tidelog.protocol.wire import compiler

            is_flexible = self._flexible.has(version)
            writer = self._writers[version] = compiler.writer_of(self._message, version, is_flexible)
        parts, _ = writer(message)
        return b"".join((_VERSION.pack(version), *parts))


def version_of(data: bytes) -> int:
    """Return the version in which a message is written. WireError where there is none."""
    if len(data) < _VERSION.size:
        raise WireError(f"a record of {len(data)} bytes has no version")
    version: int = _VERSION.unpack_from(data)[0]
    return version
