"""CreateTopics: create topics with partitions and options."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT8, INT16, INT32, STRING, UUID, ZERO_UUID, Array


@message
class CreatableReplicaAssignment:
    """The brokers of one partition."""

    partition_index: int = field(INT32)
    broker_ids: list[int] = field(Array(INT32))


@message
class CreatableTopicConfig:
    """One option of the new topic; null asks for the default."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


@message
class CreatableTopic:
    """A topic to create."""

    name: str = field(STRING)
    # Both are -1 with assignments, and for the broker's default (KIP-464).
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment), default=[])
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig), default=[])


@message
class CreateTopicsRequest:
    """Ask for topics to be created, or for a check; what has not started within timeout_ms is not done."""

    topics: list[CreatableTopic] = field(Array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL, "1+", default=False)


@message
class CreatableTopicConfigs:
    """One option of a topic as it was created (KIP-525)."""

    name: str = field(STRING, "5+")
    value: str | None = field(STRING, "5+", nullable="5+")
    read_only: bool = field(BOOL, "5+")
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "5+")


@message
class CreatableTopicResult:
    """The result for one topic."""

    name: str = field(STRING)
    topic_id: bytes = field(UUID, "7+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "1+", nullable="0+", ignorable=True)
    # Why `configs` is empty; not why the topic failed.
    topic_config_error_code: int = field(INT16, "5+", default=0, tag=0, tagged="5+", ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    # Null is allowed but must not be sent: the Java client fails on it.
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs), "5+", default=[], nullable="5+", ignorable=True
    )


@message
class CreateTopicsResponse:
    """Answer with one result per topic."""

    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult))


CREATE_TOPICS = Api(
    key=19, versions="0-7", flexible="5+", request=CreateTopicsRequest, response=CreateTopicsResponse
)
