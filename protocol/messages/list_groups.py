"""ListGroups: list groups."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT16, INT32, STRING, Array


@message
class ListGroupsRequest:
    """Ask for all groups, or those of some states or types."""

    states_filter: list[str] = field(Array(STRING), "4+", default=[])
    types_filter: list[str] = field(Array(STRING), "5+", default=[])


@message
class ListedGroup:
    """A group in short."""

    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, "4+", default="", ignorable=True)
    group_type: str = field(STRING, "5+", default="", ignorable=True)


@message
class ListGroupsResponse:
    """Answer with the groups."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(Array(ListedGroup))


LIST_GROUPS = Api(
    key=16, versions="0-5", flexible="3+", request=ListGroupsRequest, response=ListGroupsResponse
)
