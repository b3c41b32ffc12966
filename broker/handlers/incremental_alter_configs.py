"""IncrementalAlterConfigs.

Versions: 0-1.
Behaviour: options of topics and of the broker are set, deleted, appended to or subtracted from, all of a resource or
none. A change is durable when the answer leaves, and holds for what comes after it; the log names it. Of the broker
what is a topic's default can be changed, a few others that docs/config.md marks, and what Kafka lets be changed and
does nothing here (threads, throttles), which is kept and described; any other is INVALID_REQUEST. A broker
without a name stands for all brokers; what is set for one by its id goes before that. To delete what is not set
changes nothing and is no error, whatever its name, as in Kafka; the command `tidelog` refuses what could not be set.
Departures from Kafka: an operation that there is not is INVALID_REQUEST, not UNKNOWN_SERVER_ERROR. Listeners stay as
they are while the broker runs. An internal topic keeps `cleanup.policy=compact`. Names that nobody knows are refused,
which Kafka keeps for a broker. There are no options of loggers, client metrics and groups.
"""

from tidelog.broker.codes import Refused
from tidelog.broker.config_changes import ItemsOf, Options, change
from tidelog.broker.session import Session
from tidelog.broker.work import Coro
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)


def handle(
    session: Session, request: IncrementalAlterConfigsRequest, _version: int
) -> Coro[IncrementalAlterConfigsResponse]:
    """Change the resources on the maintenance thread."""
    return change(
        session.broker, session, request.resources, _settle, request.validate_only, _result, _respond
    )


def _respond(results: list[AlterConfigsResourceResponse]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=results)


def _settle(configs: list[AlterableConfig], own: Options, items_of: ItemsOf) -> Options:
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
