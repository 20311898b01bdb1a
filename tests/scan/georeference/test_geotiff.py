"""Georeferencing: transforms, control points, RPCs and CRSs, compared with rasterio and PROJ."""

import math
import re
import warnings

import numpy as np
import pytest
import rasterio
from affine import Affine
from pyproj import CRS, Transformer
from pyproj.database import get_units_map
from rasterio.control import GroundControlPoint
from rasterio.io import MemoryFile
from rasterio.rpc import RPC

from periplus.model import Found, Georeference
from periplus.scan.drive import scan_bytes
from periplus.scan.georeference import geokeys
from periplus.scan.georeference.geodetic import register
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.custom_tiff import ASCII, DOUBLE, SHORT, image_tags, tiff

HERE = Affine(30.0, 0.0, 600_000.0, 0.0, -30.0, 4_900_000.0)


def georeferences(data: bytes) -> dict[str, Georeference | None]:
    return {step.array.name: step.array.georeference for step in scan_bytes(data) if isinstance(step, Found)}


def first(data: bytes) -> Georeference:
    where = georeferences(data)["0/data"]
    assert where is not None
    return where


def keyed(*entries: tuple[int, int], doubles: tuple[float, ...] = (), text: bytes = b"", **changes) -> bytes:
    """A TIFF with these GeoKeys: (key, value), and keys over 100,000 take the next double, strings the whole text."""
    directory, used = [1, 1, 0, len(entries)], 0
    for key, value in entries:
        if key > 100_000:
            directory += [key - 100_000, 34736, value, used]
            used += value
        elif value < 0:
            directory += [key, 34737, len(text), 0]
        else:
            directory += [key, 0, 1, value]
    tags = {"t34735": (SHORT, directory)}
    if doubles:
        tags["t34736"] = (DOUBLE, list(doubles))
    if text:
        tags["t34737"] = (ASCII, text)
    return tiff(image_tags(4, 4, **tags, **changes), data=bytes(16))


def same_place(ours: str, theirs: CRS, origin: list[float]) -> None:
    """Two CRSs put the same geographic points at the same coordinates, on the same ellipsoid."""
    mine = CRS.from_user_input(ours)
    for value in ("semi_major_metre", "inverse_flattening"):
        assert getattr(mine.ellipsoid, value) == pytest.approx(getattr(theirs.ellipsoid, value), rel=1e-9)
    if mine.is_geographic:
        assert mine.axis_info[0].unit_conversion_factor == pytest.approx(theirs.axis_info[0].unit_conversion_factor)
        return
    x, y = (np.array([1e3, 5e4, -7e4]) + start for start in origin)
    places = Transformer.from_crs(theirs, theirs.geodetic_crs, always_xy=True).transform(x, y)
    again = [Transformer.from_crs(crs.geodetic_crs, crs, always_xy=True).transform(*places) for crs in (mine, theirs)]
    assert np.isfinite(again).all()
    np.testing.assert_allclose(*again, atol=1e-3, rtol=0)


@pytest.mark.parametrize("model", [[(1024, 1)], [(1024, 32767)], []])
@pytest.mark.parametrize("others", [[(2048, 4326)], []])
def test_a_projected_system_of_esri_is_named_with_or_without_a_model(model, others) -> None:
    assert first(keyed(*model, *others, (3072, 54009))).crs == "ESRI:54009"


@pytest.mark.parametrize("name", ["geo-utm", "geo-rotated", "geo-degrees", "geo-nan", "cog", "sparse"])
def test_transform_and_crs_are_those_rasterio_reads(name: str) -> None:
    data = tiffs.case(name).data
    where = first(data)
    with MemoryFile(data) as memory, memory.open() as opened:
        assert where.transform == pytest.approx(tuple(opened.transform)[:6])
        assert where.crs == f"EPSG:{opened.crs.to_epsg()}"
        assert where.registration == opened.tags()["AREA_OR_POINT"].lower()


@pytest.mark.parametrize("name", ["overviews", "cog", "overviews-big-endian"])
def test_levels_have_the_transform_gdal_gives_them(name: str) -> None:
    data = tiffs.case(name).data
    found = georeferences(data)
    with MemoryFile(data) as memory:
        for level in (1, 2):
            with memory.open(overview_level=level - 1) as opened:
                assert found[f"{level}/data"].transform == pytest.approx(tuple(opened.transform)[:6])


def test_masks_have_the_transform_of_their_level() -> None:
    found = georeferences(tiffs.case("cog-mask").data)
    assert found["1/mask"] == found["1/data"]


