"""One archive after the other through every exit, all levels, pixel for pixel as rasterio reads the files."""

from pathlib import Path

import dask
import icechunk
import numpy as np
import pytest
import rasterio
import xarray as xr
import zarr
from affine import Affine
from fsspec.implementations.reference import ReferenceFileSystem
from zarr.storage import FsspecStore

import periplus
from periplus.errors import FormatError
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.virtualizarr import manifest_store

pytestmark = [
    pytest.mark.usefixtures("our_codecs"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:The codec `vlen-utf8`"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
]
PLACE = {"crs": "EPSG:32633", "transform": Affine(10, 0, 500_000, 0, -10, 5_000_000)}
TILES = {"tiled": True, "blockxsize": 64, "blockysize": 64}


# --- archives: a folder to fill, to paths and how they are arranged --------------------------------------------------


def tif(folder, name="a", *, dtype="u2", shape=(3, 140, 190), **options):
    path = folder / f"{name}.tif"
    image = tiffs.picture(name, dtype, shape)
    path.write_bytes(tiffs.gdal_written(image, overviews=(2, 4), **TILES, **PLACE, **options))
    return path


def sparse(folder):
    image = np.zeros((2, 200, 260), "u1")
    image[:, 70:90, 100:120] = 5
    path = folder / "a.tif"
    path.write_bytes(tiffs.gdal_written(image, sparse_ok=True, nodata=0, compress="deflate", **TILES, **PLACE))
    return path


def strips(folder):
    path = folder / "a.tif"
    path.write_bytes(tiffs.written(tiffs.picture("strips", "u2"), tiled=False, compression="zlib"))
    return path


def codestream(folder):
    values = j2ks.picture(3, "u1", 200, 180)
    options = {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS", "RESOLUTIONS": 3, "blockxsize": 64, "blockysize": 64}
    data = j2ks.made(values, **options)
    (folder / "truth.j2k").write_bytes(data)
    (folder / "a.j2k").write_bytes(j2ks.interleaved(data))  # tile-parts that lie apart, which GDAL cannot read
    return folder / "a.j2k"


def stack(folder):
    return [tif(folder, f"s{n}", compress=c) for n, c in enumerate(("deflate", "lzw", "zstd"))]


def cell(folder):
    path = folder / "a.dt0"
    path.write_bytes(dteds.gdal_cell(dteds.heights("cell")))
    return path


ARCHIVES = {
    "deflate": lambda folder: tif(folder, compress="deflate"),
    "zstd, big endian": lambda folder: tif(folder, compress="zstd", endianness="BIG", interleave="band"),
    "planar lzw": lambda folder: tif(folder, compress="lzw", predictor=2, interleave="band"),
    "sparse": sparse,
    "strips": strips,
    "JPEG 2000 in pieces": codestream,
    "elevation": cell,
    "stack of many encodings": stack,
}


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """By name, made when first asked for: the index at rest, and the truth by array name."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("archive")
            paths = ARCHIVES[name](folder)
            several = isinstance(paths, list)
            target = folder / "index.parquet"
            periplus.index(paths, to=target, arrange="stack" if several else "auto").close()
            made[name] = target, truth(paths, folder)
        return made[name]

    return get


def truth(paths, folder):
    if isinstance(paths, list):
        each = [truth(path, folder) for path in paths]
        return {name: np.stack([one[name] for one in each]) for name in each[0]}
    path = folder / "truth.j2k" if paths.suffix == ".j2k" else paths
    with rasterio.open(path) as file:
        levels = [file.read()]
        count = len(file.overviews(1)) if path.suffix != ".dt0" else 0
    for level in range(count):
        with rasterio.open(path, overview_level=level) as file:
            levels.append(file.read())
    return {f"{level}/data": values for level, values in enumerate(levels)}


# --- exits: an index and a folder to write in, to something with arrays by name --------------------------------------


def by_zarr(store):
    return zarr.open_group(store, mode="r")


def by_xarray(store):
    tree = xr.open_datatree(store, engine="zarr", chunks={}, mask_and_scale=False)
    with dask.config.set(scheduler="threads"):
        return {f"{node.name}/data": node["data"].values for node in tree.leaves}


def kerchunk(**options):
    def write(index, folder, system):
        # Beside the files, which is as far as references reach unless they are allowed more.
        name = f"{folder.name}-{options.get('zarr_format', 2)}"
        target = Path(index.table.url).parent / (name if options.get("form") else f"{name}.json")
        index.write(target, **options)
        return by_zarr(FsspecStore(system(str(target), asynchronous=True), read_only=True, path=""))

    return write


def ice(index, folder):
    target = folder / "a.icechunk"
    report = index.write(target).report
    storage = icechunk.local_filesystem_storage(str(target))
    allowed = dict.fromkeys(report.commit.prefixes)
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    return by_zarr(repository.readonly_session("main").store)


def again(name, **options):
    """Written in another form, and opened from there as an index."""

    def read(index, folder):
        index.write(folder / name, **options)
        return periplus.open(folder / name, allow=str(folder.parent))

    return read


EXITS = {
    "our reader": lambda index, folder: index,
    "the store": lambda index, folder: by_zarr(index.store()),
    "the store, nothing raw": lambda index, folder: by_zarr(index.store(codecs="none")),
    "the store, all codecs": lambda index, folder: by_zarr(index.store(codecs="all")),
    "xarray and dask": lambda index, folder: by_xarray(index.store()),
    "kerchunk v2, stock fsspec": lambda i, folder: kerchunk()(i, folder, ReferenceFileSystem),
    "kerchunk v3, stock fsspec": lambda i, folder: kerchunk(zarr_format=3)(i, folder, ReferenceFileSystem),
    "kerchunk v2, our fsspec": lambda i, folder: kerchunk()(i, folder, MultiReferenceFileSystem),
    "kerchunk Parquet, our fsspec": lambda i, folder: kerchunk(form="kerchunk")(i, folder, MultiReferenceFileSystem),
    "VirtualiZarr": lambda index, folder: by_zarr(manifest_store(index)),
    "Icechunk": ice,
    "kerchunk, as an index": again("again.json"),
    "Icechunk, as an index": again("again.icechunk"),
    "a dataset": again("again"),
}
SINGLE = ("kerchunk v2, stock fsspec", "kerchunk v3, stock fsspec")
"""Those that know one byte range a chunk."""
LISTED = ("kerchunk v2, our fsspec", "kerchunk Parquet, our fsspec", "kerchunk, as an index", *SINGLE)
"""Those that must refer to chunks by one list of codecs."""


ROWS_ONLY = ("our reader", "xarray and dask", "kerchunk, as an index", "Icechunk, as an index", "a dataset")
"""Those in which codecs are no other than in the exits above; a few archives show that rows are complete."""
PAIRS = [
    (name, exit_name)
    for name in ARCHIVES
    for exit_name in EXITS
    if exit_name not in ROWS_ONLY or name in ("sparse", "JPEG 2000 in pieces", "stack of many encodings")
]


@pytest.mark.parametrize(("name", "exit_name"), PAIRS)
def test_every_exit_gives_what_rasterio_reads(name, exit_name, archives, tmp_path):
    target, wanted = archives(name)
    with periplus.open(target) as index:
        if name == "stack of many encodings" and exit_name in LISTED:
            with pytest.raises(FormatError, match="0/data"):
                EXITS[exit_name](index, tmp_path)
            return
        if name == "JPEG 2000 in pieces" and exit_name in SINGLE:
            with pytest.raises((ValueError, TypeError, OSError)):  # stock fsspec does not know the fourth form
                EXITS[exit_name](index, tmp_path)["0/data"][...]
            return
        found = EXITS[exit_name](index, tmp_path)
        for array, values in wanted.items():
            np.testing.assert_array_equal(np.asarray(found[array][...]), values, err_msg=array)
