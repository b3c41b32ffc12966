"""Sizes and durations as people write and read them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.errors import ConfigError
from tidelog.config.load import load
from tidelog.config.topic_options import TopicConfig
from tidelog.config.units import plain, readable


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1w", "604800000"),
        ("retention.ms", " 1h30m ", "5400000"),
        ("retention.ms", "1.5 s", "1500"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "1.5h", "90"),
        ("segment.bytes", "64MiB", "67108864"),
        ("segment.bytes", "64 mib", "67108864"),
        ("segment.bytes", "1GB", "1000000000"),
        ("segment.bytes", "0.5KiB", "512"),
        ("log.cleaner.io.max.bytes.per.second", "1MiB", "1048576"),
        ("log.cleaner.dedupe.buffer.size", "1MiB", "1048576"),
        ("message.max.bytes", "17B", "17"),
    ],
)
def test_a_unit_is_converted_to_that_of_the_option(name: str, text: str, number: str) -> None:
    assert plain(name, text) == number


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", "604800000"),
        ("retention.ms", "-7d"),
        ("retention.ms", "soon"),
        ("retention.ms", ""),
        ("log.cleaner.io.max.bytes.per.second", "1.5E7"),
        ("group.max.size", "7d"),
        ("num.partitions", "1KiB"),
        ("compression.type", "lz4"),
        ("message.format.version", "3.0-IV1"),
    ],
)
def test_other_text_stays_for_the_check_of_the_option(name: str, text: str) -> None:
    assert plain(name, text) == text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("retention.ms", "7D", "D is not a unit; write ms, s, m, h, d or w"),
        ("retention.ms", "7d7d", "d occurs twice"),
        ("segment.bytes", "1KiB 1kib", "kib occurs twice"),
        ("retention.ms", "7 MiB", "MiB is not a unit; write ms"),
        ("retention.ms", "1.5ms", "not a whole number of milliseconds"),
        ("log.retention.hours", "90m", "not a whole number of hours"),
        ("segment.bytes", "64M", "M is not a unit; write B, KiB, MiB, GiB or TiB"),
        ("segment.bytes", "7d", "d is not a unit; write B"),
        ("segment.bytes", "0.3B", "not a whole number of bytes"),
    ],
)
def test_a_wrong_unit_is_an_error_that_names_those_that_are_taken(name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plain(name, text)


def test_the_file_the_environment_and_the_command_line_take_units(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=7d\nlog.cleaner.io.buffer.size=1MiB\n")
    config = load(file, {"KAFKA_LOG_SEGMENT_BYTES": "64MiB"}, {"log.retention.check.interval.ms": "5s"})
    topic = config.topic_defaults()
    assert (topic.retention_ms, topic.segment_bytes) == (7 * 86_400_000, 64 << 20)
    assert config.log_retention_check_interval_ms == 5_000
    file.write_text("\nlog.retention.hours=90m\n")
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value) == f"log.retention.hours=90m ({file}:2): not a whole number of hours"


def test_a_number_with_a_unit_is_still_checked() -> None:
    with pytest.raises(ConfigError, match="Value must be no more than 2147483647"):
        load(flags={"log.segment.bytes": "2GiB"})


def test_clients_send_plain_numbers() -> None:
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        TopicConfig().override({"retention.ms": "7d"})


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("retention.ms", "604800000", "604800000 (7d)"),
        ("retention.ms", "5400000", "5400000 (90m)"),
        ("retention.ms", "1500", "1500"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "0", "0"),
        ("retention.ms", None, None),
        ("flush.ms", "9223372036854775807", "9223372036854775807"),
        ("log.retention.hours", "168", "168 (7d)"),
        ("log.retention.hours", "5", "5"),
        ("segment.bytes", "1073741824", "1073741824 (1 GiB)"),
        ("segment.bytes", "1000000", "1000000"),
        ("num.partitions", "3600000", "3600000"),
    ],
)
def test_a_value_is_shown_in_a_larger_unit_if_that_is_exact(
    name: str, text: str | None, shown: str | None
) -> None:
    assert readable(name, text) == shown


@given(st.sampled_from(["retention.ms", "segment.bytes", "log.retention.hours"]), st.integers(1, 10**12))
def test_what_is_shown_can_be_written(name: str, number: int) -> None:
    shown = readable(name, str(number)) or ""
    _, _, larger = shown.partition("(")
    assert plain(name, larger.rstrip(")") or shown) == str(number)
