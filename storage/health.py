"""Whether a log takes writes: if not, the failure that stopped them and what repairs it.

Knows nothing of what is written. Changed under the log's lock, or before other threads see the log; any thread reads
`failure`.
"""

from collections.abc import Callable
from typing import Final

from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import LogOffline

_UNTIL_RESTART: Final = "; reads go on; repair the disk and restart"


class Health:
    """The health of one log; `failure` is None while it takes writes."""

    __slots__ = ("_disk", "_name", "_refusal", "_remedies", "failure")

    def __init__(self, name: str, disk: DiskSpace) -> None:
        """Take writes; `name` is the log's name in errors."""
        self.failure: str | None = None
        self._name = name
        self._disk = disk
        self._refusal = LogOffline
        self._remedies: list[Callable[[], object]] = []

    def offline(self) -> LogOffline:
        """Return the error to raise for a write."""
        return self._refusal(f"{self._name}: takes no writes since {self.failure}")

    @property
    def is_final(self) -> bool:
        """Whether only a restart ends the failure."""
        return self.failure is not None and not self._remedies

    def fail(self, why: str, *remedies: Callable[[], object]) -> None:
        """Refuse writes until these remedies, and those of earlier failures, have succeeded.

        A remedy raises OSError while it cannot succeed; any other error is a bug and is not caught. Errors name the
        first failure. A failure without a remedy is final.
        """
        if self.is_final:
            return
        self.failure = self.failure or why
        self._remedies += remedies

    def mend(self) -> bool:
        """Try the remedies; tell whether they have ended a failure."""
        if not self._remedies:
            return False
        try:
            while self._remedies:
                self._remedies[0]()
                del self._remedies[0]
        except OSError:
            return False
        self.failure = None
        return True

    def distrust(self, why: str) -> LogOffline:
        """Refuse writes until a restart, which then verifies what was not flushed; return the error to raise."""
        self.failure, self._remedies = why + _UNTIL_RESTART, []
        self._disk.distrust()
        return self.offline()

    def flush_failed(self, error: OSError) -> LogOffline:
        """Call `distrust` after a failed flush: a second flush could succeed although the data was lost."""
        return self.distrust(f"a flush failed ({error})")

    def refuse(self, why: str, refusal: type[LogOffline]) -> None:
        """Refuse writes for good, with errors of this class; an earlier reason stays the reason."""
        self.failure, self._refusal = self.failure or why, refusal
        self._remedies = []
