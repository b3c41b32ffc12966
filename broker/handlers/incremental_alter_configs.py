"""IncrementalAlterConfigs.

Versions: 0-1.
Behaviour: sets and deletes options of topics and of the broker, and appends to and subtracts from lists. All changes of
a resource succeed, or none. When the broker responds, they are durable and in effect, and the log shows them.

Any option of a topic can be changed. These options of the broker can be changed; any other gets INVALID_REQUEST:

- the defaults of topics,
- options that [config.md](config.md) marks as changeable,
- options that Kafka can change but that have no effect here (threads, throttles): they are stored and described.

A broker with an empty name stands for all brokers; an option set for a broker by its id takes precedence. Deleting an
option that is not set is no error, whatever its name, as in Kafka; the `tidelog` command rejects unknown names.
Departures from Kafka: an unknown operation gets INVALID_REQUEST, not UNKNOWN_SERVER_ERROR. Listeners cannot be changed
while the broker runs. An internal topic keeps `cleanup.policy=compact`. Unknown options are errors; Kafka stores
unknown options of a broker. Loggers, client metrics and groups have no options.
"""

from tidelog.broker.codes import Refused
from tidelog.broker.config_changes import ItemsOf, Options, change
from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)


async def handle(
    session: Session, request: IncrementalAlterConfigsRequest, _version: int
) -> IncrementalAlterConfigsResponse:
    """Change the resources on the maintenance thread."""
    resources, validate_only = request.resources, request.validate_only
    results = await change(session.broker, session, resources, _new_options, validate_only, _result)
    return IncrementalAlterConfigsResponse(responses=results)


def _new_options(configs: list[AlterableConfig], own: Options, items_of: ItemsOf) -> Options:
    for config in configs:
        name, operation, value = config.name, config.config_operation, config.value
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}: {name[:100]}")
        if operation == DELETE:
            own.pop(name, None)
        elif value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name[:100]}")
        elif operation == SET:
            own[name] = value
        else:
            own[name] = _changed_list(name, items_of(name), value, operation == APPEND)
    return own


def _changed_list(name: str, items: tuple[str, ...] | None, value: str, is_append: bool) -> str:
    if items is None:
        verb = "APPEND" if is_append else "SUBTRACT"
        message = f"Can't {verb} to key {name[:100]} because its type is not LIST."
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    changed = dict.fromkeys(items)
    for item in (part.strip() for part in value.split(",")):
        if is_append:
            changed[item] = None
        else:
            changed.pop(item, None)
    return ",".join(changed)


def _result(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
