"""Coordinates out of file names."""

from __future__ import annotations

import numpy as np
import pytest

from periplus.arrange.pattern import label_column, label_reader, parse, parse_time, suggest_pattern
from periplus.errors import FormatError


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        (r"(?P<time>\d{8})", "/d/20190101/S2_20210304.tif", "2021-03-04"),
        (r"(?P<time>\d{8}T\d{6})", "s3://b/x_20210304T050607_y.tif", "2021-03-04T05:06:07"),
        (r"(?P<time>\d{4}-\d\d-\d\d)", "https://h/2021-03-04.tif?date=1999-01-01", "2021-03-04"),
        (r"_(?P<time>\d{7})_", "/d/MOD_2021063_x.tif", "2021-03-04"),
        (r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)", "/d/x20210304.tif", "2021-03-04"),
        (r"(?P<year>\d{4})/(?P<doy>\d{3})/", "/d/2021/063/x.tif", "2021-03-04"),
        ("{time:%Y%m%d}", "/d/20210304.tif", "2021-03-04"),
        ("{time:%Y%m%d}090000-JPL", "/d/20210304090000-JPL-L4.tif", "2021-03-04"),
        ("{time:%Y}/{time:%j}/*.tif", "s3://b/2021/063/x.tif", "2021-03-04"),
        ("{time:%d%b%Y}", "/d/04Mar2021.tif", "2021-03-04"),
        ("{time}.tif", "/d/2021-03-04.tif", "2021-03-04"),
        ("x_{time:%Y%m%dT%H%M%S%z}", "/d/x_20210304T020000+0200.tif", "2021-03-04"),
        ("{year}{month}{day}", "/d/x20210304.tif", "2021-03-04"),
        ("{tile}_{year}/{doy}", "/d/T33_2021/063.tif", "2021-03-04"),
    ],
)
def test_moments_are_read(pattern: str, url: str, expected: str) -> None:
    found = label_reader(pattern)
    assert found.dim == "time"
    assert found.read(url) == np.datetime64(expected, "us")


def test_the_name_of_the_group_is_the_dimension() -> None:
    found = label_reader(r"z(?P<depth>-?\d+(\.\d+)?)")
    assert found.dim == "depth"
    assert found.read("/d/z12.tif") == 12
    assert found.read("/d/z1.5.tif") == 1.5
    assert label_reader("{depth:d}", dim="depth").read("/d/7.tif") == 7
    assert label_reader(r"(?P<time>\d{8})", dim="day").dim == "day"


def test_of_several_names_the_time_is_the_dimension() -> None:
    for pattern in ("S2_{tile}_{time:%Y%m%d}", r"S2_(?P<tile>\w+?)_(?P<time>\d{8})"):
        read = label_reader(pattern)
        assert read.dim == "time"
        assert read.read("a/S2_T33UWP_20220115.tif") == np.datetime64("2022-01-15", "us")
        assert label_reader(pattern, dim="tile").read("a/S2_T33UWP_20220115.tif") == "T33UWP"


@pytest.mark.parametrize(
    ("pattern", "fields", "time"),
    [
        ("{tile}_{time:%Y%m%d}_{band}", ("tile", "time", "band"), "time"),
        ("{tile}_{acquired:%Y%m%d}_{processed:%Y%m%d}", ("tile", "acquired", "processed"), "acquired"),
        (r"(?P<tile>\w+)_(?P<date>\d{8})", ("tile", "date"), "date"),
        (r"(?P<year>\d{4})_(?P<tile>\w+)_(?P<month>\d\d)", ("time", "tile"), "time"),
        ("{depth:d}", ("depth",), None),
        ("{time:d}", ("time",), None),
    ],
)
def test_fields_and_which_of_them_is_the_time(pattern: str, fields: tuple[str, ...], time: str | None) -> None:
    parsed = parse(pattern)
    assert (parsed.fields, parsed.time) == (fields, time)


def test_text_at_the_end_of_a_template_reaches_to_the_suffix() -> None:
    read = label_reader("x_{name}").read
    assert [read(url) for url in ("/d/x_alpha.tif", "s3://b/x_v1.2_beta", "/d/x_c.d.tif")] == [
        "alpha",
        "v1.2_beta",
        "c.d",
    ]


def test_a_field_twice_is_the_same_text() -> None:
    read = label_reader("{tile}/{tile}_{time:%Y%m%d}", dim="tile").read
    assert read("/d/T1/T1_20210304.tif") == "T1"
    assert read("/d/T1/T2_20210304.tif") is None


def test_no_match_is_none() -> None:
    assert label_reader(r"(?P<time>\d{8})").read("/d/a.tif") is None


def test_impossible_moments_are_errors() -> None:
    for pattern in (r"(?P<time>\d{8})", "{time:%Y%m%d}", r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)"):
        with pytest.raises(FormatError, match="is not a time"):
            label_reader(pattern).read("/d/20211399.tif")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?P<time>", "regular expression"),
        (r"\d+", "has no fields"),
        ("{time:%Q}", "%Q"),
        ("{n:03d}", "unknown format '03d'"),
    ],
)
def test_bad_patterns_are_errors(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        label_reader(pattern)


def test_a_dimension_the_pattern_does_not_name() -> None:
    with pytest.raises(ValueError, match="none of which is 'z'"):
        label_reader(r"(?P<a>\d)(?P<b>\d)", dim="z")


def test_columns_take_the_type_all_share() -> None:
    assert label_column([1, 2]).dtype == np.int64
    assert label_column([1, 2.5]).dtype == np.float64
    assert label_column([1, "a"]).tolist() == ["1", "a"]


def test_fractions_and_nonsense() -> None:
    assert parse_time("20210304T050607.25Z") == np.datetime64("2021-03-04T05:06:07.25")
    assert parse_time("20210304T05060") is None
    assert parse_time("yesterday") is None


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["S2A_20210105T101031_T33.tif", "S2B_20210204T101031_T33.tif"], "{time:%Y%m%dT%H%M%S}"),
        (["a/scene-2021-01-05.tif", "a/scene-2021-02-04.tif"], "{time:%Y-%m-%d}"),
        (["20210105.tif", "20210204.tif"], "{time:%Y%m%d}"),
        (["A2021005.tif", "A2021035.tif"], "{time:%Y%j}"),
        (["a.tif", "b.tif"], None),
        (["20210105_x.tif", "20210105_y.tif"], None),
        (["20210105.tif", "other.tif"], None),
        (["99999999.tif", "88888888.tif"], None),
        (["20210105.tif"], None),
    ],
)
def test_a_pattern_is_suggested_where_each_name_has_a_time_of_its_own(names, pattern):
    assert suggest_pattern(names) == pattern

    if pattern is not None:
        assert all(label_reader(pattern).read(name) is not None for name in names)


def test_a_suggestion_takes_no_part_of_a_longer_number():
    names = ["LC08_193027_20210105_20210110_02.tif", "LC08_193027_20210121_20210130_02.tif"]
    assert suggest_pattern(names) == "{time:%Y%m%d}"  # not a date and a time
    assert suggest_pattern(["a_20210230.tif", "a_20210228.tif"]) is None
