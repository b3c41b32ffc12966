"""The table of APIs that this broker speaks.

Owns which APIs there are and the ranges that ApiVersions announces.
"""

from tidelog.protocol.messages.list_offsets import LIST_OFFSETS
from tidelog.protocol.wire.api import Api

__all__ = ["ADVERTISED", "APIS"]

APIS: dict[int, Api] = {api.key: api for api in (LIST_OFFSETS,)}

# (key, smallest version, largest version), the rows of the ApiVersions response.
ADVERTISED: tuple[tuple[int, int, int], ...] = tuple(
    (api.key, api.advertised_min_version, api.max_version) for api in APIS.values()
)
