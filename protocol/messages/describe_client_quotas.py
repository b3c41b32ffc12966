"""DescribeClientQuotas: the quotas of clients (KIP-546)."""

from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.schema import field, message
from tidelog.protocol.wire.types import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Array


@message
class ComponentData:
    """The filter for a part of an entity: 0 this exact name, 1 the default, 2 any."""

    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable="0+")


@message
class DescribeClientQuotasRequest:
    """Ask for the quotas of entities that match; with `strict`, only of those without other parts."""

    components: list[ComponentData] = field(Array(ComponentData))
    strict: bool = field(BOOL)


@message
class EntityData:
    """Part of an entity: a user, a client id or an address; null for the default."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


@message
class ValueData:
    """One bound."""

    key: str = field(STRING)
    value: float = field(FLOAT64)


@message
class EntryData:
    """The quotas of one entity."""

    entity: list[EntityData] = field(Array(EntityData))
    values: list[ValueData] = field(Array(ValueData))


@message
class DescribeClientQuotasResponse:
    """Answer with the quotas."""

    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entries: list[EntryData] | None = field(Array(EntryData), nullable="0+")


DESCRIBE_CLIENT_QUOTAS = Api(
    key=48,
    versions="0-1",
    flexible="1+",
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
)
