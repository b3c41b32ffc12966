"""What the members of a consumer group read: topics by name, and topics that match regular expressions.

Both are kept as members come, go and change their subscriptions, and as topics do: a change costs what changes,
however much the others read. A new expression is matched with all topics, once, for all members that use it; when
topics come or go, only their names are matched with the known expressions. How a name is matched is in
`topic_patterns`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from tidelog.broker.groups.memory import GroupMemory
from tidelog.broker.groups.services import Matched, Services

_log = logging.getLogger(__name__)

# A hash is stored as an int64.
HASH_VALUES: Final = 1 << 64
# What a topic that matches a regular expression takes in memory, about.
NAME_BYTES: Final = 100
# Topics that came or went are matched at most this often.
REFRESH_MS: Final = 1000
# A group remembers at most this many topics that came or went. With more, it matches all topics again.
MOST_CHANGED: Final = 1000

# Takes the expressions that have other topics now, whether members read other topics, and which expressions have no
# room.
NewMatches = Callable[[Mapping[str, frozenset[str]], bool, frozenset[str]], None]

Found = tuple[bytes, int]  # the id of a topic, and how many partitions it has


class TopicsRead:
    """The topics that the members of one group read. Event loop only."""

    def __init__(self, topic: Callable[[str], Found | None]) -> None:
        """Begin with nobody; `topic` tells what there is by a name."""
        self._topic = topic
        self._sets: Counter[frozenset[str]] = Counter()  # by how many members, or regular expressions
        self._names: Counter[str] = Counter()  # by how many of these sets
        self._ids: dict[frozenset[str], frozenset[bytes]] = {}  # of the topics of such a set that are there
        self._matched: dict[str, frozenset[str]] = {}  # the topics by regular expression
        self._found: dict[str, Found] = {}
        self._to_look_at: set[str] = set()  # names that have come; none is in `_ids`
        self._hash = 0

    def __contains__(self, name: str) -> bool:
        """Tell whether somebody reads a topic."""
        return name in self._names

    def count(self, names: frozenset[str], more: int) -> None:
        """Count so many more, or fewer, that subscribe to these."""
        if not names:
            return
        if names not in self._sets:
            self._names.update(names)
            self._to_look_at |= names
        self._sets[names] += more
        if self._sets[names]:
            return
        del self._sets[names]
        self._ids.pop(names, None)
        for name in names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
                self._to_look_at.discard(name)
                self._take(name, None)

    def match(self, regex: str, names: frozenset[str] | None) -> None:
        """Set the topics that match a regular expression; None where that is not known."""
        before = self._matched.pop(regex, None)
        if names is not None:
            self._matched[regex] = names
            self.count(names, 1)
        if before is not None:
            self.count(before, -1)

    def topic_changed(self, name: str) -> bool:
        """Look at a topic that was created, has grown or was deleted; tell whether somebody reads it."""
        if name not in self._names:
            return False
        before, found = self._found.get(name), self._topic(name)
        self._to_look_at.discard(name)
        self._take(name, found)
        gone = frozenset(() if before is None else before[:1])
        come = frozenset(() if found is None else found[:1])
        if gone != come:
            # Its readers may read many other topics: to find all of these again takes long.
            for names in [each for each in self._ids if name in each]:
                self._ids[names] = (self._ids[names] - gone) | come
        return True

    def ids_of(self, names: frozenset[str], regex: str) -> frozenset[bytes]:
        """Return the ids of the topics that are there of those that a member subscribes to."""
        matched = self._matched.get(regex)
        if not matched:
            return self._ids_in(names)
        return self._ids_in(matched) | self._ids_in(names) if names else self._ids_in(matched)

    @property
    def counts(self) -> dict[bytes, int]:
        """How many partitions each topic has that is there, by its id."""
        self._look()
        return dict(self._found.values())

    @property
    def hash(self) -> int:
        """What differs where one of these topics is another one, has more partitions or is gone."""
        self._look()
        return self._hash if self._hash < HASH_VALUES // 2 else self._hash - HASH_VALUES

    def _ids_in(self, names: frozenset[str]) -> frozenset[bytes]:
        ids = self._ids.get(names)
        if ids is None:
            self._look()
            ids = frozenset(found[0] for found in map(self._topic, names) if found is not None)
            if names in self._sets:
                self._ids[names] = ids
        return ids

    def _look(self) -> None:
        """See which topics there are by the names that have come."""
        for name in self._to_look_at:
            self._take(name, self._topic(name))
        self._to_look_at = set()

    def _take(self, name: str, found: Found | None) -> None:
        before = self._found.pop(name, None)
        if found is not None:
            self._found[name] = found
        if before != found:
            # A sum, so that one topic can be taken out of it.
            self._hash += _hash_of(name, found) - _hash_of(name, before)
            self._hash %= HASH_VALUES


def _hash_of(name: str, found: Found | None) -> int:
    """Return the part of a topic in the hash that is stored of all that members read; 0 where it is not there.

    Kafka has a hash of its own: a group that it wrote has one more rebalance here, and the other way round.
    """
    if found is None:
        return 0
    digest = blake2b(b"%s %s %d" % (name.encode(), found[0].hex().encode(), found[1]), digest_size=8)
    return int.from_bytes(digest.digest())


class Matches:
    """By regular expression the topics that match, as far as that is known. Event loop only, but for `topics`."""

    def __init__(self, group_id: str, services: Services, memory: GroupMemory) -> None:
        self._group_id = group_id
        self._services = services
        self._memory = memory
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
        self._memory.add(self._memory.host, NAME_BYTES * sum(map(len, self.topics.values())))
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
        self._memory.add(self._memory.host, -NAME_BYTES * len(topics or ()))
        return topics is not None

    def topic_changed(self, name: str, *, is_new: bool) -> None:
        """Note that a topic came, or went; a new one is matched before long."""
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

    def look(self, then: NewMatches) -> None:
        """Have topics matched, if there is need and that is not done already."""
        if self._is_looking:
            return
        now_ms = self._services.clock.monotonic_ms()
        if self._has_new_topics and now_ms >= self._refresh_due_ms:
            self._refresh_due_ms = now_ms + REFRESH_MS
            self._match_changed(then)
        elif self._unknown:
            self._resolve(sorted(self._unknown), None, lambda found: self._take(found, then))

    def _match_changed(self, then: NewMatches) -> None:
        """Match the topics that came with all known expressions."""
        changed, self._changed, self._has_new_topics = self._changed, [], False
        known = sorted(self.topics.keys() & self._wanted.keys())
        if changed is None:
            gone, come = None, None
        else:
            gone = frozenset(changed)
            come = [name for name in sorted(gone) if self._services.topic(name) is not None]
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
        most = held + max(self._services.memory.room_bytes(self._memory.host), 0) // NAME_BYTES
        self._services.match(self._group_id, regexes, names, most, take)

    def _take(self, found: Mapping[str, frozenset[str] | None], then: NewMatches) -> None:
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
                self._memory.add(self._memory.host, more)
                is_changed |= topics != (before or frozenset())
                news[regex] = self.topics[regex] = topics
                self._unknown.discard(regex)
        then(news, is_changed, frozenset(refused))

    def _has_room(self, more_bytes: int) -> bool:
        return more_bytes <= 0 or more_bytes <= self._services.memory.room_bytes(self._memory.host)

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
