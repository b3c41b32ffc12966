"""ListConfigResources: the resources with options (KIP-1142); in version 0 only client metrics (KIP-714)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import INT8, INT16, INT32, STRING, Array


@message
class ListConfigResourcesRequest:
    """Ask for resources of some types, by default all."""

    resource_types: list[int] = field(Array(INT8), "1+", default=[])


@message
class ConfigResource:
    """A resource: 2 topic, 4 broker, 8 a broker's loggers, 16 client metrics, 32 group."""

    resource_name: str = field(STRING)
    resource_type: int = field(INT8, "1+", default=16, ignorable=True)


@message
class ListConfigResourcesResponse:
    """Answer with the resources."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(Array(ConfigResource))


LIST_CONFIG_RESOURCES = Api(
    key=74,
    versions="0-1",
    flexible="0+",
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
)
