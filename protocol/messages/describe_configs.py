"""DescribeConfigs: the options of topics and brokers, and where each value comes from."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT8, INT16, INT32, STRING, Array


@message
class DescribeConfigsResource:
    """A topic (type 2) or broker (type 4) to describe."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    # Null asks for all options.
    configuration_keys: list[str] | None = field(Array(STRING), nullable="0+")


@message
class DescribeConfigsRequest:
    """Ask for options."""

    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOL, "1+", default=False)
    include_documentation: bool = field(BOOL, "3+", default=False)


@message
class DescribeConfigsSynonym:
    """A possible source of the value; the first one is its source."""

    name: str = field(STRING, "1+")
    value: str | None = field(STRING, "1+", nullable="0+")
    source: int = field(INT8, "1+")


@message
class DescribeConfigsResourceResult:
    """One option."""

    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOL)
    # 1 topic, 2 dynamic broker, 3 dynamic default, 4 static broker, 5 default.
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL)
    synonyms: list[DescribeConfigsSynonym] = field(
        Array(DescribeConfigsSynonym), "1+", default=[], ignorable=True
    )
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    config_type: int = field(INT8, "3+", default=0, ignorable=True)
    documentation: str | None = field(STRING, "3+", default="", nullable="0+", ignorable=True)


@message
class DescribeConfigsResult:
    """The options of one resource."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult))


@message
class DescribeConfigsResponse:
    """Answer with one result per resource."""

    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult))


DESCRIBE_CONFIGS = Api(
    key=32, versions="1-4", flexible="4+", request=DescribeConfigsRequest, response=DescribeConfigsResponse
)
