"""The one list of what is served: for each API its handler, and what dispatch has to know of its requests.

Nothing else imports handlers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.broker.handlers import (
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from tidelog.broker.session import Session

# Is handed who asks, the request and its version; returns a form of `tidelog.broker.answers`.
Handle = Callable[[Session, Any, int], Any]


class Served(NamedTuple):
    """How one API is served."""

    handle: Handle
    # (request, version) -> what is kept of it, where that is not all.
    keep: Callable[[Any, int], Any] | None = None
    # A request is large for its records, which are not looked at while it is decoded, and stay in its bytes.
    has_records: bool = False


SERVED: dict[int, Served] = {
    0: Served(produce.handle, has_records=True),
    1: Served(fetch.handle, keep=fetch.keep_needed),
    2: Served(list_offsets.handle),
    3: Served(metadata.handle),
    8: Served(offset_commit.handle),
    9: Served(offset_fetch.handle),
    10: Served(find_coordinator.handle),
    11: Served(join_group.handle),
    12: Served(heartbeat.handle),
    13: Served(leave_group.handle),
    14: Served(sync_group.handle),
    15: Served(describe_groups.handle),
    16: Served(list_groups.handle),
    18: Served(api_versions.handle),
    19: Served(create_topics.handle),
    20: Served(delete_topics.handle),
    22: Served(init_producer_id.handle),
    23: Served(offset_for_leader_epoch.handle),
    32: Served(describe_configs.handle),
    42: Served(delete_groups.handle),
    47: Served(offset_delete.handle),
    60: Served(describe_cluster.handle),
    68: Served(consumer_group_heartbeat.handle),
    69: Served(consumer_group_describe.handle),
}
# A version of ApiVersions that is not served is answered all the same.
UNSUPPORTED_API_VERSIONS = Served(api_versions.handle_unsupported)
