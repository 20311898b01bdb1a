"""File names: which fields are used, the times they give to files of every arrangement, and running again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio

import periplus
from periplus.errors import ConflictError
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.testing.scenes import tile

TIME = "x_{time:%Y%m%d}"
BAND = "x_{time:%Y%m%d}_{band}.tif"


@pytest.fixture
def scenes(tmp_path: Path, tiff: SimpleNamespace) -> Path:
    """Two bands of each of two days."""
    for k, band in enumerate(("B02", "B03")):
        for day in (1, 2):
            tiff.plain(tmp_path / f"x_2021010{day}_{band}.tif", 10 * k + day)
    return tmp_path


def days(index: Any) -> dict[str, str]:
    """The time in the table of files, by name."""
    files = index.files
    return {Path(path).name: str(when)[:10] for path, when in zip(files.path, files.datetime, strict=True)}


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"arrange": "stack", "pattern": BAND}, "one new dimension, here 'time'; index the files of each band"),
        ({"pattern": BAND}, "one new dimension, here 'time'"),
        ({"arrange": "collect", "pattern": BAND}, r"arrange='collect' reads only a time.*write \* in its place"),
        ({"arrange": "mosaic", "pattern": BAND}, "arrange='mosaic' reads only a time"),
        ({"arrange": "stack", "pattern": BAND, "coordinate": "order"}, "coordinate='order' reads only a time"),
        ({"arrange": "stack", "pattern": r"(?P<time>\d{8})_(?P<band>\w+)"}, "each band"),
        ({"arrange": "stack", "pattern": "{kind}_{time:%Y%m%d}_{band}.tif", "dim": "kind"}, "here 'kind'.*each band"),
        ({"arrange": "stack", "pattern": "{a:d}_{band}"}, "here 'a'.*each band"),
        ({"arrange": "collect", "pattern": "x_{band}"}, "or stack along it with arrange='stack'"),
    ],
)
def test_a_field_that_is_not_used_is_refused_before_anything_is_read(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=f"the field '.*' of the pattern is not used: .*{advice}") as caught:
        periplus.index("/absent/*.tif", **options)
    assert not isinstance(caught.value, periplus.PeriplusError)  # a wrong argument


@pytest.mark.parametrize(
    "options",
    [
        {"arrange": "stack", "pattern": "{tile}_{time:%Y%m%d}", "dim": "tile"},
        {"arrange": "stack", "pattern": TIME, "dim": "day"},
        {"arrange": "stack", "pattern": TIME, "coordinate": "order"},
        {"arrange": "stack", "pattern": "{year}{month}{day}", "dim": "month"},
        {"arrange": "collect", "pattern": "{date}"},
        {"pattern": "{depth:d}"},
    ],
)
def test_time_and_the_field_of_the_dimension_are_used(options: dict[str, Any]) -> None:
    with pytest.raises(periplus.MissingError):
        periplus.index("/absent/*.tif", **options)


def test_what_the_refusal_advises_loses_no_file(scenes: Path) -> None:
    with periplus.index(f"{scenes}/*_B02.tif", pattern=BAND.replace("{band}", "B02"), arrange="stack") as one:
        assert one["0/data"].shape[0] == 2
    with periplus.index(f"{scenes}/*.tif", pattern=BAND.replace("{band}", "*"), arrange="collect") as all_of_them:
        assert all_of_them.summary is not None
        assert (all_of_them.summary.ok, all_of_them.summary.files) == (4, 4)
    with periplus.index(f"{scenes}/*.tif", pattern=TIME, arrange="stack", duplicates="keep") as kept:
        assert kept["0/data"].shape[0] == 4


def test_files_of_one_time_are_told_apart_and_none_is_advised_away(scenes: Path) -> None:
    with pytest.raises(
        ConflictError, match="have the same time 2021-01-01T00:00:00 and differ in 'B03' and 'B02'"
    ) as e:
        periplus.index(f"{scenes}/*.tif", pattern=TIME, arrange="stack")
    assert "last" not in str(e.value)
    with periplus.index(f"{scenes}/*.tif", pattern=TIME) as index:
        assert index.summary is not None
        assert (index.summary.arrangement, index.summary.ok) == ("collect", 4)
        assert "not stacked" in index.summary.warnings[0]
        assert "last" not in index.summary.warnings[0]


def test_bands_of_one_place_are_no_overlap_of_a_mosaic(tmp_path: Path) -> None:
    paths = [
        tile(tmp_path / f"{where}_{band}.tif", 0, 40 * k) for k, where in enumerate("ab") for band in ("red", "nir")
    ]
    with pytest.raises(ConflictError, match="cover the same pixels and differ in 'nir' and 'red'") as caught:
        periplus.index(paths, arrange="mosaic")
    assert "duplicates" not in str(caught.value)
    small = tile(tmp_path / "small.tif", 8, 8, (16, 16))
    with pytest.raises(ConflictError, match=r"pass duplicates=.*this may hide 1 of 2 files"):
        periplus.index([paths[0], small], arrange="mosaic")


def test_files_that_others_replace_are_counted_and_named(scenes: Path, tmp_path: Path) -> None:
    to = tmp_path / "out.parquet"
    options: dict[str, Any] = {"to": to, "pattern": TIME, "arrange": "stack", "duplicates": "last"}
    with periplus.index(f"{scenes}/*.tif", **options) as index:
        summary = index.summary
        assert summary is not None
        assert (summary.ok, summary.replaced, summary.failed, summary.skipped) == (2, 2, 0, 0)
        assert [Path(path).name for path, _ in summary.replacements] == ["x_20210101_B02.tif", "x_20210102_B02.tif"]
        assert "2 replaced by other files:\n" in str(summary)
        assert "x_20210101_B02.tif: replaced: x_20210101_B03.tif has the same time" in str(summary)
        assert [error for error in index.files.error if error] == [why for _, why in summary.replacements]
        assert days(index)["x_20210101_B02.tif"] == "2021-01-01"
    # What was replaced before has not failed when files are added.
    with periplus.index(scenes / "x_20210102_B02.tif", append=True, **options) as index:
        assert index.summary is not None
        assert (index.summary.replaced, index.summary.failed) == (2, 0)


@pytest.mark.parametrize("target", [None, "out", "out.parquet", "out.duckdb"])
@pytest.mark.parametrize("arrange", ["collect", "mosaic", "auto"])
def test_a_pattern_gives_times_to_collections_and_mosaics(tmp_path: Path, arrange: str, target: str | None) -> None:
    for day in (1, 2, 3):
        size = (64, 32) if day == 3 and arrange == "auto" else (64, 64)  # no stack
        tile(tmp_path / f"x_2021010{day}.tif", 0, 64 * day, size)
    to = None if target is None else tmp_path / target
    with periplus.index(f"{tmp_path}/x_*.tif", to=to, arrange=arrange, pattern=TIME) as index:
        assert days(index) == {f"x_2021010{day}.tif": f"2021-01-0{day}" for day in (1, 2, 3)}
        found = index.select(time="2021-01-02", level=0)
        assert {Path(path).name for path in found.column("path").to_pylist()} == {"x_20210102.tif"}
        assert index.summary is not None
        if arrange == "mosaic":
            assert "time" not in index["0/data"].dims
            assert index.summary.warnings[-1].startswith(
                "a mosaic has no time dimension: the 3 times of its files, 2021-01-01T00:00:00 to 2021-01-03"
            )
        else:
            assert index.summary.arrangement == "collect"
            if arrange == "collect":
                assert index.read(time="2021-01-02").bbox == index["x_20210102/0/data"].bbox


def test_a_mosaic_is_ordered_by_the_times_in_names(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"x_2021010{day}.tif", 0, 40 * day, (64, 64)) for day in (2, 1)]
    options: dict[str, Any] = {"arrange": "mosaic", "duplicates": "last"}
    with pytest.raises(ConflictError, match="no datetime; give a pattern="):
        periplus.index(paths, order="time", **options)
    with (
        periplus.index(paths, order="time", pattern=TIME, **options) as timed,
        periplus.index(paths[::-1], **options) as given,
    ):
        np.testing.assert_array_equal(timed["0/data"][...], given["0/data"][...])


def test_a_stack_along_another_field_has_the_times_too(scenes: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"to": tmp_path / "out", "pattern": BAND, "arrange": "stack", "dim": "band"}
    with periplus.index(f"{scenes}/x_20210101_*.tif", **options) as index:
        assert index.table.catalog.coordinates["band"].values.tolist() == ["B02", "B03"]
        assert set(days(index).values()) == {"2021-01-01"}


@pytest.mark.parametrize("arrange", ["collect", "mosaic", "auto", "stack"])
def test_a_name_that_does_not_match_is_an_error_or_a_failed_row(tmp_path: Path, arrange: str) -> None:
    for k, name in enumerate(("x_20210101", "y", "x_20211399", "x_20210102")):
        tile(tmp_path / f"{name}.tif", 0, 64 * k if arrange == "mosaic" else 0)
    given = [tmp_path / f"{name}.tif" for name in ("x_20210101", "y", "x_20211399", "x_20210102")]
    options: dict[str, Any] = {"arrange": arrange, "pattern": TIME}
    with pytest.raises(ConflictError, match=r"y\.tif does not match the pattern .*; skip_misfits=True") as caught:
        periplus.index(given, **options)
    assert caught.value.url == str(given[1])
    with periplus.index(given, skip_misfits=True, **options) as index:
        assert index.summary is not None
        assert (index.summary.ok, index.summary.failed) == (2, 2)
        errors = {Path(p).name: e for p, e in zip(index.files.path, index.files.error, strict=True) if e}
        assert "y.tif does not match the pattern" in errors["y.tif"]
        assert "skip_misfits" not in errors["y.tif"]
        assert "is not a time" in errors["x_20211399.tif"]
        assert len(index.summary.errors) == 2
        assert not any("/y/" in f"/{name}/" for name in index)
    with pytest.raises(ConflictError, match="no file matches"):
        periplus.index(given[1], skip_misfits=True, **options)


def test_a_field_of_a_collection_that_was_to_be_a_stack_is_noted(tmp_path: Path) -> None:
    with periplus.index(tile(tmp_path / "z5.tif", 0, 0), pattern=r"z(?P<depth>\d+)") as index:
        assert index.summary is not None
        assert index.summary.warnings == ("the files are collected, so the field 'depth' of the pattern is not used",)


@pytest.mark.parametrize(
    ("options", "applies"),
    [
        ({"arrange": "collect", "duplicates": "last"}, "duplicates= .* applies to arrange='stack' or 'mosaic'"),
        ({"arrange": "collect", "dim": "z"}, "dim= .* applies to arrange='stack'"),
        ({"arrange": "mosaic", "dim": "z"}, "dim= .* applies to arrange='stack'"),
        ({"arrange": "mosaic", "coordinate": "order"}, "coordinate= .* applies to arrange='stack'"),
        ({"arrange": "collect", "coordinate": "datetime"}, "coordinate= .* applies to arrange='stack'"),
        ({"arrange": "collect", "skip_misfits": True}, "skip_misfits= .* applies to arrange='stack' or 'mosaic'"),
        ({"arrange": "stack", "order": "name"}, "order= .* applies to arrange='mosaic'"),
        ({"order": "time"}, "order= .* applies to arrange='mosaic'"),
        ({"coordinate": "pattern"}, "needs a pattern="),
        ({"coordinate": "datetime", "pattern": TIME}, "so pattern= has no effect"),
        ({"append": True}, "append= has no effect without to="),
        ({"refresh": "always"}, "refresh= has no effect without to="),
        ({"form": "flat"}, "form= has no effect without to="),
        ({"form": "pile", "to": "/absent/out"}, "form is one of flat, dataset, duckdb"),
        ({"pattern": ""}, "has no fields"),
        ({"dim": ""}, "is empty"),
        ({"concurrency": 0}, "concurrency is at least 1"),
    ],
)
def test_an_option_without_effect_is_refused_before_anything_is_read(options: dict[str, Any], applies: str) -> None:
    with pytest.raises(ValueError, match=applies):
        periplus.index("/absent/x.tif", **options)


def test_assets_are_of_stac_items(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="assets= chooses among the assets of STAC items"):
        periplus.index(f"{scenes}/*.tif", to=tmp_path / "out", assets="red")
    assert not (tmp_path / "out").exists()


# --- running again -----------------------------------------------------------------------------------------------


def two(folder: Path, *numbers: int) -> list[Path]:
    return [tile(folder / f"x_2021010{k}.tif", 0, 64 * k) for k in numbers]


@pytest.mark.parametrize("target", ["out", "out.parquet"])
@pytest.mark.parametrize("arrange", ["collect", "mosaic"])
def test_times_stay_when_files_are_added_with_or_without_the_pattern(
    tmp_path: Path, arrange: str, target: str, read: list[str]
) -> None:
    to = tmp_path / target
    options: dict[str, Any] = {"to": to, "arrange": arrange}
    periplus.index(two(tmp_path, 1, 2), pattern=TIME, **options).close()
    periplus.index(two(tmp_path, 3), pattern=TIME, append=True, **options).close()
    read.clear()
    with periplus.index(two(tmp_path, 4), append=True, **options) as index:
        assert index.summary is not None
        assert f"names are read with the pattern of the index, pattern={TIME!r}" in index.summary.warnings
        assert days(index) == {f"x_2021010{k}.tif": f"2021-01-0{k}" for k in (1, 2, 3, 4)}
    assert read == ["x_20210104.tif"]
    odd = tile(tmp_path / "odd.tif", 0, 640)
    with pytest.raises(ConflictError, match=r"odd\.tif does not match the pattern"):
        periplus.index(odd, append=True, **options)
    with periplus.index(odd, append=True, skip_misfits=True, **options) as index:
        assert index.summary is not None
        assert (index.summary.ok, index.summary.failed) == (4, 1)
        assert days(index)["x_20210103.tif"] == "2021-01-03"


def test_a_stack_along_another_field_keeps_its_times_when_files_are_added(tmp_path: Path) -> None:
    options: dict[str, Any] = {"to": tmp_path / "out", "arrange": "stack"}
    names = ["a_20210101", "b_20210101", "c_20210103"]
    paths = [tile(tmp_path / f"{name}.tif", 0, 0) for name in names]
    periplus.index(paths[:2], pattern="{tile}_{time:%Y%m%d}", dim="tile", **options).close()
    with periplus.index(paths[2], append=True, **options) as index:
        assert index.table.catalog.coordinates["tile"].values.tolist() == ["a", "b", "c"]
        assert days(index) == {f"{name}.tif": f"2021-01-{name[-2:]}" for name in names}


def test_a_pattern_that_does_not_suit_what_is_added_is_not_taken_over(tmp_path: Path) -> None:
    paths = [tile(tmp_path / f"{name}.tif", 0, 64 * k) for k, name in enumerate(("a_20210101", "b_20210101", "c"))]
    to = tmp_path / "out"
    options: dict[str, Any] = {"to": to, "arrange": "stack", "coordinate": "pattern"}
    periplus.index(paths[0], pattern="{tile}_{time:%Y%m%d}", dim="tile", **options).close()
    with pytest.raises(ValueError, match=r"the index has pattern='.*'; give a pattern= as well: the field 'tile'"):
        periplus.index(paths[1], to=to, arrange="mosaic", append=True)
    periplus.index(paths[0], pattern="^(?P<tile>.)", **options).close()
    with periplus.index(paths[2], to=to, arrange="mosaic", append=True) as index:
        assert index.summary is not None
        assert index.summary.ok == 2
        note = "all files are arranged again with arrange='mosaic' instead of arrange='stack'"
        assert index.summary.warnings == (note,)


def test_files_have_their_own_times_again_without_the_pattern(
    tmp_path: Path, tiff: SimpleNamespace, read: list[str]
) -> None:
    for day in (1, 2):
        tiff.write(tmp_path / f"x_2021010{day}.tif", day, moment=f"2020:05:0{day} 00:00:00")
    given: dict[str, Any] = {"urls": f"{tmp_path}/x_*.tif", "to": tmp_path / "out.parquet"}
    for options in ({"arrange": "collect"}, {"arrange": "stack"}, {}):
        with periplus.index(**given, pattern=TIME, **options) as index:
            assert set(days(index).values()) == {"2021-01-01", "2021-01-02"}
        # Their own times are not in the index.
        with pytest.raises(ConflictError, match=r"give a pattern= with a time|made with pattern="):
            periplus.index(**given, arrange="stack", pattern=r"(?P<n>\d)\.tif", append=True)
        with periplus.index(**given, **options) as index:
            assert set(days(index).values()) == {"2020-05-01", "2020-05-02"}
    periplus.index(**given, arrange="stack", pattern=r"(?P<n>\d)\.tif").close()
    read.clear()
    with periplus.index(**given, arrange="collect") as index:  # a label is no time: nothing was replaced
        assert set(days(index).values()) == {"2020-05-01", "2020-05-02"}
    assert read == []


def test_an_index_of_an_earlier_version_gets_the_times(
    tmp_path: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(path) for path in two(tmp_path, 1, 2)]
    options: dict[str, Any] = {"to": tmp_path / "out", "arrange": "collect", "pattern": TIME, "fetch": fetch}
    with monkeypatch.context() as before:
        before.setattr("periplus.harvest.options.with_name_times", lambda entries, *_, **__: (list(entries), {}, False))
        table, _ = index_into(paths, **options)
    assert np.isnat(table.files.datetime).all()
    table, _ = index_into(paths, **options)
    assert [when.item().replace(tzinfo=UTC) for when in table.files.datetime] == [
        datetime(2021, 1, day, tzinfo=UTC) for day in (1, 2)
    ]


# --- dates in names, without a pattern --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "times"),
    [
        (["a_20210102.tif", "b_20200305.tif"], ["2021-01-02", "2020-03-05"]),
        (["S2_20210102T101112_B02.tif", "S2_20210102T101113_B02.tif"], ["2021-01-02T10:11:12", "2021-01-02T10:11:13"]),
        (["123456789_2021-01-02.tif", "2021-01-03_123456789.tif"], ["2021-01-02", "2021-01-03"]),
        (["a_20210102_20210501.tif", "a_20210103_20210501.tif"], None),  # of the image, or of its processing?
        (["a_20210102.tif", "b_20210102.tif"], None),  # the same day
        (["a_20210102.tif", "b.tif"], None),
        (["a_20211302.tif", "a_20211303.tif"], None),  # no dates
        (["a_120210102.tif", "a_120210103.tif"], None),  # longer numbers
        (["a_20210102.tif", "a_2021-01-03.tif"], None),
    ],
)
def test_dates_in_names_are_recognised_where_nothing_else_is_possible(
    tmp_path: Path, tiff: SimpleNamespace, names: list[str], times: list[str] | None
) -> None:
    for k, name in enumerate(names):
        tiff.plain(tmp_path / name, k)
    index = periplus.index([tmp_path / name for name in names])
    notes = [text for text in index.summary.warnings if "dates in their names" in text]
    if times is None:
        assert not notes
        assert np.isnat(index.files.datetime).all()
        assert len(index.arrays) == 2
    else:
        assert len(notes) == 1
        assert index.files.datetime.tolist() == [np.datetime64(time, "us").item() for time in times]
        assert index.arrays["0/data"].shape[0] == 2
        ordered = periplus.index([tmp_path / name for name in names], arrange="stack", coordinate="order")
        assert np.isnat(ordered.files.datetime).all()


def test_times_of_files_win_over_dates_in_names(tmp_path: Path) -> None:
    for k in (1, 2):
        tile(tmp_path / f"a_2021010{k}.tif", 0, 0)
        with rasterio.open(tmp_path / f"a_2021010{k}.tif", "r+") as file:
            file.update_tags(TIFFTAG_DATETIME=f"2020:0{k}:01 00:00:00")
    index = periplus.index(tmp_path / "*.tif")
    assert index.files.datetime.astype("datetime64[M]").astype(str).tolist() == ["2020-01", "2020-02"]


def test_recognised_dates_stay_when_an_index_is_made_again_or_grows(tmp_path: Path, tiff: SimpleNamespace) -> None:
    for k in (1, 2, 3, 4):
        tiff.plain(tmp_path / f"x_2021010{k}.tif", k)
    target = tmp_path / "i.parquet"
    periplus.index(tmp_path / "x_2021010[12].tif", to=target).close()
    with periplus.index(tmp_path / "x_2021010[123].tif", to=target) as again:
        assert again.summary.reused == 2
        assert again.arrays["0/data"].shape[0] == 3
        assert not np.isnat(again.files.datetime).any()
    with periplus.index(tmp_path / "x_20210104.tif", to=target, append=True) as grown:
        assert grown.arrays["0/data"].shape[0] == 4
    with periplus.index(tmp_path / "*.tif", to=target) as same:
        assert same.summary.reused == 4
        one = periplus.index(tmp_path / "*.tif")
        np.testing.assert_array_equal(same.arrays["0/data"][...], one.arrays["0/data"][...])
