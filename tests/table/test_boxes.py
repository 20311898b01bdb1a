"""A box selects among arrays of several CRSs by place, not by the bare numbers."""

from dataclasses import replace

import numpy as np
import pytest

from periplus.conventions.proj.crs import reproject_bbox
from periplus.errors import FormatError, MissingError, PeriplusError
from periplus.model import Array, Catalog, Encoding, Georeference, GroundControlPoint
from periplus.table import memory_table
from periplus.testing.indexes import dense_refs, files_of

ZONES = {32: "EPSG:32632", 33: "EPSG:32633", 13: "EPSG:32613"}
ENTRANCE = (300_000.0, 5_195_000.0, 300_100.0, 5_195_100.0)
"""Numbers that lie in the scene of every zone."""


def scene(name, crs, *, transform=(10.0, 0.0, 300_000.0, 0.0, -10.0, 5_200_000.0)):
    place = None if transform is None else Georeference(crs=crs, transform=transform)
    shape = (1, 1000, 1000)
    return Array(
        name=f"{name}/0/data", dims=("bands", "y", "x"), shape=shape, chunks=(1, 250, 250),
        dtype=np.dtype("u1"), encodings=(Encoding(({"name": "bytes"},)),), georeference=place,
    )  # fmt: skip


def placed_by(name, **place):
    return replace(scene(name, None), georeference=Georeference(**place))


def table_of(*arrays):
    catalog = Catalog(arrays={array.name: array for array in arrays})
    return memory_table(catalog, {a.name: dense_refs(a) for a in arrays}, files_of(["/a.tif"]))


def names(rows):
    return sorted({name.partition("/")[0] for name in rows["array"].to_pylist()})


@pytest.fixture
def zones():
    scenes = [scene(str(zone), crs) for zone, crs in ZONES.items()]
    return table_of(*scenes, scene("nowhere", None, transform=None), scene("local", None))


def test_a_box_without_a_crs_is_refused_where_arrays_do_not_share_one(zones):
    with pytest.raises(ValueError, match=r"4 different CRSs \(EPSG:32632, EPSG:32633, EPSG:32613, none\)"):
        zones.select(bbox=ENTRANCE)
    assert names(zones.select(array="33/0/data", bbox=ENTRANCE)) == ["33"]


@pytest.mark.parametrize("crs", ["EPSG:32633", "epsg:32633"])
def test_a_box_with_its_crs_selects_by_place(zones, crs):
    rows = zones.select(bbox=ENTRANCE, crs=crs, reproject=reproject_bbox)
    assert (names(rows), rows.num_rows) == (["33"], 1)


@pytest.mark.parametrize("zone", ZONES)
def test_longitude_and_latitude_find_the_chunk_rasterio_would(zones, zone):
    box = reproject_bbox(ENTRANCE, ZONES[zone], "EPSG:4326")
    rows = zones.select(bbox=box, crs="EPSG:4326", reproject=reproject_bbox)
    assert names(rows) == [str(zone)]
    assert (1, 0) in set(zip(rows["y_chunk"].to_pylist(), rows["x_chunk"].to_pylist(), strict=True))


def test_a_box_larger_than_any_zone_still_finds_all_of_them(zones):
    rows = zones.select(bbox=(-180, -90, 180, 90), crs="EPSG:4326", reproject=reproject_bbox)
    assert names(rows) == ["13", "32", "33"]
    assert rows.num_rows == 3 * 16
    europe = zones.select(bbox=(-20, 30, 40, 70), crs="EPSG:4326", reproject=reproject_bbox)
    assert names(europe) == ["32", "33"]


@pytest.mark.parametrize("box", [(1, 5, 2, 3), (170, 0, -170, 10)])
def test_boxes_that_cannot_be_cut_are_refused_not_taken_for_empty(zones, box):
    with pytest.raises((FormatError, ValueError)):
        zones.select(bbox=box, crs="EPSG:3857" if box[0] == 1 else "EPSG:4326", reproject=reproject_bbox)


def test_a_crs_that_is_none_is_refused(zones):
    with pytest.raises(PeriplusError, match="not an authority code"):
        zones.select(bbox=ENTRANCE, crs="rubbish", reproject=reproject_bbox)


def test_an_array_asked_for_by_name_must_have_a_place(zones):
    with pytest.raises(FormatError, match="'nowhere/0/data' has no transform"):
        zones.select(array="nowhere/0/data", bbox=ENTRANCE)
    with pytest.raises(FormatError, match="'local/0/data' has no CRS"):
        zones.select(array="local/0/data", bbox=ENTRANCE, crs="EPSG:4326", reproject=reproject_bbox)
    assert zones.select(array="local/0/data", bbox=ENTRANCE).num_rows == 1


MOON = "IAU_2015:30100"


def test_what_lies_on_another_world_or_nowhere_is_passed_over(zones):
    scenes = [zones.array("33/0/data"), scene("moon", MOON), scene("rubbish", 'PROJCS["broken"')]
    box = reproject_bbox(ENTRANCE, "EPSG:32633", "EPSG:4326")
    rows = table_of(*scenes).select(bbox=box, crs="EPSG:4326", reproject=reproject_bbox)
    assert names(rows) == ["33"]
    for left in ("moon", "rubbish"):
        with pytest.raises(MissingError, match="no way from EPSG:4326"):
            table_of(*scenes).select(array=f"{left}/0/data", bbox=box, crs="EPSG:4326", reproject=reproject_bbox)
    with pytest.raises(MissingError, match="no way from EPSG:4326"):
        table_of(*scenes[1:]).select(bbox=box, crs="EPSG:4326", reproject=reproject_bbox)


