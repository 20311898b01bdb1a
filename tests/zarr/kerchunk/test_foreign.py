"""Kerchunk indexes of others: of kerchunk itself, of VirtualiZarr, of Zarr v2 stores with every codec of numcodecs."""

import gc
import json
import warnings

import numpy as np
import pytest
import tifffile
import zarr
from zarr.storage import FsspecStore

import periplus
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem

pytestmark = [
    pytest.mark.usefixtures("our_codecs"),
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),
]


# --- kerchunk -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    """A NetCDF-like HDF5 file."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path_factory.mktemp("hdf5") / "cube.h5"
    rng = np.random.default_rng(7)
    with h5py.File(path, "w") as file:
        for name, values in (("x", np.arange(50.0)), ("y", np.arange(40, dtype="f4"))):
            file.create_dataset(name, data=values)
            file[name].make_scale(name)
        field = rng.normal(size=(40, 50)).astype("f4")
        made = file.create_dataset(
            "g/t", data=field, chunks=(16, 20), compression="gzip", shuffle=True, fillvalue=-9999.0
        )
        made.dims[0].attach_scale(file["y"])
        made.dims[1].attach_scale(file["x"])
        made.attrs["units"] = "K"
        file.create_dataset("big", data=np.arange(200, dtype=">i4").reshape(10, 20), chunks=(5, 20))
        file.create_dataset("plain", data=np.arange(20, dtype="i2"))
        file.create_dataset("scalar", data=np.int32(7))
        file.create_dataset("words", data=np.array(["abc", "de"], object), dtype=h5py.string_dtype())
    return path


def by_kerchunk(path, inline):
    """References by kerchunk, which waits for a thread of zarr with h5py's lock held.

    Garbage of h5py is not collected meanwhile: in that thread, it would wait for the lock for ever.
    """
    hdf = pytest.importorskip("kerchunk.hdf")
    gc.disable()
    try:
        return hdf.SingleHdf5ToZarr(str(path), inline_threshold=inline).translate()
    finally:
        gc.enable()
        gc.collect()


@pytest.mark.parametrize("inline", [0, 10_000])
def test_hdf5_by_kerchunk(cube, tmp_path, inline):
    h5py = pytest.importorskip("h5py")
    refs = by_kerchunk(cube, inline)
    place = cube.parent / f"refs-{inline}.json"
    place.write_text(json.dumps(refs))
    index = periplus.open(place)
    assert {"g/t", "big", "plain", "scalar"} <= set(index)
    with h5py.File(cube) as file:
        for name in index:
            assert np.array_equal(index[name][...], file[name][()]), name
        if inline:
            assert np.array_equal(index.table.catalog.coordinates["x"].values, file["x"][()])
    assert index["g/t"].dims == ("y", "x")
    assert index["g/t"].attrs["units"] == "K"
    assert index["g/t"].attrs["_FillValue"] == -9999.0
    assert index.table.catalog.arrangement["left_out"] == ["words"]
    back = index.write(cube.parent / f"own-{inline}.parquet")
    assert np.array_equal(back["g/t"][:], index["g/t"][:])


def test_parquet_by_kerchunk(cube):
    df = pytest.importorskip("kerchunk.df")
    pytest.importorskip("fastparquet")
    refs = by_kerchunk(cube, 100)
    refs["refs"] = {key: value for key, value in refs["refs"].items() if not key.startswith("words")}
    target = cube.parent / "refs.parq"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pandas, about fastparquet
        df.refs_to_dataframe(refs, str(target), record_size=4)
    index = periplus.open(target)
    reference = periplus.open(cube.parent / "refs-0.json") if (cube.parent / "refs-0.json").exists() else None
    h5py = pytest.importorskip("h5py")
    with h5py.File(cube) as file:
        for name in ("g/t", "big", "plain"):
            assert np.array_equal(index[name][:], file[name][()]), name
    assert reference is None or set(index) <= {*reference, "x", "y"}
    keys = [key for key, value in refs["refs"].items() if key.startswith("g/t/") and isinstance(value, list)]
    fs = MultiReferenceFileSystem(str(target))
    data = cube.read_bytes()
    for key, found in fs.cat(keys).items():
        _, offset, length = refs["refs"][key]
        assert found == data[offset : offset + length]