def test_pixel_is_point_moves_half_a_pixel() -> None:
    scale, tie = (DOUBLE, [10.0, 20.0, 0.0]), (DOUBLE, [0.0, 0.0, 0.0, 100.0, 200.0, 0.0])
    for raster, expected in ((1, (10, 0, 100, 0, -20, 200)), (2, (10, 0, 95, 0, -20, 210))):
        data = keyed((1024, 2), (1025, raster), (2048, 4326), t33550=scale, t33922=tie)
        assert first(data).transform == expected
        with MemoryFile(data) as memory, memory.open() as opened:
            assert tuple(opened.transform)[:6] == expected


def test_a_transformation_matrix_with_point_pixels() -> None:
    matrix = [2.0, 1.0, 0.0, 50.0, 1.0, -3.0, 0.0, 60.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    data = keyed((1024, 1), (1025, 2), (3072, 32633), t34264=(DOUBLE, matrix))
    with MemoryFile(data) as memory, memory.open() as opened:
        assert first(data).transform == pytest.approx(tuple(opened.transform)[:6])


def test_tie_points_without_a_scale_are_control_points() -> None:
    points = [
        GroundControlPoint(row=r, col=c, x=10 + c, y=50 - r, z=1.5) for r, c in ((0, 0), (0, 19), (9, 0), (9, 19))
    ]
    data = tiffs.gdal_written(tiffs.picture("gcps", "u1", (1, 10, 20)), gcps=(points, rasterio.CRS.from_epsg(4326)))
    where = first(data)
    assert where.transform is None
    assert where.crs == "EPSG:4326"
    assert [(p.column, p.row, p.x, p.y, p.z) for p in where.gcps] == [(p.col, p.row, p.x, p.y, p.z) for p in points]


def test_rational_polynomials_are_those_rasterio_reads() -> None:
    rng = np.random.default_rng(4)
    coefficients = {f"{n}_{d}_coeff": rng.normal(size=20).tolist() for n in ("line", "samp") for d in ("num", "den")}
    numbers = {
        f"{k}_{w}": float(rng.uniform(1, 50))
        for k in ("line", "samp", "lat", "long", "height")
        for w in ("off", "scale")
    }
    rpc = RPC(**coefficients, **numbers, err_bias=1.0, err_rand=2.0)
    data = tiffs.gdal_written(tiffs.picture("rpc", "u1", (1, 64, 64)), rpcs=rpc, overviews=(2,))
    found = georeferences(data)
    with warnings.catch_warnings(), MemoryFile(data) as memory:
        warnings.simplefilter("ignore")
        with memory.open() as opened:
            expected = opened.rpcs.to_dict()
    assert found["0/data"].rpc.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found["0/data"].rpc[key], value)
    assert found["1/data"].rpc["line_scale"] == pytest.approx(expected["line_scale"] / 2)


