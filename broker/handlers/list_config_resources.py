"""ListConfigResources.

Versions: 0-1.
Behaviour: lists the resources that have options: topics and this broker. Client metrics and groups have none here, so
no resource of these types is listed. Version 0 is for client metrics only. An unknown type gets UNSUPPORTED_VERSION.
Departures from Kafka: the broker's loggers are not listed, because they have no options here.
"""

from tidelog.broker.session import Session
from tidelog.broker.work import map_in_chunks
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


async def handle(
    session: Session, request: ListConfigResourcesRequest, version: int
) -> ListConfigResourcesResponse:
    """List the resources; on a reader thread if there are many."""
    known = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP} if version else {CLIENT_METRICS}
    types = set(request.resource_types) or known
    if not types <= known:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    broker = session.broker
    topics = broker.topics.all() if TOPIC in types else ()
    nodes = [str(broker.node_id)] if BROKER in types else []
    brokers = [ConfigResource(resource_name=node, resource_type=BROKER) for node in nodes]
    found = await map_in_chunks(
        lambda topic: ConfigResource(resource_name=topic.name, resource_type=TOPIC), topics
    )
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=[*brokers, *found])
