"""A folder of mixed imagery: found by place, time and kind, described so that one can act on it."""

import json

import numpy as np
import pytest

from periplus.testing.formats import dted as dteds
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.nitf import ImageSegment
from periplus.testing.scenes import tile

RANDOM = np.random.default_rng(5)
TILTED = "475353N0121340E475400N0121500E475200N0121520E475210N0121330E"
"""Corners in whole seconds, which no affine of a fine image meets."""


@pytest.fixture
def mixed(tmp_path):
    folder = tmp_path / "mixed"
    folder.mkdir()
    values = RANDOM.integers(0, 255, (1, 400, 600), np.uint8)
    taken = {"IDATIM": "20080127051745"}
    tilted = ImageSegment(values=values, icords="G", igeolo=TILTED, changes=taken)
    (folder / "tilted.ntf").write_bytes(nitfs.nitf(tilted))
    (folder / "tilted.ntf.r1").write_bytes(nitfs.nitf(ImageSegment(values=values[:, ::2, ::2])))
    (folder / "n47e012.dt0").write_bytes(dteds.cell(dteds.heights("h", 121, 121), west=12, south=47))
    tile(folder / "alps.tif", 0, 0, (64, 64))
    (folder / "notes.txt").write_text("not an image")
    for number in range(9):
        (folder / f"cut{number}.ntf").write_bytes(nitfs.nitf(ImageSegment(values=values))[: 2000 + number])
    return folder


@pytest.fixture
def found(mixed, periplus):
    target = mixed.parent / "elsewhere" / "mixed.parquet"
    target.parent.mkdir()
    assert periplus("index", mixed, "-o", target).code == 1
    return target


def listed(done):
    assert done.code == 0, done.err
    return [row["path"].rpartition("/")[2] for row in json.loads(done.out)]


def test_files_are_found_by_place_and_time_though_the_index_may_not_reach_them(found, periplus):
    here = ("--bbox", "12.23,47.88,12.24,47.89", "--crs", "EPSG:4326")
    assert listed(periplus("query", found, "--files", *here, "--format", "json")) == [
        "n47e012.dt0", "tilted.ntf", "tilted.ntf.r1",
    ]  # fmt: skip
    assert listed(periplus("query", found, "--files", *here, "--time", "2008-01", "--format", "json")) == [
        "tilted.ntf", "tilted.ntf.r1",
    ]  # fmt: skip
    assert listed(periplus("query", found, "--files", "--time", "2002", "--format", "json")) == []
    assert periplus("read", found, "--array", "tilted/0/data", "-o", found.parent / "a.npy").code == 2


def test_rows_of_files_say_what_was_selected(found, periplus):
    rows = json.loads(periplus("query", found, "--files", "--format", "json").out)
    by_name = {row["path"].rpartition("/")[2]: row for row in rows}
    image = by_name["tilted.ntf"]
    assert (image["format"], image["datetime"], image["bytes"]) == ("nitf", "2008-01-27T05:17:45+00:00", 240_000)
    assert image["size"] > image["bytes"]
    assert periplus("query", found, "--files", "--sql", "select 1").code == 2


def test_what_failed_is_listed_in_full_where_one_is_told(mixed, periplus, tmp_path):
    target = tmp_path / "again.parquet"
    done = periplus("index", mixed, "-o", target)
    assert "9 failed" in done.err
    assert "1 skipped (unsupported format" in done.err
    advice = done.err.splitlines()[-1]
    assert advice.startswith(f"to list all: periplus query {target} --sql ")
    sql = advice.split('"')[1]
    rows = json.loads(periplus("query", target, "--sql", sql, "--format", "json").out)
    said = json.loads(periplus("index", mixed, "--json").out)
    assert len(rows) == len(said["errors"]) == 9
    assert all(row["error"].startswith("format: image 0: ") for row in rows)


def test_info_tells_formats_times_places_and_what_a_file_says_of_itself(mixed, found, periplus):
    said = periplus("info", found).out
    assert "formats     nitf 2, " in said
    assert "taken       2008-01-27T05:17:45Z, 2 files with a date" in said
    alone = periplus("info", mixed / "n47e012.dt0").out
    assert "vertical_datum MSL" in alone
    whole = json.loads(periplus("info", mixed / "tilted.ntf", "--json").out)
    assert whole["groups"][""]["nitf"]["FTITLE"] == "a title"
    image = whole["arrays"][0]
    assert (image["transform"], len(image["gcps"]), image["crs"]) == (None, 4, "EPSG:4326")
    np.testing.assert_allclose(image["bbox"], [12.225, 47.869, 12.256, 47.9], atol=0.003)


def test_the_only_image_of_a_place_and_time_is_read_without_its_name(mixed, found, periplus, tmp_path):
    where = ("--allow", mixed, "--bbox", "12.5,47.5,12.6,47.6", "--crs", "EPSG:4326", "-o", tmp_path / "a.npy")
    assert periplus("read", found, *where).code == 0
    heights = dteds.heights("h", 121, 121)
    rows, columns = slice(48, 61), slice(60, 73)  # posts stand for what lies half a step around them
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), heights[:, rows, columns])
    several = periplus("read", found, *where[:2], "--bbox", "12.23,47.88,12.24,47.89", *where[4:]).err
    assert several.startswith(
        "periplus: missing: 2 of the 3 images are in that box and time; choose one with --array: "
    )
    assert sorted(several.split("--array: ")[1].strip().split(", ")) == ["n47e012/data", "tilted/data"]
    assert periplus("read", found, *where, "--time", "1990").err.startswith("periplus: missing: none of the ")
    assert periplus("read", found, "--allow", mixed, "--time", "2008", "-o", tmp_path / "b.npy").code == 0
    assert np.load(tmp_path / "b.npy").shape == (1, 400, 600)
