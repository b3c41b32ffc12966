"""The topics that match the regular expressions which the members of a group subscribe by.

Owns when topics are matched, with what, and whether the matches fit in memory. It does not know how a name is matched
(`topic_patterns`), nor what the group does with the matches.

A new expression is matched with all topics, once, for all members that use it. When topics come or go, only their names
are matched with the expressions that are known. So a member that joins costs its own expression, however many others
the group has.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.broker.groups.consumer_parts import ConsumerSurroundings, Matched
from tidelog.broker.groups.memory import Taken

_log = logging.getLogger(__name__)

# What a topic that matches a regular expression takes in memory, about.
NAME_BYTES: Final = 100
# Topics that came or went are matched at most this often.
REFRESH_MS: Final = 1000
# A group remembers at most this many topics that came or went. With more, it matches all topics again.
MOST_CHANGED: Final = 1000

# Takes the expressions that have other topics now, whether members read other topics, and which expressions have no
# room.
Found = Callable[[Mapping[str, frozenset[str]], bool, frozenset[str]], None]


class Matches:
    """By regular expression the topics that match, as far as that is known. Event loop only, but for `topics`."""

    def __init__(self, group_id: str, around: ConsumerSurroundings, taken: Taken) -> None:
        self._group_id = group_id
        self._around = around
        self._taken = taken
        self.topics: dict[str, frozenset[str]] = {}
        self._wanted: Counter[str] = Counter()  # by how many members
        self._unknown: set[str] = set()  # of these, the ones whose topics are still to be found
        # Topics that came or went since the known expressions were matched; None is more than are remembered.
        self._changed: list[str] | None = []
        self._has_new_topics = False  # and they may match
        self._is_looking = False
        self._refresh_due_ms = 0

    def begin(self) -> None:
        """Count what was restored; topics may have come after it was stored."""
        self._taken.add(self._taken.host, NAME_BYTES * sum(map(len, self.topics.values())))
        self._changed = None
        self._has_new_topics = bool(self._wanted)

    def end(self) -> None:
        """Ignore what is found from now on: the group is not served, or counted, any more."""
        self._wanted.clear()
        self._unknown.clear()

    def __contains__(self, regex: str | None) -> bool:
        """Tell whether a member subscribes by it."""
        return regex in self._wanted

    def count(self, regex: str, more: int) -> bool:
        """Count a member more, or less; tell whether the topics that match are forgotten with the last."""
        self._wanted[regex] += more
        if self._wanted[regex]:
            if regex not in self.topics:
                self._unknown.add(regex)
            return False
        del self._wanted[regex]
        self._unknown.discard(regex)
        topics = self.topics.pop(regex, None)
        self._taken.add(self._taken.host, -NAME_BYTES * len(topics or ()))
        return topics is not None

    def topic_changed(self, name: str, *, is_new: bool) -> None:
        """Take note that a topic came, or went; a new one is matched before long."""
        if not self._wanted and not self._is_looking:
            return
        if self._changed is not None:
            self._changed.append(name)
        if self._changed is not None and len(self._changed) > MOST_CHANGED:
            self._changed = None
        self._has_new_topics |= is_new

    def is_unknown(self, regex: str) -> bool:
        """Tell whether the topics that match are still to be found."""
        return regex in self._unknown

    def look(self, then: Found) -> None:
        """Have topics matched, if there is need and that is not done already."""
        if self._is_looking:
            return
        now_ms = self._around.monotonic_ms()
        if self._has_new_topics and now_ms >= self._refresh_due_ms:
            self._refresh_due_ms = now_ms + REFRESH_MS
            self._match_changed(then)
        elif self._unknown:
            self._resolve(sorted(self._unknown), None, lambda found: self._take(found, then))

    def _match_changed(self, then: Found) -> None:
        """Match the topics that came with all known expressions."""
        changed, self._changed, self._has_new_topics = self._changed, [], False
        known = sorted(self.topics.keys() & self._wanted.keys())
        if changed is None:
            gone, come = None, None
        else:
            gone = frozenset(changed)
            come = [name for name in sorted(gone) if self._around.topic(name) is not None]
        self._resolve(known, come, lambda found: self._take(self._joined(found, gone), then))

    def _joined(
        self, found: Mapping[str, frozenset[str] | None], changed: frozenset[str] | None
    ) -> dict[str, frozenset[str] | None]:
        """Return all topics that known expressions match, by what was found among those that have changed."""
        # An expression may have been forgotten meanwhile, and asked for again: it is unknown.
        still_known = {regex: topics for regex, topics in found.items() if regex in self.topics}
        if changed is None:
            return still_known
        return {
            regex: None if topics is None else _updated(self.topics[regex], topics, changed)
            for regex, topics in still_known.items()
        }

    def _resolve(self, regexes: list[str], names: list[str] | None, take: Matched) -> None:
        self._is_looking = True
        held = sum(map(len, self.topics.values()))
        most = held + max(self._around.room(self._taken.host), 0) // NAME_BYTES
        self._around.resolve(self._group_id, regexes, names, most, take)

    def _take(self, found: Mapping[str, frozenset[str] | None], then: Found) -> None:
        """Keep what was found, as far as there is room: None stands for more than that."""
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
                self._unknown.discard(regex)
        then(news, is_changed, frozenset(refused))

    def _has_room(self, more_bytes: int) -> bool:
        return more_bytes <= 0 or more_bytes <= self._around.room(self._taken.host)

    def _refuse(self, regex: str, refused: set[str]) -> None:
        if regex in self.topics:
            self._changed = None  # What has no room now may have some later.
            _log.warning(
                "groups: no memory for more topics that match, those of before stay regex=%r", regex[:100]
            )
        else:
            refused.add(regex)


def _updated(before: frozenset[str], found: frozenset[str], changed: frozenset[str]) -> frozenset[str]:
    """Return the topics that match, where of those that have changed these match; mostly, nothing is copied."""
    if not found and before.isdisjoint(changed):
        return before
    return (before - changed) | found
