"""DescribeCluster.

Versions: 0-2.
Behaviour: one cluster of one broker. There are no controllers to be reached: a question for them (version
1, endpoint type 2) is answered MISMATCHED_ENDPOINT_TYPE, as a Kafka broker does.
"""

from tidelog.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(session: Session, request: DescribeClusterRequest, _version: int) -> DescribeClusterResponse:
    """Describe this broker."""
    broker = session.broker
    host, port = session.advertised
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="only brokers (endpoint type 1) can be described here",
            endpoint_type=request.endpoint_type,
            cluster_id=broker.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterBroker(broker_id=broker.node_id, host=host, port=port, rack=None)],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
