"""AlterConfigs.

Versions: 0-2.
Behaviour: replaces all options of each resource; options that the request omits are unset. Each resource succeeds or
fails on its own. IncrementalAlterConfigs, which newer clients use, describes what can be changed and when it takes
effect.
Departures from Kafka: the same as for IncrementalAlterConfigs.
"""

from tidelog.broker.codes import Refused
from tidelog.broker.config_changes import ItemsOf, Options, change
from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(session: Session, request: AlterConfigsRequest, _version: int) -> AlterConfigsResponse:
    """Change the resources on the maintenance thread."""
    resources, validate_only = request.resources, request.validate_only
    results = await change(session.broker, session, resources, _new_options, validate_only, _result)
    return AlterConfigsResponse(responses=results)


def _new_options(configs: list[AlterableConfig], _own: Options, _items_of: ItemsOf) -> Options:
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
