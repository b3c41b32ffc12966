"""Counts since the start: what the start read and cut off, and what retention deleted.

Updated when a segment is opened or deleted; requests are not counted here. Knows nothing of who reads the counts.
"""

import threading


class Tally:
    """Recovery counts from several threads, retention from one. Any thread may read."""

    __slots__ = ("_lock", "cut_bytes", "deleted_bytes", "deleted_segments", "open_s", "read_bytes")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.open_s = 0.0  # how long it took to open all logs
        self.read_bytes = 0  # of logs, as no summary described these bytes
        self.cut_bytes = 0  # of logs, none of them flushed
        self.deleted_segments = 0
        self.deleted_bytes = 0

    def read(self, size_bytes: int) -> None:
        """Count bytes that were read when a log was opened."""
        with self._lock:
            self.read_bytes += size_bytes

    def cut(self, size_bytes: int) -> None:
        """Count bytes that were cut off when a log was opened."""
        with self._lock:
            self.cut_bytes += size_bytes

    def deleted(self, segments: int, size_bytes: int) -> None:
        """Count what retention has deleted."""
        self.deleted_segments += segments
        self.deleted_bytes += size_bytes
