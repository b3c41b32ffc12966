"""AlterConfigs: replace all options of topics and brokers; options that are not named are reset (KIP-133)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT8, INT16, INT32, STRING, Array


@message
class AlterableConfig:
    """An option; null for no value."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


@message
class AlterConfigsResource:
    """A topic (type 2) or broker (type 4), and all options to set on it."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


@message
class AlterConfigsRequest:
    """Ask for options to be set, or for a check."""

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
class AlterConfigsResponse:
    """Answer with one result per resource."""

    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))


ALTER_CONFIGS = Api(
    key=33, versions="0-2", flexible="2+", request=AlterConfigsRequest, response=AlterConfigsResponse
)