@pytest.mark.parametrize(
    "definition",
    [
        "+proj=tmerc +lat_0=10 +lon_0=20 +k=0.9996 +x_0=500000 +y_0=1000 +datum=WGS84",
        "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=39 +lon_0=-96 +x_0=100 +y_0=200 +datum=NAD83",
        "+proj=lcc +lat_1=46 +lat_0=46 +lon_0=2 +k_0=0.99987742 +x_0=600000 +y_0=2200000 +ellps=clrk80ign",
        "+proj=aea +lat_1=29.5 +lat_2=45.5 +lat_0=23 +lon_0=-96 +datum=NAD83",
        "+proj=laea +lat_0=52 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80",
        "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84",
        "+proj=stere +lat_0=-90 +lat_ts=-71 +lon_0=0 +datum=WGS84",
        "+proj=stere +lat_0=90 +lon_0=30 +k=0.994 +x_0=2000000 +y_0=2000000 +datum=WGS84",
        "+proj=sterea +lat_0=52.2 +lon_0=5.4 +k=0.9999 +x_0=155000 +y_0=463000 +ellps=bessel",
        "+proj=stere +lat_0=40 +lon_0=10 +k=0.9 +datum=WGS84",
        "+proj=omerc +no_uoff +lat_0=4 +lonc=102 +alpha=323 +gamma=323 +k=0.9998 +x_0=800000 +ellps=WGS84",
        "+proj=omerc +lat_0=4 +lonc=115 +alpha=53 +gamma=53 +k=0.9998 +x_0=590000 +y_0=442000 +ellps=WGS84",
        "+proj=eqc +lat_ts=30 +lat_0=0 +lon_0=10 +datum=WGS84",
        "+proj=merc +lon_0=10 +k=0.9 +datum=WGS84",
        "+proj=merc +lat_ts=20 +lon_0=10 +datum=WGS84",
        "+proj=sinu +lon_0=5 +R=6371007.181",
        "+proj=cea +lat_ts=30 +lon_0=0 +datum=WGS84",
        "+proj=aeqd +lat_0=40 +lon_0=10 +datum=WGS84",
        "+proj=eqdc +lat_1=30 +lat_2=50 +lat_0=40 +lon_0=10 +datum=WGS84",
        "+proj=cass +lat_0=10 +lon_0=10 +ellps=WGS84",
        "+proj=gnom +lat_0=40 +lon_0=10 +datum=WGS84",
        "+proj=ortho +lat_0=40 +lon_0=10 +datum=WGS84",
        "+proj=poly +lat_0=0 +lon_0=-54 +datum=WGS84",
        "+proj=robin +lon_0=10 +datum=WGS84",
        "+proj=mill +lon_0=10 +datum=WGS84",
        "+proj=vandg +lon_0=10 +R=6371000",
        "+proj=nzmg +lat_0=-41 +lon_0=173 +x_0=2510000 +y_0=6023150 +ellps=intl",
        "+proj=tmerc +lat_0=30 +lon_0=-85 +k=0.9999 +x_0=200000.0001016 +datum=NAD83 +units=us-ft",
        "+proj=utm +zone=33 +ellps=intl",
        "+proj=utm +zone=15 +datum=NAD83 +units=us-ft",
        "+proj=utm +zone=19 +south +datum=WGS84 +units=ft",
        "+proj=longlat +ellps=clrk66",
        "+proj=longlat +a=3396190 +b=3376200",
        "+proj=longlat +ellps=bessel +pm=ferro",
        "+proj=geos +h=35785831 +lon_0=0 +sweep=y +datum=WGS84",
        "+proj=moll +lon_0=0 +datum=WGS84",
    ],
)
def test_a_crs_the_file_spells_out_is_the_one_rasterio_reads(definition: str) -> None:
    image = tiffs.picture("crs", "u1", (1, 4, 4))
    data = tiffs.gdal_written(image, crs=rasterio.CRS.from_string(definition), transform=HERE)
    with MemoryFile(data) as memory, memory.open() as opened:
        theirs = CRS.from_wkt(opened.crs.to_wkt())
    ours = first(data).crs
    assert ours is not None
    origin = [float(found[1]) if (found := re.search(rf"\+{axis}_0=(\S+)", definition)) else 0.0 for axis in "xy"]
    same_place(ours, theirs, origin)


@pytest.mark.parametrize("code", [2154, 3035, 3413, 3857, 4258, 4326, 27700, 28992, 32633, 2263])
def test_codes_stay_codes(code: int) -> None:
    data = tiffs.gdal_written(tiffs.picture("code", "u1", (1, 4, 4)), crs=f"EPSG:{code}", transform=HERE)
    assert first(data).crs == f"EPSG:{code}"


