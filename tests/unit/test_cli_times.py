"""The forms of a time that the commands take, with the clock and the zone held."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from tidelog.cli import times

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
        ("0", 0),
        ("1.5", 1500),
        ("1709283600", 1_709_283_600_000),
        ("1709283600.25", 1_709_283_600_250),
        ("1709283600250", 1_709_283_600_250),
        ("20240301.0", 20_240_301_000),
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
09:00 yesterday|1e9|99999-01-01|1.2345|"""


@pytest.mark.parametrize("text", NO_TIMES.split("|"))
def test_what_is_no_time_says_what_is(text: str) -> None:
    with pytest.raises(times.TimeError, match=r"is not a time; (write 09:00|before 'ago' goes)"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("20240301", "may be a date or epoch seconds"),
        ("1709283600250000", "too large"),
        ("1969-12-31T23:59Z", "before 1970"),
        ("9999 weeks ago", "before 1970"),
    ],
)
def test_what_may_be_misread_is_refused(text: str, words: str) -> None:
    with pytest.raises(times.TimeError, match=words):
        parse(text)


def test_show_names_the_zone() -> None:
    assert times.show(ms(NOW), BERLIN) == "2024-03-01T12:30:15.250+01:00"
    assert times.show(0, UTC) == "1970-01-01T00:00:00.000+00:00"
    assert times.show(-1, UTC) == "-"
    assert times.show(2**62, UTC) == f"{2**62} ms"


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
