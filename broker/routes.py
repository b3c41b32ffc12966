"""The list of served APIs: the handler of each, and what dispatch must know of its requests.

Nothing else imports handlers.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tidelog.broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from tidelog.broker.session import Session

# Handles a request, given the session, the request and its version; returns a form of `tidelog.broker.answers`.
Handle = Callable[[Session, Any, int], Any]


class Served(NamedTuple):
    """How one API is served."""

    handle: Handle
    # (request, version) -> the part of the request that is kept. None keeps all.
    keep: Callable[[Any, int], Any] | None = None
    # Whether requests are large because of records, which are not decoded and stay in the request's bytes.
    has_records: bool = False


SERVED: dict[int, Served] = {
    0: Served(produce.handle, has_records=True),
    1: Served(fetch.handle, keep=fetch.keep_needed),
    2: Served(list_offsets.handle),
    3: Served(metadata.handle),
    8: Served(offset_commit.handle),
    9: Served(offset_fetch.handle),
    10: Served(find_coordinator.handle),
    11: Served(join_group.handle, keep=join_group.without_excess),
    12: Served(heartbeat.handle),
    13: Served(leave_group.handle, keep=leave_group.without_excess),
    14: Served(sync_group.handle, keep=sync_group.without_excess),
    15: Served(describe_groups.handle),
    16: Served(list_groups.handle),
    18: Served(api_versions.handle),
    19: Served(create_topics.handle),
    20: Served(delete_topics.handle),
    21: Served(delete_records.handle),
    22: Served(init_producer_id.handle),
    23: Served(offset_for_leader_epoch.handle),
    29: Served(describe_acls.handle),
    32: Served(describe_configs.handle),
    33: Served(alter_configs.handle),
    35: Served(describe_log_dirs.handle),
    37: Served(create_partitions.handle),
    42: Served(delete_groups.handle),
    43: Served(elect_leaders.handle),
    44: Served(incremental_alter_configs.handle),
    45: Served(alter_partition_reassignments.handle),
    46: Served(list_partition_reassignments.handle),
    47: Served(offset_delete.handle),
    48: Served(describe_client_quotas.handle),
    50: Served(describe_user_scram_credentials.handle),
    55: Served(describe_quorum.handle),
    60: Served(describe_cluster.handle),
    61: Served(describe_producers.handle),
    66: Served(list_transactions.handle),
    68: Served(consumer_group_heartbeat.handle),
    69: Served(consumer_group_describe.handle),
    74: Served(list_config_resources.handle),
    75: Served(describe_topic_partitions.handle),
}
# ApiVersions is answered even if its version is not served.
UNSUPPORTED_API_VERSIONS: Final = Served(api_versions.handle_unsupported)
