"""A topic whose cleanup.policy has compact takes no record without a key, in any format, and says which it is."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import records as any_records
from tests.support.builders import T0
from tests.support.messages import RULES, message, wrapper
from tests.support.served import Client, Serve, log_of
from tidelog.broker.broker import Broker
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.records.build import Record, build_batch
from tidelog.protocol.records.errors import InvalidRecord
from tidelog.protocol.records.validate import validate
from tidelog.storage.batch_rules import PROMPT_KEYED_BYTES

KEYS = [b"a", None, b"", None, b"b"]


def batch_with(keys: list[bytes | None], codec: int = 0, value: bytes | None = b"v") -> bytes:
    return build_batch([Record(n, T0, key, value) for n, key in enumerate(keys)], codec=codec)


async def refused(client: Client, topic: str, data: bytes, version: int = 9) -> Any:
    """Produce what is refused for a key; return which records are named."""
    answer = await client.produce(topic, memoryview(data), version=version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert version < 8 or "has no key, and cleanup.policy has compact" in answer.error_message
    return [row.batch_index for row in answer.record_errors]


@pytest.mark.parametrize("version", range(3, 13))
async def test_records_without_a_key_are_named(client: Client, version: int) -> None:
    await client.make_topic("c", cleanup_policy="delete,compact")
    assert await refused(client, "c", batch_with(KEYS), version) == ([1, 3] if version >= 8 else [])
    answer = await client.produce("c", memoryview(batch_with([b"a", b""], value=None)), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("codec", range(5))
async def test_whatever_the_codec_and_the_clock(serve: Serve, codec: int) -> None:
    client = await (await serve(compression_type="lz4")).connect()
    await client.make_topic("c", cleanup_policy="compact")
    await client.make_topic("now", cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    await client.make_topic("old", cleanup_policy="compact", message_format_version="1")
    for topic in ("c", "now", "old") if codec < 4 else ("c", "now"):
        assert await refused(client, topic, batch_with(KEYS, codec)) == [1, 3]
        keyed = memoryview(batch_with([b"a"], codec))
        assert (await client.produce(topic, keyed)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("stored", ["0", "1", "2"])
async def test_in_older_formats_too(client: Client, magic: int, stored: str) -> None:
    await client.make_topic("c", cleanup_policy="compact", message_format_version=stored)
    inner = b"".join(message(magic, n, key=key, timestamp=T0) for n, key in enumerate(KEYS))
    keyed = message(magic, key=b"k", timestamp=T0)
    for data in (inner, wrapper(magic, 1, inner, len(KEYS) - 1, timestamp=T0)):
        assert await refused(client, "c", data, 2) == []
    for data in (keyed, wrapper(magic, 1, keyed, timestamp=T0)):
        answer = await client.produce("c", memoryview(data), version=2)
        assert answer.error_code == ErrorCode.NONE


async def test_it_goes_by_the_policy_of_the_moment_and_of_the_topic(broker: Broker, client: Client) -> None:
    data = batch_with(KEYS)
    await client.make_topic("t")
    assert (await client.produce("t", memoryview(data))).error_code == ErrorCode.NONE
    log = log_of(broker, "t")
    log.update_config(log.config.override({"cleanup.policy": "compact"}))
    assert await refused(client, "t", data) == [1, 3]
    log.update_config(log.config.override({"cleanup.policy": "delete"}))
    assert (await client.produce("t", memoryview(data))).base_offset == len(KEYS)


async def test_what_takes_long_is_looked_through_too_and_few_are_named(client: Client) -> None:
    await client.make_topic("c", cleanup_policy="compact", max_message_bytes=str(4 << 20))
    for codec in (0, 1):
        keys: list[bytes | None] = [b"k"] * 20_000
        keys[10_000] = keys[19_999] = None
        data = batch_with(keys, codec, bytes(PROMPT_KEYED_BYTES[codec] // 20_000 + 1))
        assert await refused(client, "c", data) == [10_000, 19_999]
    assert await refused(client, "c", batch_with([None] * 300)) == list(range(100))


@given(any_records(), st.integers(0, 4))
def test_every_record_without_a_key_is_found_and_nothing_is_changed(given: Any, codec: int) -> None:
    data = bytearray(build_batch(given, base_offset=0, codec=codec))
    before = bytes(data)
    keyless = [n for n, record in enumerate(given) if record.key is None]
    rules = replace(RULES, needs_keys=True, log_append_time=True)
    if not keyless:
        assert validate(data, rules, T0).header.record_count == len(given)
        return
    with pytest.raises(InvalidRecord) as error:
        validate(data, rules, T0)
    assert [fault.record for fault in error.value.faults] == keyless
    assert data == before
