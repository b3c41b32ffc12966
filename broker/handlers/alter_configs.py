"""AlterConfigs.

Versions: 0-2.
Behaviour: each resource gets the options that are named and no others; what it had and is not named is as if never set.
Each succeeds or fails on its own, as IncrementalAlterConfigs does, which newer clients use: there it is said what can
be changed and when that takes effect.
Departures from Kafka: as those of IncrementalAlterConfigs.
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
from tidelog.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(
    session: Session, request: AlterConfigsRequest, _version: int
) -> AlterConfigsResponse | Later | Work[AlterConfigsResponse]:
    """Change the resources on the maintenance thread."""
    size_bytes = sum(RESOURCE_BYTES + len(resource.configs) * OPTION_BYTES for resource in request.resources)
    work = _change(session, request)
    return session.broker.change(session, size_bytes, work, partial(_turn_away, request.resources))


async def _turn_away(resources: list[AlterConfigsResource]) -> AlterConfigsResponse:
    def refuse(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return _result(Outcome(code, TOO_MANY_WAIT, resource.resource_type, resource.resource_name))

    results = await made_of_many(refuse, resources)
    return AlterConfigsResponse(responses=results)


def _change(session: Session, request: AlterConfigsRequest) -> Task[AlterConfigsResponse]:
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
    return AlterConfigsResponse(responses=[_result(outcome) for outcome in outcomes])


def _settle(configs: list[AlterableConfig], _own: Options, _items_of: ItemsOf) -> Options:
    options = {}
    for config in configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name[:100]}")
        options[config.name] = config.value
    return options


def _result(outcome: Outcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=outcome.type,
        resource_name=outcome.name,
    )
