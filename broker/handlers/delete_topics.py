"""DeleteTopics.

Versions: 1-6 (6 may name topics by id).
Behaviour: a topic that is gone from the answer is gone from the catalogue, durably; its files are removed
in the background. Fetches that were parked on it are answered. An entry with both a name and an id, or neither, and a
topic that several entries mean, are answered INVALID_REQUEST once, and nothing of them is deleted; other entries are
served. What has not begun when `timeout_ms` is over is answered REQUEST_TIMED_OUT, and does not happen.
"""

import time
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

NO_ID = bytes(16)


def handle(connection: "Connection", request: DeleteTopicsRequest, version: int) -> Later:
    """Delete the topics on the maintenance thread."""
    named = [DeleteTopicState(name=name, topic_id=NO_ID) for name in request.topic_names]
    wanted = request.topics if version >= 6 else named
    forget = connection.server.known_requests.forget
    deadline = time.monotonic() + request.timeout_ms / 1000
    return connection.broker.maintenance.submit(
        partial(_delete_all, connection.broker, wanted, forget, deadline)
    )


def _delete_all(
    broker: "Broker", wanted: list[DeleteTopicState], forget: Forget, deadline: float
) -> DeleteTopicsResponse:
    refused, left = _refuse(broker, wanted)
    return DeleteTopicsResponse(
        responses=refused + [_delete(broker, state, forget, deadline) for state in left]
    )


def _refuse(
    broker: "Broker", wanted: list[DeleteTopicState]
) -> tuple[list[DeletableTopicResult], list[DeleteTopicState]]:
    """Return the answers for what does not say which topic to delete (as Kafka's ControllerApis), and the rest."""
    refused = []
    by_topic: dict[bytes | str, list[DeleteTopicState]] = {}
    for state in wanted:
        if state.name is None and state.topic_id == NO_ID:
            refused.append(_result(state, None, ErrorCode.INVALID_REQUEST, "neither a name nor an id"))
        elif state.name is not None and state.topic_id != NO_ID:
            message = "both a name and an id: send one of them"
            refused.append(_result(state, None, ErrorCode.INVALID_REQUEST, message))
        else:
            topic = _find(broker, state)
            meant = topic.id if topic else state.topic_id if state.name is None else state.name
            by_topic.setdefault(meant, []).append(state)
    for states in by_topic.values():
        if len(states) > 1:
            name = next((state.name for state in states if state.name is not None), None)
            topic_id = max(state.topic_id for state in states)
            twice = DeleteTopicState(name=name, topic_id=topic_id)
            message = "the topic stands more than once in the request"
            refused.append(_result(twice, None, ErrorCode.INVALID_REQUEST, message))
    return refused, [states[0] for states in by_topic.values() if len(states) == 1]


def _find(broker: "Broker", wanted: DeleteTopicState) -> Topic | None:
    if wanted.name is None:
        return broker.topics.by_id.get(wanted.topic_id)
    return broker.topics.by_name.get(wanted.name)


def _delete(
    broker: "Broker", wanted: DeleteTopicState, forget: Forget, deadline: float
) -> DeletableTopicResult:
    topic = _find(broker, wanted)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if wanted.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if time.monotonic() >= deadline:
        message = "not begun within timeout_ms, and not deleted"
        return _result(wanted, topic, ErrorCode.REQUEST_TIMED_OUT, message)
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
