"""VirtualiZarr's parser protocol: datasets, trees, several files, chunks in several pieces, registries, writers."""

import pickle

import icechunk
import numpy as np
import obstore
import pytest
import rasterio
import xarray as xr
import zarr
from fsspec.implementations.reference import ReferenceFileSystem
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import HTTPStore, LocalStore, MemoryStore
from virtualizarr import open_virtual_dataset, open_virtual_datatree, open_virtual_mfdataset
from virtualizarr.parsers.typing import Parser as Protocol
from zarr.storage import FsspecStore

import periplus
from periplus.model.codecnames import TIFF_TILE
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import RangeServer
from periplus.zarr.description import metadata
from periplus.zarr.virtualizarr import Parser, manifest_store

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    # VirtualiZarr and zarr themselves say so of variables without a chunk of their own.
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated"),  # VirtualiZarr writes Parquet with it
]


@pytest.fixture(scope="module")
def local():
    return ObjectStoreRegistry({"file://": LocalStore()})


@pytest.fixture(scope="module")
def pyramid(tmp_path_factory):
    path = tmp_path_factory.mktemp("vz") / "a.tif"
    image = tiffs.picture("virtual", "u2", (2, 200, 260))
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 5e6)}
    data = tiffs.gdal_written(
        image, overviews=(2, 4), tiled=True, blockxsize=64, blockysize=64, compress="zstd", **place
    )
    path.write_bytes(data)
    return path, tiffs.seen_by_gdal(data, levels=3)


def test_it_is_a_parser_as_virtualizarr_defines_one():
    assert isinstance(Parser(), Protocol)
    assert pickle.loads(pickle.dumps(Parser(group="1"))).group == "1"
    with pytest.raises(ValueError, match=r"pattern= has no effect .* unless arrange='stack'"):
        Parser(pattern="{time:%Y%m%d}")


def test_the_store_reads_every_level_as_gdal_does(local, pyramid):
    path, wanted = pyramid
    tree = zarr.open_group(Parser()(path.as_uri(), local), mode="r")
    for name, values in wanted.items():
        np.testing.assert_array_equal(tree[name][...], values)
    assert tree.attrs["multiscales"]["layout"][0]["asset"] == "0"


def test_a_dataset_is_the_level_of_full_resolution_or_the_group_asked_for(local, pyramid):
    path, wanted = pyramid
    virtual = open_virtual_dataset(path.as_uri(), registry=local, parser=Parser())
    assert virtual["data"].shape == wanted["0/data"].shape
    assert set(virtual.coords) == {"bands", "x", "y", "spatial_ref"}
    np.testing.assert_allclose(virtual["x"].values[:2], [500005, 500015])
    coarse = open_virtual_dataset(path.as_uri(), registry=local, parser=Parser(group="2"))
    assert coarse["data"].shape == wanted["2/data"].shape
    loaded = open_virtual_dataset(path.as_uri(), registry=local, parser=Parser(), loadable_variables=["data"])
    np.testing.assert_array_equal(loaded["data"].values, wanted["0/data"])


def test_a_tree_has_every_level(local, pyramid):
    path, wanted = pyramid
    tree = open_virtual_datatree(path.as_uri(), registry=local, parser=Parser())
    assert {name: node["data"].shape for name, node in tree.children.items()} == {
        name[0]: values.shape for name, values in wanted.items()
    }


def test_files_of_several_times_are_concatenated(local, tmp_path):
    for day in (1, 2, 3):
        image = np.full((2, 40, 50), day, "u2")
        (tmp_path / f"202101{day:02}.tif").write_bytes(tiffs.written(image, compression="zstd"))
    urls = [(tmp_path / f"202101{day:02}.tif").as_uri() for day in (1, 2, 3)]
    parser = Parser(arrange="stack", pattern="{time:%Y%m%d}")
    virtual = open_virtual_mfdataset(urls, registry=local, parser=parser, combine="nested", concat_dim="time")
    assert virtual["data"].shape == (3, 2, 40, 50)
    np.testing.assert_array_equal(
        virtual["time"].values, np.array(["2021-01-01", "2021-01-02", "2021-01-03"], "M8[ns]")
    )
    repository = stored(tmp_path, virtual)
    read = xr.open_zarr(repository.readonly_session("main").store, consolidated=False)
    np.testing.assert_array_equal(read["data"].values[:, 0, 0, 0], [1, 2, 3])


def stored(folder, virtual):
    """A virtual dataset written to Icechunk by VirtualiZarr itself."""
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{folder}/"
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(folder)))
    )
    repository = icechunk.Repository.create(
        icechunk.in_memory_storage(), config=config, authorize_virtual_chunk_access={prefix: None}
    )
    session = repository.writable_session("main")
    virtual.vz.to_icechunk(session.store)
    session.commit("virtual")
    return repository


