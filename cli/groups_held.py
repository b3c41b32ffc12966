"""The memory that the committed offsets of groups take, and the addresses that committed them.

It is found by reading `__consumer_offsets`, and counted as the broker counts it. The memory of members is not in it: it
is freed when they leave.
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli import tail

if TYPE_CHECKING:
    from tidelog.broker.groups.offsets import Committed
    from tidelog.client.cluster import Cluster
    from tidelog.client.fetching import Record


class Held(NamedTuple):
    """The offsets of a group: their number and memory, the address that committed most, and the time of the last."""

    offsets: int = 0
    held_bytes: int = 0
    address: str | None = None
    committed_ms: int | None = None


def by_group(cluster: "Cluster") -> dict[str, Held]:
    """Return what each group holds by its committed offsets."""
    from tidelog.cli.connect import choose
    from tidelog.protocol.error_codes import ErrorCode
    from tidelog.protocol.topic_names import OFFSETS_TOPIC

    committed: dict[str, dict[tuple[str, int], Committed]] = {}
    (topic,) = cluster.topics([OFFSETS_TOPIC])
    if topic.error_code == ErrorCode.NONE:
        chosen = choose(topic)
        for records in tail.Reader(cluster, chosen, tail.Span()).read():
            for record in records:
                _add(record, committed)
    return {group: _held(group, list(offsets.values())) for group, offsets in committed.items() if offsets}


def _add(record: "Record", committed: "dict[str, dict[tuple[str, int], Committed]]") -> None:
    from tidelog.broker.groups.offsets import restored
    from tidelog.protocol.coordinator import records
    from tidelog.protocol.coordinator.messages import OffsetCommitKey, OffsetCommitValue
    from tidelog.protocol.wire.errors import WireError

    try:
        key, value = records.read(record.key or b"", record.value) or (None, None)
    except WireError:
        return  # the broker logs these when it reads them
    if not isinstance(key, OffsetCommitKey):
        return
    offsets = committed.setdefault(key.group, {})
    if isinstance(value, OffsetCommitValue):
        offsets[key.topic, key.partition] = restored(value, record.headers, None)
    else:
        offsets.pop((key.topic, key.partition), None)


def _held(group: str, offsets: "list[Committed]") -> Held:
    from tidelog.broker.groups.memory import address_of, group_bytes

    by_address: Counter[str] = Counter()
    for each in offsets:
        by_address[address_of(each.host)] += each.size_bytes
    (address, _), *_ = by_address.most_common(1)
    held_bytes = group_bytes(group) + by_address.total()
    return Held(len(offsets), held_bytes, address or None, max(each.commit_ms for each in offsets))
