"""Answers of a broker that give no rows: an error or what option `bad` says, and never fewer rows in silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import changed
from tests.support.fake_broker import DESCRIBE_CONFIGS, FakeBroker, configs, one_broker, records
from tests.support.logs import NOW, batch
from tidelog.pipeline import decode, options
from tidelog.pipeline.brokers import from_broker
from tidelog.pipeline.errors import DamagedLog, PipelineError
from tidelog.protocol.error_codes import ErrorCode


def at(offset_: int, count: int = 5) -> bytes:
    return bytes(changed(batch([NOW] * count), base_offset=offset_))


def spoiled(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def offsets_read(fake: FakeBroker, **given: str) -> list[int]:
    asked = options.parse({"source": f"broker:{fake.address}", "topic": "t", **given}, NOW)
    pieces = from_broker.plan(asked, NOW)
    return [
        number
        for piece in pieces
        for rows in from_broker.rows(piece, ("offset",), asked)
        for number in rows.column("offset").to_pylist()
    ]


def test_rows_before_and_after_the_range_are_left_out() -> None:
    with one_broker(7, lambda _: records(at(0) + at(5))) as fake:
        assert offsets_read(fake) == list(range(7))


def test_damage_after_the_range_does_not_matter() -> None:
    with one_broker(5, lambda _: records(at(0) + spoiled(at(5)))) as fake:
        assert offsets_read(fake) == list(range(5))


def test_rows_come_as_answers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "ROWS", 5)
    with one_broker(15, lambda _: records(at(0) + at(5) + at(10))) as fake:
        assert offsets_read(fake) == list(range(15))


def test_an_error_of_the_client_is_one_of_the_pipeline() -> None:
    code = ErrorCode.CORRUPT_MESSAGE
    with (
        one_broker(10, lambda start: records(b"", code) if start else records(at(0))) as fake,
        pytest.raises(PipelineError, match="t-0@5: the broker answers CORRUPT_MESSAGE"),
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


COMPACTED: dict[int, Callable[[Any], Any]] = {
    DESCRIBE_CONFIGS: lambda _: configs({"cleanup.policy": "compact,delete"})
}


def test_a_compacted_topic_is_read_on_until_nothing_more_is_there() -> None:
    """The last records before the planned end were superseded, and are gone when they are asked for."""
    ends = {0: 10, 5: 25, 20: 25}

    def fetch(start: int) -> Any:
        return records(at({0: 0, 5: 15, 20: 20}[start]), high_watermark=ends[start])

    with one_broker(10, fetch, answers=COMPACTED) as fake:
        assert offsets_read(fake) == [*range(5), *range(15, 25)]


def test_a_broker_that_does_not_tell_whether_a_topic_is_compacted_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with one_broker(5, lambda _: records(at(0)), answers={DESCRIBE_CONFIGS: lambda _: configs({})}) as fake:
        assert offsets_read(fake) == list(range(5))
    assert "topic=t; if the topic is compacted while it is read, keys may be missing" in caplog.text
