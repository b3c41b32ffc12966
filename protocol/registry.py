"""The table of APIs and versions that this broker speaks, as ApiVersions announces them."""

from tidelog.protocol.messages.alter_configs import ALTER_CONFIGS
from tidelog.protocol.messages.alter_partition_reassignments import ALTER_PARTITION_REASSIGNMENTS
from tidelog.protocol.messages.api_versions import API_VERSIONS
from tidelog.protocol.messages.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from tidelog.protocol.messages.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from tidelog.protocol.messages.create_partitions import CREATE_PARTITIONS
from tidelog.protocol.messages.create_topics import CREATE_TOPICS
from tidelog.protocol.messages.delete_groups import DELETE_GROUPS
from tidelog.protocol.messages.delete_records import DELETE_RECORDS
from tidelog.protocol.messages.delete_topics import DELETE_TOPICS
from tidelog.protocol.messages.describe_acls import DESCRIBE_ACLS
from tidelog.protocol.messages.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from tidelog.protocol.messages.describe_cluster import DESCRIBE_CLUSTER
from tidelog.protocol.messages.describe_configs import DESCRIBE_CONFIGS
from tidelog.protocol.messages.describe_groups import DESCRIBE_GROUPS
from tidelog.protocol.messages.describe_log_dirs import DESCRIBE_LOG_DIRS
from tidelog.protocol.messages.describe_producers import DESCRIBE_PRODUCERS
from tidelog.protocol.messages.describe_quorum import DESCRIBE_QUORUM
from tidelog.protocol.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from tidelog.protocol.messages.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from tidelog.protocol.messages.elect_leaders import ELECT_LEADERS
from tidelog.protocol.messages.fetch import FETCH
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR
from tidelog.protocol.messages.heartbeat import HEARTBEAT
from tidelog.protocol.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID
from tidelog.protocol.messages.join_group import JOIN_GROUP
from tidelog.protocol.messages.leave_group import LEAVE_GROUP
from tidelog.protocol.messages.list_config_resources import LIST_CONFIG_RESOURCES
from tidelog.protocol.messages.list_groups import LIST_GROUPS
from tidelog.protocol.messages.list_offsets import LIST_OFFSETS
from tidelog.protocol.messages.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from tidelog.protocol.messages.list_transactions import LIST_TRANSACTIONS
from tidelog.protocol.messages.metadata import METADATA
from tidelog.protocol.messages.offset_commit import OFFSET_COMMIT
from tidelog.protocol.messages.offset_delete import OFFSET_DELETE
from tidelog.protocol.messages.offset_fetch import OFFSET_FETCH
from tidelog.protocol.messages.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from tidelog.protocol.messages.produce import PRODUCE
from tidelog.protocol.messages.sync_group import SYNC_GROUP
from tidelog.protocol.wire.api import Api

# In the order of their keys.
APIS: dict[int, Api] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        DESCRIBE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        DESCRIBE_LOG_DIRS,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS,
        OFFSET_DELETE,
        DESCRIBE_CLIENT_QUOTAS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        DESCRIBE_QUORUM,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        LIST_TRANSACTIONS,
        CONSUMER_GROUP_HEARTBEAT,
        CONSUMER_GROUP_DESCRIBE,
        LIST_CONFIG_RESOURCES,
        DESCRIBE_TOPIC_PARTITIONS,
    )
}
