"""Moments as tests write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tidelog.testing.clock import to_datetime, to_ms

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
NINE_MS = 1_772_355_600_000


@pytest.mark.parametrize(
    "moment",
    [
        NINE,
        NINE_MS,
        "2026-03-01T09:00Z",
        "2026-03-01T10:00+01:00",
        NINE.astimezone(timezone(timedelta(hours=5))),
    ],
)
def test_a_moment_is_the_same_in_each_of_its_forms(moment: datetime | int | str) -> None:
    assert to_ms(moment) == NINE_MS
    assert to_datetime(to_ms(moment)) == NINE


@pytest.mark.parametrize("moment", ["2026-03-01T09:00", NINE.replace(tzinfo=None), "nine", True, 1.5])
def test_what_is_no_moment_or_lacks_its_zone_is_refused(moment: object) -> None:
    with pytest.raises(ValueError, match=r"zone|not a time|isoformat"):
        to_ms(moment)  # type: ignore[arg-type]