class TestKeys:
    """GeoKeys as other writers set them."""

    def test_vertical_codes_make_a_compound(self) -> None:
        assert first(keyed((1024, 2), (2048, 4326), (4096, 5773))).crs == "EPSG:4326+5773"
        assert first(keyed((1024, 1), (3072, 32633), (4096, 5103))).crs == "EPSG:32633+5703"
        assert first(keyed((1024, 2), (2048, 4326), (4096, 5030))).crs == "EPSG:4326"
        assert CRS.from_user_input("EPSG:4326+5773").is_compound

    def test_geocentric(self) -> None:
        assert first(keyed((1024, 3), (2048, 4978))).crs == "EPSG:4978"

    def test_a_utm_zone_by_projection_code(self) -> None:
        crs = first(keyed((1024, 1), (2048, 4326), (3072, 32767), (3074, 16133), (3076, 9001))).crs
        assert CRS.from_user_input(crs).equals(CRS.from_epsg(32733), ignore_axis_order=True)

    def test_wkt_in_a_citation(self) -> None:
        wkt = CRS.from_epsg(2163).to_wkt("WKT1_ESRI")
        text = b"ESRI PE String = " + wkt.encode() + b"|"
        crs = first(keyed((1024, 1), (3072, 32767), (3073, -1), text=text)).crs
        assert crs == wkt

    def test_wkt_of_a_projection_goes_before_the_number_of_its_base(self) -> None:
        wkt = CRS.from_epsg(3857).to_wkt("WKT1_ESRI")
        keys = ((1024, 32767), (2048, 4326), (3073, -1), (3076, 9001))
        assert first(keyed(*keys, text=f"ESRI PE String = {wkt}|".encode())).crs == wkt
        assert georeferences(keyed((1024, 32767), (2048, 4326), (3076, 9001)))["0/data"] is None
        assert first(keyed((1024, 32767), (2048, 4326))).crs == "EPSG:4326"

    def test_geocentric_coordinates_on_the_datum_of_a_geographic_system_have_no_number(self) -> None:
        assert georeferences(keyed((1024, 3), (2048, 4326), (3076, 9001)))["0/data"] is None

    def test_a_mercator_of_true_scale_at_a_parallel_has_no_other_scale(self) -> None:
        keys = ((1024, 1), (2048, 4269), (3072, 32767), (3075, 7), (3076, 9001), (103078, 1), (103081, 1), (103092, 1))
        crs = first(keyed(*keys, doubles=(47.667, 0.0, 1.0))).crs
        wanted = CRS.from_user_input("+proj=merc +lat_ts=47.667 +datum=NAD83 +units=m")
        way = Transformer.from_crs(CRS.from_user_input(crs), wanted, always_xy=True)
        assert way.transform(-9_278_434.5, 4_143_530.2) == pytest.approx((-9_278_434.5, 4_143_530.2))

    def test_the_projection_of_web_maps_by_its_code(self) -> None:
        data = keyed((1024, 1), (2048, 4326), (3072, 32767), (3074, 3856))
        assert first(data).crs == "EPSG:3857"
        with warnings.catch_warnings(), MemoryFile(data) as memory:
            warnings.simplefilter("ignore")
            with memory.open() as theirs:
                assert theirs.crs.to_epsg() == 3857

    def test_a_code_in_another_unit_is_no_code(self) -> None:
        assert first(keyed((1024, 1), (3072, 2838), (3076, 9001))).crs == "EPSG:2838"
        data = keyed((1024, 1), (3072, 2838), (3076, 9002))
        array = next(step.array for step in scan_bytes(data) if isinstance(step, Found))
        assert array.georeference is None
        assert array.attributes["geo_keys"]["3072"] == 2838
        assert first(keyed((1024, 1), (3072, 2263), (3076, 9003))).crs == "EPSG:2263"

    def test_a_datum_shift_is_kept(self) -> None:
        shift = (565.04, 49.91, 465.84, -0.41, 0.36, -1.87, 4.08)
        entries = ((1024, 2), (2048, 32767), (102057, 1), (102059, 1), (102062, 7))
        crs = CRS.from_user_input(first(keyed(*entries, doubles=(6377397.155, 299.1528128, *shift))).crs)
        assert crs.is_bound
        assert list(crs.coordinate_operation.towgs84) == pytest.approx(shift)

    def test_what_cannot_be_built_leaves_the_keys(self) -> None:
        data = keyed((1024, 1), (2048, 4326), (3072, 32767), (3075, 99))
        array = next(step.array for step in scan_bytes(data) if isinstance(step, Found))
        assert array.georeference is None
        assert array.attributes["geo_keys"] == {"1024": 1, "2048": 4326, "3072": 32767, "3075": 99}

    def test_keys_that_point_outside_their_values_give_no_crs(self) -> None:
        data = keyed((1024, 1), (2048, 4326), (3072, 32767), (3075, 1), (103080, 3), doubles=(1.0,))
        assert georeferences(data)["0/data"] is None

    def test_a_user_defined_projection_without_a_model_is_not_geographic(self) -> None:
        assert georeferences(keyed((2048, 4326), (3072, 32767)))["0/data"] is None


def test_transforms_that_are_no_transform_are_omitted() -> None:
    tie = (DOUBLE, [0.0, 0.0, 0.0, math.nan, 200.0, 0.0])
    data = tiff(image_tags(4, 4, t33550=(DOUBLE, [1.0, 1.0, 0.0]), t33922=tie), data=bytes(16))
    assert georeferences(data)["0/data"] is None


@pytest.mark.parametrize(("category", "ours"), [("linear", geokeys.LENGTHS), ("angular", geokeys.ANGLES)])
def test_units_agree_with_proj(category: str, ours: dict[int, tuple[str, float]]) -> None:
    theirs = {unit.code: unit for unit in get_units_map("EPSG", category).values()}
    for code, (_, factor) in ours.items():
        if code != 9106:  # the gon was withdrawn
            assert factor == pytest.approx(theirs[str(code)].conv_factor, rel=1e-13)
    if category == "linear":
        assert {int(code) for code in theirs} == set(ours)


def test_the_register_agrees_with_proj() -> None:
    for code in (4326, 4267, 4269, 4258, 4230, 4277, 4289, 4314, 4283, 4490):
        crs, ours = CRS.from_epsg(code), register().systems[code]
        assert ours.name == crs.name
        assert ours.datum.name == crs.datum.name.removesuffix(" ensemble")
        assert ours.datum.ellipsoid.semi_major == crs.ellipsoid.semi_major_metre
        assert ours.datum.ellipsoid.inverse_flattening == pytest.approx(crs.ellipsoid.inverse_flattening)
    assert register().meridians[8903].longitude == pytest.approx(2.33722917)
    assert register().lengths[2263] == pytest.approx(0.3048006096)
