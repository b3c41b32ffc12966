"""Produce.

Versions: 0-13 (13 names topics by id; versions up to 2 accept every record format, later ones record batches only).
Behaviour: the broker validates and appends each partition on its own, and each has its own error code. It responds:

- to acks=0 never,
- to acks=1 after the write,
- to acks=all after the fdatasync that covers the records (`flush.policy=acks`).

If an idempotent producer sends a batch again, the response has the offset of the first time. Records in another format
than the topic's (`message.format.version`) are converted. From version 8 on the error names the invalid records, for
example records without a key in a compacted topic. zstd needs version 7 (KIP-110). A reader thread validates or
converts batches that take long; meanwhile other requests of the connection wait. `timeout_ms` is ignored: the broker
responds when the records are on disk, or at once after a disk error. Producing to an internal topic gets
INVALID_TOPIC_EXCEPTION.
Departures from Kafka: acks=all means on disk, not in the page cache. Topics in an older format accept batches of
idempotent producers, but the format stores no producer ids: a batch that is sent again after a restart of the broker is
stored twice. Transactions are not supported yet: a transactional batch gets INVALID_TXN_STATE.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from tidelog.broker.answers import ClosesConnection, Later
from tidelog.broker.broker import Broker
from tidelog.broker.codes import NO_PARTITION, NO_TOPIC_ID, error_code
from tidelog.broker.flusher import ANSWER_BYTES
from tidelog.broker.partition import Partition
from tidelog.broker.repeated_lines import lines
from tidelog.broker.session import ADMIN_CLIENT, Session
from tidelog.broker.topics import Topic, missing
from tidelog.broker.work import Coro, Stopping, loop, maybe_await, run_steps, turn
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.records import batch, compression
from tidelog.protocol.records.errors import RecordFault, RecordsError, UnsupportedCodec
from tidelog.protocol.records.steps import Steps
from tidelog.storage.errors import StorageError, TakesLong
from tidelog.storage.log import Checked, Log

_log = logging.getLogger(__name__)

ACKS_NONE: Final = 0
IDS_SINCE: Final = 13  # the first version that names topics by id
BATCHES_SINCE: Final = 3  # the first version that must send record batches
ZSTD_SINCE: Final = 7  # the first version that may use the codec
# Messages of v0 are compressed for a given offset. If that is taken in between, they are compressed again. After this
# many tries they are stored uncompressed.
TRIES: Final = 3
# The most tries if they do not fit uncompressed: a record is larger than max.message.bytes when it is decompressed.
TRIES_MAX: Final = 20
_NO_RECORDS: Final = memoryview(b"")
_NO_ERROR: Final = int(ErrorCode.NONE)
# The answers that wait for the disk, with their logs.
_Durable = list[tuple[Log, PartitionProduceResponse]]


class Refusal(NamedTuple):
    """Why a batch is not stored, with its invalid records.

    Not an exception: its traceback would keep the decompressed records alive.
    """

    code: ErrorCode
    message: str
    faults: Sequence[RecordFault] = ()


def handle(
    session: Session, request: ProduceRequest, version: int
) -> ProduceResponse | Later | Coro[ProduceResponse | None] | None:
    """Append every batch of the request, at once or in several turns."""
    broker, acks, topics = session.broker, request.acks, request.topic_data
    partitions = topics[0].partition_data if len(topics) == 1 else []
    if len(partitions) != 1:
        return _append_all(session, request, version)
    # Most requests have one batch and need no coroutine.
    name, topic_id = topics[0].name, topics[0].topic_id
    topic = broker.topics.served(name, topic_id, version >= IDS_SINCE)
    durable: _Durable = []
    try:
        answer = _append(session, topic, partitions[0], acks, version, durable)
    except TakesLong:
        return _append_all(session, request, version, takes_long=True)
    answers = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[answer])
    return _respond(broker, acks, [answers], durable, 1)


async def _append_all(
    session: Session, request: ProduceRequest, version: int, takes_long: bool = False
) -> ProduceResponse | None:
    """Append every batch, with turns for other connections in between. `takes_long` is about the first batch."""
    broker, acks = session.broker, request.acks
    turn_ends = broker.turns.share_ends_s()
    durable: _Durable = []
    responses: list[TopicProduceResponse] = []
    partitions = 0
    for topic_data in request.topic_data:
        # Checked for each topic as well: there may be many topics without partitions.
        if responses and monotonic() > turn_ends:
            await turn()
            turn_ends = broker.turns.share_ends_s()
        topic = broker.topics.served(topic_data.name, topic_data.topic_id, version >= IDS_SINCE)
        answers: list[PartitionProduceResponse] = []
        for data in topic_data.partition_data:
            if answers and monotonic() > turn_ends:
                await turn()
                turn_ends = broker.turns.share_ends_s()
            try:
                answer = None if takes_long else _append(session, topic, data, acks, version, durable)
            except TakesLong:
                answer = None
            if answer is None:
                assert topic is not None
                takes_long = False
                answer = await _append_elsewhere(session, topic, data, acks, version, durable)
            answers.append(answer)
        partitions += len(answers)
        responses.append(
            TopicProduceResponse(
                name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=answers
            )
        )
    return await maybe_await(_respond(broker, acks, responses, durable, partitions))


async def _unanswered(on_disk: Later, responses: list[TopicProduceResponse]) -> None:
    """Wait for the disk without an answer (acks=0), so that the bound on unflushed appends holds."""
    await on_disk
    _close_if_refused(responses)


async def _append_elsewhere(
    session: Session,
    topic: Topic,
    data: PartitionProduceData,
    acks: int,
    version: int,
    durable: _Durable,
) -> PartitionProduceResponse:
    """Append one batch that a reader thread validates, again if appends in between have made the result invalid."""
    log, records = topic.partitions[data.index].log, data.records or _NO_RECORDS
    check = partial(log.check, records, any_format=version < BATCHES_SINCE)
    tries = 0
    while True:
        tries += 1
        steps = check(session.broker.clock.now_ms(), fits_anywhere=tries > TRIES)
        checked = await _check(session.broker, steps)
        await loop()
        with suppress(TakesLong):
            return _append(session, topic, data, acks, version, durable, checked)
        if tries == TRIES_MAX:
            message = "other producers append faster than this can be compressed; retry, or send smaller message sets"
            return _failure(data.index, ErrorCode.REQUEST_TIMED_OUT, message)


async def _check(broker: Broker, steps: Steps[Checked]) -> Checked | Refusal:
    """Validate a batch on a reader thread."""
    try:
        return await run_steps(steps, broker.held)
    except RecordsError as error:
        return _refusal(error)
    except Stopping:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the batch was not stored: the broker stops")


def _respond(
    broker: Broker, acks: int, responses: list[TopicProduceResponse], durable: _Durable, partitions: int
) -> ProduceResponse | Later | Coro[None] | None:
    """Return the response, at once or when the appends are on disk; None for acks=0."""
    response = ProduceResponse(responses=responses)
    later = None
    if durable:
        logs = [log for log, _ in durable]
        failed = partial(_fail, durable, response)
        later = broker.flusher.commit(logs, response, failed, ANSWER_BYTES * partitions)
    if acks != ACKS_NONE:
        return later or response
    if later is not None:
        return _unanswered(later, responses)
    _close_if_refused(responses)
    return None


def _append(
    session: Session,
    topic: Topic | None,
    data: PartitionProduceData,
    acks: int,
    version: int,
    durable: _Durable,
    checked: Checked | Refusal | None = None,
) -> PartitionProduceResponse:
    """Append one batch, which may be `checked` already; return its answer.

    The answer is added to `durable` if it has to wait for the disk. Raise TakesLong like `Log.append`.
    """
    index = data.index
    partition = topic.partition(index) if topic else None
    if topic is None or partition is None:
        code = missing(topic, version >= IDS_SINCE)
        return _failure(index, code, NO_TOPIC_ID if code == ErrorCode.UNKNOWN_TOPIC_ID else NO_PARTITION)
    if topic.is_internal and session.client_id != ADMIN_CLIENT:
        message = "only the broker writes to this topic"
        return _failure(index, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    if not -1 <= acks <= 1:
        message = f"acks={acks}: only -1 (all), 0 and 1 exist"
        return _failure(index, ErrorCode.INVALID_REQUIRED_ACKS, message)
    if version < ZSTD_SINCE and _is_zstd(data.records):
        message = f"zstd needs Produce v{ZSTD_SINCE}, this is v{version}; choose another codec in the client"
        return _refuse(partition, index, Refusal(UnsupportedCodec.code, message))
    if checked is not None and isinstance(checked, Refusal):
        return _refuse(partition, index, checked)
    try:
        now_ms = session.broker.clock.now_ms()  # for each batch, because a turn may take some milliseconds
        appended = partition.append(data.records or _NO_RECORDS, now_ms, checked, version < BATCHES_SINCE)
    except (RecordsError, StorageError) as error:
        return _refuse(partition, index, _refusal(error))
    answer = PartitionProduceResponse(
        index=index,
        error_code=_NO_ERROR,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )
    if partition.awaits_disk(acks):
        durable.append((partition.log, answer))
    return answer


def _refusal(error: RecordsError | StorageError) -> Refusal:
    return Refusal(error_code(error), str(error), error.faults if isinstance(error, RecordsError) else ())


def _refuse(partition: Partition, index: int, refusal: Refusal) -> PartitionProduceResponse:
    """Return the answer for a refused batch, with its invalid records, and log the refusal."""
    answer = _failure(index, refusal.code, refusal.message)
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=fault.record, batch_index_error_message=fault.message)
        for fault in refusal.faults
    ]
    template = "produce refused log=%s error=%r"
    values = partition.log, refusal.message
    lines.log(_log, logging.INFO, str(partition.log), template, *values, cause=str(answer.error_code))
    return answer


def _is_zstd(records: memoryview | None) -> bool:
    """Tell whether a batch claims to be zstd. Other faults are found later."""
    low_byte = batch.ATTRIBUTES_POSITION + 1
    return (
        records is not None
        and len(records) > low_byte
        and records[batch.MAGIC_POSITION] == batch.MAGIC
        and records[low_byte] & batch.CODEC_MASK == compression.ZSTD
    )


def _failure(index: int, code: ErrorCode, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)


def _fail_one(answer: PartitionProduceResponse, error: StorageError) -> None:
    """Turn an answer that waited for the disk into a failure."""
    answer.error_code = error_code(error)
    answer.error_message = str(error)
    answer.base_offset = answer.log_append_time_ms = -1


def _fail(
    durable: _Durable,
    response: ProduceResponse,
    failures: dict[Log, StorageError],
) -> ProduceResponse:
    for log, answer in durable:
        if log in failures:
            _fail_one(answer, failures[log])
    return response


def _close_if_refused(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise ClosesConnection(f"acks=0, {topic.name}-{answer.index}: {answer.error_message}")
