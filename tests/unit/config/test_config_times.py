"""The forms of a time that the commands take, with the clock and the zone held."""

import zoneinfo
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli import time_options
from tidelog.cli.errors import CommandError
from tidelog.cli.exit_codes import USAGE
from tidelog.config import times

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2024, 3, 1, 12, 30, 15, 250_000, tzinfo=BERLIN)


def ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def at(*parts: int, zone: tzinfo = BERLIN) -> int:
    return ms(datetime(*parts, tzinfo=zone))  # type: ignore[arg-type, misc]


def parse(text: str) -> int:
    return times.parse(text, ms(NOW), BERLIN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", ms(NOW)),
        ("09:00", at(2024, 3, 1, 9)),
        ("9:00", at(2024, 3, 1, 9)),
        ("23:59:59.5", at(2024, 3, 1, 23, 59, 59, 500_000)),
        ("09:00Z", at(2024, 3, 1, 9, zone=UTC)),
        ("09:00+05:30", at(2024, 3, 1, 9, zone=timezone(timedelta(hours=5, minutes=30)))),
        ("today", at(2024, 3, 1)),
        ("yesterday", at(2024, 2, 29)),
        ("Yesterday  09:30", at(2024, 2, 29, 9, 30)),
        ("tomorrow 8:00", at(2024, 3, 2, 8)),
        ("2 hours ago", ms(NOW) - 7_200_000),
        ("5m", ms(NOW) - 300_000),
        ("1 hour", ms(NOW) - 3_600_000),
        ("1h30m", ms(NOW) - 5_400_000),
        ("1 day, 2 hours", ms(NOW) - 93_600_000),
        ("0s", ms(NOW)),
        ("20240301T0900Z", ms(datetime(2024, 3, 1, 9, tzinfo=UTC))),
        ("1h30m ago", ms(NOW) - 5_400_000),
        ("1 day, 2 hours ago", ms(NOW) - 93_600_000),
        ("1.5 min ago", ms(NOW) - 90_000),
        ("90s ago", ms(NOW) - 90_000),
        ("250 ms ago", ms(NOW) - 250),
        ("2 weeks ago", ms(NOW) - 14 * 86_400_000),
        ("2024-02-29", at(2024, 2, 29)),
        ("2024-02-29 09:00", at(2024, 2, 29, 9)),
        ("2024-02-29T09:00:01.250", at(2024, 2, 29, 9, 0, 1, 250_000)),
        ("2024-02-29t09:00:01,25z", at(2024, 2, 29, 9, 0, 1, 250_000, zone=UTC)),
        ("2024-02-29T09:00-08:00", at(2024, 2, 29, 17, zone=UTC)),
        ("-1h", ms(NOW) - 3_600_000),
        ("-1h30m", ms(NOW) - 5_400_000),
        ("- 1.5 min", ms(NOW) - 90_000),
        ("@0", 0),
        ("@1.5", 1500),
        ("@1700000000", 1_700_000_000_000),
        ("@1700000000.25", 1_700_000_000_250),
        ("@1700000000250", 1_700_000_000_250),
        ("@20240301", 20_240_301_000),
        ("946684800", 946_684_800_000),
        ("946684800000", 946_684_800_000),
        ("21:06 UTC", at(2024, 3, 1, 21, 6, zone=UTC)),
        ("21:06 utc", at(2024, 3, 1, 21, 6, zone=UTC)),
        ("21:06 Z", at(2024, 3, 1, 21, 6, zone=UTC)),
        ("21:06 +02:00", at(2024, 3, 1, 19, 6, zone=UTC)),
        ("2024-03-01 09:00 Asia/Kolkata", at(2024, 3, 1, 3, 30, zone=UTC)),
        ("2024-03-01 09:00 asia/kolkata", at(2024, 3, 1, 3, 30, zone=UTC)),
        ("2024-07-01T09:00 America/New_York", at(2024, 7, 1, 13, zone=UTC)),
        ("2024-03-01 Asia/Kolkata", at(2024, 2, 29, 18, 30, zone=UTC)),
        ("today Asia/Kolkata", at(2024, 2, 29, 18, 30, zone=UTC)),
        ("yesterday 23:00 Pacific/Auckland", at(2024, 3, 1, 10, zone=UTC)),  # there it is the 2nd
        ("09:00 Europe/Berlin", at(2024, 3, 1, 8, zone=UTC)),
        ("1709283600", 1_709_283_600_000),
        ("1709283600.25", 1_709_283_600_250),
        ("1709283600250", 1_709_283_600_250),
    ],
)
def test_forms(text: str, expected: int) -> None:
    assert parse(text) == expected


