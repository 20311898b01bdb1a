"""The worked examples of the imagery seed under our names, and indexes that travel between osml-imagery-io and us."""

import json
from importlib.metadata import entry_points

import numpy as np
import pytest
import rasterio
import rasterio.shutil
import xarray as xr
import zarr
from affine import Affine
from zarr.storage import FsspecStore

import periplus
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.osml import MultiReferenceFileSystem, Parser, write_tile_index

pytestmark = [
    pytest.mark.usefixtures("our_codecs"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:Dataset has no geotransform"),
]
WHY = "osml-imagery-io is not installed"


def cog(path):
    image = tiffs.picture("cog", np.uint8, (3, 200, 300))
    options = {"driver": "GTiff", "count": 3, "height": 200, "width": 300, "dtype": "uint8", "crs": "EPSG:32633"}
    plain = path.with_name("source.tif")
    with rasterio.open(plain, "w", transform=Affine(10, 0, 500_000, 0, -10, 5_000_000), **options) as target:
        target.write(image)
    rasterio.shutil.copy(plain, path, driver="COG", compress="deflate", predictor="YES", blocksize=128)
    plain.unlink()
    return path


def make(folder, name):
    path = folder / name
    if name == "cog.tif":
        return cog(path)
    if name == "parts.j2k":
        data = j2ks.interleaved(j2ks.layout("parts-rpcl"))
    elif name == "tiles.j2k":
        data = j2ks.layout("tiled")
    elif name.endswith(".dt1"):
        data = dteds.gdal_cell(dteds.heights("cell", 1201, 1201))
    elif name.endswith(".ntf"):
        data = nitfs.nitf(nitfs.case(name.removesuffix(".ntf")))
    else:
        options = {"planar.tif": {"planar": True, "compression": "lzw"}, "plain.tif": {}}[name]
        data = tiffs.written(tiffs.picture(name, np.uint16), **options)
    path.write_bytes(data)
    return path


FILES = (
    "cog.tif",
    "planar.tif",
    "plain.tif",
    "plain-u8-B-tiles-3.ntf",
    "plain-u16-P-tiles-3.ntf",
    "plain-f32-R-tiles-3.ntf",
    "tiles.j2k",
    "parts.j2k",
    "n43.dt1",
)


WIDELY = ("cog.tif", "plain-u16-P-tiles-3.ntf", "parts.j2k")
"""Files that are tried in every form; the others in one."""


def pairs(forms, one):
    return [(name, form) for name in FILES for form in forms if name in WIDELY or form == one]


@pytest.fixture(scope="module")
def archive(tmp_path_factory, seen_by_gdal):
    folder = tmp_path_factory.mktemp("imagery")
    paths = {name: make(folder, name) for name in FILES}
    return {name: (path, seen_by_gdal(path)) for name, path in paths.items()}


def opened(index, *, system=MultiReferenceFileSystem, zarr_format=2, **options):
    """As the seed opens an index, word for word."""
    fs = system(
        fo=str(index), asynchronous=True, remote_options={"asynchronous": True}, skip_instance_cache=True, **options
    )
    store = FsspecStore(fs=fs, read_only=True, path="")
    return zarr.open_group(store, mode="r", zarr_format=zarr_format)


# --- worked examples ------------------------------------------------------------------------------------------------


def test_a_single_resolution_nitf_portable(seen_by_gdal, tmp_path):
    """Index here, upload both, read there: `url` is left out, so the index speaks of `{{base}}`."""
    local = tmp_path / "local"
    local.mkdir()
    path = make(local, "plain-u8-B-tiles-3.ntf")
    store = Parser(local_paths=path)()
    write_tile_index(store, tmp_path / "image.ntf.tile_index.json")
    document = json.loads((tmp_path / "image.ntf.tile_index.json").read_text())
    assert document["templates"] == {"base": "local/"}
    assert document["refs"]["0/data/0.0.0"][0] == "{{base}}plain-u8-B-tiles-3.ntf"
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    path.rename(bucket / path.name)
    root = opened(tmp_path / "image.ntf.tile_index.json", template_overrides={"base": f"{bucket}/"})
    tile = np.asarray(root["0/data"][0:3, 32:64, 16:48])
    assert np.array_equal(tile, seen_by_gdal(bucket / path.name)["0/data"][:, 32:64, 16:48])


def test_an_index_may_speak_of_where_the_file_will_be(tmp_path):
    path = make(tmp_path, "plain.tif")
    store = Parser(local_paths=path)(url="s3://my-bucket/imagery/image.tif")
    write_tile_index(store, tmp_path / "a.json")
    assert (
        json.loads((tmp_path / "a.json").read_text())["refs"]["0/data/0.0.0"][0] == "s3://my-bucket/imagery/image.tif"
    )
    write_tile_index(Parser()(path), tmp_path / "b.json", url_overrides={str(path): "s3://my-bucket/other.tif"})
    assert json.loads((tmp_path / "b.json").read_text())["refs"]["0/data/0.0.0"][0] == "s3://my-bucket/other.tif"


MOVED = ("deflate-strips", "lzw-strips", "plain-strips", "cog")


@pytest.mark.parametrize("name", MOVED)
def test_an_index_does_not_depend_on_what_is_reachable(name, server, seen_by_gdal, tmp_path):
    """Strips and tiles are known from scanning: the new place is not asked, and its file has another time."""
    path = tmp_path / "image.tif"
    if name == "cog":
        cog(path)
    else:
        compression = {"deflate": "zlib", "lzw": "lzw", "plain": None}[name.partition("-")[0]]
        image = tiffs.picture(name, np.uint8, (3, 50, 40))
        path.write_bytes(tiffs.written(image, tiled=False, rowsperstrip=8, compression=compression))
    store = Parser(local_paths=path)(url=f"{server.url}/in/image.tif")
    written = {}
    for there in (False, True):
        server.files = {"in/image.tif": path.read_bytes()} if there else {}
        for zarr_format in (2, 3):
            target = tmp_path / f"{zarr_format}-{there}.json"
            write_tile_index(store, target, zarr_format=zarr_format)
            written[zarr_format, there] = target.read_text()
    assert written[2, False] == written[2, True]
    assert written[3, False] == written[3, True]
    assert server.log == []
    truth = seen_by_gdal(path)
    with periplus.open(tmp_path / "2-True.json", allow=server.url) as index:
        assert np.isnat(index.files.last_modified).all()
        for array, values in truth.items():
            assert np.array_equal(index[array][:], values)


@pytest.mark.parametrize("names", [("image.ntf", "image.ntf.r1", "new.ntf.r1"), ("image.r0", "image.r1", "new.r1")])
def test_r_sets_move_with_their_image(names, tmp_path):
    image, smaller, moved = names
    for name, shape in ((image, (72, 90)), (smaller, (36, 45))):
        segment = nitfs.ImageSegment(values=nitfs.values_of("u8", 1, shape), kind="u8", mode="B", block=(0, 0))
        (tmp_path / name).write_bytes(nitfs.nitf(segment))
    url = f"s3://my-bucket/new{(tmp_path / image).suffix}"
    store = Parser(local_paths=tmp_path / image)(url=url)
    write_tile_index(store, tmp_path / "index.json")
    refs = json.loads((tmp_path / "index.json").read_text())["refs"]
    assert (refs["0/data/0.0.0"][0], refs["1/data/0.0.0"][0]) == (url, f"s3://my-bucket/{moved}")


def test_a_cog_pyramid(archive, tmp_path):
    path, truth = archive["cog.tif"]
    store = Parser()(str(path))
    assert np.array_equal(zarr.open_group(store, mode="r")["0/data"][:], truth["0/data"])
    for zarr_format, output in ((2, "two.json"), (3, "three.json"), (2, "two.parquet")):
        index = path.parent / output
        write_tile_index(store, index, zarr_format=zarr_format)
        root = opened(index, zarr_format=zarr_format)
        for array, values in truth.items():
            assert np.array_equal(np.asarray(root[array]), values)
        layout = root.attrs["multiscales"]["layout"]
        assert [item["asset"] for item in layout] == [name.partition("/")[0] for name in truth]
        assert layout[1]["derived_from"] == "0"
        fs = MultiReferenceFileSystem(str(index), asynchronous=True)
        tree = xr.open_datatree(FsspecStore(fs, read_only=True, path=""), engine="zarr", consolidated=True)
        assert tree["1"].dataset["data"].shape == truth["1/data"].shape  # the peer's layout opens empty


def test_the_root_names_the_file_as_the_references_do(tmp_path):
    path = make(tmp_path, "cog.tif")

    def root(name):
        refs = json.loads((tmp_path / name).read_text())["refs"]
        attributes = json.loads(refs["zarr.json"])["attributes"] if "zarr.json" in refs else json.loads(refs[".zattrs"])
        assert attributes["source"] == refs["0/data/c.0.0.0" if "zarr.json" in refs else "0/data/0.0.0"][0]
        return attributes["source"]

    for zarr_format in (2, 3):
        write_tile_index(Parser()(path), tmp_path / "here.json", zarr_format=zarr_format)
        assert root("here.json") == str(path)
        write_tile_index(Parser(local_paths=path)(), tmp_path / "portable.json", zarr_format=zarr_format)
        assert root("portable.json") == "{{base}}cog.tif"
        write_tile_index(Parser(local_paths=path)(url="s3://b/x.tif"), tmp_path / "there.json", zarr_format=zarr_format)
        assert root("there.json") == "s3://b/x.tif"
    index = periplus.index(path)
    assert zarr.open_group(index.store(), mode="r").attrs["source"] == str(path)
    # It is not metadata of the image: what is read and written elsewhere names its own file.
    with periplus.open(tmp_path / "portable.json", template_overrides={"base": f"{tmp_path}/"}) as moved:
        assert "source" not in moved.table.catalog.attributes.get("", {})
        assert zarr.open_group(moved.store(), mode="r").attrs["source"] == str(path)
    for name in ("2021", "2022"):
        make(tmp_path, "cog.tif").rename(tmp_path / f"{name}.tif")
    stacked = periplus.index(tmp_path / "202*.tif", arrange="stack", pattern="{time:%Y}")
    assert "source" not in zarr.open_group(stacked.store(), mode="r").attrs


def test_some_levels_only(archive):
    path, truth = archive["cog.tif"]
    write_tile_index(Parser()(path), path.parent / "some.json", segments=["1"])
    root = opened(path.parent / "some.json")
    assert "0" not in root
    assert np.array_equal(np.asarray(root["1/data"]), truth["1/data"])


@pytest.mark.parametrize("beside", [True, False])
def test_an_r_set_of_three_files(tmp_path, beside):
    """Files of one pyramid, found by name, or listed where their names say nothing."""
    sizes = {0: (72, 90), 1: (36, 45), 2: (18, 23)}
    names = {
        0: "image.ntf",
        1: "image.ntf.r1" if beside else "half.ntf",
        2: "image.ntf.r2" if beside else "quarter.ntf",
    }
    truth = {}
    for level, (height, width) in sizes.items():
        values = nitfs.values_of("u8", 3, (height, width))
        (tmp_path / names[level]).write_bytes(
            nitfs.nitf(nitfs.ImageSegment(values=values, kind="u8", mode="B", block=(0, 0)))
        )
        truth[f"{level}/data"] = values
    store = Parser(local_paths=[tmp_path / name for name in names.values()])()
    write_tile_index(store, tmp_path / "image.ntf.tile_index.json")
    refs = json.loads((tmp_path / "image.ntf.tile_index.json").read_text())["refs"]
    assert [refs[f"{level}/data/0.0.0"][0] for level in sizes] == [f"{{{{base}}}}{name}" for name in names.values()]
    root = opened(tmp_path / "image.ntf.tile_index.json", template_overrides={"base": f"{tmp_path}/"})
    for array, values in truth.items():
        assert np.array_equal(np.asarray(root[array]), values)


def test_what_cannot_be_meant_is_refused(archive, tmp_path):
    store = Parser()(archive["cog.tif"][0])
    with pytest.raises(periplus.FormatError, match="exclude each other"):
        write_tile_index(store, tmp_path / "a.json", template_base="{{base}}", url_overrides={"a": "b"})
    with pytest.raises(periplus.FormatError, match="template_base"):
        write_tile_index(store, tmp_path / "a.json", template_base="{{x.y()}}")
    with pytest.raises(periplus.MissingError, match="no source"):
        write_tile_index(store, tmp_path / "a.json", url_overrides={"/no/such.tif": "s3://b/a.tif"})
    with pytest.raises(periplus.MissingError, match="no array"):
        write_tile_index(store, tmp_path / "a.json", segments=["9"])
    with pytest.raises(periplus.MissingError, match="neither"):
        Parser()()
    with pytest.raises(periplus.FormatError, match="2 urls for 1 files"):
        Parser(local_paths="a.tif")(url=["s3://b/a", "s3://b/b"])


# --- theirs, read by us ---------------------------------------------------------------------------------------------


@pytest.fixture
def osml():
    """Their parser and writer."""
    return pytest.importorskip("aws.osml.io.virtualizarr_parsers", reason=WHY)


FORMS = {
    "two.json": {},
    "three.json": {"zarr_format": 3},
    "two.parquet": {},
    "portable.json": {"template_base": "{{base}}"},
    "portable.parquet": {"template_base": "{{base}}"},
}


@pytest.mark.parametrize(("name", "form"), pairs(FORMS, "two.json"))
def test_their_index_opens_with_us(archive, osml, name, form):
    path, truth = archive[name]
    index = path.parent / f"theirs-{name}-{form}"
    osml.write_tile_index(osml.OversightMLParser()(str(path)), str(index), **FORMS[form])
    base = {"template_overrides": {"base": f"{path.parent}/"}} if "portable" in form else {}
    ours = periplus.open(index, **base)
    for array in ours:
        if array in truth:
            assert np.array_equal(ours[array][:], truth[array]), array
    assert "0/data" in ours
    assert ours["0/data"].dims == ("bands", "y", "x")
    root = opened(index, zarr_format=FORMS[form].get("zarr_format", 2), **base)
    assert np.array_equal(root["0/data"][:], truth["0/data"])


# --- ours, read by them ---------------------------------------------------------------------------------------------


@pytest.fixture
def their_codecs(our_codecs):
    """Theirs decode."""
    pytest.importorskip("aws.osml.io.zarr_codecs", reason=WHY)
    import numcodecs
    from zarr.registry import fully_qualified_name, register_codec

    chosen = {}
    for point in entry_points(group="numcodecs.codecs"):
        if point.value.startswith("aws."):
            numcodecs.registry.register_codec(point.load(), codec_id=point.name)
    for point in entry_points(group="zarr.codecs"):
        if point.value.startswith("aws."):
            register_codec(point.name, point.load())
            chosen[point.name] = fully_qualified_name(point.load())
    with zarr.config.set({"codecs": {**zarr.config.get("codecs"), **chosen}}):
        yield
    from periplus.zarr.codecs.v3 import register

    register()


@pytest.mark.parametrize(("name", "form"), pairs(["two.json", "three.json", "two.parquet"], "three.json"))
def test_our_index_opens_with_them(archive, their_codecs, name, form):
    multi = pytest.importorskip("aws.osml.io.multi_reference_fs", reason=WHY)
    path, truth = archive[name]
    index = path.parent / f"ours-{name}-{form}"
    zarr_format = 3 if form.startswith("three") else 2
    write_tile_index(Parser()(path), index, zarr_format=zarr_format)
    root = opened(index, system=multi.MultiReferenceFileSystem, zarr_format=zarr_format)
    for array, values in truth.items():
        assert np.array_equal(root[array][:], values), array
