"""Whether a log takes writes: since what it does not, and what mends it.

Owns the reason and the remedy. Knows nothing of what is written. Changed under the log's lock, or while no other thread
has the log; the reason is read by any thread.
"""

from collections.abc import Callable

from tidelog.storage.disk_space import DiskSpace
from tidelog.storage.errors import LogOffline

_UNTIL_RESTART = "; reads go on; restart when the disk is well"


class Health:
    """The health of one log; `failure` is None while it takes writes."""

    __slots__ = ("_disk", "_name", "_refusal", "_remedies", "failure")

    def __init__(self, name: str, disk: DiskSpace) -> None:
        """Take writes; `name` is what errors call the log."""
        self.failure: str | None = None
        self._name = name
        self._disk = disk
        self._refusal = LogOffline
        self._remedies: list[Callable[[], object]] = []

    def offline(self) -> LogOffline:
        """Return what refuses a write since the failure."""
        return self._refusal(f"{self._name}: takes no writes since {self.failure}")

    @property
    def is_final(self) -> bool:
        """Whether there is a failure that nothing mends."""
        return self.failure is not None and not self._remedies

    def fail(self, why: str, *remedies: Callable[[], object]) -> None:
        """Take no writes until these, and those of earlier failures, have succeeded; OSError from one that does not.

        Any other error of theirs is a fault, and is not caught. The first failure is named; one without remedy stays.
        """
        if self.is_final:
            return
        self.failure = self.failure or why
        self._remedies += remedies

    def is_mended(self) -> bool:
        """Try the remedies, if there are any; tell whether writes are taken from now on."""
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
        """Take no more writes, and let the next start not believe what memory holds; return what to raise."""
        self.failure, self._remedies = why + _UNTIL_RESTART, []
        self._disk.distrust()
        return self.offline()

    def flush_failed(self, error: OSError) -> LogOffline:
        """Do as `distrust` does after a flush that failed: another would succeed, and prove nothing."""
        return self.distrust(f"a flush failed ({error})")

    def refuse(self, why: str, refusal: type[LogOffline]) -> None:
        """Take no more writes, for good, for this reason if there is no other; each is refused with such an error."""
        self.failure, self._refusal = self.failure or why, refusal
        self._remedies = []
