"""Changes of topics, where the controller moves or its answer is lost."""

from typing import Any

import pytest

from tests.support.fake_cluster import FakeCluster
from tidelog.client import admin, cluster
from tidelog.client.errors import ClientError, ConnectionLost
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.messages.create_topics import CREATE_TOPICS, CreatableTopicResult, CreateTopicsResponse


def created(outcomes: list[Any]) -> int:
    """Create a topic; each request for it gets one of the outcomes."""

    def answer(_request: object) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, ConnectionLost):
            return outcome
        result = CreatableTopicResult(name="t", error_code=outcome, error_message=None, num_partitions=3)
        return CreateTopicsResponse(topics=[result])

    with FakeCluster() as brokers:
        brokers.connection.answers[CREATE_TOPICS.key] = answer
        return admin.create_topic(brokers, "t", 3, {})


def test_the_next_controller_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert created([ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]) == 3
    monkeypatch.setattr(cluster, "WAIT_S", 0)
    with pytest.raises(ClientError, match=r"^topic t was not created: .*NOT_CONTROLLER"):
        created([ErrorCode.NOT_CONTROLLER])


@pytest.mark.parametrize("outcome", [ErrorCode.REQUEST_TIMED_OUT, ConnectionLost("the broker has ended it")])
def test_what_may_have_been_done_is_not_asked_for_again(outcome: Any) -> None:
    outcomes = [outcome, ErrorCode.NONE]
    with pytest.raises(ClientError):
        created(outcomes)
    assert outcomes == [ErrorCode.NONE]
