"""A range of offsets is read whole or not at all, whatever a broker answers: no offset is left out in silence."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.batches import changed
from tests.support.fake_broker import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FakeBroker,
    metadata,
    offsets,
    one_broker,
    records,
)
from tests.support.logs import NOW, batch
from tidelog.client import cluster, fetching
from tidelog.client.cluster import Cluster, Partition
from tidelog.client.errors import ClientError
from tidelog.protocol.error_codes import ErrorCode


def at(offset: int, count: int = 5) -> bytes:
    return bytes(changed(batch([NOW] * count), base_offset=offset))


def offsets_read(fake: FakeBroker, end: int, limit: int = 0, *, may_lose: bool = False) -> list[int]:
    """Read from 0 to an end, or on to a limit."""
    with Cluster([("127.0.0.1", fake.port)], "test") as brokers:
        answers = fetching.fetched(
            brokers, Partition("t", 0), 0, end, limit or end, fetching.RECORD_BYTES, may_lose
        )
        headers = [header for answer in answers for _, header in answer.entries]
    return [each for header in headers for each in range(header.base_offset, header.last_offset + 1)]


def test_what_is_cut_off_comes_with_the_next_answer() -> None:
    with one_broker(15, lambda start: records(at(start) + at(start + 5)[:-1])) as fake:
        assert offsets_read(fake, 15) == list(range(15))


def test_gaps_that_compaction_left() -> None:
    with one_broker(20, lambda start: records(at(3, 2) if start < 5 else at(18, 2))) as fake:
        assert offsets_read(fake, 20) == [3, 4, 18, 19]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_an_error_that_passes_is_tried_again(code: int) -> None:
    answers = iter(
        [records(b"", code), records(at(0)), records(b"", code), records(b"", code), records(at(5))]
    )
    with one_broker(10, lambda _: next(answers)) as fake:
        assert offsets_read(fake, 10) == list(range(10))


def test_a_connection_that_ends_is_made_again() -> None:
    seen: dict[int, int] = {}

    def fetch(start: int) -> Any:
        seen[start] = seen.get(start, 0) + 1
        return None if seen[start] <= 2 else records(at(start))

    with one_broker(10, fetch) as fake:
        assert offsets_read(fake, 10) == list(range(10))


def test_a_leader_that_moves() -> None:
    moved = False

    def answer(key: int, request: Any, number: int) -> Any:
        nonlocal moved
        if key == METADATA:
            return metadata(first.port, second.port, leader=int(moved))
        if key == LIST_OFFSETS:
            return offsets(0, 10, request)
        if key != FETCH:
            return None
        start = request.topics[0].partitions[0].fetch_offset
        if number == 0 and start:
            moved = True
            return records(b"", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return records(at(start))

    with (
        FakeBroker(lambda key, request: answer(key, request, 0)) as first,
        FakeBroker(lambda key, request: answer(key, request, 1)) as second,
    ):
        assert offsets_read(first, 10) == list(range(10))
        assert FETCH in dict(second.asked)


def test_a_partition_without_a_leader_for_a_while() -> None:
    leaders = iter([-1, 5])
    answers: dict[int, Callable[[Any], Any]] = {
        METADATA: lambda _: metadata(fake.port, leader=next(leaders, 0))
    }
    with one_broker(5, lambda start: records(at(start)), answers=answers) as fake:
        assert offsets_read(fake, 5) == list(range(5))


def test_an_error_that_does_not_pass_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    with (
        one_broker(10, lambda _: records(b"", ErrorCode.KAFKA_STORAGE_ERROR)) as fake,
        pytest.raises(ClientError, match=r"^t-0@0: .*KAFKA_STORAGE_ERROR, 56\); tried for 0.1 s"),
    ):
        offsets_read(fake, 10)


@pytest.mark.parametrize(
    ("code", "name"),
    [(ErrorCode.CORRUPT_MESSAGE, "CORRUPT_MESSAGE"), (29, "TOPIC_AUTHORIZATION_FAILED"), (999, "error 999")],
)
def test_an_error_that_stays_names_its_place(code: int, name: str) -> None:
    with (
        one_broker(10, lambda start: records(b"", code) if start else records(at(0))) as fake,
        pytest.raises(ClientError, match=f"^t-0@5: the broker answers {name}"),
    ):
        offsets_read(fake, 10)


def test_an_answer_with_nothing_whole_in_it() -> None:
    with (
        one_broker(10, lambda _: records(at(0)[:-1])) as fake,
        pytest.raises(ClientError, match=r"^t-0@0: the broker sent 105 bytes, which hold no whole entry"),
    ):
        offsets_read(fake, 10)


def test_an_entry_of_no_size() -> None:
    with (
        one_broker(10, lambda _: records(bytes(changed(at(0), batch_length=-12)))) as fake,
        pytest.raises(ClientError, match=r"^t-0@0: the broker sent an entry of 0 bytes"),
    ):
        offsets_read(fake, 10)


def test_a_broker_that_sends_nothing() -> None:
    with (
        one_broker(10, lambda start: records(b"" if start else at(0), high_watermark=5)) as fake,
        pytest.raises(ClientError, match=r"^t-0@5: the broker sends nothing, .* high watermark is 5"),
    ):
        offsets_read(fake, 10)


def test_a_log_that_became_shorter() -> None:
    def fetch(start: int) -> Any:
        return records(b"", ErrorCode.OFFSET_OUT_OF_RANGE) if start >= 10 else records(at(start))

    with one_broker(10, fetch) as fake:
        with pytest.raises(ClientError, match=r"^t-0@10: the log ends at 10 now, .* read was to end at 20"):
            offsets_read(fake, 20)
        assert offsets_read(fake, 20, may_lose=True) == list(range(10))


@pytest.mark.parametrize("may_lose", [True, False])
def test_an_offset_that_is_out_of_range_for_a_while(may_lose: bool) -> None:
    """The log has it, and the broker did not have it yet. Going on after the range would leave it out."""
    refused: list[int] = []

    def fetch(start: int) -> Any:
        if start >= 5 and len(refused) < 3:
            refused.append(start)
            return records(b"", ErrorCode.OFFSET_OUT_OF_RANGE)
        return records(at(start))

    with one_broker(20, fetch) as fake:
        assert offsets_read(fake, 20, may_lose=may_lose) == list(range(20))
    assert refused == [5, 5, 5]


def test_an_offset_that_stays_out_of_range() -> None:
    def fetch(start: int) -> Any:
        return records(b"", ErrorCode.OFFSET_OUT_OF_RANGE) if start >= 5 else records(at(start))

    with (
        one_broker(20, fetch) as fake,
        pytest.raises(ClientError, match=r"^t-0@5: the broker answers OFFSET_OUT_OF_RANGE, but"),
    ):
        offsets_read(fake, 20, may_lose=True)


def test_a_read_with_a_limit_goes_on_until_nothing_more_is_there() -> None:
    """As for a compacted topic, where later records supersede the last ones before the planned end."""
    ends = {0: 10, 5: 25, 20: 25}

    def fetch(start: int) -> Any:
        return records(at({0: 0, 5: 15, 20: 20}[start]), high_watermark=ends[start])

    with one_broker(10, fetch) as fake:
        assert offsets_read(fake, 10, limit=1000) == [*range(5), *range(15, 25)]


def test_a_log_that_grows_faster_than_it_is_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_MOST_FURTHER", 15)
    wrong = r"^t-0@20: the topic grows faster than it is read: it ended at 10 .* ends at 30 now; read its seg"
    with (
        one_broker(10, lambda start: records(at(start), high_watermark=start + 15)) as fake,
        pytest.raises(ClientError, match=wrong),
    ):
        offsets_read(fake, 10, limit=1000)
