"""DeleteTopics: delete topics, by name or by id."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING, UUID, ZERO_UUID, Array


@message
class DeleteTopicState:
    """A topic to delete: by its name, or by its id if the name is null."""

    name: str | None = field(STRING, "6+", default=None, nullable="6+")
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID)


@message
class DeleteTopicsRequest:
    """Ask for topics to be deleted; what has not started within timeout_ms is not done."""

    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), "6+", default=[])
    topic_names: list[str] = field(Array(STRING), "0-5", default=[], ignorable=True)
    timeout_ms: int = field(INT32)


@message
class DeletableTopicResult:
    """The result for one topic."""

    name: str | None = field(STRING, nullable="6+")
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)


@message
class DeleteTopicsResponse:
    """Answer with one result per topic."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult))


DELETE_TOPICS = Api(
    key=20, versions="0-6", flexible="4+", request=DeleteTopicsRequest, response=DeleteTopicsResponse
)
