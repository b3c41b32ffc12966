"""What a cluster of brokers is asked: topics and their leaders, offsets by end and by time, batches, a group's offsets.

Owns who is asked (the leader of a partition, the coordinator of a group), and that an error that passes is tried again
until a deadline. Works against any broker that speaks Kafka's protocol. Blocks; of one thread. Knows nothing of Spark,
and not what is in a batch.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Self, TypeVar

from tidelog.config.nearest import nearest
from tidelog.pipeline.brokers.connection import Connection, ConnectionLost
from tidelog.pipeline.errors import PipelineError, WrongOption
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from tidelog.protocol.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.wire.types import ZERO_UUID

# How long what may pass is tried again: a broker that starts anew takes less.
WAIT_S: Final = 20.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
EARLIEST, LATEST = -2, -1
_TOPIC: Final = 2  # of what DescribeConfigs describes
_GROUPS_AT_ONCE: Final = 8  # the version of OffsetFetch that asks for several groups
_KEYS_AT_ONCE: Final = 4  # and that of FindCoordinator
_MAKES_TOPICS: Final = 4  # that of Metadata from which on it can be told not to make a topic

# What is gone when the leader, the coordinator or the disk has come back.
PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # asked of one that is not its leader any more: metadata tell
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
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


class Passing(Exception):
    """An error that may be gone when it is tried again."""


class Topic(NamedTuple):
    """What metadata say of a topic; the id is zero where the broker gives it none."""

    name: str
    topic_id: bytes
    leaders: dict[int, int]  # by partition; -1 where there is none


class Cluster:
    """The brokers behind one address."""

    def __init__(self, place: str) -> None:
        """`place` is HOST:PORT, or some of them with commas; nothing is asked yet. WrongOption if it is not."""
        self._places = addresses(place)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; what is asked next makes new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def retried(self, what: str, ask: Callable[[], Answer]) -> Answer:
        """Return what `ask` does, tried again while the error may pass; PipelineError says `what` could not be done."""
        deadline, pause = time.monotonic() + WAIT_S, _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except (ConnectionLost, Passing) as error:
                self._forget()
                if time.monotonic() + pause > deadline:
                    raise PipelineError(f"{what}: {error}; tried for {WAIT_S:g} s") from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def topic(self, name: str) -> Topic:
        """Return a topic as it is now; PipelineError if there is none."""
        return self.retried(f"topic {name}", lambda: self._refreshed(name))

    def leader(self, topic: str, partition: int) -> Connection:
        """Return a connection to the leader of a partition; ConnectionLost, Passing."""
        found = self._topics.get(topic) or self._refreshed(topic)
        node = found.leaders.get(partition)
        if node is None:
            raise PipelineError(f"{topic}-{partition}: there is no such partition any more")
        if node not in self._brokers:
            raise Passing(f"{topic}-{partition} has no leader")
        return self._connected(self._brokers[node])

    def known_id(self, topic: str) -> bytes:
        """Return the id of a topic, as metadata said last; zero where it was not asked for."""
        return self._topics[topic].topic_id if topic in self._topics else ZERO_UUID

    def offsets(self, topic: str, times: Mapping[int, int]) -> dict[int, int]:
        """Return the first offset at or after a time in ms, EARLIEST or LATEST, of each partition; -1 where none is."""
        return self.retried(f"offsets of {topic}", lambda: self._offsets(topic, times))

    def settings(self, topic: str) -> dict[str, str]:
        """Return what the options of a topic are; none where the broker does not tell us."""
        resource = DescribeConfigsResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource])
        answer = self.retried(f"options of {topic}", lambda: self._any().ask(DESCRIBE_CONFIGS, request))
        return {each.name: each.value or "" for result in answer.results for each in result.configs}

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return what a group has committed, of the partitions for which it has."""
        wanted = list(partitions)
        what = f"offsets of group {group}"
        return self.retried(what, lambda: self._committed(group, topic, wanted))

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets to a group that has no members."""
        self.retried(f"commit to group {group}", lambda: self._commit(group, topic, offsets))

    def _refreshed(self, name: str) -> Topic:
        answer = self._metadata([MetadataRequestTopic(name=name)])
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        found = answer.topics[0]
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise PipelineError(f"{self._where}: there is no topic {name}{nearest(name, self._names())}")
        check(found.error_code, f"topic {name}")
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        self._topics[name] = Topic(name, found.topic_id, dict(sorted(leaders.items())))
        return self._topics[name]

    def _names(self) -> list[str]:
        return sorted(each.name for each in self._metadata(None).topics)

    def _metadata(self, topics: list[MetadataRequestTopic] | None) -> Any:
        connection = self._any()
        version = connection.version(METADATA)
        wanted = topics if version or topics else []
        makes = version < _MAKES_TOPICS
        return connection.ask(METADATA, MetadataRequest(topics=wanted, allow_auto_topic_creation=makes))

    def _offsets(self, topic: str, times: Mapping[int, int]) -> dict[int, int]:
        asked: dict[Connection, list[ListOffsetsPartition]] = {}
        for partition, time_ms in times.items():
            wanted = ListOffsetsPartition(partition_index=partition, timestamp=time_ms)
            asked.setdefault(self.leader(topic, partition), []).append(wanted)
        found: dict[int, int] = {}
        for connection, wanted_there in asked.items():
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted_there)]
            )
            for each in connection.ask(LIST_OFFSETS, request).topics[0].partitions:
                check(each.error_code, f"{topic}-{each.partition_index}")
                found[each.partition_index] = next(iter(each.old_style_offsets), each.offset)
        return found

    def _committed(self, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
        connection = self._coordinator(group)
        if connection.version(OFFSET_FETCH) >= _GROUPS_AT_ONCE:
            topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
            answer = connection.ask(OFFSET_FETCH, request).groups[0]
        else:
            older = [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
            answer = connection.ask(OFFSET_FETCH, OffsetFetchRequest(group_id=group, topics=older))
        check(answer.error_code, f"group {group}")
        found: dict[int, int] = {}
        for each in (part for named in answer.topics for part in named.partitions):
            check(each.error_code, f"group {group}, {topic}-{each.partition_index}")
            if each.committed_offset >= 0:
                found[each.partition_index] = each.committed_offset
        return found

    def _commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            for partition, offset in offsets.items()
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        request = OffsetCommitRequest(group_id=group, topics=topics)
        for named in self._coordinator(group).ask(OFFSET_COMMIT, request).topics:
            for each in named.partitions:
                check(each.error_code, f"group {group}, {topic}-{each.partition_index}")

    def _coordinator(self, group: str) -> Connection:
        if group not in self._coordinators:
            connection = self._any()
            several = connection.version(FIND_COORDINATOR) >= _KEYS_AT_ONCE
            asked = {"coordinator_keys": [group]} if several else {"key": group}
            request = FindCoordinatorRequest(**asked)
            answer = connection.ask(FIND_COORDINATOR, request)
            found = answer.coordinators[0] if several else answer
            check(found.error_code, f"coordinator of group {group}")
            self._coordinators[group] = (found.host, found.port)
        return self._connected(self._coordinators[group])

    def _any(self) -> Connection:
        """Return a connection to whoever can be reached."""
        reasons: list[str] = []
        may_pass = False
        for place in dict.fromkeys([*self._places, *self._brokers.values()]):
            try:
                return self._connected(place)
            except (ConnectionLost, PipelineError) as error:
                reasons.append(str(error))
                may_pass = may_pass or isinstance(error, ConnectionLost)
        raise (ConnectionLost if may_pass else PipelineError)("; ".join(reasons))

    def _connected(self, place: tuple[str, int]) -> Connection:
        if place not in self._connections:
            self._connections[place] = Connection(*place)
        return self._connections[place]

    def _forget(self) -> None:
        """Ask everything anew: something has moved, or a connection is lost."""
        self.close()
        self._topics.clear()
        self._coordinators.clear()

    @property
    def _where(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._places)


def check(code: int, what: str) -> None:
    """Passing or PipelineError where a code says that something is wrong."""
    if code:
        known = code in ErrorCode._value2member_map_
        name = ErrorCode(code).name if known else f"error {code}"
        if code in PASSING:
            raise Passing(f"{what}: the broker answers {name}")
        raise PipelineError(f"{what}: the broker answers {name}")


def addresses(place: str) -> list[tuple[str, int]]:
    """Return hosts and ports of text such as `localhost:9092,[::1]:9093`; WrongOption."""
    found = []
    for each in place.split(","):
        host, _, port = each.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise WrongOption(
                f"option source: broker:{place} names no HOST:PORT, such as broker:localhost:9092"
            )
        found.append((host, int(port)))
    return found
