"""zarr-python, xarray, dask, rioxarray and GDAL open the store as they open any other, and see what rasterio sees."""

import os
import pickle
import subprocess
import sys

import dask.array as da
import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401 - adds `.rio`
import xarray as xr
import zarr
from affine import Affine
from rasterio.errors import RasterioError
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync

import periplus
from periplus.testing.formats import tiff as tiffs

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    # rioxarray multiplies affines with `*`, which affine 3.1 frowns upon.
]
WHERE = {"crs": "EPSG:32633", "transform": Affine(10, 0, 300_000, 0, -10, 5_200_000)}
TILES = {"tiled": True, "blockxsize": 64, "blockysize": 64}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Four scenes of a stack with nodata, scale and an overview; the third is compressed otherwise."""
    folder = tmp_path_factory.mktemp("archive")
    for month in range(1, 5):
        image = tiffs.picture(f"scene {month}", "u2", (3, 150, 210))
        image[:, :20, :30] = 0
        compress = {"compress": "lzw"} if month == 3 else {"compress": "zstd"}
        data = tiffs.gdal_written(
            image, overviews=(2,), nodata=0, scales=(1e-4,) * 3, offsets=(0.0,) * 3,
            tags={"TIFFTAG_DATETIME": f"2021:{month:02}:05 00:00:00"},
            descriptions=("green", "red", "nir"), **WHERE, **TILES, **compress,
        )  # fmt: skip
        (folder / f"scene_2021{month:02}05.tif").write_bytes(data)
    periplus.index(folder / "*.tif", to=folder / "all.parquet", arrange="stack").close()
    return folder


def wanted(archive, level=0):
    values = []
    for path in sorted(archive.glob("*.tif")):
        with rasterio.open(path, **({"overview_level": level - 1} if level else {})) as file:
            values.append(file.read())
    return np.stack(values)


def test_groups_open_with_any_reading_mode(archive):
    store = periplus.open(archive / "all.parquet").store()
    for group in (
        zarr.open_group(store),
        zarr.open_group(store, mode="r"),
        zarr.open(store),
        zarr.open(store, mode="r"),
    ):
        assert sorted(group.keys()) == ["0", "1"]
        np.testing.assert_array_equal(group["1/data"][...], wanted(archive, 1))
    assert zarr.open_consolidated(store, mode="r").metadata.consolidated_metadata is not None
    array = zarr.open_array(store, path="0/data", mode="r")
    np.testing.assert_array_equal(array[1, :, 30:90, 100:], wanted(archive)[1, :, 30:90, 100:])
    np.testing.assert_array_equal(array.oindex[[0, 3], 1, [5, 149], :], wanted(archive)[[0, 3]][:, 1][:, [5, 149]])


def test_writing_is_refused(archive):
    group = zarr.open_group(periplus.open(archive / "all.parquet").store())
    with pytest.raises(ValueError, match="read-only"):
        group["0/data"][0] = 1
    with pytest.raises(ValueError, match="read-only"):
        group.attrs["x"] = 1
    with pytest.raises(ValueError, match="read-only"):
        group.create_group("new")


def test_a_tree_has_every_level_with_its_own_coordinates(archive):
    tree = xr.open_datatree(periplus.open(archive / "all.parquet").store(), engine="zarr", chunks={})
    assert list(tree.children) == ["0", "1"]
    for level, pixel in ((0, 10), (1, 20)):
        node = tree[str(level)].to_dataset()
        raw = wanted(archive, level)
        expected = np.where(raw == 0, np.nan, raw * 1e-4)
        np.testing.assert_allclose(node.data.compute(), expected, rtol=1e-6)
        assert node.data.chunks[0] == (1, 1, 1, 1)
        assert float(node.x[0]) == 300_000 + pixel / 2
        assert float(node.y[1] - node.y[0]) == -pixel
        assert node.bands.values.tolist() == ["green", "red", "nir"]
        assert [str(t)[:10] for t in node.time.values] == [f"2021-0{month}-05" for month in range(1, 5)]
        assert set(node.coords) == {"time", "bands", "y", "x", "spatial_ref"}
        assert node.data.rio.crs.to_epsg() == 32633
        assert node.rio.bounds() == (300_000, 5_198_500, 302_100, 5_200_000)
        assert node.data.rio.transform() == Affine(pixel, 0, 300_000, 0, -pixel, 5_200_000)


def test_a_dataset_of_one_level_equals_that_of_our_engine(archive):
    index = periplus.open(archive / "all.parquet")
    ours = xr.open_dataset(index, engine="periplus", level=1)
    theirs = xr.open_dataset(index.store(), engine="zarr", group="1")
    np.testing.assert_array_equal(ours.data, theirs.data)
    for name in ("time", "y", "x"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert ours.spatial_ref.attrs == theirs.spatial_ref.attrs
    box = {"x": slice(300_500, 301_000), "y": slice(5_199_500, 5_199_000), "time": "2021-02"}
    np.testing.assert_array_equal(theirs.data.sel(bands="nir", **box), ours.data.sel(bands="nir", **box))
    picked = theirs.isel(x=[3, 1], y=slice(None, None, 7)).data
    np.testing.assert_array_equal(picked, ours.isel(x=[3, 1], y=slice(None, None, 7)).data)


def test_dask_reads_in_threads_and_elsewhere(archive):
    index = periplus.open(archive / "all.parquet")
    lazy = da.from_zarr(index.store(), component="0/data")
    assert lazy.chunksize == (1, 3, 64, 64)
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), wanted(archive))
    again = pickle.loads(pickle.dumps(da.from_zarr(zarr.open_array(index.store(), path="1/data", mode="r"))))
    np.testing.assert_array_equal(again.compute(scheduler="synchronous"), wanted(archive, 1))


def test_an_index_in_memory_is_not_pickled_to_name_dask_chunks(archive, monkeypatch):
    index = periplus.index(archive / "*.tif", arrange="stack")
    store = index.store()
    monkeypatch.setattr(type(index.table), "__reduce__", lambda self: pytest.fail("the table was pickled"))
    xr.open_dataset(store, engine="zarr", group="0", chunks={})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_reads_with_a_store_its_parent_has_used(archive):
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, periplus, zarr
store = periplus.open(sys.argv[1]).store()
first = zarr.open_array(store, path="0/data", mode="r")[...]
child = os.fork()
if child == 0:
    same = np.array_equal(zarr.open_array(store, path="0/data", mode="r")[...], first)
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code, str(archive / "all.parquet")], capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()


def test_masks_of_fewer_bands_open_beside_their_image(tmp_path):
    image = tiffs.picture("masked", "u1", (3, 100, 130))
    mask = (tiffs.picture("m", "u1", (1, 100, 130))[0] > 90).astype("u1") * 255
    path = tmp_path / "a.tif"
    path.write_bytes(tiffs.gdal_written(image, mask=mask, compress="zstd", overviews=(2,), **TILES, **WHERE))
    tree = xr.open_datatree(periplus.index(path).store(), engine="zarr")
    node = tree["0"].to_dataset()
    assert node.data.dims == ("bands", "y", "x")
    assert node.mask.dims == ("mask_bands", "y", "x")
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(node.mask[0] * 255, file.dataset_mask())


@pytest.mark.parametrize("nodata", [-9999.0, float("nan")])
def test_nodata_of_floats_is_masked(nodata, tmp_path):
    image = tiffs.picture("floats", "f4", (1, 70, 80))
    image[0, :10] = nodata
    path = tmp_path / "a.tif"
    path.write_bytes(tiffs.gdal_written(image, nodata=nodata, compress="zstd", **TILES, **WHERE))
    found = xr.open_dataset(periplus.index(path).store(), engine="zarr", group="0").data
    assert np.isnan(found[0, :10]).all()
    np.testing.assert_array_equal(found[0, 10:], image[0, 10:])


def test_a_collection_is_a_tree_of_pyramids(tmp_path):
    for n, name in enumerate(("a", "b")):
        image = tiffs.picture(name, "u1", (1, 80 + 20 * n, 90))
        place = {**WHERE, "transform": Affine(10, 0, 300_000 + 10_000 * n, 0, -10, 5_200_000)}
        (tmp_path / f"{name}.tif").write_bytes(
            tiffs.gdal_written(image, overviews=(2,), compress="zstd", **TILES, **place)
        )
    tree = xr.open_datatree(periplus.index(tmp_path / "*.tif", arrange="collect").store(), engine="zarr")
    assert sorted(node.path for node in tree.leaves) == ["/a/0", "/a/1", "/b/0", "/b/1"]
    np.testing.assert_array_equal(tree["b/0/data"], tiffs.picture("b", "u1", (1, 100, 90)))


@pytest.mark.parametrize("profile", ["spec", "gdal", "eopf"])
def test_the_validator_finds_nothing_in_it(profile, archive):
    assert periplus.validate(periplus.open(archive / "all.parquet"), profile=profile).findings == ()


def copied(store, folder):
    """Every value of a store as a file."""
    for key in sync(_collect_aiterator(store.list())):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sync(store.get(key, default_buffer_prototype())).to_bytes())


STANDARD = {
    "uncompressed": ("u1", {"interleave": "band"}),
    "uncompressed-big": ("i2", {"interleave": "band", "endianness": "big"}),
    "interleaved": ("u2", {"interleave": "pixel"}),
    "deflate": ("f4", {"compress": "deflate", "interleave": "pixel"}),
    "deflate-big": ("u2", {"compress": "deflate", "interleave": "pixel", "endianness": "big"}),
    "zstd": ("i2", {"compress": "zstd", "interleave": "band"}),
    "complex": ("c8", {"compress": "deflate", "interleave": "band"}),
}


def test_stock_zarr_reads_a_copy_with_nothing_of_ours(tmp_path):
    images = {}
    for name, (dtype, options) in STANDARD.items():
        images[name] = tiffs.picture("standard", dtype, (3, 70, 90))
        path = tmp_path / f"{name}.tif"
        path.write_bytes(tiffs.gdal_written(images[name], tiled=True, blockxsize=32, blockysize=32, **options))
        store = periplus.index(path).store()
        assert store.layout.leaves["0/data"].raw, name
        copied(store, tmp_path / name)
    code = """
