"""What goes wrong again and again, said once: when it begins or changes, and when it is over.

Owns what was said last. Knows nothing of what is done about it.
"""

import threading
from collections.abc import Hashable


class Troubles:
    """The troubles of today, by what has them. For any thread."""

    def __init__(self) -> None:
        """Begin without any."""
        self.any = False  # Read on the way that most things take.
        self._said: dict[Hashable, str] = {}
        self._lock = threading.Lock()

    def begin(self, what: Hashable, why: str) -> bool:
        """Note that something fails; tell whether that is news."""
        with self._lock:
            is_news = self._said.get(what) != why
            self._said[what] = why
            self.any = True
        return is_news

    def end(self, what: Hashable) -> bool:
        """Note that something works; tell whether that is news."""
        with self._lock:
            was_said = self._said.pop(what, None) is not None
            self.any = bool(self._said)
        return was_said