def test_between_two_milliseconds_is_the_later_one() -> None:
    assert parse("1970-01-01T00:00:00.000001Z") == 1
    assert parse("1970-01-01T00:00:00.001Z") == 1


def test_local_hours_that_come_twice_or_never() -> None:
    assert parse("2023-10-29T02:30") == at(2023, 10, 29, 0, 30, zone=UTC)
    assert parse("2024-03-31T02:30") == at(2024, 3, 31, 1, 30, zone=UTC)


def test_yesterday_is_a_day_of_the_calendar() -> None:
    after_the_change = ms(datetime(2024, 3, 31, 12, tzinfo=BERLIN))
    assert times.parse("yesterday 12:00", after_the_change, BERLIN) == after_the_change - 23 * 3_600_000


NO_TIMES = """soon|ago|2 ago|hours ago|2 fortnights ago|25:00|09:60|-5|2024-02-30|yesterday noon|today 9|2024-03-01T|
09:00 yesterday|1e9|99999-01-01|1.2345||-|@|@-5|@1e9|-1h ago|now UTC|-1h UTC|1709283600 UTC|09:00 am|9 PM|UTC|
Europe/Berlin|09:00 ../../etc/passwd|09:00 Europe|1h30|5x|+5m|5m UTC|9h Europe/Berlin"""


@pytest.mark.parametrize("text", NO_TIMES.split("|"))
def test_what_is_no_time_says_what_is(text: str) -> None:
    with pytest.raises(times.TimeError, match=r"is not a time; (write 09:00|write a number of)"):
        parse(text.strip("\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("20240301", "may be a date or epoch seconds; write 2024-03-01, or @20240301"),
        ("09.00", "'09.00' is not a time; write 09:00 for a time of day"),
        ("9.05", "write 9:05 for a time of day"),
        ("yesterday 09.30", "write 09:30 for a time of day"),
        ("09.30 UTC", "write 09:30 for a time of day"),
        ("09.30 Europe/Berlin", "write 09:30 for a time of day"),
        ("yesterday 09.30+02:00", "write 09:30 for a time of day"),
        ("09.30.15", "write 09:30:15 for a time of day"),
        ("@" + "9" * 5000, "is not a time"),
        ("9" * 5000, "is not a time"),
        ("9" * 400 + "h ago", "is not a time"),
        ("-" + "9" * 400 + "d", "is not a time"),
        ("09:00 " + "A/" * 3000 + "A", "is not a time"),
        ("900", "would be 1970-01-01T00:15:00.000.00:00; write 09:00 for a time of day, or @900"),
        ("0", "would be 1970"),
        ("2024", "or @2024 if that is meant"),
        ("1.5", "or @1.5 if"),
        ("946684799.999", "would be 1999-12-31T23:59:59.999"),
        ("946684799999", "would be 1999-12-31T23:59:59.999"),
        ("09:00 CEST", "there is no time zone CEST; write one such as Europe/Berlin"),
        ("09:00 Mars/Olympus", "there is no time zone Mars/Olympus"),
        ("09:00Z UTC", "names two zones"),
        ("2024-03-01T09:00+02:00 Europe/Berlin", "names two zones"),
        ("2024-03-01T09Z UTC", "names two zones"),
        ("1709283600250000", "too large"),
        ("1969-12-31T23:59Z", "before 1970"),
        ("9999 weeks ago", "before 1970"),
        ("2024w", "'2024w' would be before 2000; write '2024w ago' if that is meant"),
        ("1709283600s", "would be before 2000"),
        ("9" * 199 + "d", "would be before 2000"),
    ],
)
def test_what_may_be_misread_is_refused(text: str, words: str) -> None:
    with pytest.raises(times.TimeError, match=words):
        parse(text)


