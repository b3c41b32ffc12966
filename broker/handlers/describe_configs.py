"""DescribeConfigs.

Versions: 1-4.
Behaviour: describes the options of topics and of the broker: value, source, and synonyms, which apply if the option is
unset. Without a list of keys, or with an empty one, it describes all options. Duplicates appear once.

The options are the ones in [config.md](config.md), including options of Kafka that have no effect here but that Kafka
always lists. These have the value that was set, or the value that is true here, or Kafka's default. An option in hours
or minutes has the value that was set under that name, or the default, even if the option in ms is in force. A broker
with an empty name stands for the options that were set for all brokers while they ran. Options that
IncrementalAlterConfigs cannot change are read-only. No option is sensitive. The size of a response is bounded: a
resource that does not fit gets INVALID_REQUEST. Groups and client metrics have no options here.
Departures from Kafka: an option for a time has synonyms in other units (`log.retention.ms`, `log.retention.hours`). If
server.properties sets one in hours or minutes, the list of synonyms begins with that setting. If none is set, the list
has the default in hours. Kafka lists neither. Kafka also describes the options of groups and of client metrics, with
their defaults, and the levels of a broker's loggers (INVALID_REQUEST here).
"""

from contextlib import suppress

from tidelog.broker.broker import Broker
from tidelog.broker.codes import NO_PARTITION, Refused
from tidelog.broker.session import Session
from tidelog.broker.topic_rules import name_problem
from tidelog.broker.work import SHORT, Stopping, anywhere, reader
from tidelog.config.table import Described
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC, BROKER = 2, 4
CLIENT_METRICS, GROUP = 16, 32
# The most options that are described on the event loop, some 4 us each.
MOST_AT_ONCE = 250
# The number of options of a topic, about. The broker has three times as many, but their descriptions are cached.
OPTIONS = 50
# The approximate bound on an answer. In full, the options of a topic take 9 KB, and those of the broker 30 KB.
MOST_ANSWER_BYTES = 16 << 20
# The size of a resource or an option without its strings.
ENTRY_BYTES = 24
# The length of an invalid name in a message.
MOST_NAME_LENGTH = 249

# The options of a resource by name.
Table = dict[str, DescribeConfigsResourceResult]


def _is_large(request: DescribeConfigsRequest) -> bool:
    """Tell whether the request asks for more options than the event loop has time for."""
    if len(request.resources) > MOST_AT_ONCE:
        return True
    names = {(resource.resource_type, resource.resource_name) for resource in request.resources}
    wanted = sum(len(resource.configuration_keys or ()) or OPTIONS for resource in request.resources)
    return len(names) * OPTIONS + wanted > MOST_AT_ONCE


async def handle(session: Session, request: DescribeConfigsRequest, _version: int) -> DescribeConfigsResponse:
    """Describe each resource, once for each set of keys."""
    broker = session.broker
    if _is_large(request):
        with suppress(Stopping):
            await reader(SHORT)
    by_resource: dict[tuple[int, str], dict[tuple[str, ...], DescribeConfigsResource]] = {}
    for resource in request.resources:
        key_sets = by_resource.setdefault((resource.resource_type, resource.resource_name), {})
        key_sets[tuple(resource.configuration_keys or ())] = resource
    left_bytes = MOST_ANSWER_BYTES
    results = []
    for key_sets in by_resource.values():
        table: Table | None = None
        for keys, resource in key_sets.items():
            try:
                await anywhere()
                if left_bytes > 0:
                    table = table or _table(broker, resource, request)
                    result, size_bytes = _describe(resource, table, keys)
                    left_bytes -= size_bytes
                if left_bytes <= 0:
                    message = (
                        f"an answer has {MOST_ANSWER_BYTES} bytes at most; request fewer resources at once"
                    )
                    raise Refused(ErrorCode.INVALID_REQUEST, message)
                results.append(result)
            except Refused as refused:
                results.append(_failure(resource, refused.code, str(refused)))
            except Stopping:
                code = ErrorCode.REQUEST_TIMED_OUT
                results.append(_failure(resource, code, "not described, the broker stops"))
    return DescribeConfigsResponse(results=results)


def _describe(
    resource: DescribeConfigsResource, table: Table, keys: tuple[str, ...]
) -> tuple[DescribeConfigsResult, int]:
    """Return the description of a resource, and its approximate size."""
    wanted = [table[key] for key in dict.fromkeys(keys) if key in table] if keys else list(table.values())
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=wanted,
    )
    return result, ENTRY_BYTES + len(resource.resource_name) + sum(map(_size_of, wanted))


def _table(broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> Table:
    """Return all options of a resource. Raise Refused."""
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = broker.topics.by_name.get(name)
        if problem := name_problem(name):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITION)
        return {
            option.name: _result(option, request) for option in topic.config.describe(broker.config.synonyms)
        }
    if resource.resource_type in (CLIENT_METRICS, GROUP):
        # Not refused: kafka-configs describes all groups, to show the options that were set for them.
        if not name:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Group name must not be empty"
                if resource.resource_type == GROUP
                else "Client metrics subscription name must not be empty",
            )
        return {}
    if resource.resource_type != BROKER:
        message = (
            f"Unsupported resource type: {resource.resource_type}; topics (2) and the broker (4) have options"
        )
        raise Refused(ErrorCode.INVALID_REQUEST, message)
    if name not in ("", str(broker.node_id)):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id} or empty string, "
            f"but received {name[:MOST_NAME_LENGTH]}",
        )
    if not name:
        return {option.name: _result(option, request) for option in broker.config.describe_everywhere()}
    parts = request.include_synonyms, request.include_documentation
    described = broker.described  # Read before the options: a change of options replaces this cache.
    if parts not in described:
        described[parts] = {option.name: _result(option, request) for option in broker.config.describe()}
    return described[parts]


def _size_of(result: DescribeConfigsResourceResult) -> int:
    """Return the approximate size of an option in an answer."""
    texts = [result.name, result.value, result.documentation]
    for synonym in result.synonyms:
        texts += synonym.name, synonym.value
    return ENTRY_BYTES * (1 + len(result.synonyms)) + sum(len(text.encode()) for text in texts if text)


def _result(option: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = option.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=option.name,
        value=option.text,
        read_only=option.is_read_only,
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