import sys, warnings
sys.modules["periplus"] = None
warnings.simplefilter("ignore")
import numpy as np, zarr
for name in sys.argv[1:]:
    np.save(f"{name}.npy", zarr.open_group(name, mode="r")["0/data"][...])
"""
    names = [str(tmp_path / name) for name in STANDARD]
    subprocess.run([sys.executable, "-c", code, *names], check=True, timeout=100)
    for name, image in images.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), image, err_msg=name)


def test_the_store_copied_key_by_key_is_a_zarr_that_gdal_reads_where_it_can(archive, tmp_path):
    copied(periplus.index(archive / "scene_20210105.tif").store(), tmp_path)
    np.testing.assert_array_equal(zarr.open_group(tmp_path, mode="r")["0/data"][...], wanted(archive)[0])
    try:
        with rasterio.open(f'ZARR:"{tmp_path}":/0/data') as file:
            np.testing.assert_array_equal(file.read(), wanted(archive)[0])
            assert file.crs.to_epsg() == 32633
    except RasterioError as error:
        if "codec" not in str(error):
            raise
        pytest.skip(f"GDAL {rasterio.__gdal_version__} reads no codecs of Zarr 3: {error}")


def test_writing_to_a_store_is_refused_with_the_reason(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiffs.written(np.ones((1, 32, 32), "u1")))
    store = periplus.index(tmp_path / "a.tif").store()
    with pytest.raises(ValueError, match="an index is read only"):
        zarr.open_group(store, mode="w")
    with pytest.raises(ValueError, match="an index is read only"):
        zarr.open_array(store, path="0/data", mode="r+")[0, 0, 0] = 1
