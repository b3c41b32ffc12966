"""AlterConfigs.

Versions: 0-2.
Behaviour: each resource gets the options that are named and no others; what it had and is not named is as if never set.
Each succeeds or fails on its own, as IncrementalAlterConfigs does, which newer clients use: there it is said what can
be changed and when that takes effect.
Departures from Kafka: as those of IncrementalAlterConfigs.
"""

from tidelog.broker.codes import Refused
from tidelog.broker.config_changes import ItemsOf, Options, change
from tidelog.broker.session import Session
from tidelog.broker.work import Coro
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(session: Session, request: AlterConfigsRequest, _version: int) -> Coro[AlterConfigsResponse]:
    """Change the resources on the maintenance thread."""
    return change(
        session.broker, session, request.resources, _settle, request.validate_only, _result, _respond
    )


def _respond(results: list[AlterConfigsResourceResponse]) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=results)


def _settle(configs: list[AlterableConfig], _own: Options, _items_of: ItemsOf) -> Options:
    options = {}
    for config in configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name[:100]}")
        options[config.name] = config.value
    return options


def _result(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
