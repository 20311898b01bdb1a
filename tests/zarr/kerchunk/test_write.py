"""The same archive through every kerchunk form and reader, pixel for pixel as rasterio sees it."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest
import rasterio
import rasterio.shutil
import xarray as xr
import zarr
from affine import Affine
from fsspec.implementations.reference import LazyReferenceMapper, ReferenceFileSystem
from zarr.storage import FsspecStore

import periplus
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.kerchunk.records import SEVERAL

pytestmark = [
    pytest.mark.usefixtures("our_codecs"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:The codec `vlen-utf8`"),
    pytest.mark.filterwarnings("ignore:Dataset has no geotransform"),
]
FORMS = {
    "json-2": ("refs.json", {"zarr_format": 2}),
    "json-3": ("refs.json", {"zarr_format": 3}),
    "parquet-2": ("refs.kerchunk", {"zarr_format": 2, "form": "kerchunk"}),
}
FILES = ("cog.tif", "plain.tif", "parts.j2k", "big.tif", "strips.tif", "rows.ntf")

WIDELY = ("cog.tif", "parts.j2k")
PAIRS = [(name, form) for name in FILES for form in FORMS if name in WIDELY or form in ("json-3", "parquet-2")]
"""Two files in every form, the others in two."""


def make(folder, name):
    """One file of the archive."""
    path = folder / name
    place = {"crs": "EPSG:32633", "transform": Affine(10, 0, 500_000, 0, -10, 5_000_000)}
    if name == "cog.tif":
        image = tiffs.picture(name, np.uint16, (3, 200, 300))
        plain = {"driver": "GTiff", "count": 3, "height": 200, "width": 300, "dtype": "uint16"}
        with rasterio.open(folder / "source.tif", "w", **plain, **place) as target:
            target.write(image)
        rasterio.shutil.copy(
            folder / "source.tif", path, driver="COG", compress="deflate", predictor="YES", blocksize=128
        )
    elif name == "plain.tif":
        image = tiffs.picture(name, np.int16, (1, 150, 130))
        shape = {"count": 1, "height": 150, "width": 130, "dtype": "int16", "nodata": -9999, "tiled": True}
        sizes = {"blockxsize": 64, "blockysize": 64, "compress": "zstd"}
        with rasterio.open(path, "w", driver="GTiff", **shape, **sizes, **place) as target:
            target.write(image)
    elif name == "parts.j2k":
        path.write_bytes(j2ks.interleaved(j2ks.layout("parts-rpcl")))
    elif name == "big.tif":
        path.write_bytes(tiffs.written(tiffs.picture(name, np.uint16), big=True, compression="zlib"))
    elif name == "strips.tif":
        path.write_bytes(tiffs.written(tiffs.picture(name, np.uint8), tiled=False, compression="lzw"))
    else:
        path.write_bytes(nitfs.nitf(nitfs.case("plain-u16-R-tiles-3")))
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory, seen_by_gdal):
    """(path, index, truth) of every file."""
    folder = tmp_path_factory.mktemp("archive")
    paths = {name: make(folder, name) for name in FILES}
    return {name: (path, periplus.index(path), seen_by_gdal(path)) for name, path in paths.items()}


def written(archive, name, form, **options):
    path, index, truth = archive[name]
    target, given = FORMS[form]
    place = path.parent / f"{name}-{form}-{target}"
    if name == "big.tif":  # of Zarr v2 only ours can say it
        options = {"codecs": "all", **options}
    index.write(place, **given, **options)
    return place, truth


def group_of(system):
    return zarr.open_group(FsspecStore(system, read_only=True, path=""), mode="r")


@pytest.mark.parametrize(("name", "form"), PAIRS)
def test_our_reader_sees_what_rasterio_sees(archive, name, form):
    place, truth = written(archive, name, form)
    with periplus.open(place) as index:
        for array, values in truth.items():
            assert np.array_equal(index[array][:], values), array
            assert np.array_equal(index[array][:, 5:40, 7:61], values[:, 5:40, 7:61])


@pytest.mark.parametrize(("name", "form"), PAIRS)
def test_zarr_over_our_file_system_sees_what_rasterio_sees(archive, name, form):
    place, truth = written(archive, name, form)
    group = group_of(MultiReferenceFileSystem(str(place), asynchronous=True))
    for array, values in truth.items():
        assert np.array_equal(group[array][:], values), array


@pytest.mark.parametrize("form", ["json-2", "json-3"])
@pytest.mark.parametrize("name", [name for name in FILES if name != "parts.j2k"])
def test_zarr_over_stock_fsspec_sees_what_rasterio_sees(archive, name, form):
    place, truth = written(archive, name, form)
    group = group_of(ReferenceFileSystem(str(place), asynchronous=True))
    for array, values in truth.items():
        assert np.array_equal(group[array][:], values), array


@pytest.mark.parametrize("name", ["cog.tif", "plain.tif"])
def test_stock_fsspec_reads_our_parquet(archive, name):
    place, truth = written(archive, name, "parquet-2")
    # With a protocol given, fsspec does not look through all references for one, which fails where groups are nested.
    mapper = LazyReferenceMapper(str(place), engine="pyarrow")
    group = group_of(ReferenceFileSystem(mapper, remote_protocol="file", asynchronous=True))
    for array, values in truth.items():
        assert np.array_equal(group[array][:], values), array


@pytest.mark.parametrize("form", FORMS)
def test_a_tree_of_datasets_shows_every_level(archive, form):
    place, truth = written(archive, "cog.tif", form)
    store = FsspecStore(MultiReferenceFileSystem(str(place), asynchronous=True), read_only=True, path="")
    for consolidated in (True, False):
        tree = xr.open_datatree(store, engine="zarr", consolidated=consolidated, chunks={})
        assert {f"{group}/data".lstrip("/") for group in tree.groups if group != "/"} == set(truth)
        for array, values in truth.items():
            assert np.array_equal(tree[array].values, values)
        assert tree["0/data"].dims == ("bands", "y", "x")
        assert tree["0"]["x"].values[:2].tolist() == [500_005.0, 500_015.0]
        assert "32633" in tree["0"]["spatial_ref"].attrs["crs_wkt"]


@pytest.mark.parametrize("form", FORMS)
def test_our_engine_opens_the_references(archive, form):
    place, truth = written(archive, "cog.tif", form)
    tree = xr.open_datatree(place, engine="periplus", mask_and_scale=False)
    for array, values in truth.items():
        assert np.array_equal(tree[array].values, values)


@pytest.mark.parametrize("form", ["json-2", "json-3"])
def test_a_tree_over_stock_fsspec_shows_every_level(archive, form):
    place, truth = written(archive, "cog.tif", form)
    store = FsspecStore(ReferenceFileSystem(str(place), asynchronous=True), read_only=True, path="")
    tree = xr.open_datatree(store, engine="zarr", consolidated=True)
    for array, values in truth.items():
        assert np.array_equal(tree[array].values, values)


@pytest.mark.parametrize("form", FORMS)
def test_nodata_is_masked_and_zero_is_not(archive, form):
    place, truth = written(archive, "plain.tif", form)
    store = FsspecStore(MultiReferenceFileSystem(str(place), asynchronous=True), read_only=True, path="")
    level = xr.open_dataset(store, engine="zarr", group="0", consolidated=False)
    values = truth["0/data"].astype(float)
    values[values == -9999] = np.nan
    assert np.array_equal(level["data"].values, values, equal_nan=True)
    place, truth = written(archive, "cog.tif", form)
    store = FsspecStore(MultiReferenceFileSystem(str(place), asynchronous=True), read_only=True, path="")
    assert xr.open_dataset(store, engine="zarr", group="0", consolidated=False)["data"].dtype == np.uint16


@pytest.mark.parametrize("form", FORMS)
def test_what_an_index_says_comes_back(archive, form):
    _, index, _ = archive["cog.tif"]
    place, _ = written(archive, "cog.tif", form)
    back = periplus.open(place)
    assert list(back) == list(index)
    for name, array in index.arrays.items():
        same = back[name]
        assert (same.shape, same.chunks, same.dtype, same.dims, same.level) == (
            array.shape,
            array.chunks,
            array.dtype,
            array.dims,
            array.level,
        )
        assert same.georeference == array.georeference
        assert dict(same.attrs) == dict(array.attrs)
    assert back.table.rows == index.table.rows
    assert back.read(bbox=index["0/data"].bbox, max_size=100).values.shape[0] == 3
    assert back.sql("SELECT count(*) AS n FROM chunks").to_pylist() == [{"n": index.table.rows}]
    assert np.array_equal(pickle.loads(pickle.dumps(back))["1/data"][:], index["1/data"][:])


@pytest.mark.parametrize("form", FORMS)
def test_ground_control_points_come_back(tmp_path, form):
    places = ((0, 0, 10, 50, 3), (0, 60, 11, 50, 2), (50, 0, 10, 49, 1))
    points = [rasterio.control.GroundControlPoint(*place) for place in places]
    options = {"driver": "GTiff", "count": 1, "height": 50, "width": 60, "dtype": "uint8"}
    with rasterio.open(tmp_path / "points.tif", "w", **options) as target:
        target.gcps = points, rasterio.crs.CRS.from_epsg(4326)
        target.write(np.ones((1, 50, 60), np.uint8))
    index = periplus.index(tmp_path / "points.tif")
    target, given = FORMS[form]
    index.write(tmp_path / target, **given)
    back = periplus.open(tmp_path / target)
    assert list(back) == ["0/data"]
    assert len(back["0/data"].georeference.gcps) == 3
    assert back["0/data"].georeference == index["0/data"].georeference


@pytest.mark.parametrize("form", FORMS)
def test_times_of_a_stack_come_back(tmp_path, form):
    for day in (1, 2, 3):
        image = tiffs.picture(str(day), np.uint16, (1, 64, 64))
        (tmp_path / f"a_2021010{day}.tif").write_bytes(tiffs.written(image, compression="zlib"))
    index = periplus.index(str(tmp_path / "*.tif"), arrange="stack", pattern=r"_(?P<time>\d{8})")
    target, given = FORMS[form]
    index.write(tmp_path / target, **given)
    back = periplus.open(tmp_path / target)
    assert list(back.table.catalog.coordinates) == ["time"]
    assert np.array_equal(back.table.catalog.coordinates["time"].values, index.table.catalog.coordinates["time"].values)
    assert np.array_equal(back["0/data"][:], index["0/data"][:])
    store = FsspecStore(MultiReferenceFileSystem(str(tmp_path / target), asynchronous=True), read_only=True, path="")
    level = xr.open_dataset(store, engine="zarr", group="0", consolidated=False)
    assert level["time"].values.astype("datetime64[D]").astype(str).tolist() == [
        "2021-01-01",
        "2021-01-02",
        "2021-01-03",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_portable_index_moves_with_its_files(archive, form, tmp_path):
    path, index, truth = archive["cog.tif"]
    target, given = FORMS[form]
    index.write(tmp_path / target, portable=True, **given)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "cog.tif").write_bytes(path.read_bytes())
    base = {"template_overrides": {"base": f"{moved}/"}}
    assert np.array_equal(periplus.open(tmp_path / target, **base)["0/data"][:], truth["0/data"])
    group = group_of(MultiReferenceFileSystem(str(tmp_path / target), asynchronous=True, **base))
    assert np.array_equal(group["1/data"][:], truth["1/data"])
    if target.endswith(".json"):
        group = group_of(ReferenceFileSystem(str(tmp_path / target), asynchronous=True, **base))
        assert np.array_equal(group["1/data"][:], truth["1/data"])
        assert str(path.parent) not in (tmp_path / target).read_text()


def test_beside_its_files_a_portable_index_needs_no_base(archive):
    path, index, truth = archive["cog.tif"]
    index.write(path.parent / "portable.json", portable=True)
    assert np.array_equal(periplus.open(path.parent / "portable.json")["0/data"][:], truth["0/data"])


def test_several_byte_ranges_are_the_fourth_form(archive):
    place, _ = written(archive, "parts.j2k", "json-2")
    refs = json.loads(place.read_text())["refs"]
    url, ranges = refs["0/data/0.0.0"]
    data = Path(url).read_bytes()
    assert len(ranges) == 4
    fs = MultiReferenceFileSystem(str(place))
    assert fs.cat_file("0/data/0.0.0") == b"".join(data[o : o + n] for o, n in ranges)


def test_several_byte_ranges_have_columns_of_their_own(archive):
    import pyarrow.parquet as pq

    place, _ = written(archive, "parts.j2k", "parquet-2")
    table = pq.read_table(place / "0/data/refs.0.parq").to_pylist()
    assert {row["path"] for row in table} == {SEVERAL}  # readers that do not support the form fail
    assert all(
        len(row["offsets"]) == len(row["sizes"]) == 4 and row["range_path"].endswith("parts.j2k") for row in table
    )


@pytest.mark.parametrize("there", [True, False])
def test_parquet_of_zarr_v3_is_refused_before_anything_is_written(archive, tmp_path, capsys, there):
    from periplus.cli.app import run
    from periplus.zarr.osml import Parser, write_tile_index

    path, index, truth = archive["plain.tif"]
    place = tmp_path / "refs"
    if there:
        index.write(place, form="kerchunk")
    with pytest.raises(ValueError, match=r"use zarr_format=2, or zarr_format=3 with .* \.json"):
        index.write(place, form="kerchunk", zarr_format=3)
    with pytest.raises(ValueError, match="zarr_format=2"):
        write_tile_index(Parser()(path), place, zarr_format=3)
    index.write(tmp_path / "own.parquet")
    arguments = ["convert", str(tmp_path / "own.parquet"), str(place), "--form", "kerchunk", "--zarr-format", "3"]
    assert run([*arguments, "--allow", str(path.parent)]) == 2
    assert "use --zarr-format 2, or --zarr-format 3 with" in capsys.readouterr().err
    assert place.exists() == there
    if there:
        assert np.array_equal(periplus.open(place, allow=str(path.parent))["0/data"][:], truth["0/data"])


def test_records_end_where_they_are_full(archive):
    path, index, truth = archive["cog.tif"]
    place = path.parent / "small"
    index.write(place, form="kerchunk", record_size=2)
    assert sorted(p.name for p in (place / "0/data").iterdir()) == [f"refs.{n}.parq" for n in range(3)]
    assert np.array_equal(periplus.open(place)["0/data"][:], truth["0/data"])
    group = group_of(MultiReferenceFileSystem(str(place), asynchronous=True))
    assert np.array_equal(group["0/data"][:], truth["0/data"])
    index.write(place, form="kerchunk", record_size=4)  # over what was there
    assert sorted(p.name for p in (place / "0/data").iterdir()) == ["refs.0.parq", "refs.1.parq"]
    assert np.array_equal(periplus.open(place)["0/data"][:], truth["0/data"])


def test_what_a_dead_writer_left_in_a_directory_goes_with_the_next(archive, tmp_path):
    left = tmp_path / "refs/images/7/.refs.0.parq.periplus-0123456789abcdef"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    archive["cog.tif"][1].write(tmp_path / "refs", form="kerchunk")
    assert not left.exists()


def test_a_folder_of_something_else_is_not_written_over(archive, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/one.jpg").write_bytes(b"...")
    with pytest.raises(periplus.FormatError, match=r"contains 'one\.jpg'"):
        archive["cog.tif"][1].write(tmp_path / "photos", form="kerchunk")
    assert (tmp_path / "photos/one.jpg").read_bytes() == b"..."


@pytest.mark.parametrize("form", FORMS)
def test_references_go_from_form_to_form(archive, form):
    """Byte ranges of chunks that have several, through kerchunk, our own table and kerchunk again."""
    place, truth = written(archive, "parts.j2k", form)
    table = periplus.open(place).write(place.with_suffix(".own.parquet"))
    for name, (target, given) in FORMS.items():
        again = table.write(place.with_name(f"again-{name}-{target}"), **given)
        assert np.array_equal(again["0/data"][:], truth["0/data"])
        found, first = again.table.refs("0/data"), archive["parts.j2k"][1].table.refs("0/data")
        assert np.array_equal(found.offset, first.offset)
        assert np.array_equal(found.part, first.part)


def test_an_index_that_may_not_reach_its_sources_is_not_converted(archive, tmp_path):
    _, index, _ = archive["cog.tif"]
    index.write(tmp_path / "refs.json")
    restricted = periplus.open(tmp_path / "refs.json")
    for target, options in FORMS.values():
        with pytest.raises(periplus.DeniedError):
            restricted.write(tmp_path / f"again-{target}", **options)
    assert not (tmp_path / "again-refs.json").exists()
    assert not (tmp_path / "again-refs.kerchunk/.zmetadata").exists()


def test_missing_chunks_read_as_fill(tmp_path):
    case = next(tiffs.case(name) for name in tiffs.names() if "sparse" in name)
    (tmp_path / "sparse.tif").write_bytes(case.data)
    index = periplus.index(tmp_path / "sparse.tif")
    for form, (target, given) in FORMS.items():
        index.write(tmp_path / target, **given, codecs="all")
        group = group_of(MultiReferenceFileSystem(str(tmp_path / target), asynchronous=True))
        for name, values in case.arrays.items():
            assert np.array_equal(periplus.open(tmp_path / target)[name][:], values), form
            assert np.array_equal(group[name][:], values), form


def test_arrays_that_cannot_be_said_are_named(tmp_path):
    for number, options in enumerate(({"compression": "zlib"}, {"compression": "lzw"})):
        image = tiffs.picture("same", np.uint16, (1, 64, 64))
        (tmp_path / f"a_2021010{number + 1}.tif").write_bytes(tiffs.written(image, **options))
    index = periplus.index(str(tmp_path / "*.tif"), arrange="stack", pattern=r"_(?P<time>\d{8})")
    with pytest.raises(periplus.FormatError, match="cannot represent 0/data: its chunks are encoded in 2 ways"):
        index.write(tmp_path / "refs.json")
    assert not (tmp_path / "refs.json").exists()
    done = index.write(tmp_path / "refs.json", skip_unsupported=True)
    assert "0/data" not in done
    assert done.report.skipped == {"0/data": "its chunks are encoded in 2 ways"}
    assert "0/data" not in index.write(tmp_path / "refs.json", skip_unsupported=["0/data"])
    with pytest.raises(periplus.FormatError, match="cannot represent 0/data"):
        index.write(tmp_path / "refs.json", skip_unsupported=["1/data"])


def test_codecs_are_those_that_readers_have(archive, tmp_path):
    _, index, _ = archive["plain.tif"]
    index.write(tmp_path / "refs.json", codecs="standard")
    array = json.loads(json.loads((tmp_path / "refs.json").read_text())["refs"]["0/data/.zarray"])
    assert (array["compressor"]["id"], array["filters"], array["dtype"]) == ("zstd", None, "<i2")
    with pytest.raises(periplus.FormatError, match="0/data: it needs codecs other than those of stock Zarr"):
        archive["cog.tif"][1].write(tmp_path / "refs.json", codecs="standard")


def test_stock_tools_read_deflate_and_zstd_with_nothing_of_ours(archive, tmp_path):
    """In a process that cannot import periplus, nor the imagery peer."""
    places = {}
    for zarr_format in (2, 3):
        place, truth = written(archive, "plain.tif", f"json-{zarr_format}", codecs="standard")
        places[str(tmp_path / f"{zarr_format}.npy")] = str(place)
    script = f"""
