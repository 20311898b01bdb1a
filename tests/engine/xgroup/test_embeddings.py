"""Quantised embeddings in the engine `xgroup`: the numbers they stand for, when asked for."""

import warnings

import numpy as np
import pytest
import xarray as xr
from zarr.storage import MemoryStore

from periplus.testing.hierarchies import CountingStore, StoredArray, declared, write_hierarchy

RNG = np.random.default_rng(3)
VECTORS = RNG.integers(-127, 128, (6, 8, 4)).astype("int8")
SCALES = RNG.random((6, 8)).astype("float32")
SCALES[0, 1], SCALES[2, 3], SCALES[4, 4] = np.nan, np.inf, -np.inf


def tessera():
    zone = {"dataset_version": "v1", "year": 2024, "utm_zone": 33, "n_bands": 4, "n_tiles": 1, "model_version": "1"}
    return {
        "utm33": {**declared("tessera"), **{f"tessera:{key}": value for key, value in zone.items()}},
        "utm33/embeddings": StoredArray(dims=("northing", "easting", "band"), values=VECTORS, chunks=(3, 4, 4), fill=0),
        "utm33/scales": StoredArray(dims=("northing", "easting"), values=SCALES, chunks=(3, 4), fill=np.nan),
    }


def opened(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_dataset(store, engine="xgroup", group="utm33", **options)


def wanted():
    scales = np.where(np.isfinite(SCALES), SCALES, np.nan)
    return VECTORS.astype("float32") * scales[:, :, None]


def test_embeddings_stay_as_stored_unless_asked_for():
    dataset = opened(write_hierarchy(MemoryStore(), tessera()))
    assert dataset.embeddings.dtype == np.int8
    np.testing.assert_array_equal(dataset.embeddings, VECTORS)


@pytest.mark.parametrize("chunks", [None, {}])
def test_scales_of_pixels_are_applied_and_those_not_finite_are_no_data(chunks):
    store = CountingStore(write_hierarchy(MemoryStore(), tessera()))
    dataset = opened(store, dequantize=True, chunks=chunks)
    assert store.chunks == []
    assert dataset.embeddings.dtype == np.float32
    np.testing.assert_array_equal(dataset.embeddings, wanted())
    assert int(np.isnan(dataset.embeddings.values).any(axis=2).sum()) == 3


@pytest.mark.parametrize(
    "key",
    [
        {"northing": 2},
        {"band": 1},
        {"northing": slice(1, 5, 2), "easting": [0, 7, 3]},
        {"northing": 0, "easting": 1, "band": 2},
        {"easting": [1]},
    ],
    ids=str,
)
def test_parts_are_scaled_as_the_whole_is(key):
    dataset = opened(write_hierarchy(MemoryStore(), tessera()), dequantize=True)
    whole = xr.DataArray(wanted(), dims=("northing", "easting", "band"))
    np.testing.assert_array_equal(dataset.embeddings.isel(key), whole.isel(key))
    points = {"northing": xr.DataArray([0, 5, 2], dims="p"), "easting": xr.DataArray([1, 1, 3], dims="p")}
    np.testing.assert_array_equal(dataset.embeddings.isel(points), whole.isel(points))


def test_only_chunks_of_the_part_are_read():
    store = CountingStore(write_hierarchy(MemoryStore(), tessera()))
    opened(store, dequantize=True).embeddings[:3, :4].load()
    assert sorted(store.chunks) == ["utm33/embeddings/c/0/0/0", "utm33/scales/c/0/0"]


def test_one_scale_for_all_is_applied():
    said = {
        "type": "pixel",
        "dimensions": 4,
        "model": "https://example.org/m",
        "source_data": ["https://example.org/s"],
        "data_type": "int8",
        "quantization": {
            "method": "linear",
            "original_dtype": "float32",
            "quantized_dtype": "int8",
            "scale": {"type": "scalar", "scale": 0.5, "offset": 2.0},
        },
    }
    nodes = {
        "utm33": {**declared("geoemb"), **{f"geoemb:{key}": value for key, value in said.items()}},
        "utm33/vectors": StoredArray(dims=("y", "x", "band"), values=VECTORS),
    }
    dataset = opened(write_hierarchy(MemoryStore(), nodes), dequantize=True)
    np.testing.assert_array_equal(dataset.vectors, VECTORS.astype("float32") * 0.5 + 2)


def test_scales_that_are_missing_leave_values_as_they_are():
    nodes = {path: node for path, node in tessera().items() if path != "utm33/scales"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = xr.open_dataset(
            write_hierarchy(MemoryStore(), nodes), engine="xgroup", group="utm33", dequantize=True
        )
    assert any("array of scales 'scales' is missing" in str(one.message) for one in caught)
    np.testing.assert_array_equal(dataset.embeddings, VECTORS)
