"""OffsetCommitKey and OffsetCommitValue: how far a group has come in one partition.

Kafka's definitions: group-coordinator/src/main/resources/common/message.
"""

from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT32, INT64, STRING, UUID, ZERO_UUID

__all__ = ["OffsetCommitKey", "OffsetCommitValue"]


@message
class OffsetCommitKey:
    """A partition that a group has committed an offset of. Versions 0 and 1 are the same."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message
class OffsetCommitValue:
    """What was committed. Version 1 alone says when it expires, version 4 of which topic it was."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", default=ZERO_UUID, tag=0, tagged="4+", ignorable=True)
