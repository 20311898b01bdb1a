"""The engine on real files: values, masks and `.rio` as rasterio and rioxarray give them."""

import asyncio
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rasterio
import rioxarray
import xarray as xr
from dask.base import tokenize

import periplus
from periplus.engine.index.backend import PeriplusBackend
from periplus.fetch import Fetch
from periplus.table import Table


def oracle(path, **options):
    return rioxarray.open_rasterio(path, **options).rename(band="bands")


@pytest.mark.parametrize("name", ["reflectance", "height", "photo"])
def test_values_and_labels_are_those_of_rioxarray(archive, name):
    ours = xr.open_dataset(archive[name], engine="periplus", mask_and_scale=False)
    theirs = oracle(archive[name])
    np.testing.assert_array_equal(ours.data.values, theirs.values)
    assert ours.data.dtype == theirs.dtype
    assert (ours.x.values == theirs.x.values).all()
    assert (ours.y.values == theirs.y.values).all()
    assert ours.data.rio.crs == theirs.rio.crs
    assert ours.rio.transform() == theirs.rio.transform()
    assert ours.rio.bounds() == theirs.rio.bounds()
    assert ours.rio.resolution() == theirs.rio.resolution()


@pytest.mark.parametrize("name", ["reflectance", "height"])
def test_unpacked_values_are_those_of_rioxarray(archive, name):
    ours = xr.open_dataset(archive[name], engine="periplus").data
    # rioxarray multiplies in float32, xarray itself in float64.
    np.testing.assert_allclose(ours.values, oracle(archive[name], mask_and_scale=True).values, rtol=0, atol=1e-6)
    with rasterio.open(archive[name]) as source:
        raw = source.read().astype(ours.dtype)
        raw[source.read_masks() == 0] = np.nan
        np.testing.assert_array_equal(ours.values, raw * source.scales[0] + source.offsets[0])


def test_nodata_is_known_to_rio(archive):
    raw = xr.open_dataset(archive["reflectance"], engine="periplus", mask_and_scale=False)
    assert raw.data.rio.nodata == -9999
    unpacked = xr.open_dataset(archive["reflectance"], engine="periplus")
    assert unpacked.data.rio.encoded_nodata == -9999
    assert np.isnan(unpacked.data.rio.nodata)


def test_rio_operations_agree_with_rioxarray(archive):
    ours = xr.open_dataset(archive["reflectance"], engine="periplus", mask_and_scale=False).data
    theirs = oracle(archive["reflectance"])
    box = (300333, 5199001, 301222, 5199555)
    np.testing.assert_array_equal(ours.rio.clip_box(*box).values, theirs.rio.clip_box(*box).values)
    assert ours.rio.clip_box(*box).rio.transform() == theirs.rio.clip_box(*box).rio.transform()
    mine, yours = ours.rio.reproject("EPSG:4326"), theirs.rio.reproject("EPSG:4326")
    np.testing.assert_array_equal(mine.values, yours.values)


def test_what_is_written_from_a_dataset_is_the_image(archive, tmp_path):
    dataset = xr.open_dataset(archive["reflectance"], engine="periplus", mask_and_scale=False)
    dataset.data.rio.to_raster(tmp_path / "copy.tif")
    with rasterio.open(tmp_path / "copy.tif") as copy, rasterio.open(archive["reflectance"]) as source:
        np.testing.assert_array_equal(copy.read(), source.read())
        assert copy.transform == source.transform
        assert copy.crs == source.crs
        assert copy.nodata == source.nodata


def test_a_dataset_written_to_zarr_keeps_values_packing_and_crs(archive, tmp_path):
    dataset = xr.open_dataset(archive["reflectance"], engine="periplus")
    dataset.to_zarr(tmp_path / "copy.zarr", consolidated=False)
    again = xr.open_zarr(tmp_path / "copy.zarr", consolidated=False, decode_coords="all")
    np.testing.assert_array_equal(again.data.values, dataset.data.values)
    assert again.data.encoding["dtype"] == np.int16
    assert again.data.rio.crs == dataset.rio.crs