import sys, warnings
sys.modules["periplus"] = sys.modules["aws"] = None
warnings.simplefilter("ignore")
import numpy as np, zarr
from fsspec.implementations.reference import ReferenceFileSystem
for target, place in {places!r}.items():
    fs = ReferenceFileSystem(place, asynchronous=True)
    group = zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r")
    np.save(target, group["0/data"][:])
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
    for target in places:
        assert np.array_equal(np.load(target), truth["0/data"])


def test_what_imagery_tools_misread_is_not_written_in_their_words(archive, seen_by_gdal, tmp_path):
    path = tmp_path / "big.tif"
    path.write_bytes(tiffs.written(tiffs.picture("big", np.uint16), big=True, compression="zlib", predictor=True))
    index = periplus.index(path)
    for zarr_format in (2, 3):
        with pytest.raises(periplus.FormatError, match="0/data: imagery tools would misread"):
            index.write(tmp_path / "refs.json", zarr_format=zarr_format, codecs="imagery")
        index.write(tmp_path / "refs.json", zarr_format=zarr_format)
        assert "osml" not in (tmp_path / "refs.json").read_text().replace("\\", "").split("periplus.pipeline")[0]
        group = group_of(MultiReferenceFileSystem(str(tmp_path / "refs.json"), asynchronous=True))
        assert np.array_equal(group["0/data"][:], seen_by_gdal(path)["0/data"])
    with pytest.raises(
        periplus.FormatError, match=r"0/data: .* stored pixel by pixel, and imagery tools would misread"
    ):
        archive["big.tif"][1].write(tmp_path / "refs.json", codecs="imagery")


