"""DeleteTopics.

Versions: 1-6 (6 may name topics by id).
Behaviour: a topic that is gone from the answer is gone from the catalogue, durably; its files are removed
in the background. Fetches that were parked on it are answered.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.partition import Partition
from tidelog.broker.topics import Topic
from tidelog.broker.waiting import Later
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.storage.errors import StorageError

if TYPE_CHECKING:
    from tidelog.broker.connection import Connection
    from tidelog.broker.daemon import Broker

Forget = Callable[[Callable[[Partition], bool]], None]


def handle(connection: "Connection", request: DeleteTopicsRequest, version: int) -> Later:
    """Delete the topics on the maintenance thread."""
    named = [DeleteTopicState(name=name, topic_id=bytes(16)) for name in request.topic_names]
    wanted = request.topics if version >= 6 else named
    forget = connection.server.known_requests.forget
    return connection.broker.maintenance.submit(partial(_delete_all, connection.broker, wanted, forget))


def _delete_all(broker: "Broker", wanted: list[DeleteTopicState], forget: Forget) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_delete(broker, state, forget) for state in wanted])


def _delete(broker: "Broker", wanted: DeleteTopicState, forget: Forget) -> DeletableTopicResult:
    if wanted.name is None:
        topic = broker.topics.by_id.get(wanted.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = broker.topics.by_name.get(wanted.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not broker.config.delete_topic_enable:
        return _result(wanted, topic, ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if topic is None:
        return _result(wanted, topic, missing, "no such topic")
    try:
        broker.topics.delete(topic)
    except StorageError as error:
        return _result(wanted, topic, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    finally:
        for partition in topic.partitions:
            broker.loop.call_soon_threadsafe(partition.release)
        broker.loop.call_soon_threadsafe(forget, set(topic.partitions).__contains__)
    return _result(wanted, topic, ErrorCode.NONE, None)


def _result(
    wanted: DeleteTopicState, topic: Topic | None, code: ErrorCode, message: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name if topic else wanted.name,
        topic_id=topic.id if topic else wanted.topic_id,
        error_code=code,
        error_message=message,
    )