@pytest.mark.parametrize("level", [0, 1, 2])
def test_levels_are_the_overviews(archive, level):
    dataset = xr.open_dataset(archive["reflectance"], engine="periplus", level=level, mask_and_scale=False)
    options = {} if level == 0 else {"overview_level": level - 1}
    with rasterio.open(archive["reflectance"], **options) as source:
        np.testing.assert_array_equal(dataset.data.values, source.read())
        assert dataset.rio.bounds() == pytest.approx(tuple(source.bounds))
        assert dataset.rio.crs == source.crs


def test_band_names_come_from_the_file(archive):
    dataset = xr.open_dataset(archive["reflectance"], engine="periplus")
    assert dataset.bands.values.tolist() == ["red", "nir"]


def test_the_mask_of_a_photo(archive):
    dataset = xr.open_dataset(archive["photo"], engine="periplus")
    with rasterio.open(archive["photo"]) as source:
        np.testing.assert_array_equal(dataset.mask.values > 0, source.dataset_mask() > 0)


def test_chunks_compute_the_same(archive):
    assert xr.open_dataset(archive["reflectance"], engine="periplus", chunks={}).data.data.npartitions == 1
    chunked = xr.open_dataset(archive["reflectance"], engine="periplus", chunks={"y": 64, "x": 128})
    assert chunked.data.chunks == ((2,), (64, 64, 22), (128, 82))
    whole = xr.open_dataset(archive["reflectance"], engine="periplus")
    np.testing.assert_array_equal(chunked.data.values, whole.data.values)
    assert float(chunked.data.mean()) == pytest.approx(float(whole.data.mean()))


KEYS = [
    {"x": 5, "y": -1},
    {"y": slice(60, 70), "x": slice(None, None, 7)},
    {"y": slice(None, None, -1), "x": slice(200, 3, -11)},
    {"y": slice(5, 5)},
    {"y": [100, 3, 3, -1], "x": [0, 209, 64]},
    {"x": np.arange(210) % 9 == 0, "bands": [1]},
    {"y": xr.DataArray([149, 0, 64], dims="p"), "x": xr.DataArray([209, 0, 63], dims="p")},
    {"y": xr.DataArray([[1, 2], [3, 100]], dims=["a", "b"])},
    {"bands": xr.DataArray([1, 0, 1], dims="p"), "y": xr.DataArray([0, 149, 70], dims="p"), "x": slice(3, 9)},
]


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
@pytest.mark.parametrize("unpack", [True, False])
def test_indexing_lazily_is_indexing_in_memory(archive, key, unpack):
    lazy = xr.open_dataset(archive["reflectance"], engine="periplus", mask_and_scale=unpack, cache=False)
    loaded = xr.open_dataset(archive["reflectance"], engine="periplus", mask_and_scale=unpack).load()
    xr.testing.assert_identical(lazy.isel(key).load(), loaded.isel(key))


@pytest.fixture(scope="module")
def stack(archive):
    return periplus.index(str(archive["steps"] / "*.tif"), arrange="stack", pattern="scene_{time:%Y%m%d}.tif")


def test_a_stack_has_moments_and_the_files_in_order(archive, stack):
    dataset = xr.open_dataset(stack, engine="periplus", mask_and_scale=False)
    assert dataset.data.dims == ("time", "bands", "y", "x")
    assert dataset.time.values.astype("datetime64[D]").astype(str).tolist() == [
        "2021-01-05",
        "2021-02-04",
        "2021-03-06",
    ]
    for step, path in zip(dataset.data, sorted(archive["steps"].glob("*.tif")), strict=True):
        with rasterio.open(path) as source:
            np.testing.assert_array_equal(step.values, source.read())
    assert dataset.sel(time=slice("2021-02", None)).sizes["time"] == 2


def test_a_tree_of_levels(stack):
    tree = xr.open_datatree(stack, engine="periplus", chunks={})
    assert list(tree.children) == ["0", "1"]
    assert tree["0/data"].shape == (3, 2, 150, 210)
    assert tree["1/data"].shape == (3, 2, 75, 105)
    assert tree["1"].to_dataset().rio.bounds() == pytest.approx(tree["0"].to_dataset().rio.bounds())