PARTS = "0|09|9|1e9|99|:|.|,|-|+|@|/|_|z|t|T|h|d|w|ms| ago|today|2024-03-01|09:00| UTC|A/|Europe/|Berlin|../|\udcff| "


@given(st.lists(st.sampled_from([*PARTS.split("|"), "9" * 90, "A/" * 50]), max_size=12).map("".join))
def test_whatever_is_typed_is_a_time_or_is_said_to_be_none(text: str) -> None:
    with suppress(times.TimeError):
        assert parse(text) >= 0


def test_a_machine_without_time_zone_data_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(key: str) -> ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", nothing)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    with pytest.raises(times.TimeError, match="no time zone data: apt-get install tzdata"):
        parse("09:00 Europe/Berlin")
    assert parse("21:06 UTC") == at(2024, 3, 1, 21, 6, zone=UTC)


def test_show_names_the_zone() -> None:
    assert times.show(ms(NOW), BERLIN) == "2024-03-01T12:30:15.250+01:00"
    assert times.show(0, UTC) == "1970-01-01T00:00:00.000+00:00"
    assert times.show(-1, UTC) == "-"
    assert times.show(2**62, UTC) == f"{2**62} ms"


def test_a_short_time_leaves_out_what_it_shares_with_now() -> None:
    now_ms = at(2024, 3, 1, 9)
    for moment, shown in (
        (at(2024, 3, 1, 8, 30), "08:30:00.000"),
        (at(2024, 2, 29, 8, 30), "02-29 08:30:00"),
        (at(2023, 3, 1, 8, 30), "2023-03-01 08:30"),
    ):
        assert times.show_short(moment, now_ms, BERLIN) == shown
    assert times.show_short(-1, now_ms) == "-"
    assert times.show_short(1 << 60, now_ms) == f"{1 << 60} ms"


def test_what_is_shown_can_be_read_again() -> None:
    assert parse(times.show(ms(NOW), BERLIN)) == ms(NOW)


def test_without_a_zone_the_systems_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert times.parse("2024-03-01T09:00", 0) == at(2024, 3, 1, 3, 30, zone=UTC)
        assert times.show(0) == "1970-01-01T05:30:00.000+05:30"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("length_ms", "expected"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (12_500, "12.5s"),
        (60_000, "1m"),
        (7_530_000, "2h 5m"),
        (3_600_000, "1h"),
        (273_600_000, "3d 4h"),
        (-1_500, "-1.5s"),
    ],
)
def test_a_length_of_time_is_shown_in_its_two_largest_units(length_ms: int, expected: str) -> None:
    assert times.show_duration(length_ms) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90_000), ("2 hours", 7_200_000), ("1h30m", 5_400_000)]
)
def test_a_length_of_time_is_read(text: str, expected: int) -> None:
    assert times.duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", " ", "2", "soon", "-1h", "2x", "1h" * 200])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(times.TimeError, match="is not a duration; write 90s"):
        times.duration_ms(text)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (
            lambda text: time_options.time_ms("--at", text, 0),
            "--at: 'so\\\\x1bon' is not a time; write 09:00",
        ),
        (
            lambda text: time_options.duration_ms("--by-duration", text),
            "--by-duration: 'so\\\\x1bon' is not a duration",
        ),
    ],
)
def test_as_an_option_it_is_wrong_usage(read: Callable[[str], int], words: str) -> None:
    with pytest.raises(CommandError, match=words) as raised:
        read("so\x1bon")
    assert raised.value.exit_code == USAGE