def test_what_it_makes_virtualizarr_writes_to_icechunk(local, pyramid):
    path, wanted = pyramid
    virtual = open_virtual_dataset(path.as_uri(), registry=local, parser=Parser())
    read = xr.open_zarr(stored(path.parent, virtual).readonly_session("main").store, consolidated=False)
    np.testing.assert_array_equal(read["data"].values, wanted["0/data"])


def from_icechunk(folder, virtual):
    repository = stored(folder, virtual)
    return xr.open_zarr(repository.readonly_session("main").store, consolidated=False, mask_and_scale=False)["data"]


def from_kerchunk(folder, virtual, *, parquet=False):
    """Through the stock reader of what VirtualiZarr itself writes."""
    document, options = None, {}
    if parquet:
        document, options = str(folder / "refs.parq"), {"remote_protocol": "file", "lazy": True}
        virtual.vz.to_kerchunk(document, format="parquet")
    fs = ReferenceFileSystem(fo=document or virtual.vz.to_kerchunk(format="dict"), asynchronous=True, **options)
    store = FsspecStore(fs, read_only=True, path="")
    return xr.open_zarr(store, consolidated=False, zarr_format=2, mask_and_scale=False)["data"]


INTERLEAVED = {
    "plain-tiles": {"dtype": "u1"},
    "plain-strips": {"dtype": "f4", "tiled": False},
    "plain-big-endian": {"dtype": "i2", "big": True},
    "deflate-tiles": {"dtype": "u2", "compression": "zlib"},
    "deflate-strips": {"dtype": "u1", "tiled": False, "compression": "zlib"},
    "deflate-short-strips": {"dtype": "u1", "tiled": False, "compression": "zlib", "rows": 50},
    "deflate-big-endian": {"dtype": "u2", "compression": "zlib", "big": True},
    "zstd-tiles": {"dtype": "i2", "compression": "zstd"},
    "zstd-strips": {"dtype": "f8", "tiled": False, "compression": "zstd"},
    "lzw-strips": {"dtype": "u2", "tiled": False, "compression": "lzw"},
}
"""Bands stored pixel by pixel."""


@pytest.mark.parametrize("name", INTERLEAVED)
def test_interleaved_bands_are_written_and_concatenated(name, local, tmp_path, our_codecs):
    options = {"compression": None, "rowsperstrip": 16, "tile": (16, 16), "rows": 48, **INTERLEAVED[name]}
    options.pop("rowsperstrip" if options.get("tiled", True) else "tile")
    dtype, rows, truth, virtual = options.pop("dtype"), options.pop("rows"), [], []
    for day in (1, 2):
        path = tmp_path / f"{day}.tif"
        path.write_bytes(tiffs.written(tiffs.picture(f"{name}{day}", dtype, (3, rows, 32)), **options))
        with rasterio.open(path) as image:
            truth.append(image.read())
        virtual.append(open_virtual_dataset(path.as_uri(), registry=local, parser=Parser()).drop_vars("bands"))
    np.testing.assert_array_equal(from_kerchunk(tmp_path, virtual[0], parquet=True), truth[0])
    for write in (from_kerchunk, from_icechunk):
        np.testing.assert_array_equal(write(tmp_path, virtual[0]), truth[0])
        np.testing.assert_array_equal(write(tmp_path, xr.concat(virtual, dim="time")), np.stack(truth))
        wide = xr.concat(virtual, dim="x")
        np.testing.assert_array_equal(write(tmp_path, wide), np.concatenate(truth, axis=2))
    if rows % 16:
        with pytest.raises(ValueError, match="partial chunks"):  # of VirtualiZarr: no chunk in the middle is shorter
            xr.concat(virtual, dim="y")
    else:
        high = from_kerchunk(tmp_path, xr.concat(virtual, dim="y"))
        np.testing.assert_array_equal(high, np.concatenate(truth, axis=1))


def test_stock_codecs_stay_where_they_are_asked_for(local, tmp_path):
    path = tmp_path / "a.tif"
    image = tiffs.picture("stock", "u2", (3, 48, 32))
    path.write_bytes(tiffs.written(image, tile=(16, 16), compression="zlib"))
    wanted = {"standard": ["transpose", "bytes", "numcodecs.zlib"], "imagery": ["bytes", TIFF_TILE]}
    for codecs, names in wanted.items():
        virtual = open_virtual_dataset(path.as_uri(), registry=local, parser=Parser(codecs=codecs))
        assert [codec["name"] for codec in virtual["data"].data.metadata.to_dict()["codecs"]] == names
        np.testing.assert_array_equal(from_icechunk(tmp_path, virtual), image)


