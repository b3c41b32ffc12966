"""Metadata.

Versions: 0-13 (10 and later return topic ids, 12 and later accept them in requests).
Behaviour: a request without a list of topics gets all of them (in version 0, with an empty list). If
`auto.create.topics.enable` and the request allow it, a missing topic is created. It is ready when the broker responds,
so clients need not retry. If too many topics wait to be created (`queued.max.topic.bytes`), the error is
LEADER_NOT_AVAILABLE, and clients retry. If a request names a topic several times, the response has it once. In versions
10 and 11, a request with an id, or without a name, gets INVALID_REQUEST for all topics, and no topic is created.
Departures from Kafka: Kafka responds LEADER_NOT_AVAILABLE while it creates a topic. If a log refuses writes (its flush
has failed, or the disk is full), its replica is in `offline_replicas`, as in Kafka, but the partition keeps its leader
and can be read. A request with both names and ids gets both; in Kafka it gets the ids only. The name of a topic with an
unknown id is empty; in Kafka it is null. At a null name the Java consumer (4.3.1) throws and never updates its metadata
again, so a consumer with a SubscriptionPattern would stop when a topic that it reads is deleted.
"""

from contextlib import suppress

from tidelog.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidelog.broker.broker import Broker
from tidelog.broker.session import Session
from tidelog.broker.topic_rules import BrokerStops, TopicExists, TopicNamesCollide, name_problem
from tidelog.broker.topics import Topic
from tidelog.broker.work import LONG, SHORT, Coro, Stopping, reader, step
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.topic_names import CLUSTER_METADATA, is_internal
from tidelog.protocol.wire.types import ZERO_UUID
from tidelog.storage.errors import StorageError

ASKED_BY_ID_SINCE = 12
# The name of a topic with an unknown id.
NO_NAME = ""
# The approximate memory of a topic that waits to be created.
NAME_BYTES = 600
# The most topics or partitions that are described on the event loop, 2 to 4 us each.
MOST_AT_ONCE = 250
# The most in the lane SHORT of the reader threads. More of them use the lane LONG.
MOST_BRIEF = 2000

# The reason why a topic was not created, by name.
Failures = dict[str, ErrorCode]


def handle(
    session: Session, request: MetadataRequest, version: int
) -> MetadataResponse | Coro[MetadataResponse]:
    """Describe the broker and the requested topics; create missing ones if that is allowed."""
    broker = session.broker
    new = _new_names(broker, request, version)
    if new or _size(broker, request) > MOST_AT_ONCE:
        return _respond(session, request, version, new)
    return _answer(session, request, version, {}, broker.topics.all())


async def _respond(
    session: Session, request: MetadataRequest, version: int, new: list[str]
) -> MetadataResponse:
    """Create topics, then answer, on a reader thread if the answer is large."""
    broker = session.broker
    failures = await _create(session, new) if new else {}
    # Copied here: the set of topics belongs to the event loop.
    every_topic = broker.topics.all()
    size = _size(broker, request)
    if size > MOST_AT_ONCE:
        with suppress(Stopping):
            await reader(LONG if size > MOST_BRIEF else SHORT)
    return _answer(session, request, version, failures, every_topic)


