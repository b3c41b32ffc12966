"""ApiVersions.

Versions: 0-5.
Behaviour: lists the supported APIs and versions. A request in an unknown version of ApiVersions gets a response of
version 0, with UNSUPPORTED_VERSION and the whole list, so the client can choose again (KIP-511). From version 5, a
client may name the cluster and the node that it expects, both or neither. If either is another one, it gets
REBOOTSTRAP_REQUIRED: its metadata describes a broker that had this address before (KIP-1242). Two features are
finalized (KIP-584), so tools see a cluster without ZooKeeper: `metadata.version` at 25, which is Kafka's 4.0-IV3, and
`group.version` at 1, which stands for consumer groups (KIP-848).
Departures from Kafka: in response to an unknown version, Kafka lists ApiVersions alone. Each feature has one level, so
none can be changed. Kafka's other features (transactions, share groups, streams groups, eligible leader replicas, a
quorum with changing voters) are not supported and not listed. Programs that guess the release from the list of APIs
(franz-go, and so Redpanda Console) guess an old one, because the list has neither SASL nor transactions.
"""

import re

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.protocol.registry import APIS

# A valid name or version of a client's software (KIP-511).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# The level of each feature. Clients rely on them (producers on `transaction.version`), so only built features are here.
FEATURES = {"metadata.version": 25, "group.version": 1}
# Java clients ignore features with a negative epoch.
FEATURES_EPOCH = 0


def handle(session: Session, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    """List the APIs."""
    software = request.client_software_name, request.client_software_version
    expects_cluster, expects_node = request.cluster_id is not None, request.node_id != -1
    is_valid = version < 3 or all(_SOFTWARE.fullmatch(text) for text in software)
    if not is_valid or expects_cluster != expects_node:
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    here = session.broker.cluster_id, session.broker.node_id
    if expects_cluster and (request.cluster_id, request.node_id) != here:
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, api_keys=[])
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_table(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=level, max_version=level)
            for name, level in FEATURES.items()
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
    )


def handle_unsupported(_session: Session, _request: object, _version: int) -> ApiVersionsResponse:
    """Answer a version of ApiVersions that is not served."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_table())


def _table() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
        for key, api in sorted(APIS.items())
    ]
