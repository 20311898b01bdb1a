"""One archive through every exit, each level pixel for pixel as rasterio reads it."""

import fsspec
import icechunk
import numpy as np
import pytest
import rasterio
import xarray as xr
import zarr
from affine import Affine
from fsspec.implementations.reference import ReferenceFileSystem
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from zarr.storage import FsspecStore

import periplus
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.codecs.v3 import register
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.virtualizarr import Parser

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:The codec `vlen-utf8`"),
]
LEVELS = 3


@pytest.fixture(scope="module", params=["zstd.tif", "parts.j2k"])
def archive(request, tmp_path_factory):
    """(folder, index, values by level); the tiles of the last one consist of several byte ranges."""
    folder = tmp_path_factory.mktemp("exits")
    path = folder / request.param
    place = {"crs": "EPSG:32633", "transform": Affine(10, 0, 500_000, 0, -10, 5_000_000)}
    if path.suffix == ".tif":
        image = tiffs.picture(request.param, "u2", (2, 200, 260))
        tiles = {"tiled": True, "blockxsize": 64, "blockysize": 64, "compress": path.stem}
        path.write_bytes(tiffs.gdal_written(image, overviews=(2, 4), **tiles, **place))
    else:
        path.write_bytes(j2ks.interleaved(j2ks.layout("parts-rpcl")))
    wanted = {}
    for level in range(LEVELS):
        with rasterio.open(path, **({"overview_level": level - 1} if level else {})) as file:
            wanted[level] = file.read()
    register()
    return folder, periplus.index(path), wanted


def same(tree, wanted):
    """Every level, read through anything that is indexed like a Zarr group or a DataTree."""
    for level, values in wanted.items():
        np.testing.assert_array_equal(np.asarray(tree[f"{level}/data"][...]), values, err_msg=str(level))


def test_our_reader(archive):
    _, index, wanted = archive
    same(index, wanted)


@pytest.mark.parametrize("codecs", ["none", "standard", "imagery", "all"])
def test_our_store(archive, codecs):
    _, index, wanted = archive
    same(zarr.open_group(index.store(codecs=codecs), mode="r"), wanted)


def test_a_tree_of_xarray_with_dask(archive):
    _, index, wanted = archive
    tree = xr.open_datatree(index.store(), engine="zarr", chunks={}, mask_and_scale=False)
    assert tree["0/data"].chunks
    same(tree, wanted)


@pytest.mark.parametrize(("name", "zarr_format"), [("refs.json", 2), ("refs.json", 3), ("refs.kerchunk", 2)])
def test_kerchunk_through_our_file_system(archive, name, zarr_format):
    folder, index, wanted = archive
    target = folder / f"{zarr_format}-{name}"
    index.write(target, form="kerchunk", zarr_format=zarr_format)
    same(periplus.open(target), wanted)
    fs = MultiReferenceFileSystem(str(target))
    awaited = MultiReferenceFileSystem(str(target), asynchronous=True)
    for store in (FsspecStore(awaited, read_only=True, path=""), fs.get_mapper()):
        same(zarr.open_group(store, mode="r"), wanted)


def test_kerchunk_through_stock_fsspec(archive):
    folder, index, wanted = archive
    if "parts" in index.files.path[0]:
        pytest.skip("stock fsspec knows one byte range a chunk")
    index.write(folder / "stock.json")
    fs = ReferenceFileSystem(str(folder / "stock.json"), remote_protocol="file", asynchronous=False)
    same(zarr.open_group(fs.get_mapper(), mode="r"), wanted)
    assert isinstance(fsspec.filesystem("reference", fo=str(folder / "stock.json")), ReferenceFileSystem)


def test_virtualizarr(archive):
    _, index, wanted = archive
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    same(zarr.open_group(Parser()(f"file://{index.files.path[0]}", registry), mode="r"), wanted)


def test_icechunk(archive):
    folder, index, wanted = archive
    target = folder / "a.icechunk"
    with index.write(target) as written:
        same(written, wanted)
        allowed = dict.fromkeys(written.report.commit.prefixes)
    storage = icechunk.local_filesystem_storage(str(target))
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    same(zarr.open_group(repository.readonly_session("main").store, mode="r"), wanted)


@pytest.mark.parametrize("name", ["copy.parquet", "copy", "copy.duckdb"])
def test_every_form_at_rest(archive, name):
    folder, index, wanted = archive
    index.write(folder / name).close()
    same(periplus.open(folder / name, trust=True), wanted)
