"""GroupMetadataKey and GroupMetadataValue: a classic group, as of the end of a rebalance.

Kafka's definitions: group-coordinator/src/main/resources/common/message.
"""

from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BYTES, INT32, INT64, STRING, Array

__all__ = ["GroupMetadataKey", "GroupMetadataValue", "MemberMetadata"]


@message
class GroupMetadataKey:
    """A group."""

    group: str = field(STRING)


@message
class MemberMetadata:
    """A member: what it said for the protocol that was chosen, and what it was assigned."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+", ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=0, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@message
class GroupMetadataValue:
    """A group: its generation, who leads it, its members. Without members it is empty."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(Array(MemberMetadata))
