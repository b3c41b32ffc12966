"""DescribeConfigs.

Versions: 1-4.
Behaviour: every option of a topic or of the broker, with its value, where that comes from, and what would apply without
it; no list of keys, or an empty one, asks for all. What is asked twice is answered once. The options are those of the
table in config/: what is not there is not honoured, and described only for a topic that was created with it. A broker
without a name stands for the defaults that were set for all brokers while they ran: there are none.
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.answers import Elsewhere
from tidelog.broker.topics import name_problem
from tidelog.config.options import Described
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from tidelog.broker.connection import Connection
    from tidelog.broker.daemon import Broker

TOPIC, BROKER = 2, 4
# Resources that are described on the event loop, some 100 us each.
MOST_AT_ONCE = 50


def handle(
    connection: "Connection", request: DescribeConfigsRequest, _version: int
) -> DescribeConfigsResponse | Elsewhere:
    """Describe each resource asked for, once for each set of keys."""
    answer = partial(_respond, connection.broker, request)
    return answer() if len(request.resources) <= MOST_AT_ONCE else Elsewhere(answer)


def _respond(broker: "Broker", request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    asked = {
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())): resource
        for resource in request.resources
    }
    return DescribeConfigsResponse(
        results=[_describe(broker, resource, request) for resource in asked.values()]
    )


def _describe(
    broker: "Broker", resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = broker.topics.by_name.get(name)
        if problem := name_problem(name):
            return _failure(resource, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic is None:
            return _failure(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        options: Iterable[Described] = topic.config.describe(broker.config)
    elif resource.resource_type == BROKER:
        if name not in ("", str(broker.node_id)):
            message = f"there is one broker, {broker.node_id}, not {name!r}"
            return _failure(resource, ErrorCode.INVALID_REQUEST, message)
        options = broker.config.describe() if name else ()
    else:
        message = f"resource type {resource.resource_type}: only topics (2) and the broker (4) have options"
        return _failure(resource, ErrorCode.INVALID_REQUEST, message)
    keys = resource.configuration_keys
    wanted = [option for option in options if not keys or option.name in keys]
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=name,
        configs=[_result(option, request, resource.resource_type == BROKER) for option in wanted],
    )


def _result(
    option: Described, request: DescribeConfigsRequest, read_only: bool
) -> DescribeConfigsResourceResult:
    synonyms = option.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=option.name,
        value=option.text,
        read_only=read_only,
        config_source=option.source,
        is_sensitive=False,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.text, source=s.source) for s in synonyms],
        config_type=option.kind.code,
        documentation=option.doc if request.include_documentation else None,
    )


def _failure(resource: DescribeConfigsResource, code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
