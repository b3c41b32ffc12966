"""Metadata.

Versions: 0-13 (10 and later know topics by id, 12 and later may ask by id alone).
Behaviour: no list of topics asks for all of them (in version 0 an empty list does). A topic that is missing
is created first where `auto.create.topics.enable` and the request allow it, and is ready when the answer
leaves: nobody has to ask again.
Departures from Kafka: Kafka answers LEADER_NOT_AVAILABLE while it creates the topic.
"""

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidelog.broker.topics import CLUSTER_METADATA, Topic, TopicExists, TopicNamesCollide, name_problem
from tidelog.broker.waiting import Later
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.storage.errors import StorageError

if TYPE_CHECKING:
    from tidelog.broker.connection import Connection
    from tidelog.broker.daemon import Broker

NO_ID = bytes(16)


def handle(connection: "Connection", request: MetadataRequest, version: int) -> MetadataResponse | Later:
    """Describe the broker and the topics asked for, creating those that may be."""
    broker = connection.broker
    to_create = _to_create(broker, request, version)
    if to_create:
        return broker.maintenance.submit(partial(_create_and_answer, connection, request, version, to_create))
    return _answer(connection, request, version, {})


def _to_create(broker: "Broker", request: MetadataRequest, version: int) -> list[str]:
    if not broker.config.auto_create_topics_enable or not (version < 4 or request.allow_auto_topic_creation):
        return []
    names = (asked.name for asked in request.topics or [] if asked.topic_id == NO_ID)
    by_name = broker.topics.by_name
    may_be = (name for name in names if name and name != CLUSTER_METADATA and not name_problem(name))
    return [name for name in may_be if name not in by_name]


def _create_and_answer(
    connection: "Connection", request: MetadataRequest, version: int, names: list[str]
) -> MetadataResponse:
    broker = connection.broker
    failures: dict[str, ErrorCode] = {}
    for name in names:
        try:
            broker.create_topic(name, broker.config.num_partitions, {})
        except TopicExists:
            pass  # Somebody else asked for it first.
        except TopicNamesCollide:
            failures[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        except StorageError:
            failures[name] = ErrorCode.KAFKA_STORAGE_ERROR
    return _answer(connection, request, version, failures)


def _answer(
    connection: "Connection", request: MetadataRequest, version: int, failures: dict[str, ErrorCode]
) -> MetadataResponse:
    broker = connection.broker
    host, port = connection.advertised
    wants_all = request.topics is None or (version == 0 and not request.topics)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if wants_all:
        topics = [_describe(broker, topic, operations) for topic in broker.topics.by_name.values()]
    else:
        topics = [_find(broker, asked, version, failures, operations) for asked in request.topics or []]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker.node_id, host=host, port=port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _find(
    broker: "Broker",
    asked: MetadataRequestTopic,
    version: int,
    failures: dict[str, ErrorCode],
    operations: int,
) -> MetadataResponseTopic:
    by_id = asked.name is None or asked.topic_id != NO_ID  # Java sends an id with the name "".
    if by_id:
        topic = broker.topics.by_id.get(asked.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        assert asked.name is not None
        topic = broker.topics.by_name.get(asked.name)
        missing = failures.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name_problem(asked.name):
            missing = ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic is not None:
        return _describe(broker, topic, operations)
    name = asked.name
    if by_id:
        name = "" if version < 12 else None
    return MetadataResponseTopic(
        error_code=missing, name=name, topic_id=asked.topic_id, is_internal=False, partitions=[]
    )


def _describe(broker: "Broker", topic: Topic, operations: int) -> MetadataResponseTopic:
    node = broker.node_id
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=False,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=node,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=[node],
                isr_nodes=[node],
                offline_replicas=[],
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=operations,
    )
