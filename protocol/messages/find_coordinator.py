"""FindCoordinator: the broker that coordinates a group."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT8, INT16, INT32, STRING, Array


@message
class FindCoordinatorRequest:
    """Ask for the coordinator of a group or of a transaction (KIP-699: of several)."""

    key: str = field(STRING, "0-3", default="")
    key_type: int = field(INT8, "1+", default=0)
    coordinator_keys: list[str] = field(Array(STRING), "4+", default=[])


@message
class Coordinator:
    """The coordinator of one key."""

    key: str = field(STRING, "4+", default="")
    node_id: int = field(INT32, "4+", default=0)
    host: str = field(STRING, "4+", default="")
    port: int = field(INT32, "4+", default=0)
    error_code: int = field(INT16, "4+", default=0)
    error_message: str | None = field(STRING, "4+", default="", nullable="4+", ignorable=True)


@message
class FindCoordinatorResponse:
    """Answer with one broker, or one for each key."""

    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0-3", default=0)
    error_message: str | None = field(STRING, "1-3", default="", nullable="1-3", ignorable=True)
    node_id: int = field(INT32, "0-3", default=0)
    host: str = field(STRING, "0-3", default="")
    port: int = field(INT32, "0-3", default=0)
    coordinators: list[Coordinator] = field(Array(Coordinator), "4+", default=[])


FIND_COORDINATOR = Api(
    key=10, versions="0-6", flexible="3+", request=FindCoordinatorRequest, response=FindCoordinatorResponse
)
