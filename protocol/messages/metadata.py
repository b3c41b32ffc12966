"""Metadata: the brokers, and the topics with their partitions and leaders."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, STRING, UUID, ZERO_UUID, Array


@message
class MetadataRequestTopic:
    """A topic: by its name, or from version 12 by its id if the name is null."""

    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    name: str | None = field(STRING, nullable="10+")


@message
class MetadataRequest:
    """Ask for topics."""

    # All topics: null; in version 0, which has no null, an empty list.
    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, "8-10", default=False)
    include_topic_authorized_operations: bool = field(BOOL, "8+", default=False)


@message
class MetadataResponseBroker:
    """One broker."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, "1+", default=None, nullable="1+", ignorable=True)


@message
class MetadataResponsePartition:
    """One partition and its replicas."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(INT32))
    isr_nodes: list[int] = field(Array(INT32))
    offline_replicas: list[int] = field(Array(INT32), "5+", default=[], ignorable=True)


@message
class MetadataResponseTopic:
    """One topic; an unknown topic has only the name or the id of the request."""

    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="12+")
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOL, "1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition))
    # One bit per operation; the smallest integer if the request did not ask for them.
    topic_authorized_operations: int = field(INT32, "8+", default=-(1 << 31))


@message
class MetadataResponse:
    """Answer with brokers and topics."""

    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, "2+", default=None, nullable="2+", ignorable=True)
    controller_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, "8-10", default=-(1 << 31))
    error_code: int = field(INT16, "13+", default=0, ignorable=True)


METADATA = Api(key=3, versions="0-13", flexible="9+", request=MetadataRequest, response=MetadataResponse)
