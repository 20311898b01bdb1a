"""Chunks of several byte ranges: readers that support them read the right values, and all others fail."""

from itertools import product

import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from fsspec.implementations.reference import LazyReferenceMapper, ReferenceFileSystem, ReferenceNotReachable
from zarr.storage import FsspecStore

import periplus
from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Encoding, Files, Refs, Source
from periplus.table import memory_table
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.kerchunk.records import SEVERAL
from periplus.zarr.kerchunk.write import write_kerchunk

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
DATA = np.random.default_rng(11).integers(1, 255, 48, np.uint8).tobytes()
TRUTH = np.frombuffer(DATA[8:16] + DATA[:8] + DATA[16:32] + bytes(16), np.uint8).reshape(12, 4)
"""A chunk of two ranges, one of a single range, one that is missing."""
FORMS = {"two.json": 2, "three.json": 3, "refs": 2}


@pytest.fixture(params=FORMS)
def place(request, tmp_path):
    """A flat array `a`, as stock readers open it without hints, and the same array in a group."""
    (tmp_path / "data.bin").write_bytes(DATA)
    files = Files.of([Source(url=str(tmp_path / "data.bin"), size=48)])
    arrays = {
        name: Array(
            name=name,
            dims=("y", "x"),
            shape=(12, 4),
            chunks=(4, 4),
            dtype=np.dtype("u1"),
            encodings=(Encoding(({"name": "bytes"},)),),
        )
        for name in ("a", "g/a")
    }
    refs = Refs(
        chunk=np.array([[0, 0, 1], [0, 0, 0]], np.int32),
        offset=np.array([8, 0, 16]),
        length=np.array([8, 8, 16]),
        file=np.zeros(3, np.int32),
        part=np.array([0, 1, 0], np.uint16),
    )
    table = memory_table(Catalog(arrays=arrays), dict.fromkeys(arrays, refs), files)
    write_kerchunk(table, str(tmp_path / request.param), fetch=Fetch(), zarr_format=FORMS[request.param])
    return tmp_path / request.param


def stock(place, engine, asynchronous):
    if place.suffix == ".json":
        return ReferenceFileSystem(str(place), asynchronous=asynchronous)
    mapper = LazyReferenceMapper(str(place), engine=engine)
    return ReferenceFileSystem(mapper, remote_protocol="file", asynchronous=asynchronous)


def ways(place, engine, name):
    """Ways in which stock tools read the first chunk."""
    key = f"{name}/c.0.0" if FORMS[place.name] == 3 else f"{name}/0.0"
    plain = stock(place, engine, False)
    store = FsspecStore(stock(place, engine, True), read_only=True, path="")
    return {
        "group": lambda: zarr.open_group(store, mode="r", zarr_format=FORMS[place.name])[name][:4],
        "whole": lambda: zarr.open_group(store, mode="r", zarr_format=FORMS[place.name])[name][:],
        "xarray": lambda: xr.open_dataset(store, engine="zarr", group=name.rpartition("/")[0])["a"].values,
        "cat_file": lambda: plain.cat_file(key),
        "cat": lambda: plain.cat(key),
        "cat many": lambda: plain.cat([key]),
        "mapper": lambda: plain.get_mapper()[key],
        "getitems": lambda: plain.get_mapper().getitems([key]),
        "open": lambda: plain.open(key).read(),
    }


WAYS = ("group", "whole", "xarray", "cat_file", "cat", "cat many", "mapper", "getitems", "open")


@pytest.mark.parametrize("way", WAYS)
def test_stock_readers_fail(place, way):
    for engine, name in product(["json"] if place.suffix else ["fastparquet", "pyarrow"], ["a", "g/a"]):
        with pytest.raises((ReferenceNotReachable, ValueError, KeyError)) as told:
            ways(place, engine, name)[way]()
        if way in ("group", "whole", "xarray", "cat_file") and not place.suffix:
            assert isinstance(told.value, ReferenceNotReachable)
            assert "needs-periplus-or-osml" in str(told.value)


@pytest.mark.filterwarnings("ignore")
def test_a_url_of_the_reference_protocol_fails_too(place):
    storage = {"fo": str(place), "remote_protocol": "file", "asynchronous": True}
    opened = xr.open_dataset("reference://", engine="zarr", storage_options=storage, mask_and_scale=False)
    with pytest.raises((ReferenceNotReachable, ValueError)):
        opened["a"].load()
    if place.suffix == ".json":
        assert np.array_equal(opened["a"][4:8], TRUTH[4:8])


def test_stock_readers_read_the_other_chunks(place):
    store = FsspecStore(stock(place, "fastparquet", True), read_only=True, path="")
    array = zarr.open_group(store, mode="r", zarr_format=FORMS[place.name])["g/a"]
    assert np.array_equal(array[4:], TRUTH[4:])


@pytest.mark.parametrize("place", ["two.json", "refs"], indirect=True)
def test_virtualizarr_does_not_read_part_of_a_chunk(place):
    parsers = pytest.importorskip("virtualizarr.parsers")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parser = parsers.KerchunkJSONParser() if place.suffix == ".json" else parsers.KerchunkParquetParser()
    url = f"file://{place}" if place.suffix == ".json" else str(place)
    with pytest.raises((ValueError, KeyError, TypeError)):
        zarr.open_group(parser(url, registry), mode="r")["a"][:]


def test_readers_of_several_ranges_read_the_values(place):
    assert np.array_equal(periplus.open(place)["a"][:], TRUTH)
    assert periplus.open(place).files.path == [str(place.parent / "data.bin")]
    systems = [MultiReferenceFileSystem]
    theirs = pytest.importorskip("aws.osml.io.multi_reference_fs", reason="osml-imagery-io is not installed")
    systems.append(theirs.MultiReferenceFileSystem)
    for system in systems:
        store = FsspecStore(system(str(place), asynchronous=True), read_only=True, path="")
        group = zarr.open_group(store, mode="r", zarr_format=FORMS[place.name])
        for name in ("a", "g/a"):
            assert np.array_equal(group[name][:], TRUTH), system


@pytest.mark.parametrize("place", ["refs"], indirect=True)
def test_a_marker_without_ranges_is_no_source(place):
    record = place / "a/refs.0.parq"
    table = pq.ParquetFile(record).read()
    assert table["path"].to_pylist() == [SEVERAL, str(place.parent / "data.bin"), None]
    pq.write_table(table.drop_columns(["offsets", "sizes", "range_path"]), record)
    with pytest.raises((periplus.DeniedError, periplus.StaleError)):
        periplus.open(place)["a"][:]
