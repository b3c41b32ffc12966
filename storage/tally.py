"""What was done to the logs of a data folder since the start: what the start read and cut, what retention deleted.

Owns the counts, and knows nothing of who reads them. A few integers for each segment that is opened or deleted; what
passes for every request is not counted here.
"""

import threading


class Tally:
    """Recovery counts from several threads, retention from one. Any thread may read."""

    __slots__ = ("_lock", "cut_bytes", "deleted_bytes", "deleted_segments", "open_s", "read_bytes")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.open_s = 0.0  # that it took to open all logs
        self.read_bytes = 0  # of logs, to verify what a summary does not vouch for
        self.cut_bytes = 0  # of logs, that no flush had covered
        self.deleted_segments = 0
        self.deleted_bytes = 0

    def read(self, size_bytes: int) -> None:
        """Count what was read when a log was opened."""
        with self._lock:
            self.read_bytes += size_bytes

    def cut(self, size_bytes: int) -> None:
        """Count what was cut off when a log was opened."""
        with self._lock:
            self.cut_bytes += size_bytes

    def deleted(self, segments: int, size_bytes: int) -> None:
        """Count what retention has deleted."""
        self.deleted_segments += segments
        self.deleted_bytes += size_bytes