UNDECODABLE = {
    "webp": ("last strips|compression", {"compression": "webp"}),
    "short strips": ("last strips", {"compression": "lzw", "tiled": False, "rowsperstrip": 16}),
    "jpeg xl": ("compression", {"compression": "jpegxl"}),
    "types": ("values of its type", {"compression": "lzw", "dtype": "u8"}),
}


@pytest.mark.parametrize("name", UNDECODABLE)
def test_what_imagery_tools_cannot_decode_is_not_written_in_their_words(name, seen_by_gdal, tmp_path):
    """Neither for them, nor by default: there it has a name by which they fail, and not in the middle of a read."""
    reason, options = UNDECODABLE[name]
    options = dict(options)
    image = tiffs.picture(name, options.pop("dtype", "u1"), (3, 70, 40))
    path = tmp_path / "a.tif"
    path.write_bytes(tiffs.written(image, **({"tile": (32, 32)} if options.get("tiled", True) else {}), **options))
    with periplus.index(path) as index:
        for zarr_format in (2, 3):
            target = tmp_path / f"{zarr_format}.json"
            with pytest.raises(periplus.FormatError, match=rf"0/data: imagery tools cannot decode .*({reason})"):
                index.write(target, zarr_format=zarr_format, codecs="imagery")
            assert not target.exists()
            index.write(target, zarr_format=zarr_format)
            key = "0/data/.zarray" if zarr_format == 2 else "0/data/zarr.json"
            metadata = json.loads(json.loads(target.read_text())["refs"][key])
            named = metadata["filters"] if zarr_format == 2 else metadata["codecs"][1:]
            assert [one.get("id", one.get("name")) for one in named] == ["periplus.pipeline"]
            group = group_of(MultiReferenceFileSystem(str(target), asynchronous=True))
            assert np.array_equal(group["0/data"][:], index["0/data"][:])


