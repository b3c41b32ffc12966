"""A cluster of brokers: connections, the leaders of partitions, the coordinators of groups, and retries.

Works with any broker that speaks Kafka's protocol. It blocks; use it from one thread.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar

from tidelog.client.connection import ANSWER_S, Connection
from tidelog.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLost,
    Retriable,
    UnknownTopic,
    Unreachable,
    explain,
)
from tidelog.config.nearest import nearest
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.wire.types import ZERO_UUID

# How long to retry: longer than a broker takes to restart.
WAIT_S: Final = 20.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
_KEYS_AT_ONCE: Final = 4  # the version of FindCoordinator that takes several keys
_MAKES_TOPICS: Final = 4  # from this version of Metadata on, a request can say not to create a topic

# Errors that pass when the leader, the coordinator or the disk is back.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # also from a broker that no longer leads; metadata shows which
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
Answer = TypeVar("Answer")


class Partition(NamedTuple):
    """A partition. With an id, it is one of the topic with that id only."""

    topic: str
    partition: int
    topic_id: bytes = ZERO_UUID

    def __str__(self) -> str:
        """Return `topic-partition`."""
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    """Group partitions by topic."""
    found: dict[str, list[Partition]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each)
    return found


class Topic(NamedTuple):
    """The metadata of a topic; the id is zero if the broker gives none."""

    name: str
    topic_id: bytes
    leaders: dict[int, int]  # by partition; -1 for none


class Cluster:
    """The brokers of the cluster at some addresses."""

    def __init__(
        self, addresses: Sequence[tuple[str, int]], client_id: str, answer_s: float = ANSWER_S
    ) -> None:
        """Connect later, when a request needs it. `answer_s` is how long to wait for an answer."""
        self._addresses = addresses
        self._client_id = client_id
        self._answer_s = answer_s
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next request makes new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def forget(self) -> None:
        """Close all connections, and forget leaders and coordinators."""
        self.close()
        self._topics.clear()
        self._coordinators.clear()

    def forget_topic(self, name: str) -> None:
        """Forget the leaders of a topic."""
        self._topics.pop(name, None)

    def retried(self, what: str, ask: Callable[[], Answer], *, repeats_lost: bool = True) -> Answer:
        """Return the result of `ask`, retried for WAIT_S while it raises Retriable; ClientError begins with `what`.

        Without `repeats_lost`, ConnectionLost ends the retries: the broker may have carried out the request.
        """
        deadline, pause = time.monotonic() + WAIT_S, FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except Retriable as error:
                self.forget()
                if isinstance(error, ConnectionLost) and not repeats_lost:
                    raise
                if time.monotonic() + pause > deadline:
                    kind = Unreachable if isinstance(error, ConnectionLost) else ClientError
                    reason = str(error).removeprefix(f"{what}: ")
                    raise kind(f"{what}: {reason}; tried for {WAIT_S:g} s") from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def topic(self, name: str) -> Topic:
        """Ask for the metadata of a topic; UnknownTopic."""
        return self.retried(f"topic {name}", lambda: self._refreshed(name))

    def topics(self, names: Iterable[str] | None = None) -> list[Any]:
        """Return the metadata of topics, by default of all; a missing topic has an error code."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        found = list(self.retried("topics", lambda: self.metadata(wanted)).topics)
        for each in found:
            if not each.error_code:
                self._keep(each)
        return found

    def metadata(self, topics: list[MetadataRequestTopic] | None, create: bool = False) -> Any:
        """Ask for the metadata of topics, None for all, and create missing ones with `create`; ConnectionLost."""
        connection = self.any_broker()
        version = connection.version(METADATA)
        wanted = topics if version or topics else []  # version 0 asks for all topics with an empty list
        creates = create or version < _MAKES_TOPICS
        answer = connection.ask(METADATA, MetadataRequest(topics=wanted, allow_auto_topic_creation=creates))
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        return answer

    def leader(self, topic: str, partition: int) -> Connection:
        """Return a connection to the leader of a partition; Retriable, UnknownTopic."""
        found = self._topics.get(topic) or self._refreshed(topic)
        node = found.leaders.get(partition)
        if node is None:
            raise UnknownTopic(topic, f"{topic}-{partition}: there is no such partition")
        if node not in self._brokers:
            raise Retriable(f"{topic}-{partition} has no leader")
        return self._connected(self._brokers[node])

    def by_leader(self, partitions: Iterable[Partition]) -> dict[Connection, list[Partition]]:
        """Group partitions by the connection to their leader; Retriable, UnknownTopic."""
        found: dict[Connection, list[Partition]] = {}
        for each in partitions:
            found.setdefault(self.leader(each.topic, each.partition), []).append(each)
        return found

    def known_id(self, topic: str) -> bytes:
        """Return the id of a topic in the last metadata; zero if there is none."""
        return self._topics[topic].topic_id if topic in self._topics else ZERO_UUID

    def coordinator(self, group: str) -> Connection:
        """Return a connection to the coordinator of a group; Retriable."""
        if group not in self._coordinators:
            connection = self.any_broker()
            several = connection.version(FIND_COORDINATOR) >= _KEYS_AT_ONCE
            asked: dict[str, Any] = {"coordinator_keys": [group]} if several else {"key": group}
            answer = connection.ask(FIND_COORDINATOR, FindCoordinatorRequest(**asked))
            found = answer.coordinators[0] if several else answer
            check(found.error_code, f"coordinator of group {group}")
            self._coordinators[group] = (found.host, found.port)
        return self._connected(self._coordinators[group])

    def node(self, node_id: int) -> Connection:
        """Return a connection to a broker; ClientError if there is no such broker."""
        brokers = self.brokers()
        if node_id not in brokers:
            names = f"broker{'' if len(brokers) == 1 else 's'} {', '.join(map(str, brokers))}"
            raise ClientError(f"there is no broker {node_id}: the cluster has {names}")
        return self._connected(self._brokers[node_id])

    def controller(self) -> Connection:
        """Return a connection to the controller, which changes topics."""
        node_id = self.metadata([]).controller_id
        return self._connected(self._brokers[node_id]) if node_id in self._brokers else self.any_broker()

    def brokers(self) -> list[int]:
        """Return the ids of all brokers."""
        self.metadata([])
        return sorted(self._brokers)

    def any_broker(self) -> Connection:
        """Return a connection to the first broker that accepts one."""
        errors: list[ClientError] = []
        for address in dict.fromkeys([*self._addresses, *self._brokers.values()]):
            try:
                return self._connected(address)
            except ClientError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        is_retriable = any(isinstance(error, Retriable) for error in errors)
        raise (ConnectionLost if is_retriable else ClientError)("; ".join(map(str, errors)))

    def partitions(self, name: str, create: bool = False) -> list[int]:
        """Return the numbers of a topic's partitions; with `create`, create a missing topic."""
        if not create:
            return list(self.topic(name).leaders)
        return list(self.retried(f"topic {name}", lambda: self._refreshed(name, create)).leaders)

    def _refreshed(self, name: str, create: bool = False) -> Topic:
        (found,) = self.metadata([MetadataRequestTopic(name=name)], create).topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
            known = [each.name for each in self.metadata(None).topics]
            raise UnknownTopic(name, f"{self._where}: there is no topic {name}{nearest(name, sorted(known))}")
        check(found.error_code, f"topic {name or repr(name)}")
        return self._keep(found)

    def _keep(self, found: Any) -> Topic:
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        topic = Topic(found.name, found.topic_id, dict(sorted(leaders.items())))
        self._topics[topic.name] = topic
        return topic

    def _connected(self, address: tuple[str, int]) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(*address, self._client_id, self._answer_s)
        return self._connections[address]

    @property
    def _where(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._addresses)


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise Retriable or BrokerError for an error code other than 0."""
    if code in RETRIABLE:
        raise Retriable(f"{what}: {message or explain(code)}")
    if code:
        raise BrokerError(what, code, message)
