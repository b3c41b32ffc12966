"""What clients stumble over where a broker serves a part of Kafka's protocol: each trap is a test by name.

Clients themselves are asked in `tests/e2e`; here stands what they were seen to need, so that a change of the ranges
that are announced is noticed before a client notices. Two more stand in `tests/unit`: what an unknown version of
ApiVersions is answered (`test_handlers.py`), and the header of its response (`test_frame.py`).
"""

from typing import Any

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, infer_broker_version_from_api_versions

from tests.support.served import Serve
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tidelog.protocol.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.registry import APIS

ANNOUNCED = {key: (api.min_version, api.max_version) for key, api in APIS.items()}

# librdkafka before 2.11.1 drops what needs a feature, and says nothing, unless these very versions are served
# (rdkafka_feature.c of v2.8.0). SaslHandshake and SaslAuthenticate come with security.
LIBRDKAFKA = {
    0: (2, 3, 7),
    1: (2, 4, 10),
    2: (1,),
    8: (1, 2),
    9: (1,),
    10: (0,),
    11: (0,),
    12: (0,),
    13: (0,),
    14: (0,),
    18: (0,),
    22: (0,),
}

# kafka-python 2.0.2 takes the first of these that is announced for the release of the broker (kafka/conn.py), and sends
# what it knows of that release without looking at the ranges again. DescribeAcls comes with security.
MARKERS = (
    ((2, 5), 29, 2),
    ((2, 4), 0, 8),
    ((2, 3), 1, 11),
    ((2, 2), 2, 5),
    ((2, 1), 1, 10),
    ((2, 0), 1, 8),
    ((1, 1), 1, 7),
    ((1, 0), 3, 5),
    ((0, 11), 3, 4),
    ((0, 10, 2), 9, 2),
    ((0, 10, 1), 3, 2),
)
SENT_SINCE_2_1 = {0: 7, 1: 4, 2: 1, 3: 1, 8: 2, 9: 1, 10: 0, 11: 2, 12: 1, 13: 1, 14: 1}

# What stands behind the release whose other versions are all served: they name topics by id.
BEHIND = {8: 10, 9: 10}


def is_announced(key: int, version: int) -> bool:
    first, last = ANNOUNCED.get(key, (0, -1))
    return first <= version <= last


@pytest.mark.parametrize("key", LIBRDKAFKA)
def test_librdkafka_before_2_11_1_finds_the_exact_versions_that_it_needs(key: int) -> None:
    assert all(is_announced(key, version) for version in LIBRDKAFKA[key])


def test_librdkafka_and_kcat_compress_as_produce_begins_at_0() -> None:
    """KAFKA-18659: "Broker does not support compression type gzip", otherwise."""
    assert ANNOUNCED[0][0] == 0


def test_kafka_python_2_0_2_guesses_a_release_all_of_whose_versions_are_served() -> None:
    guessed = next(release for release, key, version in MARKERS if is_announced(key, version))
    assert guessed >= (2, 1)
    assert all(is_announced(key, version) for key, version in SENT_SINCE_2_1.items())


def test_the_ranges_are_those_of_one_release() -> None:
    """As kafka-python 3 finds out which it is; of that it takes more than versions: formats, codecs, sessions."""
    release = infer_broker_version_from_api_versions(ANNOUNCED)
    assert release == max(BROKER_API_VERSIONS)
    last = {int(key): versions[1] for key, versions in BROKER_API_VERSIONS[release].items()}
    assert {
        key: last[key] for key in ANNOUNCED.keys() & last.keys() if ANNOUNCED[key][1] < last[key]
    } == BEHIND


def test_kafkajs_and_old_clients_find_the_first_versions() -> None:
    """Kafkajs does not look where a range begins: but for what began later in Kafka itself, that is at 0."""
    began_later = {23: 2, 32: 1}  # OffsetForLeaderEpoch, DescribeConfigs: as in Kafka 4
    assert {key: first for key, (first, _) in ANNOUNCED.items() if first} == began_later


@pytest.mark.parametrize("key", [17, 36, 71, 72])
def test_neither_telemetry_nor_sasl_is_announced(key: int) -> None:
    """Where telemetry is, clients push it, and librdkafka prints a line about it; SASL without a mechanism fails."""
    assert key not in ANNOUNCED


@pytest.mark.parametrize("version", range(5, CREATE_TOPICS.max_version + 1))
async def test_java_gets_no_null_for_the_options_of_a_new_topic(serve: Serve, version: int) -> None:
    """It fails on null. That of DescribeTopicPartitions is in `tests/integration/test_administration.py`."""
    client = await (await serve()).connect()
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic, topic], timeout_ms=1000)
    for answer in (await client.ask(CREATE_TOPICS, version, request)).topics:
        assert answer.configs is not None


@pytest.mark.parametrize("version", range(OFFSET_FETCH.max_version + 1))
async def test_an_unknown_group_has_committed_nothing_and_that_is_no_error(
    serve: Serve, version: int
) -> None:
    """Librdkafka asks again at once, thousands of times, where it is."""
    client = await (await serve()).connect()
    if version >= 8:
        several = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="nobody", topics=several)])
    else:
        one = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        request = OffsetFetchRequest(group_id="nobody", topics=one)
    answer = await client.ask(OFFSET_FETCH, version, request)
    told: Any = answer.groups[0] if version >= 8 else answer
    (partition,) = told.topics[0].partitions
    assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.NONE)
    if version >= 2:
        assert told.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(INIT_PRODUCER_ID.max_version + 1))
async def test_producer_fenced_is_told_to_nobody_who_does_not_know_it(serve: Serve, version: int) -> None:
    """Before version 4 it is not known. There are no transactions yet, and so nobody whom another fences."""
    client = await (await serve()).connect()
    for transactional_id in (None, "x"):
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
        if version >= 3:
            request.producer_id, request.producer_epoch = 1, 1
        answer = await client.ask(INIT_PRODUCER_ID, version, request)
        assert answer.error_code != ErrorCode.PRODUCER_FENCED
