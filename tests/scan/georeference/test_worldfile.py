"""World files and other sidecars of a picture give the transform and CRS that GDAL has."""

import imagecodecs
import numpy as np
import pytest
import rasterio
import rasterio.shutil
from PIL import Image
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import RPC_COEFFICIENTS, RPC_NAMES, About, Found, Source
from periplus.scan.drive import scan_bytes
from periplus.scan.georeference import worldfile
from periplus.scan.sidecars import name_of, sidecar_names

WORLD = "0.5\n0.125\n-0.25\n-2.0\n500000.25\n4649999.0\n"
PRJ = (
    'PROJCS["WGS_1984_UTM_Zone_33N",GEOGCS["GCS_WGS_1984",DATUM["D_WGS_1984",SPHEROID["WGS_1984",6378137.0,'
    '298.257223563]],PRIMEM["Greenwich",0.0],UNIT["Degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],'
    'PARAMETER["False_Easting",500000.0],PARAMETER["False_Northing",0.0],PARAMETER["Central_Meridian",15.0],'
    'PARAMETER["Scale_Factor",0.9996],PARAMETER["Latitude_Of_Origin",0.0],UNIT["Meter",1.0]]'
)


@pytest.fixture
def picture(tmp_path):
    def make(name, *, files=None):
        """The picture's bytes, and what GDAL reads from it with those sidecars."""
        path = tmp_path / name
        Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8)).save(path)
        for other, text in (files or {}).items():
            (tmp_path / other).write_text(text)
        return path.read_bytes()

    return make


def scanned(data, name, files):
    steps = scan_bytes(data, url=f"memory:/{name}", sidecars={other: text.encode() for other, text in files.items()})
    (found,) = (step for step in steps if isinstance(step, Found))
    return found, next((step for step in steps if isinstance(step, About)), None)


def written(folder, **options):
    """A PNG by GDAL and the sidecar of metadata that it writes."""
    with rasterio.open(
        folder / "a.tif", "w", driver="GTiff", width=8, height=6, count=1, dtype="uint8", **options
    ) as file:
        file.write(np.arange(48, dtype=np.uint8).reshape(1, 6, 8))
    rasterio.shutil.copy(folder / "a.tif", folder / "a.png", driver="PNG")
    return (folder / "a.png").read_bytes(), (folder / "a.png.aux.xml").read_text()


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("a.jpg", "a.jgw"), ("a.jpg", "a.jpgw"), ("a.jpg", "a.wld"), ("a.jpeg", "a.jgw"), ("a.png", "a.pgw"),
        ("a.png", "a.pngw"), ("a.png", "a.wld"), ("a.b.JPG", "a.b.JGW"), ("A.PNG", "A.WLD"),
    ],
)  # fmt: skip
def test_a_world_file_gives_the_transform_gdal_has(picture, tmp_path, name, world):
    data = picture(name, files={world: WORLD})
    found, _ = scanned(data, name, {world: WORLD})
    with rasterio.open(tmp_path / name) as file:
        assert found.array.georeference.transform == tuple(file.transform)[:6]
    assert found.array.georeference.crs is None
    assert found.described_by == (world,)
    assert found.sidecar == ""
    assert found.array.attributes["georeferenced_by"] == [world]


def test_a_decimal_comma_is_what_gdal_takes_it_for(picture, tmp_path):
    text = "10,5\n0,25\n-0,5\n-10,5\n500005,25\n4999995,75\n"
    found, _ = scanned(picture("a.png", files={"a.pgw": text}), "a.png", {"a.pgw": text})
    with rasterio.open(tmp_path / "a.png") as file:
        assert found.array.georeference.transform == tuple(file.transform)[:6]


@pytest.mark.parametrize(("name", "world"), [("a.jp2", "a.j2w"), ("a.j2k", "a.jkw"), ("a.jp2", "a.wld")])
def test_every_level_of_a_codestream_is_placed_by_its_world_file(name, world):
    values = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    form = "jp2" if name.endswith("jp2") else "j2k"
    data = imagecodecs.jpeg2k_encode(values, level=0, codecformat=form, resolutions=3)
    steps = scan_bytes(data, url=f"memory:/{name}", sidecars={world: WORLD.encode()})
    found = [step for step in steps if isinstance(step, Found)]
    assert len(found) > 1
    a, b, c, d, e, f = worldfile.world(WORLD)
    for level, each in enumerate(found):
        size = 2**level
        assert each.array.georeference.transform == (a * size, b * size, c, d * size, e * size, f)
        assert each.described_by == (world,)
    assert next(step for step in scan_bytes(data) if isinstance(step, Found)).array.georeference is None


def test_a_projection_sidecar_is_the_crs(picture):
    files = {"a.jgw": WORLD, "a.prj": PRJ}
    found, _ = scanned(picture("a.jpg"), "a.jpg", files)
    assert rasterio.crs.CRS.from_wkt(found.array.georeference.crs) == rasterio.crs.CRS.from_epsg(32633)
    assert found.described_by == ("a.jgw", "a.prj")


def test_a_sidecar_of_gdal_gives_what_gdal_reads(tmp_path):
    data, text = written(tmp_path, transform=rasterio.Affine(2, 0, 100, 0, -3, 200), crs="EPSG:32633")
    files = {"a.png.aux.xml": text, "a.pgw": WORLD}
    found, _ = scanned(data, "a.png", files)
    assert found.array.georeference.transform == (2, 0, 100, 0, -3, 200)
    assert found.array.georeference.crs == "EPSG:32633"
    assert found.described_by == ("a.png.aux.xml",)


