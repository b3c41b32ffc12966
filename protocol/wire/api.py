"""An API: its key, its versions, its two messages, and the codecs of each version.

Readers and writers are made when a version is first used, because a broker speaks a handful of the versions it knows.
"""

from typing import TYPE_CHECKING

from tidelog.protocol.wire.schema import Versions

if TYPE_CHECKING:
    from tidelog.protocol.wire.compiler import Reader, Writer

__all__ = ["Api"]


class Api:
    """One request and its response, in a range of versions."""

    __slots__ = (
        "_request_readers",
        "_request_writers",
        "_response_readers",
        "_response_writers",
        "flexible",
        "key",
        "max_version",
        "min_version",
        "name",
        "request",
        "response",
    )

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
        self._request_readers: dict[int, Reader] = {}
        self._request_writers: dict[int, Writer] = {}
        self._response_readers: dict[int, Reader] = {}
        self._response_writers: dict[int, Writer] = {}

    def __repr__(self) -> str:
        """Name the API and its versions."""
        return f"<Api {self.key} {self.name} {self.min_version}-{self.max_version}>"

    def supports(self, version: int) -> bool:
        """Tell whether a version can be read and answered."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Tell whether a version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible.has(version)

    def reader(self, version: int) -> "Reader":
        """Give the reader of the request."""
        return self._request_readers.get(version) or self._compile_reader(
            self._request_readers, self.request, version
        )

    def writer(self, version: int) -> "Writer":
        """Give the writer of the response."""
        return self._response_writers.get(version) or self._compile_writer(
            self._response_writers, self.response, version
        )

    def request_writer(self, version: int) -> "Writer":
        """Give the writer of the request: the client's side."""
        return self._request_writers.get(version) or self._compile_writer(
            self._request_writers, self.request, version
        )

    def response_reader(self, version: int) -> "Reader":
        """Give the reader of the response: the client's side."""
        return self._response_readers.get(version) or self._compile_reader(
            self._response_readers, self.response, version
        )

    def _compile_reader(self, cached: "dict[int, Reader]", message: type, version: int) -> "Reader":
        from tidelog.protocol.wire import compiler  # it imports construct, 50 ms that no import should cost

        self._demand(version)
        cached[version] = compiler.reader_of(message, version, self.is_flexible(version))
        return cached[version]

    def _compile_writer(self, cached: "dict[int, Writer]", message: type, version: int) -> "Writer":
        from tidelog.protocol.wire import compiler

        self._demand(version)
        cached[version] = compiler.writer_of(message, version, self.is_flexible(version))
        return cached[version]

    def _demand(self, version: int) -> None:
        if not self.supports(version):
            raise ValueError(f"{self.name} has versions {self.min_version}-{self.max_version}, not {version}")
