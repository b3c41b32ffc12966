"""DescribeCluster: the cluster's id, controller and brokers (KIP-700)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT8, INT16, INT32, STRING, Array


@message
class DescribeClusterRequest:
    """Ask about the cluster."""

    include_cluster_authorized_operations: bool = field(BOOL)
    # 1 asks for the brokers, 2 for the controllers (KIP-919).
    endpoint_type: int = field(INT8, "1+", default=1)
    include_fenced_brokers: bool = field(BOOL, "2+", default=False)


@message
class DescribeClusterBroker:
    """One broker."""

    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, default=None, nullable="0+")
    is_fenced: bool = field(BOOL, "2+", default=False)


@message
class DescribeClusterResponse:
    """Answer with the cluster."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, default=None, nullable="0+")
    endpoint_type: int = field(INT8, "1+", default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker))
    # One bit per operation; the smallest integer if the request did not ask for them.
    cluster_authorized_operations: int = field(INT32, default=-(1 << 31))


DESCRIBE_CLUSTER = Api(
    key=60, versions="0-2", flexible="0+", request=DescribeClusterRequest, response=DescribeClusterResponse
)
