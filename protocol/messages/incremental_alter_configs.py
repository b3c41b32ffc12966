"""IncrementalAlterConfigs: change single options of topics and brokers (KIP-339)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT8, INT16, INT32, STRING, Array


@message
class AlterableConfig:
    """An option, and what to do with its value."""

    name: str = field(STRING)
    # 0 set, 1 delete, 2 append to a list, 3 subtract from it.
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable="0+")


@message
class AlterConfigsResource:
    """A topic (type 2) or broker (type 4), and the changes of its options."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


@message
class IncrementalAlterConfigsRequest:
    """Ask for options to be changed, or for a check."""

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


@message
class AlterConfigsResourceResponse:
    """The result for one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


@message
class IncrementalAlterConfigsResponse:
    """Answer with one result per resource."""

    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))


INCREMENTAL_ALTER_CONFIGS = Api(
    key=44,
    versions="0-1",
    flexible="1+",
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
)
