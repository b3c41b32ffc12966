"""The topics that match the regular expressions which the members of a group subscribe by.

Owns when they are looked for, and that what they take in memory has room; refuses to know how they are matched
(`topic_patterns`), and what becomes of them in the group.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.broker.groups.consumer_parts import ConsumerSurroundings
from tidelog.broker.groups.memory import Taken

_log = logging.getLogger(__name__)

# What a topic that matches a regular expression takes in memory, about.
NAME_BYTES: Final = 100
# So often at most all topics are matched anew because there are others.
REFRESH_MS: Final = 1000

# Takes what has been found anew, whether that is other topics, and which regular expressions have no room.
Found = Callable[[Mapping[str, frozenset[str]], bool, frozenset[str]], None]


class Matches:
    """By regular expression the topics that match, as far as that is known. Event loop only, but for `topics`."""

    def __init__(self, group_id: str, around: ConsumerSurroundings, taken: Taken) -> None:
        self._group_id = group_id
        self._around = around
        self._taken = taken
        self.topics: dict[str, frozenset[str]] = {}
        self._wanted: Counter[str] = Counter()  # by how many members
        self._has_new_topics = False  # and they may match
        self._is_looking = False
        self._refresh_due_ms = 0

    def begin(self) -> None:
        """Count what was restored; topics may have come after it was stored."""
        self._taken.add(self._taken.host, NAME_BYTES * sum(map(len, self.topics.values())))
        self._has_new_topics = bool(self._wanted)

    def end(self) -> None:
        """Take note of nothing that is found from now on: the group is not served, or counted, any more."""
        self._wanted.clear()

    def __contains__(self, regex: str | None) -> bool:
        """Tell whether a member subscribes by it."""
        return regex in self._wanted

    def count(self, regex: str, more: int) -> bool:
        """Take note of a member more, or less; tell whether the topics that match are forgotten with the last."""
        self._wanted[regex] += more
        if self._wanted[regex]:
            return False
        del self._wanted[regex]
        topics = self.topics.pop(regex, None)
        self._taken.add(self._taken.host, -NAME_BYTES * len(topics or ()))
        return topics is not None

    def topics_came(self) -> None:
        """Have topics that match looked for anew, before long."""
        self._has_new_topics = bool(self._wanted)

    @property
    def unknown(self) -> set[str]:
        """The regular expressions for which topics are still to be found."""
        return self._wanted.keys() - self.topics.keys()

    def look(self, then: Found) -> None:
        """Have topics looked for, if there is need and that is not done already."""
        now_ms = self._around.monotonic_ms()
        is_due = self._has_new_topics and now_ms >= self._refresh_due_ms
        if self._is_looking or not (self.unknown or is_due):
            return
        self._is_looking, self._has_new_topics = True, False
        self._refresh_due_ms = now_ms + REFRESH_MS
        held = sum(map(len, self.topics.values()))
        most = held + max(self._around.room(self._taken.host), 0) // NAME_BYTES
        regexes = [*sorted(self.topics.keys() & self._wanted.keys()), *sorted(self.unknown)]
        self._around.resolve(self._group_id, regexes, most, lambda found: self._take(found, then))

    def _take(self, found: Mapping[str, frozenset[str] | None], then: Found) -> None:
        """Take note of what was found, as far as there is room: None stands for more than that."""
        self._is_looking = False
        news: dict[str, frozenset[str]] = {}
        is_changed, refused = False, set[str]()
        for regex, topics in found.items():
            before = self.topics.get(regex)
            if regex not in self._wanted:
                continue
            if topics is None or not self._has_room(more := NAME_BYTES * (len(topics) - len(before or ()))):
                self._refuse(regex, refused)
            elif topics != before:
                self._taken.add(self._taken.host, more)
                is_changed |= topics != (before or frozenset())
                news[regex] = self.topics[regex] = topics
        then(news, is_changed, frozenset(refused))

    def _has_room(self, more_bytes: int) -> bool:
        return more_bytes <= 0 or more_bytes <= self._around.room(self._taken.host)

    def _refuse(self, regex: str, refused: set[str]) -> None:
        if regex in self.topics:
            _log.warning(
                "groups: no memory for more topics that match, those of before stay regex=%r", regex[:100]
            )
        else:
            refused.add(regex)
