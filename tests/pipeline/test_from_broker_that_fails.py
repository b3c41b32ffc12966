"""What a broker may answer that is no answer: said, tried again where it may pass, and never fewer rows in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fake import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    Fake,
    configs,
    metadata,
    offset,
    offsets,
    records,
)
from tests.support.batches import changed
from tests.support.logs import NOW, batch
from tidelog.client import cluster, fetching
from tidelog.pipeline import decode, options
from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.brokers.connected import connected
from tidelog.pipeline.errors import DamagedLog, PipelineError
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.frame import response_encoder
from tidelog.protocol.messages.fetch import FETCH as FETCH_API

Answers = dict[int, Callable[[Any], Any]]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 2)
    monkeypatch.setattr(cluster, "FIRST_PAUSE_S", 0.001)


def at(offset_: int, count: int = 5) -> bytes:
    return bytes(changed(batch([NOW] * count), base_offset=offset_))


def spoiled(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def offsets_read(fake: Fake, **given: str) -> list[int]:
    asked = options.parse({"source": f"broker:{fake.address}", "topic": "t", **given}, NOW)
    pieces = from_broker.plan(asked, NOW)
    return [
        number
        for piece in pieces
        for rows in from_broker.rows(piece, ("offset",), asked)
        for number in rows.column("offset").to_pylist()
    ]


def one_broker(
    end: int, fetch: Callable[[Any], Any], versions: dict[int, int] | None = None, **others: Any
) -> Fake:
    """A broker of one topic of one partition, from 0 to an end."""
    answers: Answers = {
        METADATA: lambda _: metadata(fake.port),
        LIST_OFFSETS: lambda request: offsets(0, end, request),
        FETCH: lambda request: fetch(request.topics[0].partitions[0].fetch_offset),
        **{int(name[1:]): answer for name, answer in others.items()},
    }
    fake = Fake(lambda key, request: answers[key](request) if key in answers else None, versions)
    return fake


def test_what_is_cut_off_comes_with_the_next_answer() -> None:
    def fetch(start: int) -> Any:
        return records(at(start) + at(start + 5)[:-1])

    with one_broker(15, fetch) as fake:
        assert offsets_read(fake) == list(range(15))


def test_rows_before_and_behind_the_range_are_left_out() -> None:
    with one_broker(7, lambda _: records(at(0) + at(5))) as fake:
        assert offsets_read(fake) == list(range(7))


def test_damage_behind_the_range_is_none_of_its() -> None:
    with one_broker(5, lambda _: records(at(0) + spoiled(at(5)))) as fake:
        assert offsets_read(fake) == list(range(5))


def test_rows_are_handed_over_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "ROWS", 5)
    with one_broker(15, lambda _: records(at(0) + at(5) + at(10))) as fake:
        assert offsets_read(fake) == list(range(15))


def test_gaps_that_compaction_left() -> None:
    with one_broker(20, lambda start: records(at(3, 2) if start < 5 else at(18, 2))) as fake:
        assert offsets_read(fake) == [3, 4, 18, 19]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_an_error_that_passes_is_tried_again(code: int) -> None:
    answers = iter(
        [records(b"", code), records(at(0)), records(b"", code), records(b"", code), records(at(5))]
    )
    with one_broker(10, lambda _: next(answers)) as fake:
        assert offsets_read(fake) == list(range(10))


def test_a_connection_that_ends_is_made_anew() -> None:
    seen: dict[int, int] = {}

    def fetch(start: int) -> Any:
        seen[start] = seen.get(start, 0) + 1
        return None if seen[start] <= 2 else records(at(start))

    with one_broker(10, fetch) as fake:
        assert offsets_read(fake) == list(range(10))


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
        Fake(lambda key, request: answer(key, request, 0)) as first,
        Fake(lambda key, request: answer(key, request, 1)) as second,
    ):
        assert offsets_read(first) == list(range(10))
        assert FETCH in dict(second.asked)


def test_a_partition_without_a_leader_for_a_while() -> None:
    leaders = iter([-1, 5])
    found = one_broker(
        5, lambda start: records(at(start)), _3=lambda _: metadata(fake.port, leader=next(leaders, 0))
    )
    with found as fake:
        assert offsets_read(fake) == list(range(5))


def test_an_answer_to_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    frame = b"".join(response_encoder(FETCH_API, 12)(99, records(at(0)))[0])
    wrong = r"it answered request 99 where \d+ was due"
    with one_broker(5, lambda _: frame) as fake, pytest.raises(PipelineError, match=wrong):
        offsets_read(fake)


def test_an_error_that_does_not_pass_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    with (
        one_broker(10, lambda _: records(b"", ErrorCode.KAFKA_STORAGE_ERROR)) as fake,
        pytest.raises(PipelineError, match=r"t-0@0: .*KAFKA_STORAGE_ERROR, 56\); tried for 0.1 s"),
    ):
        offsets_read(fake)


@pytest.mark.parametrize(
    ("code", "name"),
    [(ErrorCode.CORRUPT_MESSAGE, "CORRUPT_MESSAGE"), (29, "TOPIC_AUTHORIZATION_FAILED"), (999, "error 999")],
)
def test_an_error_that_stays_names_its_place(code: int, name: str) -> None:
    with (
        one_broker(10, lambda start: records(b"", code) if start else records(at(0))) as fake,
        pytest.raises(PipelineError, match=f"t-0@5: the broker answers {name}"),
    ):
        offsets_read(fake, bad="skip")


def test_a_wrong_checksum(tmp_path: Path) -> None:
    bad = spoiled(at(5))
    with one_broker(15, lambda start: records(at(0) + bad + at(10) if not start else at(start))) as fake:
        with pytest.raises(DamagedLog, match=r"t-0@5: \d+ bytes .* the checksum is wrong"):
            offsets_read(fake)
        good = [*range(5), *range(10, 15)]
        assert offsets_read(fake, bad="skip") == good
        assert offsets_read(fake, bad=f"quarantine:{tmp_path}") == good
    assert (tmp_path / "t-0" / "t-0@5.bin").read_bytes() == bad


def test_a_batch_whose_records_are_wrong() -> None:
    bad = bytes(changed(at(5), record_count=4, last_offset_delta=4))
    with one_broker(15, lambda _: records(at(0) + bad + at(10))) as fake:
        with pytest.raises(DamagedLog, match="t-0@5: "):
            offsets_read(fake)
        assert offsets_read(fake, bad="skip") == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("field", [{"last_offset_delta": 400}, {"base_offset": 300}])
def test_damage_that_hides_where_the_next_record_is(field: dict[str, int]) -> None:
    data = at(5)
    bad = spoiled(bytes(changed(data, **field)))
    with (
        one_broker(500, lambda start: records(at(start) if start else at(0) + bad)) as fake,
        pytest.raises(DamagedLog, match=r"t-0@5: .*nothing tells where the next good record is"),
    ):
        offsets_read(fake, bad="skip")


def test_an_answer_with_nothing_whole_in_it() -> None:
    with (
        one_broker(10, lambda _: records(at(0)[:-1])) as fake,
        pytest.raises(PipelineError, match="t-0@0: the broker sent 105 bytes, and no entry in them is whole"),
    ):
        offsets_read(fake)


def test_an_entry_of_no_size() -> None:
    with (
        one_broker(10, lambda _: records(bytes(changed(at(0), batch_length=-12)))) as fake,
        pytest.raises(PipelineError, match=r"t-0@0: .* which none can have"),
    ):
        offsets_read(fake)


def test_a_broker_that_sends_nothing() -> None:
    with (
        one_broker(10, lambda start: records(b"" if start else at(0), high_watermark=5)) as fake,
        pytest.raises(PipelineError, match=r"t-0@5: the broker sends nothing, .* high watermark is 5"),
    ):
        offsets_read(fake)


def test_a_log_that_became_shorter() -> None:
    ends = iter([20, 10])

    def list_offsets(request: Any) -> Any:
        is_start = request.topics[0].partitions[0].timestamp == -2
        return offset(0 if is_start else next(ends))

    def fetch(start: int) -> Any:
        return records(b"", ErrorCode.OFFSET_OUT_OF_RANGE) if start >= 10 else records(at(start))

    with (
        one_broker(20, fetch, _2=list_offsets) as fake,
        pytest.raises(PipelineError, match="t-0@10: the log ends at 10 now, and was to be read to 20"),
    ):
        offsets_read(fake)


@pytest.mark.parametrize("loss", ["true", "false"])
def test_an_offset_that_is_out_of_range_for_a_while(monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    """The log has it: whoever was asked had it not yet. To go on behind the range would leave it out."""
    monkeypatch.setattr(fetching, "_WAIT_MS", 1)
    refused: list[int] = []

    def fetch(start: int) -> Any:
        if start >= 5 and len(refused) < 3:
            refused.append(start)
            return records(b"", ErrorCode.OFFSET_OUT_OF_RANGE)
        return records(at(start))

    with one_broker(20, fetch) as fake:
        assert offsets_read(fake, failOnDataLoss=loss) == list(range(20))
    assert refused == [5, 5, 5]


def test_an_offset_that_stays_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_WAIT_MS", 1)

    def fetch(start: int) -> Any:
        return records(b"", ErrorCode.OFFSET_OUT_OF_RANGE) if start >= 5 else records(at(start))

    with (
        one_broker(20, fetch) as fake,
        pytest.raises(PipelineError, match="t-0@5: the broker answers OFFSET_OUT_OF_RANGE, though"),
    ):
        offsets_read(fake, failOnDataLoss="false")


def test_an_address_that_is_no_host_leaves_the_others() -> None:
    with one_broker(5, lambda start: records(at(start))) as fake:
        for places in (f"no-such-host.invalid:1,{fake.address}", f"{fake.address},no-such-host.invalid:1"):
            with connected(places) as found:
                assert list(found.topic("t").leaders) == [0]
    with (
        pytest.raises(PipelineError, match=r"there is no host no-such-host.invalid"),
        connected("no-such-host.invalid:1,no-such-host.invalid:2") as found,
    ):
        found.topic("t")


def test_a_listener_that_asks_for_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WAIT_S", 0.1)
    with (
        Fake(lambda _key, _request: None) as fake,
        pytest.raises(PipelineError, match=rf"{fake.address}: .*does it ask for a login \(SASL\)"),
    ):
        offsets_read(fake)


def test_a_listener_for_tls() -> None:
    with (
        Fake(lambda _key, _request: bytes.fromhex("15030300020246")) as fake,
        pytest.raises(PipelineError, match=rf"{fake.address} asks for TLS"),
    ):
        offsets_read(fake)


def test_something_else_listens() -> None:
    with (
        Fake(lambda _key, _request: b"HTTP/1.1 400 Bad Request\r\n\r\n") as fake,
        pytest.raises(PipelineError, match=f"{fake.address} is no Kafka broker: it answered b'HTTP'"),
    ):
        offsets_read(fake)


@pytest.mark.parametrize(("versions", "fetched"), [({FETCH: 4, METADATA: 4, LIST_OFFSETS: 1}, 4), ({}, 12)])
def test_versions_are_those_that_both_speak(versions: dict[int, int], fetched: int) -> None:
    with one_broker(5, lambda start: records(at(start)), versions) as fake:
        assert offsets_read(fake) == list(range(5))
        assert dict(fake.asked)[FETCH] == fetched
        assert dict(fake.asked)[METADATA] == versions.get(METADATA, 13)


def test_a_broker_that_knows_no_newer_apiversions() -> None:
    asked = []

    def answer(key: int, request: Any) -> Any:
        if key == API_VERSIONS:
            asked.append(request)
            if len(asked) % 2:  # in version 0, whatever was asked
                return (10).to_bytes(4, "big") + bytes(4) + (35).to_bytes(2, "big") + bytes(4)
            return None
        return inner._answer(key, request)

    inner = one_broker(5, lambda start: records(at(start)))
    inner_answer = inner._answer
    with Fake(lambda key, request: answer_of(key, request)) as fake:

        def answer_of(key: int, request: Any) -> Any:
            if key == METADATA:
                return metadata(fake.port)
            return inner_answer(key, request) if key != API_VERSIONS else answer(key, request)

        inner._server.close()
        assert offsets_read(fake) == list(range(5))
        assert (API_VERSIONS, 0) in fake.asked


def test_an_api_that_a_broker_does_not_speak() -> None:
    with (
        one_broker(5, lambda start: records(at(start)), {FETCH: -1}) as fake,
        pytest.raises(PipelineError, match=f"{fake.address} does not speak Fetch"),
    ):
        offsets_read(fake)


COMPACTED = {f"_{DESCRIBE_CONFIGS}": lambda _: configs({"cleanup.policy": "compact,delete"})}


def test_a_compacted_topic_is_read_on_until_nothing_more_is_there() -> None:
    """The last records before the planned end were superseded, and are gone when they are asked for."""
    ends = {0: 10, 5: 25, 20: 25}

    def fetch(start: int) -> Any:
        return records(at({0: 0, 5: 15, 20: 20}[start]), high_watermark=ends[start])

    with one_broker(10, fetch, **COMPACTED) as fake:
        assert offsets_read(fake) == [*range(5), *range(15, 25)]


def test_a_compacted_topic_that_grows_faster_than_it_is_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "_MOST_FURTHER", 15)
    with (
        one_broker(10, lambda start: records(at(start), high_watermark=start + 15), **COMPACTED) as fake,
        pytest.raises(
            PipelineError,
            match=r"t-0@20: the topic grows faster than it is read: it ended at 10 .* ends at 30 now; read its seg",
        ),
    ):
        offsets_read(fake)


def test_a_broker_that_does_not_tell_whether_a_topic_is_compacted_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with one_broker(5, lambda _: records(at(0)), **{f"_{DESCRIBE_CONFIGS}": lambda _: configs({})}) as fake:
        assert offsets_read(fake) == list(range(5))
    assert "topic=t; if the topic is compacted while it is read, keys may be missing" in caplog.text
