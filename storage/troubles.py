"""Failures that repeat: tells when one begins, changes or ends, so that it is logged once.

Remembers the last message of each failure. Knows nothing of how they are handled.
"""

import threading
from collections.abc import Hashable


class Troubles:
    """The current failures, by what fails. For any thread."""

    def __init__(self) -> None:
        """Begin without any."""
        self.any = False  # lets callers skip `end` while nothing fails
        self._known: dict[Hashable, str] = {}
        self._lock = threading.Lock()

    def begin(self, what: Hashable, why: str) -> bool:
        """Record that something fails; tell whether that is new, or has another reason than before."""
        with self._lock:
            is_news = self._known.get(what) != why
            self._known[what] = why
            self.any = True
        return is_news

    def end(self, what: Hashable) -> bool:
        """Record that something works; tell whether it failed before."""
        with self._lock:
            was_known = self._known.pop(what, None) is not None
            self.any = bool(self._known)
        return was_known