def test_options_of_other_forms_are_refused(archive, tmp_path):
    with pytest.raises(TypeError, match="portable"):
        archive["cog.tif"][1].write(tmp_path / "a.parquet", portable=True)


def test_the_command_line_converts_both_ways(archive, tmp_path):
    from periplus.cli.app import run

    path, index, truth = archive["cog.tif"]
    index.write(path.parent / "own.parquet")
    refs = str(path.parent / "converted.json")
    assert run(["convert", str(path.parent / "own.parquet"), refs, "--zarr-format", "3", "--portable"]) == 0
    assert run(["convert", refs, str(path.parent / "back.parquet")]) == 0
    assert np.array_equal(periplus.open(path.parent / "back.parquet")["0/data"][:], truth["0/data"])


def test_the_command_line_fills_templates(archive, tmp_path, capsys):
    from periplus.cli.app import run

    path, index, _ = archive["cog.tif"]
    index.write(tmp_path / "refs", form="kerchunk", portable=True)
    assert run(["check", str(tmp_path / "refs")]) == 2
    assert "no template 'base'" in capsys.readouterr().err
    assert run(["check", str(tmp_path / "refs"), "--template", f"base={path.parent}/"]) == 0


def test_gdal_reads_the_references(archive):
    if tuple(map(int, rasterio.__gdal_version__.split(".")[:2])) < (3, 11):
        pytest.skip(f"GDAL {rasterio.__gdal_version__} does not read kerchunk references; 3.11 does")
    place, truth = written(archive, "plain.tif", "json-2")
    with rasterio.open(f'ZARR:"{place}":/0/data') as raster:
        assert np.array_equal(raster.read(), truth["0/data"])


