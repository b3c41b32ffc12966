"""The assignors of consumer groups, which clients choose by name (KIP-848): they assign partitions to members.

Pure functions. Invariant: each partition of a subscribed topic goes to exactly one of the topic's subscribers, and
members get no other partitions. Members keep what they have as far as the assignor's rule allows. Members are processed
in the order of their ids, so the result is deterministic.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heapify, heapreplace
from typing import Final, NamedTuple, TypeVar

from tidelog.broker.work import step
from tidelog.protocol.records.steps import at_once

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "Subscriber",
    "effort",
    "in_steps",
    "range_",
    "uniform",
]

# Partitions by topic id. No set is empty.
Assignment = Mapping[bytes, frozenset[int]]
Partition = tuple[bytes, int]
P = TypeVar("P")


class Subscriber(NamedTuple):
    """A member: the topics that it subscribes to, and its target assignment so far."""

    topics: frozenset[bytes]
    has: Assignment


Members = Mapping[str, Subscriber]
Counts = Mapping[bytes, int]  # partitions by topic
Assignor = Callable[[Members, Counts], dict[str, Assignment]]


def range_(members: Members, counts: Counts) -> dict[str, Assignment]:
    """Assign each topic on its own, in ranges.

    Topics with the same subscribers and the same number of partitions are assigned alike: partition 0 of all of them
    goes to one member, and so on. That member can join their records.
    """
    given: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    alike: dict[tuple[tuple[str, ...], int], list[bytes]] = {}
    for topic, subscribers in sorted(_subscribers(members).items()):
        if counts.get(topic):
            alike.setdefault((tuple(subscribers), counts[topic]), []).append(topic)
    for (among, count), topics in alike.items():
        # Members keep what they have of the topic with the most assigned partitions; the other topics follow it.
        known = max(topics, key=lambda topic: sum(len(members[each].has.get(topic, ())) for each in among))
        shares = _shares({each: sorted(members[each].has.get(known, ())) for each in among}, range(count))
        for member_id, share in shares.items():
            if share:
                given[member_id].update(dict.fromkeys(topics, frozenset(share)))
    return dict(given)


def uniform(members: Members, counts: Counts) -> dict[str, Assignment]:
    """Balance the number of partitions per member over all topics, as far as subscriptions allow."""
    return at_once(_uniform(members, counts))


async def in_steps(name: str, members: Members, counts: Counts) -> dict[str, Assignment]:
    """Run the assignor with this name, in steps of some milliseconds."""
    await step()
    return await _uniform(members, counts) if name == "uniform" else ASSIGNORS[name](members, counts)


def effort(name: str, members: Members, counts: Counts) -> int:
    """Estimate the worst-case time of an assignment: 1000 is some milliseconds."""
    subscribed, partitions = sum(len(each.topics) for each in members.values()), sum(counts.values())
    effort = len(members) + partitions + subscribed // 10
    if name == "uniform" and len({each.topics for each in members.values()}) > 1:
        # Each partition that moves may take a search through all of them.
        effort += partitions * (partitions + subscribed) // 100
    return effort


async def _uniform(members: Members, counts: Counts) -> dict[str, Assignment]:
    there = {each.topics: frozenset(filter(counts.get, each.topics)) for each in members.values()}
    wanted = {member_id: there[each.topics] for member_id, each in members.items()}
    if len(set(there.values())) > 1:
        return await _Balance(wanted).share_out(members, counts)
    topics = next(iter(wanted.values()), frozenset())
    has = {member_id: _of_topics(each.has, topics) for member_id, each in members.items()}
    everything = ((topic, index) for topic in sorted(topics) for index in range(counts[topic]))
    return {member_id: _by_topic(share) for member_id, share in _shares(has, everything).items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_}


def _subscribers(members: Members) -> dict[bytes, list[str]]:
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    return subscribers


def _of_topics(has: Assignment, topics: frozenset[bytes]) -> Iterator[Partition]:
    return ((topic, index) for topic in sorted(has.keys() & topics) for index in sorted(has[topic]))


def _by_topic(partitions: Iterable[Partition]) -> dict[bytes, frozenset[int]]:
    indexes: dict[bytes, set[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, set()).add(index)
    return {topic: frozenset(each) for topic, each in indexes.items()}


def _shares(has: Mapping[str, Iterable[P]], everything: Iterable[P]) -> dict[str, list[P]]:
    """Assign partitions evenly and move as few as possible.

    If the count does not divide evenly, the members with the most partitions get the remainder.
    """
    free = dict.fromkeys(everything)
    kept: dict[str, list[P]] = {}
    for member_id in sorted(has):
        kept[member_id] = mine = [each for each in has[member_id] if each in free]
        for each in mine:
            del free[each]
    if not kept:
        return kept
    least, left_over = divmod(len(free) + sum(map(len, kept.values())), len(kept))
    unfilled = deque[tuple[str, int]]()
    returned: list[P] = []
    for place, member_id in enumerate(sorted(kept, key=lambda each: -len(kept[each]))):
        most = least + 1 if place < left_over else least
        returned += kept[member_id][most:]
        del kept[member_id][most:]
        unfilled.append((member_id, most))
    # Round-robin, so the partitions of a topic are spread.
    for each in (*free, *reversed(returned)):
        while len(kept[unfilled[0][0]]) >= unfilled[0][1]:
            unfilled.popleft()
        kept[unfilled[0][0]].append(each)
        unfilled.rotate(-1)
    return kept


class _Balance:
    """Balances members with different subscriptions, by moving partitions to the members with the fewest."""

    def __init__(self, wanted: Mapping[str, frozenset[bytes]]) -> None:
        self._wanted = wanted
        self._load = dict.fromkeys(sorted(wanted), 0)
        # Partitions by topic and member. No set is empty.
        self._held: dict[bytes, dict[str, set[int]]] = {}

    async def share_out(self, members: Members, counts: Counts) -> dict[str, Assignment]:
        """Return the balanced assignment, in steps of some milliseconds."""
        subscribers: dict[bytes, list[str]] = {}
        for member_id in self._load:
            await step()
            for topic in self._wanted[member_id]:
                subscribers.setdefault(topic, []).append(member_id)
        self._held = {topic: {} for topic in subscribers}
        taken: dict[bytes, set[int]] = {topic: set() for topic in subscribers}
        for member_id in self._load:
            await step()
            self._keep(member_id, members[member_id].has, counts, taken)
        # Topics with the fewest subscribers first: they leave the least choice.
        for topic in sorted(subscribers, key=lambda each: (len(subscribers[each]), each)):
            await step()
            self._give(topic, subscribers[topic], set(range(counts[topic])) - taken[topic])
        has_moved = True
        while has_moved:
            has_moved = False
            done: set[str] = set()
            for member_id in sorted(self._load, key=self._load.__getitem__):
                while member_id not in done:
                    await step()
                    reached = self._draw(member_id)
                    has_moved |= reached is None
                    # No member within reach has two partitions more, so none of them can draw from another either.
                    done |= reached or set()
        return self._result()

    def _result(self) -> dict[str, Assignment]:
        given: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in self._load}
        for topic, held in self._held.items():
            for member_id, indexes in held.items():
                given[member_id][topic] = frozenset(indexes)
        return dict(given)

    def _keep(self, member_id: str, has: Assignment, counts: Counts, taken: dict[bytes, set[int]]) -> None:
        """Keep what a member had, if it still subscribes to it and no earlier member has kept it."""
        for topic in has.keys() & self._wanted[member_id]:
            mine = {index for index in has[topic] if index < counts[topic]} - taken[topic]
            if mine:
                self._held[topic][member_id] = mine
                taken[topic] |= mine
                self._load[member_id] += len(mine)

    def _give(self, topic: bytes, subscribers: Sequence[str], free: set[int]) -> None:
        """Give each free partition of a topic to the subscriber with the fewest partitions."""
        least = (
            [(self._load[member_id], place) for place, member_id in enumerate(subscribers)] if free else []
        )
        heapify(least)
        for index in sorted(free):
            load, place = least[0]
            heapreplace(least, (load + 1, place))
            self._load[subscribers[place]] = load + 1
            self._held[topic].setdefault(subscribers[place], set()).add(index)

    def _draw(self, member_id: str) -> set[str] | None:
        """Take a partition from a member that has at least two more, through a chain of members if needed.

        Return None if one was taken, otherwise the members that a chain can reach.
        """
        came_from: dict[str, tuple[str, bytes]] = {}  # by giver: the taker, and the topic
        queue, seen = deque([member_id]), {member_id}
        # A breadth-first search that visits each topic once. `left` has the topics not visited yet. It is built for the
        # second member only: where few members share topics, most searches end at the first.
        left: set[bytes] | None = None
        enough = self._load[member_id] + 2
        while queue:
            taker = queue.popleft()
            if taker == member_id:
                topics: Set[bytes] = self._wanted[taker]
            else:
                left = self._held.keys() - self._wanted[member_id] if left is None else left
                topics = left & self._wanted[taker]
                left -= topics
            for topic in sorted(topics):
                for giver in self._held[topic]:
                    if giver in seen:
                        continue
                    came_from[giver] = (taker, topic)
                    if self._load[giver] >= enough:
                        self._move_along(giver, member_id, came_from)
                        return None
                    seen.add(giver)
                    queue.append(giver)
        return seen

    def _move_along(self, giver: str, to: str, came_from: Mapping[str, tuple[str, bytes]]) -> None:
        """Move one partition along each link of a chain."""
        self._load[giver] -= 1
        self._load[to] += 1
        while giver != to:
            taker, topic = came_from[giver]
            held = self._held[topic]
            index = max(held[giver])
            held[giver].discard(index)
            if not held[giver]:
                del held[giver]
            held.setdefault(taker, set()).add(index)
            giver = taker