async def _create(session: Session, names: list[str]) -> Failures:
    """Create topics on the maintenance thread, as many as fit into its queue; the client retries for the others."""
    broker = session.broker
    count = max(min(len(names), broker.queued_topics.room_bytes(session) // NAME_BYTES), 0)
    failures = dict.fromkeys(names[count:], ErrorCode.LEADER_NOT_AVAILABLE)
    if count:
        held = broker.queued_topics.hold(session, count * NAME_BYTES)
        task = _create_all(broker, names[:count])
        failures |= await broker.maintenance.submit(task, owner=session, held=held, can_wait=True)
    return failures


def _size(broker: Broker, request: MetadataRequest) -> int:
    """Estimate the number of topics or partitions in the answer. For a very long request, that is its length."""
    if not request.topics:
        return sum(len(topic.partitions) for topic in broker.topics.all())
    if len(request.topics) > MOST_BRIEF:
        return len(request.topics)
    named = (broker.topics.by_name.get(asked.name or "") for asked in request.topics)
    by_id = (broker.topics.by_id.get(asked.topic_id) for asked in request.topics)
    partitions = sum(len(topic.partitions) for topic in {*named, *by_id} if topic)
    return max(len(request.topics), partitions)


def _new_names(broker: Broker, request: MetadataRequest, version: int) -> list[str]:
    """Return the names of the topics to create."""
    if not broker.config.auto_create_topics_enable or not (version < 4 or request.allow_auto_topic_creation):
        return []
    if _is_refused(request, version):
        return []
    by_name = broker.topics.by_name
    names = dict.fromkeys(asked.name for asked in request.topics or [] if not _id_of(asked))
    may_be = (name for name in names if name and name != CLUSTER_METADATA and not name_problem(name))
    return [name for name in may_be if name not in by_name]


async def _create_all(broker: Broker, names: list[str]) -> Failures:
    failures = Failures()
    for name in names:
        try:
            await step()
            await broker.create_topic(name, *broker.topics.on_first_use(name))
        except (TopicExists, BrokerStops, Stopping):
            # If another request has begun to create it, it will be ready soon.
            failures[name] = ErrorCode.LEADER_NOT_AVAILABLE
        except TopicNamesCollide:
            failures[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        except StorageError:
            failures[name] = ErrorCode.KAFKA_STORAGE_ERROR
    return failures


def _answer(
    session: Session,
    request: MetadataRequest,
    version: int,
    failures: Failures,
    every_topic: tuple[Topic, ...],
) -> MetadataResponse:
    broker = session.broker
    host, port = session.advertised
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker.node_id, host=host, port=port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=_topics(broker, request, version, failures, every_topic),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _topics(
    broker: Broker,
    request: MetadataRequest,
    version: int,
    failures: Failures,
    every_topic: tuple[Topic, ...],
) -> list[MetadataResponseTopic]:
    """Describe each requested topic once, even if it is named several times, by name or by id."""
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (version == 0 and not request.topics):
        return [_describe(broker, topic, operations) for topic in every_topic]
    if _is_refused(request, version):
        named = dict.fromkeys((asked.name or "", asked.topic_id) for asked in request.topics)
        return [_failed(name, topic_id, ErrorCode.INVALID_REQUEST) for name, topic_id in named]
    found: dict[Topic | str | bytes, MetadataResponseTopic] = {}
    for asked in request.topics:
        topic_id = _id_of(asked)
        topic = broker.topics.by_id.get(topic_id) if topic_id else broker.topics.by_name.get(asked.name or "")
        key = topic or topic_id or asked.name or ""
        if key not in found:
            found[key] = _describe(broker, topic, operations) if topic else _missing(asked, failures)
    return list(found.values())


def _is_refused(request: MetadataRequest, version: int) -> bool:
    """Tell whether a request uses ids, or null names, in a version that has the fields but not the feature."""
    if version >= ASKED_BY_ID_SINCE:
        return False
    return any(asked.name is None or asked.topic_id != ZERO_UUID for asked in request.topics or [])


def _id_of(asked: MetadataRequestTopic) -> bytes | None:
    """Return the id of a requested topic; None if it is requested by name. An id takes precedence over a name."""
    return asked.topic_id if asked.name is None or asked.topic_id != ZERO_UUID else None


def _missing(asked: MetadataRequestTopic, failures: Failures) -> MetadataResponseTopic:
    if _id_of(asked) is not None:
        return _failed(NO_NAME, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    name = asked.name or ""
    code = failures.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if name_problem(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _failed(name, asked.topic_id, code)


def _failed(name: str, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal(name),
        partitions=[],
    )


def _describe(broker: Broker, topic: Topic, operations: int) -> MetadataResponseTopic:
    node = broker.node_id
    nodes, none = [node], list[int]()  # shared: there may be very many partitions
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=node,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                offline_replicas=none if partition.log.takes_writes else nodes,
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=operations,
    )