TIFFS = {
    "deflate": (np.uint16, 1, {"compression": "zlib"}),
    "samples": (np.uint8, 3, {"compression": "zlib"}),
    "predictor": (np.uint16, 3, {"compression": "zlib", "predictor": True}),
    "lzw": (np.uint16, 1, {"compression": "lzw"}),
    "packbits": (np.uint8, 1, {"compression": "packbits"}),
    "floats": (np.float32, 1, {"compression": "zstd", "predictor": True}),
    "big": (np.int16, 1, {"big": True}),
}


@pytest.mark.parametrize("name", TIFFS)
def test_tiff_by_kerchunk(tmp_path, name):
    tiff = pytest.importorskip("kerchunk.tiff")
    dtype, bands, options = TIFFS[name]
    path = tmp_path / "a.tif"
    path.write_bytes(tiffs.written(tiffs.picture(name, dtype, (bands, 70, 90)), **options))
    (tmp_path / "refs.json").write_text(json.dumps(tiff.tiff_to_zarr(str(path))))
    index = periplus.open(tmp_path / "refs.json")
    assert list(index) == ["data"]
    assert np.array_equal(index["data"][:], tifffile.imread(path))
    index.write(tmp_path / "again.json", codecs="all")
    assert np.array_equal(periplus.open(tmp_path / "again.json")["data"][:], tifffile.imread(path))


