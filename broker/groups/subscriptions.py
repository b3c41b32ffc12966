"""The subscriptions of a consumer group: topics by name, and by regular expression.

Both are updated incrementally as members and topics come and go: the cost of a change depends on the change, not on the
size of the group. A new expression is matched with all topics once, for all members that use it. When topics are
created or deleted, only these are matched with the known expressions. `topic_patterns` does the matching.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.broker.groups.memory import GroupMemory
from tidelog.broker.groups.services import Matched, Services

_log = logging.getLogger(__name__)

# A hash is stored as an int64.
HASH_VALUES: Final = 1 << 64
# The approximate memory of a matching topic.
NAME_BYTES: Final = 100
# Created and deleted topics are matched at most this often.
REFRESH_MS: Final = 1000
# A group remembers at most this many created and deleted topics. With more, it matches all topics again.
MOST_CHANGED: Final = 1000

# Takes the changed matches by expression, whether the subscribed topics have changed, and the expressions whose matches
# do not fit into memory.
NewMatches = Callable[[Mapping[str, frozenset[str]], bool, frozenset[str]], None]

Found = tuple[bytes, int]  # the id of a topic, and its number of partitions


class TopicsRead:
    """The topics that the members of one group subscribe to. Event loop only."""

    def __init__(self, topic: Callable[[str], Found | None]) -> None:
        """Start without members. `topic` looks a topic up by name."""
        self._topic = topic
        # The number of members or expressions with each set of names.
        self._sets: Counter[frozenset[str]] = Counter()
        self._names: Counter[str] = Counter()  # the number of these sets with each name
        self._ids: dict[frozenset[str], frozenset[bytes]] = {}  # the ids of the existing topics in a set
        self._matched: dict[str, frozenset[str]] = {}  # topics by regular expression
        self._found: dict[str, Found] = {}
        self._to_look_up: set[str] = set()  # new names; none is in a key of `_ids`
        self._hash = 0

    def __contains__(self, name: str) -> bool:
        """Tell whether a member subscribes to a topic."""
        return name in self._names

    def count(self, names: frozenset[str], more: int) -> None:
        """Add subscribers to these topics; a negative number removes them."""
        if not names:
            return
        if names not in self._sets:
            self._names.update(names)
            self._to_look_up |= names
        self._sets[names] += more
        if self._sets[names]:
            return
        del self._sets[names]
        self._ids.pop(names, None)
        for name in names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
                self._to_look_up.discard(name)
                self._take(name, None)

    def match(self, regex: str, names: frozenset[str] | None) -> None:
        """Set the topics that match a regular expression; None if unknown."""
        before = self._matched.pop(regex, None)
        if names is not None:
            self._matched[regex] = names
            self.count(names, 1)
        if before is not None:
            self.count(before, -1)

    def topic_changed(self, name: str) -> bool:
        """Look up a topic that was created, grown or deleted; tell whether a member subscribes to it."""
        if name not in self._names:
            return False
        before, found = self._found.get(name), self._topic(name)
        self._to_look_up.discard(name)
        self._take(name, found)
        gone = frozenset(() if before is None else before[:1])
        come = frozenset(() if found is None else found[:1])
        if gone != come:
            # Updated in place: to look up all other topics of a set again would take long.
            for names in [each for each in self._ids if name in each]:
                self._ids[names] = (self._ids[names] - gone) | come
        return True

    def ids_of(self, names: frozenset[str], regex: str) -> frozenset[bytes]:
        """Return the ids of the existing topics in a subscription."""
        matched = self._matched.get(regex)
        if not matched:
            return self._ids_in(names)
        return self._ids_in(matched) | self._ids_in(names) if names else self._ids_in(matched)

    @property
    def counts(self) -> dict[bytes, int]:
        """The number of partitions of each existing topic, by id."""
        self._look_up()
        return dict(self._found.values())

    @property
    def hash(self) -> int:
        """A hash of the names, ids and partition counts of the existing topics."""
        self._look_up()
        return self._hash if self._hash < HASH_VALUES // 2 else self._hash - HASH_VALUES

    def _ids_in(self, names: frozenset[str]) -> frozenset[bytes]:
        ids = self._ids.get(names)
        if ids is None:
            self._look_up()
            ids = frozenset(found[0] for found in map(self._topic, names) if found is not None)
            if names in self._sets:
                self._ids[names] = ids
        return ids

    def _look_up(self) -> None:
        """Look up the new names."""
        for name in self._to_look_up:
            self._take(name, self._topic(name))
        self._to_look_up = set()

    def _take(self, name: str, found: Found | None) -> None:
        before = self._found.get(name)
        if before == found:
            return
        # A sum, so that a single topic can be added and removed.
        self._hash = (self._hash + _hash_of(name, found) - _hash_of(name, before)) % HASH_VALUES
        if found is None:
            del self._found[name]
        else:
            self._found[name] = found


def _hash_of(name: str, found: Found | None) -> int:
    """Return a topic's part of the stored hash; 0 if it does not exist.

    Kafka uses another hash, so a group that moves from Kafka to here, or back, rebalances once more.
    """
    if found is None:
        return 0
    from hashlib import blake2b  # loads a large part of OpenSSL, which a start need not do

    digest = blake2b(b"%s %s %d" % (name.encode(), found[0].hex().encode(), found[1]), digest_size=8)
    return int.from_bytes(digest.digest())


class Matches:
    """The known matches of one group: topics by regular expression. Event loop only, except `topics`."""

    def __init__(self, group_id: str, services: Services, memory: GroupMemory) -> None:
        self._group_id = group_id
        self._services = services
        self._memory = memory
        self.topics: dict[str, frozenset[str]] = {}
        self._wanted: Counter[str] = Counter()  # the number of members with each expression
        self._unknown: set[str] = set()  # wanted expressions that were not matched yet
        # Topics created or deleted since the known expressions were matched; None if they are too many.
        self._changed: list[str] | None = []
        self._has_new_topics = False  # `_changed` has created topics
        self._is_looking = False
        self._refresh_due_ms = 0

    def begin(self) -> None:
        """Count the restored matches in memory. Topics may have been created after they were stored."""
        self._memory.add(self._memory.host, NAME_BYTES * sum(map(len, self.topics.values())))
        self._changed = None
        self._has_new_topics = bool(self._wanted)

    def end(self) -> None:
        """Ignore matches from now on: the group has ended."""
        self._wanted.clear()
        self._unknown.clear()

    def __contains__(self, regex: str | None) -> bool:
        """Tell whether a member uses an expression."""
        return regex in self._wanted

    def count(self, regex: str, more: int) -> bool:
        """Add or remove a member with this expression; tell whether its matches were dropped with the last member."""
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
        """Note that a topic was created or deleted. A later `look` matches new ones, once in REFRESH_MS."""
        if not self._wanted and not self._is_looking:
            return
        if self._changed is not None:
            self._changed.append(name)
        if self._changed is not None and len(self._changed) > MOST_CHANGED:
            self._changed = None
        self._has_new_topics |= is_new

    def is_unknown(self, regex: str) -> bool:
        """Tell whether an expression was not matched yet."""
        return regex in self._unknown

    def look(self, then: NewMatches) -> None:
        """Begin to match what is not matched yet, unless that is under way; call `then` with the result."""
        if self._is_looking:
            return
        now_ms = self._services.clock.monotonic_ms()
        if self._has_new_topics and now_ms >= self._refresh_due_ms:
            self._refresh_due_ms = now_ms + REFRESH_MS
            self._match_changed(then)
        elif self._unknown:
            self._resolve(sorted(self._unknown), None, lambda found: self._take(found, then))

    def _match_changed(self, then: NewMatches) -> None:
        """Match the new topics with all known expressions."""
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
        """Return all matches of the known expressions, updated by what was found among the changed topics."""
        # An expression that was dropped and used again in between is unknown.
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
        """Keep the matches that fit into memory. None stands for matches that do not."""
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
            self._changed = None  # Match again later: there may be room then.
            _log.warning(
                "groups: no memory for more matching topics, the earlier ones stay regex=%r", regex[:100]
            )
        else:
            refused.add(regex)


def _updated(before: frozenset[str], found: frozenset[str], changed: frozenset[str]) -> frozenset[str]:
    """Return `before` with its changed topics replaced by those found. Avoids a copy if nothing changes."""
    if not found and before.isdisjoint(changed):
        return before
    return (before - changed) | found
