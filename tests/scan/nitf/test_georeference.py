"""Corners, grids and polynomials in extensions of NITF georeference it as GDAL and the standards do."""

import math

import numpy as np
import pyproj
import pytest
import rasterio

from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats.nitf import ImageSegment, tre

VALUES = nitfs.values_of("u8", 1)
IGEOLO = "411900N0200400E411900N0200700E411700N0200700E411700N0200400E"
GEOLOB = tre("GEOLOB", b"000360000000180000+00010.00000000+00045.00000000")
MAPLOB = tre("MAPLOB", b"M  0001000020+000500000.0000+004500000.0000")


def where(data):
    (found,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    return found.array.georeference


def attributes(data):
    (found,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    return found.array.attributes


def file_of(tres=b"", *, file=b"", extensions=(), **options):
    return nitfs.nitf(ImageSegment(values=VALUES, tres=tres, **options), tres=file, extensions=extensions)


def blocka(*places, lines=72):
    return tre("BLOCKA", f"0100000{lines:05}000000{'':16}{''.join(places)}{'':5}".encode())


def geopsb(datum="WGE"):
    texts = ("MAP", "M", "World Geodetic System 1984", datum, "World Geodetic System 1984", "WE", "Geodetic", "GEOD")
    widths = (3, 3, 80, 4, 80, 3, 80, 4)
    text = "".join(f"{text:{width}}" for text, width in zip(texts, widths, strict=True))
    return tre("GEOPSB", f"{text}{'Mean Sea':80}MSL {'0':15}{'':3}{'':80}{'':4}".encode())


def prjpsb(code, *parameters):
    text = "".join(f"{value:15}" for value in parameters)
    return tre("PRJPSB", f"{'projection':80}{code:2}{len(parameters)}{text}{'500000':15}{'1000':15}".encode())


def check(data, path, within=1e-12):
    """GDAL has the same grid."""
    path.write_bytes(data)
    found = where(data)
    with rasterio.open(path) as file:
        np.testing.assert_allclose(found.transform, tuple(file.transform)[:6], rtol=within)
        assert rasterio.crs.CRS.from_user_input(found.crs) == file.crs
    return found


def test_geocentric_latitudes_become_those_of_maps(tmp_path):
    picture = ImageSegment(values=VALUES, icords="C", igeolo=IGEOLO)
    found = check(nitfs.nitf(picture, version="NITF02.00"), tmp_path / "a.ntf", 1e-10)
    plain = where(nitfs.nitf(ImageSegment(values=VALUES, icords="G", igeolo=IGEOLO), version="NITF02.00"))
    assert 0.19 < found.transform[5] - plain.transform[5] < 0.2
    poles = "900000N0200400E900000N0200700E411700N0200700E411700N0200400E"
    data = nitfs.nitf(ImageSegment(values=VALUES, icords="C", igeolo=poles), version="NITF02.00")
    check(data, tmp_path / "a.ntf", 1e-10)


@pytest.mark.parametrize("igeolo", [IGEOLO, "411900N0200400E411950N0200705E411730N0200715E411700N0200400E"])
def test_lower_corners_in_the_wrong_order_are_put_right(igeolo, tmp_path):
    wrong = igeolo[:30] + igeolo[45:] + igeolo[30:45]
    right, found = (where(file_of(icords="G", igeolo=text)) for text in (igeolo, wrong))
    assert found == right
    path = tmp_path / "a.ntf"
    path.write_bytes(file_of(icords="G", igeolo=wrong))
    with rasterio.open(path) as file:
        if found.gcps:
            assert [(point.x, point.y) for point in file.gcps[0]] == [(point.x, point.y) for point in found.gcps]
        else:
            np.testing.assert_allclose(found.transform, tuple(file.transform)[:6], rtol=1e-12)


def test_corners_across_the_180th_meridian_are_left_in_their_order():
    wrong = "100000N1790000E100000N1790000W090000N1790000E090000N1790000W"
    assert [point.x for point in where(file_of(icords="G", igeolo=wrong)).gcps] == [179, -179, 179, -179]


@pytest.mark.parametrize(
    ("igeolo", "x"),
    [
        ("100000N1790000E100000N1790000W090000N1790000W090000N1790000E", (179, 181, 181, 179)),
        ("100000N1800000W100000N1790000W090000N1790000W090000N1800000W", (-180, -179, -179, -180)),
        ("100000N1790000E090000N1790000E090000N1790000W100000N1790000W", (179, 179, -179, -179)),
        ("103000N1790000E100000N1790000W090000N1790000W093000N1790000E", (179, 181, 181, 179)),
        ("100000N1790000W090000N1790000W090000N1790000E100000N1790000E", (181, 181, 179, 179)),
        ("103000N1790000E100000N1790000W090000N1783000W093000N1790000E", (179, 181, 181.5, 179)),
        ("900000N1793000W900000N1793000E900000S1793000E900000S1793000W", (-179.5, 179.5, 179.5, -179.5)),
    ],
)
def test_an_image_across_the_180th_meridian_goes_on_to_the_east(igeolo, x):
    """GDAL (3.10) has it go back around the world, but for the image that is the world, and those that do not cross."""
    found = where(file_of(icords="G", igeolo=igeolo))
    if found.gcps:
        assert tuple(point.x for point in found.gcps) == x
        return
    a, b, c, *_ = found.transform
    places = [a * column + b * row + c for column, row in ((0.5, 0.5), (89.5, 0.5), (89.5, 71.5), (0.5, 71.5))]
    np.testing.assert_allclose(places, x, atol=1e-9)


PLACES = ("+41.316806+020.116736", "+41.283472+020.116736", "+41.283472+020.066736", "+41.316806+020.066736")


def test_blocka_is_more_exact_than_the_corners_of_the_subheader(tmp_path):
    check(file_of(blocka(*PLACES), icords="G", igeolo=IGEOLO), tmp_path / "a.ntf")
    check(file_of(blocka(*PLACES)), tmp_path / "a.ntf")


def test_blocka_may_be_in_degrees_and_minutes():
    # GDAL takes such places for decimal degrees.
    seconds = ("411900.50N0200700.25E", "411700.50N0200700.25E", "411700.50N0200400.25E", "411900.50N0200400.25E")
    decimal = ("+41.316806+020.116736", "+41.283472+020.116736", "+41.283472+020.066736", "+41.316806+020.066736")
    one, other = where(file_of(blocka(*seconds))), where(file_of(blocka(*decimal)))
    np.testing.assert_allclose(one.transform, other.transform, atol=1e-6)


@pytest.mark.parametrize(
    "record",
    [blocka(*PLACES, lines=71), blocka(*("?" * 21,) * 4), blocka(*PLACES[:3], "+41.3"), tre("BLOCKA", b"01")],
)
def test_a_blocka_of_something_else_is_ignored(record):
    assert where(file_of(record)) is None
    with_corners = where(file_of(record, icords="G", igeolo=IGEOLO))
    assert with_corners == where(file_of(icords="G", igeolo=IGEOLO))


def test_geolob_gives_a_grid_in_degrees(tmp_path):
    found = check(file_of(GEOLOB, icords="G", igeolo=IGEOLO), tmp_path / "a.ntf")
    assert found.transform == (0.001, 0, 10, 0, -0.002, 45)


@pytest.mark.parametrize(
    ("code", "parameters"),
    [
        ("TC", ("15", "0.9996", "0")),
        ("TC", ("-75.5", "1.0", "40")),
        ("LE", ("10", "40", "50", "45")),
        ("AC", ("10", "40", "50", "45")),
        ("PG", ("30", "71")),
        ("PG", ("30", "-71")),
        *((code, ("10", "40")) for code in ("AK", "AL", "BF", "CS", "GN", "LI", "OD", "PC")),
        *((code, ("10",)) for code in ("ED", "EF", "MP", "RX", "SA", "VA")),
        ("TC", ("15", "0.9996")),
        ("AC", ("10", "40", "50")),
    ],
)
def test_maplob_gives_a_grid_in_a_projection(tmp_path, code, parameters):
    data = file_of(MAPLOB, file=geopsb() + prjpsb(code, *parameters))
    path = tmp_path / "a.ntf"
    path.write_bytes(data)
    found = where(data)
    with rasterio.open(path) as file:
        assert found.transform == tuple(file.transform)[:6]
        theirs, ours = pyproj.CRS(file.crs.to_wkt()), pyproj.CRS(found.crs)
    place = (12.5, -72.0 if "-71" in parameters else 72.0 if code == "PG" else 44.0)
    xy = [pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True).transform(*place) for crs in (theirs, ours)]
    np.testing.assert_allclose(xy[0], xy[1], atol=1e-6)


RADIUS = 6_371_007.0
EAST, NORTH = math.radians(2), math.radians(44)
"""Of a place, counted from the central meridian, and from the equator."""
ECCENTRICITY = math.sqrt(1 - (1 - 1 / 298.257223563) ** 2)


def mercator(latitude):
    """Northing on the ellipsoid of 1984 where the equator is true, in units of its radius."""
    part = ((1 - ECCENTRICITY * math.sin(latitude)) / (1 + ECCENTRICITY * math.sin(latitude))) ** (ECCENTRICITY / 2)
    return math.log(math.tan(math.pi / 4 + latitude / 2) * part)


TRUE = math.cos(math.radians(40)) / math.sqrt(1 - (ECCENTRICITY * math.sin(math.radians(40))) ** 2)
"""Of a Mercator that is true at 40 degrees, the scale at the equator."""


@pytest.mark.parametrize(
    ("code", "parameters", "xy"),
    [
        ("MC", ("10", "40", "0"), (6_378_137 * TRUE * EAST, 6_378_137 * TRUE * mercator(NORTH))),
        ("MC", ("10", "40"), (6_378_137 * TRUE * EAST, 6_378_137 * TRUE * mercator(NORTH))),
        ("CP", ("10", "40", "6371007"), (RADIUS * EAST * math.cos(math.radians(40)), RADIUS * NORTH)),
        ("MH", ("10", "6371007"), (RADIUS * EAST, 1.25 * RADIUS * math.log(math.tan(math.pi / 4 + 0.4 * NORTH)))),
        ("SA", ("10", "6371007"), (RADIUS * EAST * math.cos(NORTH), RADIUS * NORTH)),
        ("OD", ("10", "0", "6371007"), (RADIUS * math.cos(NORTH) * math.sin(EAST), RADIUS * math.sin(NORTH))),
    ],
)
def test_parameters_mean_what_the_standard_lists(code, parameters, xy):
    # GDAL takes the second parameter of MC and MH for the first, and leaves out the radius of spheres.
    found = where(file_of(MAPLOB, file=geopsb() + prjpsb(code, *parameters)))
    placed = pyproj.Transformer.from_crs("EPSG:4326", found.crs, always_xy=True).transform(12.0, 44.0)
    np.testing.assert_allclose(placed, (xy[0] + 500_000, xy[1] + 1_000), atol=1e-3)


@pytest.mark.parametrize(
    ("image", "file"),
    [
        (MAPLOB, geopsb()),
        (MAPLOB, geopsb() + prjpsb("ZZ", "1")),
        (MAPLOB, geopsb() + prjpsb("KA", "10", "40", "50", "45")),
        (MAPLOB, geopsb() + prjpsb("MC", "10", "40", "5")),
        (MAPLOB, geopsb() + prjpsb("MH", "10")),
        (MAPLOB, geopsb() + prjpsb("CP", "10", "40")),
        (MAPLOB, geopsb() + prjpsb("SA", "10", "-6371007")),
        (MAPLOB, geopsb() + prjpsb("PG", "10")),
        (MAPLOB, geopsb() + prjpsb("TC", "15")),
        (MAPLOB, geopsb() + prjpsb("TC", "15", "x", "0")),
        (MAPLOB, geopsb("EUR") + prjpsb("TC", "15", "0.9996", "0")),
        (MAPLOB.replace(b"M  ", b"FT "), geopsb() + prjpsb("TC", "15", "0.9996", "0")),
        (MAPLOB.replace(b"00010", b"00000", 1), geopsb() + prjpsb("TC", "15", "0.9996", "0")),
        (GEOLOB, geopsb("NAS")),
        (GEOLOB.replace(b"000360000", b"         "), b""),
        (tre("GEOLOB", b"0"), b""),
    ],
)
def test_a_grid_that_is_not_plain_is_ignored(image, file):
    assert where(file_of(image, file=file)) is None
    assert where(file_of(image, file=file, icords="G", igeolo=IGEOLO)).transform is not None
    assert "the grid is" in attributes(file_of(image, file=file))["grid_unread"]


def test_a_projection_is_reported_whether_it_is_read_or_not():
    found = attributes(file_of(MAPLOB + prjpsb("NT", "10", "40")))
    assert found["grid_unread"] == "the grid is in projection 'NT', whose parameters are not certain"
    fields = found["tres"][1]["fields"]
    assert [fields[name] for name in ("PRN", "PCO", "PRJ1", "PRJ2", "XOR")] == [
        "projection",
        "NT",
        "10",
        "40",
        "500000",
    ]
    assert "grid_unread" not in attributes(file_of(GEOLOB))
    assert "grid_unread" not in attributes(file_of(icords="G", igeolo=IGEOLO))


def test_corners_and_coefficients_that_are_not_readable_are_reported():
    assert "IGEOLO" in attributes(file_of(icords="G", igeolo="x" + IGEOLO[1:]))["grid_unread"]
    assert "RPC00B" in attributes(file_of(tre("RPC00B", b"1" + b"x" * 1040)))["grid_unread"]
    # A record may declare that it holds no coefficients.
    assert "grid_unread" not in attributes(file_of(tre("RPC00B", b"0" + b"x" * 1040)))


def test_corners_of_commercial_scenes():
    corners = ((41.3, 20.1), (41.3, 20.19), (41.228, 20.19), (41.228, 20.1))
    record = tre("CSCRNA", ("Y" + "".join(f"{y:+09.5f}{x:+010.5f}{0:+08.1f}" for y, x in corners)).encode())
    found = where(file_of(record))
    decimal = "+41.300+020.100+41.300+020.190+41.228+020.190+41.228+020.100"
    np.testing.assert_allclose(found.transform, where(file_of(icords="D", igeolo=decimal)).transform, atol=1e-9)
    assert where(file_of(record[:-8] + b"x" * 8)).crs == "EPSG:4326"
    assert where(file_of(record.replace(b"+41.3", b"?41.3"))) is None


# --- polynomials ---------------------------------------------------------------------------------------------------

TERMS_A = ["", "L", "P", "H", "LP", "LH", "PH", "LPH", "LL", "PP", "HH", "LLL", "LLP", "LLH", "LPP", "PPP", "PPH",
           "LHH", "PHH", "HHH"]  # fmt: skip
TERMS_B = ["", "L", "P", "H", "LP", "LH", "PH", "LL", "PP", "HH", "PLH", "LLL", "LPP", "LHH", "LLP", "PPP", "PHH",
           "LLH", "PPH", "HHH"]  # fmt: skip
OFFSETS = "0001.500000.25000036" + "00045" + "+41.2500+020.1250+0100000036" + "00045" + "+00.0250+000.0500+0500"


def coefficients():
    return [[f"{'+-'[n % 2]}0.{1 + n + 20 * k:06}E+{k}" for n in range(20)] for k in range(4)]


def rpc(tag):
    return tre(tag, ("1" + OFFSETS + "".join(term for each in coefficients() for term in each)).encode())


def polynomial(values, terms):
    place = {"L": 0.3, "P": -0.7, "H": 0.11}
    return sum(value * math.prod(place[letter] for letter in term) for value, term in zip(values, terms, strict=True))


def test_the_terms_of_rpc00a_are_put_into_the_order_of_rpc00b():
    names = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
    for tag, terms in (("RPC00A", TERMS_A), ("RPC00B", TERMS_B)):
        found = where(file_of(rpc(tag))).rpc
        for name, stored in zip(names, coefficients(), strict=True):
            wanted = polynomial([float(value) for value in stored], terms)
            assert polynomial(found[name], TERMS_B) == pytest.approx(wanted, rel=1e-12)


def ichipb(op, fi, flag="00"):
    """Rows and columns of the first and last corners in the chip and in the whole image."""
    corners = [(r, c) for rows, columns in (op, fi) for r in rows for c in columns]
    numbers = "".join(f"{value:012.3f}" for corner in corners for value in corner)
    return tre("ICHIPB", f"{flag}0001.000000000{numbers}0000100000001000".encode())


def test_polynomials_of_a_chip_are_moved_to_it():
    whole = where(file_of(rpc("RPC00B"))).rpc
    same = ichipb(((0.5, 71.5), (0.5, 89.5)), ((0.5, 71.5), (0.5, 89.5)))
    assert where(file_of(rpc("RPC00B") + same)).rpc == whole
    # Every second pixel from row 100 and column 200 on: pixel (0, 0) of the chip is the mean of four.
    chip = ichipb(((0.0, 72.0), (0.0, 90.0)), ((100.0, 244.0), (200.0, 380.0)))
    found = where(file_of(rpc("RPC00B") + chip)).rpc
    assert found["line_off"] == (whole["line_off"] + 0.5 - 100) / 2 - 0.5
    assert found["samp_off"] == (whole["samp_off"] + 0.5 - 200) / 2 - 0.5
    assert (found["line_scale"], found["samp_scale"]) == (whole["line_scale"] / 2, whole["samp_scale"] / 2)
    for other in (
        ichipb(((0.0, 72.0), (0.0, 90.0)), ((100.0, 244.0), (200.0, 380.0)), flag="01"),
        ichipb(((0.0, 0.0), (0.0, 90.0)), ((100.0, 244.0), (200.0, 380.0))),
        chip.replace(b"00000244.000", b"00000244.xxx"),
        chip.replace(b"00000244.000", b"00000245.000", 1),
    ):
        assert where(file_of(rpc("RPC00B") + other)).rpc == whole


# --- extensions that did not fit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["NITF02.10", "NITF02.00"])
def test_extensions_go_on_in_a_segment_of_their_own(version, tmp_path):
    item = ImageSegment(values=VALUES, tres=tre("XYZZYA", b"plugh"), overflow=1)
    data = nitfs.nitf(item, version=version, extensions=[rpc("RPC00B"), tre("OTHERA", b"x")])
    (found,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    assert [each["tag"] for each in found.array.attributes["tres"]] == ["XYZZYA", "RPC00B"]
    path = tmp_path / "a.ntf"
    path.write_bytes(data)
    with rasterio.open(path) as file:
        # GDAL lists such segments, and looks for no polynomials in them.
        assert ("TRE_OVERFLOW" in file.tags(ns="xml:DES")["xml:DES"]) == (version == "NITF02.10")
    path.write_bytes(file_of(rpc("RPC00B")))
    with rasterio.open(path) as file:
        assert file.rpcs.line_off == found.array.georeference.rpc["line_off"]
        assert file.rpcs.samp_num_coeff == pytest.approx(found.array.georeference.rpc["samp_num_coeff"])


def test_an_overflow_into_nothing_is_ignored():
    assert where(nitfs.nitf(ImageSegment(values=VALUES, overflow=3))) is None
    wrong = nitfs.nitf(ImageSegment(values=VALUES, overflow=1), extensions=[rpc("RPC00B")])
    assert where(wrong.replace(b"TRE_OVERFLOW", b"SOMETHING   ")) is None


# --- near the poles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("latitude", "corner"), [(90, (-900_000.0, 300_000.0)), (-90, (-50_000.0, 60_000.0))])
def test_frames_of_polar_zones_have_a_polar_crs(latitude, corner):
    plane = f"+proj=aeqd +lat_0={latitude} +lon_0=0 +R=6378137 +units=m +no_defs"
    to_degrees = pyproj.Transformer.from_crs(plane, pyproj.CRS(plane).geodetic_crs, always_xy=True)
    size = 1500.0
    rows, columns = VALUES.shape[1:]
    left, top = corner
    places = [(0, 0), (columns - 1, 0), (columns - 1, rows - 1), (0, rows - 1)]
    corners = [to_degrees.transform(left + size * (x + 0.5), top - size * (y + 0.5)) for x, y in places]
    places = [f"{y:+010.6f}{x:+011.6f}" for x, y in (corners[k] for k in (1, 2, 3, 0))]
    found = where(file_of(blocka(*places)))
    np.testing.assert_allclose(found.transform, (size, 0, left, 0, -size, top), atol=1)
    back = pyproj.Transformer.from_crs(pyproj.CRS(found.crs), "EPSG:4326", always_xy=True)
    np.testing.assert_allclose(back.transform(left + size / 2, top - size / 2), corners[0], atol=1e-6)


def test_corners_near_a_pole_that_fit_no_plane_are_control_points():
    found = where(file_of(blocka("+85.000000+010.000000", "+84.000000+020.000000", "+89.000000-170.000000",
                                 "+82.000000-100.000000")))  # fmt: skip
    assert found.transform is None
    assert len(found.gcps) == 4