def corner_points(crs, shift=0.0):
    """Four corners that no affine meets."""
    ground = ((12.0, 48.0), (12.6, 48.1), (12.5, 47.5), (12.1, 47.6))
    spots = ((0.5, 0.5), (999.5, 0.5), (999.5, 999.5), (0.5, 999.5))
    pairs = zip(spots, ground, strict=True)
    points = (GroundControlPoint(column=c, row=r, x=x + shift, y=y) for (c, r), (x, y) in pairs)
    return {"crs": crs, "gcps": tuple(points)}


@pytest.mark.parametrize(
    "place",
    [
        corner_points("EPSG:4326"),
        {"rpc": {"long_off": 12.3, "long_scale": 0.3, "lat_off": 47.8, "lat_scale": 0.3}},
    ],
)
@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:32633"])
def test_an_image_without_a_transform_is_found_by_its_points_or_polynomials(place, crs):
    table = table_of(placed_by("tilted", **place), scene("33", "EPSG:32633"))
    for box, found in [((12.2, 47.7, 12.3, 47.8), ["tilted"]), ((13.2, 47.7, 13.3, 47.8), [])]:
        asked = reproject_bbox(box, "EPSG:4326", crs)
        rows = table.select(bbox=asked, crs=crs, reproject=reproject_bbox)
        assert names(rows) == found
        assert rows.num_rows == 16 * len(found)  # all of its chunks: where each lies is not known


@pytest.mark.parametrize("box", [(12.3, 47.7, 12.2, 47.8), (12.2, 47.8, 12.3, 47.7), (float("nan"), 47, 13, 48)])
def test_a_box_that_is_none_is_refused_by_an_image_without_a_transform_too(box):
    with pytest.raises(ValueError, match="a bbox is"):
        table_of(placed_by("tilted", **corner_points("EPSG:4326"))).select(bbox=box, crs="EPSG:4326")


def test_points_in_the_middle_of_an_image_tell_of_its_corners():
    points = [
        GroundControlPoint(column=c, row=r, x=10 + c / 100, y=50 - r / 100) for c in (400, 600) for r in (400, 600)
    ]
    table = table_of(placed_by("inner", crs="EPSG:4326", gcps=tuple(points)))
    assert table.select(bbox=(19.5, 40.5, 19.6, 40.6)).num_rows == 16
    assert table.select(bbox=(20.5, 40.5, 20.6, 40.6)).num_rows == 0


def test_the_grid_in_sql_has_the_box_of_an_image_without_a_transform():
    table = table_of(placed_by("tilted", **corner_points("EPSG:4326")), scene("33", "EPSG:32633"))
    rows = {row["array"]: row for row in table.sql("select * from grid").to_pylist()}
    assert rows["tilted/0/data"]["a"] is None
    assert rows["33/0/data"]["a"] == 10.0
    tilted = [rows["tilted/0/data"][name] for name in ("crs", "xmin", "ymin", "xmax", "ymax")]
    assert tilted[0] == "EPSG:4326"
    np.testing.assert_allclose(tilted[1:], [12.0, 47.5, 12.6, 48.1], atol=0.08)


DISC = "+proj=geos +h=35785831 +lon_0=0 +datum=WGS84 +sweep=y"
"""The Earth as a weather satellite over the Atlantic sees it: the corners of its pictures are sky."""


@pytest.mark.parametrize(
    ("box", "found"),
    [
        ((-180, -90, 180, 90), ["33", "disc"]),
        ((70, 3, 98, 6), ["disc"]),  # part of it is behind the horizon
        ((0, 0, 5, 5), ["disc"]),
        ((150, 0, 160, 5), []),
    ],
)
def test_a_picture_with_sky_in_it_does_not_stand_in_the_way(box, found):
    disc = scene("disc", DISC, transform=(11_000.0, 0.0, -5_500_000.0, 0.0, -11_000.0, 5_500_000.0))
    table = table_of(scene("33", "EPSG:32633"), disc)
    rows = table.select(bbox=box, crs="EPSG:4326", reproject=reproject_bbox)
    assert names(rows) == found


@pytest.mark.parametrize(
    ("west", "box", "found"),
    [
        (179.5, (-180, 0, -179.7, 1), True),
        (179.5, (179.6, 0, 179.8, 1), True),
        (179.5, (-179.4, 0, -179, 1), False),
        (179.5, (-180, -90, 180, 90), True),
        (350.0, (-10, 0, -9.5, 1), True),
        (-10.0, (350, 0, 350.5, 1), True),
        (-180.0, (179, 0, 180, 1), False),
    ],
)
def test_degrees_may_be_counted_from_another_turn_of_the_globe(west, box, found):
    image = scene("a", "EPSG:4326", transform=(0.001, 0.0, west, 0.0, -0.001, 1.0))
    assert names(table_of(image).select(bbox=box, crs="EPSG:4326")) == (["a"] if found else [])