def test_metadata_without_a_transform_leave_it_to_the_world_file(tmp_path):
    data, text = written(tmp_path, crs="EPSG:4326")
    found, _ = scanned(data, "a.png", {"a.png.aux.xml": text, "a.pgw": WORLD})
    assert found.array.georeference.crs == "EPSG:4326"
    assert found.described_by == ("a.png.aux.xml", "a.pgw")
    assert scanned(data, "a.png", {"a.png.aux.xml": "<PAMDataset/>"})[0].described_by == ()


def test_control_points_and_rpcs_in_a_sidecar_of_gdal(tmp_path):
    """Written by GDAL, and read back by it."""
    gcps = [GroundControlPoint(row=r, col=c, x=10 + c / 8, y=50 - r / 6, z=3) for r in (0, 6) for c in (0, 8)]
    data, text = written(tmp_path, gcps=gcps, crs="EPSG:4326")
    found, _ = scanned(data, "a.png", {"a.png.aux.xml": text, "a.pgw": WORLD})
    with rasterio.open(tmp_path / "a.png") as dataset:
        theirs = [(p.col, p.row, p.x, p.y, p.z) for p in dataset.gcps[0]]
    where = found.array.georeference
    assert [(p.column, p.row, p.x, p.y, p.z) for p in where.gcps] == theirs
    assert where.crs == "EPSG:4326"
    assert found.described_by == ("a.png.aux.xml",)

    numbers = {name: float(n) for n, name in enumerate(RPC_NAMES, 1)} | {"lat_off": 51.5, "height_scale": 500.25}
    rpc = RPC(**numbers, **{name: [k + n / 7 for n in range(20)] for k, name in enumerate(RPC_COEFFICIENTS)})
    data, text = written(tmp_path, rpcs=rpc)
    found, about = scanned(data, "a.png", {"a.png.aux.xml": text})
    with rasterio.open(tmp_path / "a.png") as dataset:
        assert found.array.georeference.rpc == dataset.rpcs.to_dict()
    assert about is None
    found, about = scanned(data, "a.png", {"a.png.aux.xml": text.replace("51.5", "north")})
    assert found.array.georeference is None
    assert "LAT_OFF" in about.attributes["refused"][0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        "a b c d e f",
        "0\n0\n0\n0\n5\n6",
        "nan\n0\n0\n1\n5\n6",
        "1e999\n0\n0\n1\n5\n6",
        "<html>" * 99,
        "9" * 70000,
    ],
)
def test_a_world_file_that_is_none_is_reported_and_ignored(picture, text):
    found, about = scanned(picture("a.jpg"), "a.jpg", {"a.jgw": text})
    assert found.array.georeference is None
    assert found.described_by == ()
    assert about.attributes["refused"][0].startswith("a.jgw: ")
    found, _ = scanned(picture("a.jpg"), "a.jpg", {"a.jgw": text, "a.wld": WORLD})
    assert found.described_by == ("a.wld",)


@pytest.mark.parametrize(
    "text", ["", "<a/>", "no", "<PAMDataset><GeoTransform>1,2</GeoTransform></PAMDataset>",
             '<!DOCTYPE x [<!ENTITY a "b">]><PAMDataset>&a;</PAMDataset>']
)  # fmt: skip
def test_metadata_that_are_none_are_reported_and_ignored(picture, text):
    found, about = scanned(picture("a.jpg"), "a.jpg", {"a.jpg.aux.xml": text})
    assert found.array.georeference is None
    assert about.attributes["refused"][0].startswith("a.jpg.aux.xml: ")
    with pytest.raises(FormatError):
        worldfile.auxiliary(text)


def test_a_projection_that_is_none_is_reported(picture):
    found, about = scanned(picture("a.jpg"), "a.jpg", {"a.jgw": WORLD, "a.prj": "PROJCS["})
    assert found.array.georeference.crs is None
    assert about.attributes["refused"] == ["a.prj: it contains no coordinate system in WKT"]


def test_names_of_sidecars():
    assert sidecar_names("s3://b/x/a.jpg", after=(".aux.xml",), instead=(".wld",)) == ("a.jpg.aux.xml", "a.wld")
    assert sidecar_names("/x/A.JPG", instead=(".jgw",)) == ("A.JGW",)
    assert worldfile.world_names("/x/picture") == ("picture.wld",)
    assert name_of("https://h/a.jpg?token=1") is None
    assert name_of("memory:") is None
    assert name_of("/x/.jpg").suffix == ""
    assert next(worldfile.read_sidecars(Source(url="/x/a.jpg"), Limits())).names == (
        "a.jpg.aux.xml",
        "a.jgw",
        "a.jpgw",
        "a.wld",
    )


def test_a_transform_is_kept_where_its_coordinate_system_is_not_readable(picture):
    text = "<PAMDataset><SRS>here</SRS><GeoTransform>100, 2, 0, 200, 0, -3</GeoTransform></PAMDataset>"
    found, about = scanned(picture("a.jpg"), "a.jpg", {"a.jpg.aux.xml": text})
    assert found.array.georeference.transform == (2, 0, 100, 0, -3, 200)
    assert about.attributes["refused"] == ["a.jpg.aux.xml: its SRS is not a coordinate system in WKT"]
