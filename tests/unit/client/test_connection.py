"""What listens at an address: a broker of some versions, one that asks for more, or something else."""

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_broker import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FakeBroker,
    one_broker,
    records,
)
from tests.support.logs import NOW, batch
from tidelog.client import cluster, fetching
from tidelog.client.cluster import Cluster, Partition
from tidelog.client.errors import ClientError, Retriable
from tidelog.client.offsets import LATEST, offsets_of
from tidelog.protocol.frame import response_encoder
from tidelog.protocol.messages.api_versions import API_VERSIONS as API_VERSIONS_API
from tidelog.protocol.messages.api_versions import ApiVersionsResponse
from tidelog.protocol.messages.fetch import FETCH as FETCH_API

BATCH = bytes(batch([NOW] * 5))


def read(fake: FakeBroker) -> int:
    """Read the partition to its end; return how many records came."""
    with Cluster([("127.0.0.1", fake.port)], "test") as brokers:
        end = offsets_of(brokers, "t", {0: LATEST})[0]
        answers = fetching.fetched(brokers, Partition("t", 0), 0, end, end, fetching.RECORD_BYTES, False)
        return sum(header.record_count for answer in answers for _, header in answer.entries)


@pytest.mark.parametrize(("versions", "fetched"), [({FETCH: 4, METADATA: 4, LIST_OFFSETS: 1}, 4), ({}, 12)])
def test_versions_are_those_that_both_sides_speak(versions: dict[int, int], fetched: int) -> None:
    with one_broker(5, lambda _: records(BATCH), versions) as fake:
        assert read(fake) == 5
        assert dict(fake.asked)[FETCH] == fetched
        assert dict(fake.asked)[METADATA] == versions.get(METADATA, 13)


def test_a_broker_that_knows_no_newer_apiversions() -> None:
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request)
        if len(asked) % 2:  # UNSUPPORTED_VERSION in version 0, as KIP-511 has it
            return (10).to_bytes(4, "big") + bytes(4) + (35).to_bytes(2, "big") + bytes(4)
        return None

    answers: dict[int, Callable[[Any], Any]] = {API_VERSIONS: answer}
    with one_broker(5, lambda _: records(BATCH), answers=answers) as fake:
        assert read(fake) == 5
        assert (API_VERSIONS, 0) in fake.asked


def test_an_api_that_a_broker_does_not_speak() -> None:
    with (
        one_broker(5, lambda _: records(BATCH), {FETCH: -1}) as fake,
        pytest.raises(ClientError, match=f"{fake.address} does not speak Fetch"),
    ):
        read(fake)


def test_an_answer_to_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    frame = b"".join(response_encoder(FETCH_API, 12)(99, records(BATCH))[0])
    wrong = r"it answered request 99 instead of \d+"
    with one_broker(5, lambda _: frame) as fake, pytest.raises(ClientError, match=wrong):
        read(fake)


def test_an_answer_to_another_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    table = ApiVersionsResponse(error_code=0, api_keys=[])
    frame = b"".join(response_encoder(API_VERSIONS_API, 3)(99, table)[0])
    with (
        FakeBroker(lambda _key, _request: frame) as fake,
        pytest.raises(ClientError, match=f"{fake.address} is not a Kafka broker: it answered ApiVersions"),
    ):
        read(fake)


def test_what_may_pass_is_tried_again_after_longer_and_longer_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(cluster, "time", clock)

    def ask() -> None:
        raise Retriable("topic t: it has no leader")

    with (
        Cluster([("127.0.0.1", 1)], "test") as brokers,
        pytest.raises(ClientError, match=r"^topic t: it has no leader; tried for"),
    ):
        brokers.retried("topic t", ask)
    assert pauses[0] == cluster.FIRST_PAUSE_S
    for pause, longer in pairwise(pauses):
        assert longer == min(2 * pause, cluster.LONGEST_PAUSE_S)
    assert cluster.WAIT_S - cluster.LONGEST_PAUSE_S < sum(pauses) <= cluster.WAIT_S


def test_a_listener_that_asks_for_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    with (
        FakeBroker(lambda _key, _request: None) as fake,
        pytest.raises(ClientError, match=rf"{fake.address}: .*does it ask for a login \(SASL\)"),
    ):
        read(fake)


def test_a_listener_for_tls() -> None:
    with (
        FakeBroker(lambda _key, _request: bytes.fromhex("15030300020246")) as fake,
        pytest.raises(ClientError, match=rf"{fake.address} asks for TLS"),
    ):
        read(fake)


def test_something_else_listens() -> None:
    with (
        FakeBroker(lambda _key, _request: b"HTTP/1.1 400 Bad Request\r\n\r\n") as fake,
        pytest.raises(ClientError, match=f"{fake.address} is not a Kafka broker: it answered b'HTTP'"),
    ):
        read(fake)


def test_an_address_that_is_no_host_leaves_the_others() -> None:
    with one_broker(5, lambda _: records(BATCH)) as fake:
        there, missing = ("127.0.0.1", fake.port), ("no-such-host.invalid", 1)
        for addresses in ([missing, there], [there, missing]):
            with Cluster(addresses, "test") as brokers:
                assert list(brokers.topic("t").leaders) == [0]
    with (
        Cluster([missing, missing], "test") as brokers,
        pytest.raises(ClientError, match=r"no host no-such-host"),
    ):
        brokers.topic("t")
