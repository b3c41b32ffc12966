"""DeleteTopics.

Versions: 0-6 (6 may name topics by id).
Behaviour: when the broker responds, the topic is durably removed from the catalogue. The broker deletes its files in
the background, and responds to fetches that wait for it. An entry with both a name and an id, or neither, gets
INVALID_REQUEST. A topic in several entries gets one INVALID_REQUEST and is not deleted. Other entries are not affected.
A deletion that has not begun within `timeout_ms` does not happen and gets REQUEST_TIMED_OUT. If the broker stops, the
error is NOT_CONTROLLER, and clients retry.
Departures from Kafka: an internal topic gets INVALID_TOPIC_EXCEPTION, because all groups would be lost with
`__consumer_offsets`; Kafka deletes it (only `kafka-topics --zookeeper` refused that). A client with the client id
`__admin_client` may delete an internal topic, in case it can no longer be read.
"""

from collections.abc import Sequence

from tidelog.broker.broker import Broker
from tidelog.broker.codes import NO_PARTITION, NO_TOPIC_ID
from tidelog.broker.session import ADMIN_CLIENT, Session
from tidelog.broker.topics import Topic
from tidelog.broker.work import Stopping, step, turn
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.wire.types import ZERO_UUID
from tidelog.storage.errors import StorageError

# The approximate memory of a topic in a waiting request.
TOPIC_BYTES = 400


async def handle(session: Session, request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    """Delete the topics on the maintenance thread."""
    wanted: Sequence[DeleteTopicState | str] = request.topics if version >= 6 else request.topic_names
    broker = session.broker
    deadline_ms = broker.clock.monotonic_ms() + request.timeout_ms
    task = _delete_all(broker, wanted, deadline_ms, session.client_id == ADMIN_CLIENT)

    def refuse(each: DeleteTopicState | str, code: ErrorCode, message: str) -> DeletableTopicResult:
        return _result(_state(each), None, code, message)

    return DeleteTopicsResponse(
        responses=await broker.change(session, len(wanted) * TOPIC_BYTES, task, wanted, refuse)
    )


def _state(wanted: DeleteTopicState | str) -> DeleteTopicState:
    """Return an entry of version 6. Older versions have names only."""
    return DeleteTopicState(name=wanted, topic_id=ZERO_UUID) if isinstance(wanted, str) else wanted


async def _delete_all(
    broker: Broker, wanted: Sequence[DeleteTopicState | str], deadline_ms: int, may_be_internal: bool
) -> list[DeletableTopicResult]:
    results, left = await _refuse(broker, wanted)
    for state in left:
        try:
            await step()
            results.append(await _delete(broker, state, deadline_ms, may_be_internal))
        except Stopping:
            results.append(_result(state, None, ErrorCode.NOT_CONTROLLER, "not deleted, the broker stops"))
    return results


async def _refuse(
    broker: Broker, wanted: Sequence[DeleteTopicState | str]
) -> tuple[list[DeletableTopicResult], list[DeleteTopicState]]:
    """Return the answers to invalid and duplicate entries, as in Kafka's ControllerApis, and all other entries."""
    refused = []
    by_topic: dict[bytes | str, list[DeleteTopicState]] = {}
    for state in map(_state, wanted):
        await turn()
        if state.name is None and state.topic_id == ZERO_UUID:
            refused.append(
                _result(state, None, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
            )
        elif state.name is not None and state.topic_id != ZERO_UUID:
            message = "You may not specify both topic name and topic id."
            refused.append(_result(state, None, ErrorCode.INVALID_REQUEST, message))
        else:
            topic = broker.topics.find(state.name, state.topic_id)
            meant = topic.id if topic else state.topic_id if state.name is None else state.name
            by_topic.setdefault(meant, []).append(state)
    for states in by_topic.values():
        await turn()
        if len(states) > 1:
            name = next((state.name for state in states if state.name is not None), None)
            topic_id = max(state.topic_id for state in states)
            twice = DeleteTopicState(name=name, topic_id=topic_id)
            message = f"Duplicate topic {'id' if name is None else 'name'}."
            refused.append(_result(twice, None, ErrorCode.INVALID_REQUEST, message))
    return refused, [states[0] for states in by_topic.values() if len(states) == 1]


async def _delete(
    broker: Broker, wanted: DeleteTopicState, deadline_ms: int, may_be_internal: bool
) -> DeletableTopicResult:
    topic = broker.topics.find(wanted.name, wanted.topic_id)
    missing = ErrorCode.UNKNOWN_TOPIC_ID if wanted.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.clock.monotonic_ms() >= deadline_ms:
        message = "not begun within timeout_ms, and not deleted"
        return _result(wanted, topic, ErrorCode.REQUEST_TIMED_OUT, message)
    if not broker.config.delete_topic_enable:
        return _result(
            wanted,
            topic,
            ErrorCode.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled. (delete.topic.enable=false)",
        )
    if topic is None:
        return _result(wanted, topic, missing, NO_TOPIC_ID if wanted.name is None else NO_PARTITION)
    if topic.is_internal and not may_be_internal:
        message = f"{topic.name} is internal: its deletion would delete all groups; use DeleteGroups for single groups"
        return _result(wanted, topic, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    try:
        await broker.topics.delete(topic)
    except StorageError as error:
        return _result(wanted, topic, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
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