@pytest.mark.parametrize("name", ["index.parquet", "folder"])
def test_an_index_at_rest_is_recognised_and_opened(archive, stack, tmp_path, name):
    stack.write(tmp_path / name)
    allow = str(archive["folder"])
    assert PeriplusBackend().guess_can_open(tmp_path / name)
    dataset = xr.open_dataset(tmp_path / name, engine="periplus", allow=allow)
    expected = xr.open_dataset(stack, engine="periplus")
    np.testing.assert_array_equal(dataset.data.values, expected.data.values)
    assert dataset.encoding["source"] == str(tmp_path / name)
    dataset.close()


def test_an_index_accesses_only_what_is_allowed(stack, tmp_path):
    stack.write(tmp_path / "index.parquet")
    dataset = xr.open_dataset(tmp_path / "index.parquet", engine="periplus")
    with pytest.raises(periplus.PeriplusError) as caught:
        dataset.data.load()
    assert caught.value.kind == "denied"


def test_guessing_leaves_other_files_to_other_engines(archive, tmp_path):
    guess = PeriplusBackend().guess_can_open
    for path in (
        archive["photo"],
        str(archive["photo"]),
        archive["folder"],
        tmp_path / "absent.parquet",
        "s3://b/i.parquet",
    ):
        assert not guess(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    for content in (b"", b"PAR1", b"PAR1" * 3, b"PAR1" + b"\xff" * 8 + b"PAR1"):
        (tmp_path / "broken.parquet").write_bytes(content)
        assert not guess(tmp_path / "broken.parquet")
    assert not guess(tmp_path / "other.parquet")
    assert not guess("a\x00b")


def test_a_glob_is_indexed_on_the_fly(archive):
    glob = str(archive["steps"] / "*.tif")
    dataset = xr.open_dataset(glob, engine="periplus", decode_cf=False)  # a stack by the dates in its names
    assert dataset.data.shape[1:] == (2, 150, 210)
    assert dataset.data.dtype == np.int16
    assert dataset.rio.crs.to_epsg() == 32633


def test_without_xarray_the_error_names_what_to_install():
    code = "import sys; sys.modules['xarray'] = None; import periplus.engine.index.backend"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert 'ImportError: the periplus engine needs xarray: pip install "periplus[xarray]"' in done.stderr


def test_what_is_neither_index_nor_imagery_is_one_of_our_errors(tmp_path):
    (tmp_path / "text.tif").write_text("hello")
    with pytest.raises(periplus.PeriplusError):
        xr.open_dataset(tmp_path / "text.tif", engine="periplus")
    with pytest.raises(periplus.PeriplusError):
        xr.open_dataset(tmp_path / "absent.tif", engine="periplus")
    with pytest.raises(TypeError, match="not ndarray"):
        xr.open_dataset(np.zeros(3), engine="periplus")


def test_opening_and_selecting_read_no_chunk(archive, monkeypatch):
    index = periplus.index(str(archive["reflectance"]))
    reads = []
    monkeypatch.setattr(type(index["0/data"]), "read", lambda self, key: reads.append(key))
    dataset = xr.open_dataset(index, engine="periplus")
    part = dataset.sel(x=slice(300100, 300500), bands="nir").isel(y=slice(None, None, 2))
    repr(part)
    xr.open_datatree(index, engine="periplus", chunks={})
    assert part.data.shape == (75, 40)
    assert reads == []


def test_threads_share_one_dataset(archive):
    dataset = xr.open_dataset(archive["reflectance"], engine="periplus", mask_and_scale=False, cache=False)
    expected = dataset.data.values
    barrier = threading.Barrier(8)

    def window(n):
        barrier.wait(10)
        return all(
            (dataset.data[:, n : n + 90, n : n + 90].values == expected[:, n : n + 90, n : n + 90]).all()
            for _ in range(5)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(window, range(0, 64, 8)))


def test_a_dataset_loads_asynchronously(archive):
    dataset = xr.open_dataset(archive["reflectance"], engine="periplus").isel(x=slice(3, 99))
    expected = dataset.load()
    again = xr.open_dataset(archive["reflectance"], engine="periplus").isel(x=slice(3, 99))
    xr.testing.assert_identical(asyncio.run(again.load_async()), expected)


def test_a_dataset_travels_by_pickle(archive, stack, tmp_path):
    stack.write(tmp_path / "index.parquet")
    at_rest = xr.open_dataset(tmp_path / "index.parquet", engine="periplus", allow=str(archive["folder"]))
    for dataset in (at_rest, xr.open_dataset(stack, engine="periplus", chunks={})):
        again = pickle.loads(pickle.dumps(dataset))
        np.testing.assert_array_equal(again.data.values, dataset.data.values)
        assert again.identical(dataset)


def test_dask_names_chunks_of_an_index_without_pickling_it(archive, monkeypatch):
    index, other = periplus.index(archive["reflectance"]), periplus.index(archive["reflectance"])
    names = tokenize(index), tokenize(other)
    assert names[0] == tokenize(index) == tokenize(pickle.loads(pickle.dumps(index)))
    assert names[0] != names[1]
    monkeypatch.setattr(Table, "__reduce__", lambda _: pytest.fail("the rows were pickled to name a chunk"))
    lazy = xr.open_dataset(index, engine="periplus", chunks={})
    assert lazy.data.data.name == xr.open_dataset(index, engine="periplus", chunks={}).data.data.name


def test_other_processes_read_for_themselves(archive, stack, tmp_path):
    stack.write(tmp_path / "index.parquet")
    allow = str(archive["folder"])
    dataset = xr.open_dataset(tmp_path / "index.parquet", engine="periplus", chunks={}, allow=allow)
    expected = float(dataset.data.mean().compute(scheduler="sync"))
    elsewhere = dataset.data.mean().compute(scheduler="processes", num_workers=1)
    assert float(elsewhere) == pytest.approx(expected)


def test_remote_imagery_is_opened_by_url(archive):
    from periplus.testing.servers.http import RangeServer

    data = archive["reflectance"].read_bytes()
    with RangeServer({"reflectance.tif": data}) as server:
        url = f"{server.url}/reflectance.tif"
        dataset = xr.open_dataset(url, engine="periplus", mask_and_scale=False)
        with rasterio.open(archive["reflectance"]) as source:
            np.testing.assert_array_equal(dataset.data.values, source.read())


@pytest.mark.parametrize("chunks", [None, {}])
def test_a_selection_fetches_its_tiles_only_and_a_task_all_files_at_once(archive, chunks):
    from periplus.testing.servers.http import RangeServer

    paths = sorted(archive["steps"].iterdir())
    with RangeServer({path.name: path.read_bytes() for path in paths}) as server:
        urls = [f"{server.url}/{path.name}" for path in paths]
        with periplus.index(urls, arrange="stack", pattern="scene_{time:%Y%m%d}") as index:
            dataset = xr.open_dataset(index, engine="periplus", chunks=chunks, mask_and_scale=False)
            tile = max(index.select(level=0)["length"].to_pylist())
            server.log.clear()
            series = dataset.data.isel(bands=1, y=70, x=200).values
            assert len(server.log) == len(paths)
            assert max(request.sent for request in server.log) <= tile
            server.log.clear()
            everything = dataset.data.values
            assert len(server.log) == len(paths)
    theirs = np.stack([rasterio.open(path).read() for path in paths])
    np.testing.assert_array_equal(everything, theirs)
    np.testing.assert_array_equal(series, theirs[:, 1, 70, 200])


def test_the_index_given_stays_open_and_the_one_made_is_closed(archive, monkeypatch):
    closed = []
    monkeypatch.setattr(Fetch, "close", lambda self: closed.append(self))
    index = periplus.index(str(archive["photo"]))
    xr.open_dataset(index, engine="periplus").close()
    assert closed == []
    xr.open_dataset(archive["photo"], engine="periplus").close()
    assert len(closed) == 1
