"""A request of any API and version can be refused: the answer can be sent, and names what was asked for."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import messages
from tidelog.broker.routes import SERVED
from tidelog.protocol import frame
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from tidelog.protocol.messages.offset_fetch import OFFSET_FETCH
from tidelog.protocol.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.protocol.registry import APIS
from tidelog.protocol.wire.api import Api
from tidelog.protocol.wire.error_codes_in import reporting_errors
from tidelog.protocol.wire.refusal import refusal, refuses_as_a_whole

CODE = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
ALL = [
    (APIS[key], version)
    for key in SERVED
    for version in range(APIS[key].min_version, APIS[key].max_version + 1)
]


def codes_in(api: Api, response: Any) -> list[int]:
    found: list[int] = []
    reporting_errors(api.response, lambda _, message: message, found.append)(0, response)
    return found


@pytest.mark.parametrize(("api", "version"), ALL, ids=lambda each: getattr(each, "name", str(each)))
@given(data=st.data())
@settings(max_examples=5)
def test_the_answer_that_refuses_can_be_sent_and_says_why(
    api: Api, version: int, data: st.DataObject
) -> None:
    request = data.draw(messages(api.request, version))
    refused = refusal(api, version, request, CODE)
    parts, _ = frame.response_encoder(api, version)(7, refused)
    correlation_id, read = frame.decode_response(api, version, b"".join(parts)[frame.SIZE_BYTES :])
    assert correlation_id == 7
    codes = codes_in(api, read)
    assert set(codes) <= {CODE}
    if refuses_as_a_whole(api, version):
        assert read.error_code == CODE


def test_each_partition_is_refused_under_its_topic() -> None:
    data = [PartitionProduceData(index=index, records=None) for index in (3, 1)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(name="a", partition_data=data),
            TopicProduceData(name="b", partition_data=[]),
        ],
    )
    refused = refusal(PRODUCE, 9, request, CODE)
    assert [
        (topic.name, [part.index for part in topic.partition_responses]) for topic in refused.responses
    ] == [
        ("a", [3, 1]),
        ("b", []),
    ]
    assert {part.base_offset for part in refused.responses[0].partition_responses} == {-1}


def test_an_id_is_refused_by_that_id() -> None:
    part = FetchPartition(partition=2, fetch_offset=5, partition_max_bytes=1)
    topics = [FetchTopic(topic_id=bytes(range(16)), partitions=[part])]
    refused = refusal(FETCH, 13, FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=1, topics=topics), CODE)
    assert (refused.error_code, refused.responses[0].topic_id) == (CODE, bytes(range(16)))
    assert refused.responses[0].partitions[0].partition_index == 2


def test_what_is_listed_by_name_alone_is_refused_by_name() -> None:
    request = FindCoordinatorRequest(key="", key_type=0, coordinator_keys=["g", "h"])
    refused = refusal(FIND_COORDINATOR, 4, request, CODE)
    assert [(each.key, each.error_code) for each in refused.coordinators] == [("g", CODE), ("h", CODE)]
    refused = refusal(FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g"), CODE)
    assert (refused.error_code, refused.coordinators) == (CODE, [])


def test_a_version_that_has_no_such_field_is_refused_where_it_has_one() -> None:
    assert not refuses_as_a_whole(OFFSET_FETCH, 1)
    assert refuses_as_a_whole(OFFSET_FETCH, 2)
    assert not refuses_as_a_whole(OFFSET_FETCH, 8)
