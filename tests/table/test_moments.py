"""Time selection: moments, periods, pairs and slices against a plain list of days."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest

from periplus.table.query.times import period, within

DAYS = np.arange("2021-01-01", "2022-01-01", dtype="M8[D]").astype("M8[us]")
HOURS = np.arange("2021-03-01T00", "2021-03-03T00", dtype="M8[h]").astype("M8[us]")


def days(time):
    return [str(DAYS[i])[:10] for i in np.flatnonzero(within(DAYS, time))]


@pytest.mark.parametrize(
    ("time", "first", "last", "count"),
    [
        ("2021", "2021-01-01", "2021-12-31", 365),
        ("2021-03", "2021-03-01", "2021-03-31", 31),
        ("2021-03-05", "2021-03-05", "2021-03-05", 1),
        (date(2021, 3, 5), "2021-03-05", "2021-03-05", 1),
        (datetime(2021, 3, 5), "2021-03-05", "2021-03-05", 1),
        (datetime(2021, 3, 5, tzinfo=UTC), "2021-03-05", "2021-03-05", 1),
        (datetime(2021, 3, 5, 2, tzinfo=timezone(timedelta(hours=2))), "2021-03-05", "2021-03-05", 1),
        ("2021-03-05T00:00:00Z", "2021-03-05", "2021-03-05", 1),
        ("2021-03-05T02:00:00+02:00", "2021-03-05", "2021-03-05", 1),
        (np.datetime64("2021-03"), "2021-03-01", "2021-03-31", 31),
        (("2021-03", "2021-04"), "2021-03-01", "2021-04-30", 61),
        (["2021-03-05", "2021-03-07"], "2021-03-05", "2021-03-07", 3),
        ((datetime(2021, 3, 5), datetime(2021, 3, 7)), "2021-03-05", "2021-03-07", 3),
        (slice("2021-12", None), "2021-12-01", "2021-12-31", 31),
        ((None, "2021-01"), "2021-01-01", "2021-01-31", 31),
        (("2021-12", ".."), "2021-12-01", "2021-12-31", 31),
        (slice(None, None), "2021-01-01", "2021-12-31", 365),
    ],
)
def test_what_a_time_means(time, first, last, count):
    found = days(time)
    assert (found[0], found[-1], len(found)) == (first, last, count)


def test_hours_and_minutes_are_periods_too():
    assert within(HOURS, "2021-03-01").sum() == 24
    assert np.flatnonzero(within(HOURS, "2021-03-01T05")).tolist() == [5]
    assert np.flatnonzero(within(HOURS, ("2021-03-01T05", "2021-03-01T07:30"))).tolist() == [5, 6, 7]


def test_a_coordinate_out_of_order_keeps_its_order():
    shuffled = DAYS[[5, 3, 4, 300]]
    assert np.flatnonzero(within(shuffled, "2021-01")).tolist() == [0, 1, 2]
    assert np.flatnonzero(within(shuffled, ("2021-01-04", "2021-01-05"))).tolist() == [1, 2]


def test_missing_times_are_never_selected():
    holes = DAYS[:3].copy()
    holes[1] = "NaT"
    assert within(holes, slice(None)).tolist() == [True, False, True]


@pytest.mark.parametrize(
    "time", ["soon", 5, ("2021", "2022", "2023"), slice("2021", None, 2), "", np.datetime64("NaT")]
)
def test_what_is_no_time_is_the_callers_mistake(time):
    with pytest.raises((TypeError, ValueError)):
        within(DAYS, time)


def test_a_month_of_a_leap_year_ends_on_its_last_day():
    assert period("2024-02") == (np.datetime64("2024-02-01", "us"), np.datetime64("2024-02-29T23:59:59.999999", "us"))
