"""ApiVersions: which APIs and versions a broker speaks."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, INT16, INT32, INT64, STRING, Array


@message
class ApiVersionsRequest:
    """Ask for the table. A client names its software (from version 3, KIP-511), and whom it expects (5, KIP-1242)."""

    client_software_name: str = field(STRING, "3+", default="", ignorable=True)
    client_software_version: str = field(STRING, "3+", default="", ignorable=True)
    # What the client knows of this broker; null and -1 before it has metadata.
    cluster_id: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    node_id: int = field(INT32, "5+", default=-1, ignorable=True)


@message
class ApiVersion:
    """One row of the table: an API and its range, both ends included."""

    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@message
class SupportedFeatureKey:
    """A feature that the broker supports."""

    name: str = field(STRING, "3+")
    # Before version 4, a feature with minimum 0 must be left out: older Java clients fail on it (KAFKA-17492).
    min_version: int = field(INT16, "3+")
    max_version: int = field(INT16, "3+")


@message
class FinalizedFeatureKey:
    """A feature that is enabled in the cluster."""

    name: str = field(STRING, "3+")
    max_version_level: int = field(INT16, "3+")
    min_version_level: int = field(INT16, "3+")


@message
class ApiVersionsResponse:
    """Answer with the table; if the version of the request is unknown, in version 0 (KIP-511)."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(Array(ApiVersion))
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        Array(SupportedFeatureKey), "3+", default=[], tag=0, tagged="3+", ignorable=True
    )
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, tagged="3+", ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        Array(FinalizedFeatureKey), "3+", default=[], tag=2, tagged="3+", ignorable=True
    )
    zk_migration_ready: bool = field(BOOL, "3+", default=False, tag=3, tagged="3+", ignorable=True)


API_VERSIONS = Api(
    key=18, versions="0-5", flexible="3+", request=ApiVersionsRequest, response=ApiVersionsResponse
)