@pytest.mark.parametrize("layout", ["parts-rpcl", "parts-lrcp", "tiled"])
def test_chunks_in_several_pieces_are_read_whole(layout, local, tmp_path):
    path = tmp_path / "a.j2k"
    path.write_bytes(j2ks.interleaved(j2ks.layout(layout)))
    tree = zarr.open_group(Parser()(path.as_uri(), local), mode="r")
    with rasterio.open(path) as wanted:
        np.testing.assert_array_equal(tree["0/data"][...], wanted.read())


def test_chunks_in_several_pieces_are_never_written_as_one(local, tmp_path):
    path = tmp_path / "a.j2k"
    path.write_bytes(j2ks.interleaved(j2ks.layout("parts-rpcl")))
    virtual = open_virtual_dataset(path.as_uri(), registry=local, parser=Parser())
    paths = {entry["path"] for entry in virtual["data"].data.manifest.dict().values()}
    assert paths == {"periplus://0/data"}
    with pytest.raises(ValueError, match="periplus://0/data"):
        stored(tmp_path, virtual)


def test_every_format_and_codec_reads(local, tmp_path):
    cases = {
        "strips.tif": tiffs.case("deflate-strips"),
        "bits.tif": tiffs.case("uint12-big-endian"),
        "lerc.tif": tiffs.case("lerc-float32"),
    }
    for name, case in cases.items():
        (tmp_path / name).write_bytes(case.data)
        for codecs in ("all", "standard"):
            tree = zarr.open_group(Parser(codecs=codecs)((tmp_path / name).as_uri(), local), mode="r")
            np.testing.assert_array_equal(tree["0/data"][...], case.arrays["0/data"], err_msg=f"{name} {codecs}")
    name = nitfs.names()[0]
    (tmp_path / "a.ntf").write_bytes(nitfs.nitf(nitfs.case(name)))
    (tmp_path / "a.dt1").write_bytes(dteds.cell(dteds.heights("cell")))
    for file in ("a.ntf", "a.dt1"):
        index = periplus.index(tmp_path / file)
        tree = zarr.open_group(Parser()((tmp_path / file).as_uri(), local), mode="r")
        np.testing.assert_array_equal(tree["0/data"][...], index["0/data"][...])


def test_any_store_of_the_registry_is_read(pyramid):
    path, wanted = pyramid
    memory = MemoryStore()
    obstore.put(memory, "x/a.tif", path.read_bytes())
    tree = zarr.open_group(Parser()("memory:///x/a.tif", ObjectStoreRegistry({"memory://": memory})), mode="r")
    np.testing.assert_array_equal(tree["1/data"][...], wanted["1/data"])
    with RangeServer(path.parent) as server:
        store = HTTPStore.from_url(server.url, client_options={"allow_http": True})
        tree = zarr.open_group(Parser()(f"{server.url}/a.tif", ObjectStoreRegistry({server.url: store})), mode="r")
        np.testing.assert_array_equal(tree["2/data"][...], wanted["2/data"])


def test_what_the_registry_lacks_is_not_read(pyramid, local):
    path, _ = pyramid
    with pytest.raises(periplus.FetchError, match="registry"):
        Parser()(path.as_uri(), ObjectStoreRegistry({"s3://bucket": MemoryStore()}))
    with pytest.raises(periplus.MissingError):
        Parser()("memory:///none.tif", ObjectStoreRegistry({"memory://": MemoryStore()}))
    with pytest.raises(periplus.MissingError, match="there are 0, 1, 2"):
        Parser(group="7")(path.as_uri(), local)


def test_an_object_replaced_after_parsing_is_stale():
    memory = MemoryStore()
    first = tiffs.written(np.ones((1, 64, 64), "u2"), compression="zstd")
    obstore.put(memory, "a.tif", first)
    store = Parser()("memory:///a.tif", ObjectStoreRegistry({"memory://": memory}))
    obstore.put(memory, "a.tif", tiffs.written(np.zeros((1, 64, 64), "u2"), compression="zstd"))
    with pytest.raises(periplus.StaleError):
        zarr.open_group(store, mode="r")["0/data"][...]


def test_an_index_is_a_manifest_store_too(pyramid):
    path, wanted = pyramid
    store = manifest_store(periplus.index(path), group="1")
    np.testing.assert_array_equal(zarr.open_group(store, mode="r")["data"][...], wanted["1/data"])


def test_one_group_costs_as_little_among_many_others(tmp_path, monkeypatch):
    for number in range(5):
        (tmp_path / f"{number}.tif").write_bytes(tiffs.written(tiffs.picture("many", "u1", (1, 20, 30))))
    described, describe = [], metadata.leaves_of
    with periplus.index(tmp_path, arrange="collect") as index:
        monkeypatch.setattr(metadata, "leaves_of", lambda *given: described.append(given[1]) or describe(*given))
        assert manifest_store(index, group="3/0").to_virtual_dataset()["data"].shape == (1, 20, 30)
    assert set(described) == {"3/0"}
