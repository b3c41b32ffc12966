"""DeleteGroups: delete groups and their committed offsets."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING, Array


@message
class DeleteGroupsRequest:
    """Ask for groups to be deleted."""

    groups_names: list[str] = field(Array(STRING))


@message
class DeletableGroupResult:
    """The result for one group."""

    group_id: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "3+", default=None, nullable="3+", ignorable=True)


@message
class DeleteGroupsResponse:
    """Answer with a code per group."""

    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult))


DELETE_GROUPS = Api(
    key=42, versions="0-3", flexible="2+", request=DeleteGroupsRequest, response=DeleteGroupsResponse
)
