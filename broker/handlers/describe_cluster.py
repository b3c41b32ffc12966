"""DescribeCluster.

Versions: 0-2.
Behaviour: describes a cluster of one broker. Controllers cannot be reached: a request for them (version 1, endpoint
type 2) gets MISMATCHED_ENDPOINT_TYPE, as from a Kafka broker.
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
