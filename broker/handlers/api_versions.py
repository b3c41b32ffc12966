"""ApiVersions.

Versions: 0-4.
Behaviour: tells what is served. A version that is not is answered in the form of version 0, with
UNSUPPORTED_VERSION and the whole table, so that the client can choose again (KIP-511).
Departures from Kafka: there are no features to finalize, so none are told.
"""

import re

from tidelog.broker.session import Session
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.registry import APIS

# KIP-511: what a client may call itself.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(_session: Session, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    """Return the table of APIs."""
    if version >= 3 and not all(
        _SOFTWARE.fullmatch(text) for text in (request.client_software_name, request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_table())


def handle_unsupported(_session: Session, _request: object, _version: int) -> ApiVersionsResponse:
    """Answer a version of ApiVersions that is not served."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_table())


def _table() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
        for key, api in sorted(APIS.items())
    ]
