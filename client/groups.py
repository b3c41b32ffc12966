"""Consumer groups: list, describe and delete them, and read and commit their offsets."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from tidelog.client.cluster import Cluster, Partition, by_topic, check
from tidelog.protocol.coordinator.consumer_protocol import assignment_of
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from tidelog.protocol.messages.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from tidelog.protocol.messages.list_groups import LIST_GROUPS, ListGroupsRequest
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
from tidelog.protocol.wire.errors import WireError

_GROUPS_AT_ONCE: Final = 8  # from this version on, OffsetFetch takes several groups


class Listed(NamedTuple):
    """A group; an older broker names no state and type."""

    group: str
    state: str | None
    type: str | None
    protocol_type: str


class Member(NamedTuple):
    """A member of a group, and the partitions that it reads, by topic."""

    member: str
    instance: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]


class Described(NamedTuple):
    """The state of a group, the assignor that distributes its partitions, and its members."""

    state: str
    assignor: str
    members: list[Member]


def list_groups(cluster: Cluster) -> dict[str, Listed]:
    """Return all groups, by id."""
    return cluster.retried("groups", lambda: _listed(cluster))


def _listed(cluster: Cluster) -> dict[str, Listed]:
    found: dict[str, Listed] = {}
    for node_id in cluster.brokers():
        answer = cluster.node(node_id).ask(LIST_GROUPS, ListGroupsRequest())
        check(answer.error_code, "groups")
        for each in answer.groups:
            found[each.group_id] = Listed(
                each.group_id, each.group_state or None, each.group_type or None, each.protocol_type
            )
    return found


def describe(cluster: Cluster, listed: Listed) -> Described | None:
    """Return the state and the members of a group; None if it no longer exists."""
    is_consumer_group = str(listed.type).lower() == "consumer"
    read = _consumer_group if is_consumer_group else _classic_group
    return cluster.retried(f"group {listed.group}", lambda: read(cluster, listed.group))


def _consumer_group(cluster: Cluster, group: str) -> Described | None:
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (found,) = cluster.coordinator(group).ask(CONSUMER_GROUP_DESCRIBE, request).groups
    if not _is_there(found, group):
        return None
    members = [
        Member(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            {part.topic_name: sorted(part.partitions) for part in each.assignment.topic_partitions},
        )
        for each in found.members
    ]
    return Described(found.group_state, found.assignor_name, _in_order(members))


def _classic_group(cluster: Cluster, group: str) -> Described | None:
    (found,) = cluster.coordinator(group).ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group])).groups
    if not _is_there(found, group):
        return None
    members = [
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _assigned(each.member_assignment),
        )
        for each in found.members
    ]
    return Described(found.group_state, found.protocol_data, _in_order(members))


def _is_there(found: Any, group: str) -> bool:
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return False
    check(found.error_code, f"group {group}", found.error_message)
    return True


def _assigned(assignment: bytes) -> dict[str, list[int]]:
    """Return the partitions of a member; none if the group is not one of consumers."""
    try:
        assigned = assignment_of(assignment).assigned_partitions
    except WireError:
        return {}
    return {each.topic: sorted(each.partitions) for each in assigned}


def _in_order(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=lambda each: (each.client_id, each.member))


def delete(cluster: Cluster, group: str) -> None:
    """Delete a group; BrokerError."""
    request = DeleteGroupsRequest(groups_names=[group])
    what = f"group {group} was not deleted"

    def ask() -> None:
        (answer,) = cluster.coordinator(group).ask(DELETE_GROUPS, request).results
        check(answer.error_code, what)

    cluster.retried(what, ask)


def committed(
    cluster: Cluster, group: str, partitions: Collection[Partition] | None = None
) -> dict[Partition, int]:
    """Return the committed offsets of a group, by default of all partitions."""
    return {key: each.offset for key, each in commits(cluster, group, partitions).items()}


class Commit(NamedTuple):
    """A committed offset, and the text that was committed with it."""

    offset: int
    metadata: str


def commits(
    cluster: Cluster, group: str, partitions: Collection[Partition] | None = None
) -> dict[Partition, Commit]:
    """Return the committed offsets of a group with their texts, by default of all partitions."""
    return cluster.retried(f"offsets of group {group}", lambda: _commits(cluster, group, partitions))


def _commits(
    cluster: Cluster, group: str, partitions: Collection[Partition] | None
) -> dict[Partition, Commit]:
    connection = cluster.coordinator(group)
    asks_several = connection.version(OFFSET_FETCH) >= _GROUPS_AT_ONCE
    kind: Any = OffsetFetchRequestTopics if asks_several else OffsetFetchRequestTopic
    topics = None
    if partitions is not None:
        topics = [
            kind(name=name, partition_indexes=[each.partition for each in some])
            for name, some in by_topic(partitions).items()
        ]
    if asks_several:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
        answer = connection.ask(OFFSET_FETCH, request).groups[0]
    else:
        answer = connection.ask(OFFSET_FETCH, OffsetFetchRequest(group_id=group, topics=topics))
    check(answer.error_code, f"group {group}")
    found: dict[Partition, Commit] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            key = Partition(topic.name, each.partition_index)
            check(each.error_code, f"group {group}, {key}")
            if each.committed_offset >= 0:
                found[key] = Commit(each.committed_offset, each.metadata or "")
    return found


def commit(cluster: Cluster, group: str, offsets: Mapping[Partition, int], metadata: str = "") -> None:
    """Commit offsets, and one text, to a group without members; BrokerError names the first refused partition."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=each.partition,
                    committed_offset=offsets[each],
                    committed_metadata=metadata,
                )
                for each in some
            ],
        )
        for name, some in by_topic(sorted(offsets)).items()
    ]
    request = OffsetCommitRequest(group_id=group, topics=topics)

    def ask() -> None:
        for topic in cluster.coordinator(group).ask(OFFSET_COMMIT, request).topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group}, {topic.name}-{each.partition_index}")

    cluster.retried(f"commit to group {group}", ask)
