"""The topics that the members of a group read, all together: their names, and those that are there.

Kept as members come, go and change their minds: each change costs what changes, however much the others read.
"""

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

# A hash is stored as an int64.
HASH_VALUES: Final = 1 << 64

Found = tuple[bytes, int]  # the id of a topic, and how many partitions it has


class Reading:
    """What the members of one group read. Event loop only."""

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
        """Take note that so many more subscribe to these, or less."""
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
        """Take note of the topics that match a regular expression by now; None where that is not known."""
        before = self._matched.pop(regex, None)
        if names is not None:
            self._matched[regex] = names
            self.count(names, 1)
        if before is not None:
            self.count(before, -1)

    def topic_changed(self, name: str) -> bool:
        """Take note that a topic was created, has grown or was deleted; tell whether somebody reads it."""
        if name not in self._names:
            return False
        before, found = self._found.get(name), self._topic(name)
        self._to_look_at.discard(name)
        self._take(name, found)
        gone = frozenset(() if before is None else before[:1])
        come = frozenset(() if found is None else found[:1])
        if gone != come:
            # Whoever reads it may read many others: to find these anew takes long.
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
