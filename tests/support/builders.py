"""Records and requests of the shapes that tests send most: one topic, one partition.

A topic is named by its name, or, in versions that know topics by their ids only, by its id.
"""

from collections.abc import Mapping
from typing import Any

from tidelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records.build import Record, build_batch

T0 = 1_700_000_000_000
NO_ID = bytes(16)


def records(*values: bytes, first_ms: int = T0, step_ms: int = 1000, **options: Any) -> memoryview:
    """Return a batch with a record for each value; the options are those of `build_batch`."""
    made = [Record(n, first_ms + n * step_ms, None, value) for n, value in enumerate(values)]
    return memoryview(build_batch(made, **options))


def creatable(
    name: str, partitions: int = -1, configs: Mapping[str, str] | None = None, replicas: int = 1
) -> CreatableTopic:
    options = [CreatableTopicConfig(name=option, value=value) for option, value in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=options)


def create_request(*topics: CreatableTopic, timeout_ms: int = 20_000, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, **fields)


def delete_request(*names: str, timeout_ms: int = 20_000) -> DeleteTopicsRequest:
    """Return a request of versions up to 5."""
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)


def metadata_request(*names: str, create: bool = True) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def produce_request(
    topic: str | bytes, data: bytes | memoryview | None, partition: int = 0, *, acks: int = -1
) -> ProduceRequest:
    part = PartitionProduceData(index=partition, records=None if data is None else memoryview(data))
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=20_000,
        topic_data=[TopicProduceData(**_named("name", topic), partition_data=[part])],
    )


def fetch_request(
    topic: str | bytes,
    offset: int = 0,
    partition: int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    **fields: Any,
) -> FetchRequest:
    """Fetch from one partition; the fields are those of FetchPartition."""
    fields = {"partition_max_bytes": max_bytes, **fields}
    wanted = FetchPartition(partition=partition, fetch_offset=offset, **fields)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(**_named("topic", topic), partitions=[wanted])],
    )


def list_offsets_request(
    topic: str, timestamp: int, partition: int = 0, *, isolation_level: int = 0
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )


def _named(field: str, topic: str | bytes) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, bytes) else {field: topic}