# --- VirtualiZarr ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_references_by_virtualizarr(cube, form):
    h5py = pytest.importorskip("h5py")
    virtualizarr = pytest.importorskip("virtualizarr")
    parsers = pytest.importorskip("virtualizarr.parsers")
    registry = pytest.importorskip("obspec_utils.registry")
    from obstore.store import LocalStore

    stores = registry.ObjectStoreRegistry({"file://": LocalStore()})
    parser = parsers.HDFParser(drop_variables=["words", "scalar", "plain"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = virtualizarr.open_virtual_dataset(
            f"file://{cube}", registry=stores, parser=parser, loadable_variables=[], decode_times=False
        )
        place = cube.parent / f"virtual.{'json' if form == 'json' else 'parq'}"
        if form == "json":
            dataset.vz.to_kerchunk(str(place), format="json")
        else:
            pytest.importorskip("fastparquet")
            dataset.vz.to_kerchunk(str(place), format="parquet", record_size=4)
    index = periplus.open(place)
    with h5py.File(cube) as file:
        for name in ("big", "x"):
            assert np.array_equal(index[name][:], file[name][()]), name


# --- codecs ---------------------------------------------------------------------------------------------------------


def cases():
    import numcodecs as n

    return {
        "delta": {"dtype": "i4", "filters": [n.Delta("i4")]},
        "delta-narrow": {"dtype": "i4", "filters": [n.Delta("i4", astype="i2")], "compressors": n.Zstd()},
        "fixed": {"dtype": "f8", "filters": [n.FixedScaleOffset(offset=10, scale=100, dtype="f8", astype="i4")]},
        "quantize": {"dtype": "f4", "filters": [n.Quantize(digits=2, dtype="f4")]},
        "bitround": {"dtype": "f4", "filters": [n.BitRound(keepbits=7)]},
        "astype": {"dtype": "f8", "filters": [n.AsType(encode_dtype="f4", decode_dtype="f8")]},
        "shuffle": {"dtype": "i4", "filters": [n.Shuffle(4)], "compressors": n.Zlib()},
        "bz2": {"dtype": "i4", "compressors": n.BZ2()},
        "lzma": {"dtype": "i4", "compressors": n.LZMA()},
        "lz4": {"dtype": "i4", "compressors": n.LZ4()},
        "gzip": {"dtype": "i4", "compressors": n.GZip()},
        "blosc": {"dtype": "u2", "compressors": n.Blosc("zstd", shuffle=2)},
        "fletcher32": {"dtype": "i4", "filters": [n.Fletcher32()]},
        "crc32": {"dtype": "i4", "filters": [n.CRC32()]},
        "crc32c": {"dtype": "i4", "filters": [n.CRC32C()]},
        "adler32": {"dtype": "i4", "filters": [n.Adler32()]},
        "big": {"dtype": ">i4"},
        "big-delta": {"dtype": ">i4", "filters": [n.Delta(">i4")]},
        "fortran": {"dtype": "<f4", "order": "F", "compressors": n.Zlib()},
        "bool": {"dtype": "bool", "fill_value": False},
        "complex": {"dtype": "c16"},
        "time": {"dtype": "M8[ns]"},
    }


@pytest.mark.parametrize("name", cases())
def test_codecs_of_numcodecs(tmp_path, name):
    """A chunk is a whole file of a Zarr v2 store; zarr-python is the judge, of what we read and of what we write."""
    given = {"compressors": None, "filters": None, "fill_value": None, **cases()[name]}
    values = np.cumsum(np.random.default_rng(3).integers(-50, 50, (23, 31)), axis=1)
    values = (values * 10**9).astype("M8[ns]") if name == "time" else values.astype(given["dtype"])
    group = zarr.open_group(tmp_path / "store", mode="w", zarr_format=2)
    array = group.create_array("a", shape=values.shape, chunks=(10, 12), **given)
    array[:] = values
    truth = array[:]
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    refs = {
        str(path.relative_to(tmp_path / "store")): path.read_text() if path.name.startswith(".z") else [str(path)]
        for path in files
    }
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    index = periplus.open(tmp_path / "refs.json")
    assert np.array_equal(index["a"][:], truth)
    for zarr_format in (2, 3):
        index.write(tmp_path / "again.json", zarr_format=zarr_format, codecs="all")
        system = MultiReferenceFileSystem(str(tmp_path / "again.json"), asynchronous=True)
        again = zarr.open_group(FsspecStore(system, read_only=True, path=""), mode="r")
        assert np.array_equal(again["a"][:], truth)


def test_a_wrong_checksum_is_an_error(tmp_path):
    import numcodecs

    body = numcodecs.Fletcher32().encode(np.arange(8, dtype="u1"))
    broken = bytes([body[0] ^ 1]) + bytes(body[1:])
    document = {
        "zarr_format": 2,
        "shape": [16],
        "chunks": [8],
        "dtype": "|u1",
        "order": "C",
        "filters": [{"id": "fletcher32"}],
    }
    (tmp_path / "data.bin").write_bytes(bytes(body) + broken)
    refs = {"a/.zarray": document, "a/0": ["data.bin", 0, 12], "a/1": ["data.bin", 12, 12]}
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    index = periplus.open(tmp_path / "refs.json")
    assert index["a"][:8].tolist() == list(range(8))
    with pytest.raises(periplus.DecodeError, match="checksum"):
        index["a"][8:]


def test_chunk_keys_with_slashes(tmp_path):
    (tmp_path / "data.bin").write_bytes(bytes(range(16)))
    array = {"zarr_format": 2, "shape": [4, 4], "chunks": [2, 2], "dtype": "|u1", "order": "C"}
    v3 = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 4],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": ["bytes"],
        "fill_value": 0,
        "dimension_names": ["y", None],
    }
    chunk = {f"{i}/{j}": ["data.bin", (2 * i + j) * 4, 4] for i in range(2) for j in range(2)}
    truth = np.arange(16).reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
    two = {"g/a/.zarray": {**array, "dimension_separator": "/"}, **{f"g/a/{key}": ref for key, ref in chunk.items()}}
    three = {"g/a/zarr.json": v3, **{f"g/a/c/{key}": ref for key, ref in chunk.items()}}
    for refs in (two, three):
        (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
        index = periplus.open(tmp_path / "refs.json")
        assert np.array_equal(index["g/a"][:], truth)
    assert index["g/a"].dims == ("y", "dim_1")


def test_metadata_may_lie_in_files(tmp_path):
    document = json.dumps({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "order": "C"}).encode()
    (tmp_path / "store.bin").write_bytes(b"____" + document + b"\1\2\3\4")
    refs = {"a/.zarray": ["store.bin", 4, len(document)], "a/0": ["store.bin", 4 + len(document), 4]}
    (tmp_path / "refs.json").write_text(json.dumps(refs))  # of version 0
    assert periplus.open(tmp_path / "refs.json")["a"][:].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_that_is_still_empty_opens(tmp_path, zarr_format):
    """As an archive begins that grows along its first dimension."""
    store = {}
    group = zarr.create_group(store, zarr_format=zarr_format)
    group.create_array("t", shape=(0, 4), chunks=(1, 4), dtype="f4")
    documents = {key: value.to_bytes().decode() for key, value in store.items()}
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": documents}))
    with periplus.open(tmp_path / "refs.json") as index:
        assert index["t"].shape == (0, 4)
        assert index["t"][:].shape == (0, 4)
