"""An API: its key, its versions, its two messages, and the codecs of each version.

The codecs of a version are made on first use, since a broker uses few of all versions.
"""

from tidelog.protocol.wire.compiler import Reader, Writer, reader_of, writer_of
from tidelog.protocol.wire.schema import Versions


class Api:
    """A request and its response, in a range of versions."""

    __slots__ = ("flexible", "key", "max_version", "min_version", "name", "request", "response")

    def __init__(
        self,
        key: int,
        versions: str,
        flexible: str,
        request: type,
        response: type,
    ) -> None:
        """Declare an API."""
        known = Versions.parse(versions)
        if known.high is None:
            raise ValueError(f"{request.__name__}: the versions of an API must have an end, not {versions!r}")
        self.key = key
        self.name = request.__name__.removesuffix("Request")
        self.min_version, self.max_version = known.low, known.high
        self.flexible = Versions.parse(flexible)
        self.request = request
        self.response = response

    def __repr__(self) -> str:
        """Name the API and its versions."""
        return f"<Api {self.key} {self.name} {self.min_version}-{self.max_version}>"

    def supports(self, version: int) -> bool:
        """Return whether the API has a version."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Return whether a version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible.has(version)

    def reader(self, version: int) -> Reader:
        """Return the reader of the request."""
        return reader_of(self.request, version, self._is_flexible_of(version))

    def writer(self, version: int) -> Writer:
        """Return the writer of the response."""
        return writer_of(self.response, version, self._is_flexible_of(version))

    def request_writer(self, version: int) -> Writer:
        """Return the writer of the request, for clients."""
        return writer_of(self.request, version, self._is_flexible_of(version))

    def response_reader(self, version: int) -> Reader:
        """Return the reader of the response, for clients."""
        return reader_of(self.response, version, self._is_flexible_of(version))

    def _is_flexible_of(self, version: int) -> bool:
        """Return whether a version is flexible; ValueError if the API does not have it."""
        if not self.supports(version):
            raise ValueError(f"{self.name} has versions {self.min_version}-{self.max_version}, not {version}")
        return self.is_flexible(version)