def test_fsspec_knows_the_protocol(archive):
    place, truth = written(archive, "cog.tif", "json-2")
    mapper = fsspec.get_mapper("multireference://", fo=str(place))
    assert json.loads(mapper[".zgroup"]) == {"zarr_format": 2}
    group = zarr.open_group(FsspecStore.from_mapper(mapper, read_only=True), mode="r")
    assert np.array_equal(group["0/data"][:], truth["0/data"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("nodata", [0, 7, None])
def test_nodata_survives_also_where_it_is_zero(form, nodata, tmp_path):
    image = tiffs.picture("nodata", np.uint16, (1, 64, 64)) | 1
    image[:, :8, :8] = nodata or 0
    (tmp_path / "a.tif").write_bytes(tiffs.gdal_written(image, tiled=True, blockxsize=64, blockysize=64, nodata=nodata))
    name, options = FORMS[form]
    periplus.index(tmp_path / "a.tif").write(tmp_path / name, **options)
    assert periplus.open(tmp_path / name)["0/data"].attrs.get("_FillValue") == nodata
    store = MultiReferenceFileSystem(str(tmp_path / name)).get_mapper("0")
    opened = xr.open_dataset(store, engine="zarr", consolidated=False)["data"]
    assert int(np.isnan(opened.values.astype(float)).sum()) == (0 if nodata is None else 64)
