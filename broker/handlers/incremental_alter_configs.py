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

from functools import partial

from tidelog.broker.answers import Later
from tidelog.broker.codes import Refused
from tidelog.broker.config_changes import (
    OPTION_BYTES,
    RESOURCE_BYTES,
    ItemsOf,
    Options,
    Outcome,
    Wanted,
    change_all,
)
from tidelog.broker.maintenance import Task
from tidelog.broker.session import Session
from tidelog.broker.topics import TOO_MANY_WAIT
from tidelog.broker.work import Work, made_of_many
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
) -> IncrementalAlterConfigsResponse | Later | Work[IncrementalAlterConfigsResponse]:
    """Change the resources on the maintenance thread."""
    size_bytes = sum(RESOURCE_BYTES + len(resource.configs) * OPTION_BYTES for resource in request.resources)
    work = _change(session, request)
    return session.broker.change(session, size_bytes, work, partial(_turn_away, request.resources))


async def _turn_away(resources: list[AlterConfigsResource]) -> IncrementalAlterConfigsResponse:
    def refuse(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return _result(Outcome(code, TOO_MANY_WAIT, resource.resource_type, resource.resource_name))

    results = await made_of_many(refuse, resources)
    return IncrementalAlterConfigsResponse(responses=results)


def _change(
    session: Session, request: IncrementalAlterConfigsRequest
) -> Task[IncrementalAlterConfigsResponse]:
    wanted = [
        Wanted(
            resource.resource_type,
            resource.resource_name,
            [config.name for config in resource.configs],
            partial(_settle, resource.configs),
        )
        for resource in request.resources
    ]
    outcomes = yield from change_all(session.broker, wanted, request.validate_only)
    return IncrementalAlterConfigsResponse(responses=[_result(outcome) for outcome in outcomes])


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


def _result(outcome: Outcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=outcome.type,
        resource_name=outcome.name,
    )
