"""Fetch: read batches from an offset on, and wait if there are too few bytes."""

from collections.abc import Sized

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    ZERO_UUID,
    Array,
)


@message
class ReplicaState:
    """The follower that fetches (KIP-903); consumers send -1 for both."""

    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


@message
class FetchPartition:
    """The offset to read from in one partition, and how much to read."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    # The epoch of the last record that was read, to detect a diverged log (KIP-595).
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    # Only followers set it.
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    # The first batch is sent whole even if it is larger (KIP-74).
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "17+", default=ZERO_UUID, tag=0, tagged="17+", ignorable=True)
    high_watermark: int = field(INT64, "18+", default=(1 << 63) - 1, tag=1, tagged="18+", ignorable=True)


@message
class FetchTopic:
    """The partitions of one topic: named up to version 12, by id from 13 on (KIP-516)."""

    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


@message
class ForgottenTopic:
    """Partitions to drop from the fetch session."""

    topic: str = field(STRING, "7-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = field(Array(INT32), "7+")


@message
class FetchRequest:
    """Ask for batches."""

    cluster_id: str | None = field(
        STRING, "12+", default=None, nullable="12+", tag=0, tagged="12+", ignorable=True
    )
    replica_id: int = field(INT32, "0-14", default=-1)
    replica_state: ReplicaState = field(ReplicaState, "15+", default=ReplicaState(), tag=1, tagged="15+")
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, "3+", default=(1 << 31) - 1, ignorable=True)
    isolation_level: int = field(INT8, "4+", default=0, ignorable=True)
    # Session 0 with epoch -1 is a plain fetch outside any session, with epoch 0 the start of one (KIP-227).
    session_id: int = field(INT32, "7+", default=0, ignorable=True)
    session_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic), "7+", default=[])
    rack_id: str = field(STRING, "11+", default="", ignorable=True)


@message
class EpochEndOffset:
    """The largest epoch in common with a diverged reader, and its end (KIP-595)."""

    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


@message
class LeaderIdAndEpoch:
    """The current leader of the partition."""

    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


@message
class SnapshotId:
    """The snapshot to fetch if the log starts later; only metadata logs have snapshots."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@message
class AbortedTransaction:
    """An aborted transaction with records in the batches, which the reader must drop."""

    producer_id: int = field(INT64, "4+")
    first_offset: int = field(INT64, "4+")


@message
class PartitionData:
    """The batches of one partition, or why there are none."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(
        EpochEndOffset, "12+", default=EpochEndOffset(), tag=0, tagged="12+"
    )
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, "12+", default=LeaderIdAndEpoch(), tag=1, tagged="12+"
    )
    snapshot_id: SnapshotId = field(SnapshotId, "12+", default=SnapshotId(), tag=2, tagged="12+")
    # Null for a reader of uncommitted records, who does not need it.
    aborted_transactions: list[AbortedTransaction] | None = field(
        Array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    # Bytes, or a slice of a log file: any object with a length that can be sent.
    records: Sized | None = field(RECORDS, nullable="0+")


@message
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: str = field(STRING, "0-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(Array(PartitionData))


@message
class NodeEndpoint:
    """The address of a leader in the answer (KIP-951)."""

    node_id: int = field(INT32, "16+")
    host: str = field(STRING, "16+")
    port: int = field(INT32, "16+")
    rack: str | None = field(STRING, "16+", default=None, nullable="16+")


@message
class FetchResponse:
    """Answer with batches."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "7+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0)
    responses: list[FetchableTopicResponse] = field(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), "16+", default=[], tag=0, tagged="16+")


FETCH = Api(key=1, versions="0-18", flexible="12+", request=FetchRequest, response=FetchResponse)
