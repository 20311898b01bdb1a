"""The store over HTTP: nothing but chunks is asked for, neighbours in one request, and every failure is one of ours."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync

import periplus
from periplus.errors import DecodeError, DeniedError, FetchError, FormatError, MissingError, StaleError
from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Encoding, Refs
from periplus.table import memory_table
from periplus.testing.formats import tiff as tiffs
from periplus.testing.indexes import RAW, files_of
from periplus.testing.servers.http import RangeServer
from periplus.testing.servers.responses import Fault
from periplus.zarr.store.store import IndexStore

TILES = {"tiled": True, "blockxsize": 64, "blockysize": 64}
IMAGE = tiffs.picture("remote", "u2", (1, 250, 320))
BYTES = tiffs.gdal_written(IMAGE, compress="zstd", **TILES)
MIXED = [BYTES, tiffs.gdal_written(IMAGE[:, ::-1], compress="lzw", **TILES)]


@pytest.fixture
def server():
    with RangeServer({"a.tif": BYTES, "b.tif": MIXED[1]}) as server:
        yield server


@pytest.fixture
def store(server, tmp_path):
    """An index at rest of one remote file, opened anew."""
    periplus.index(f"{server.url}/a.tif", to=tmp_path / "a.parquet").close()
    with periplus.open(tmp_path / "a.parquet", allow=server.url) as index:
        server.log.clear()
        yield index.store()


def test_opening_and_listing_ask_no_source(store, server):
    group = zarr.open_group(store, mode="r")
    assert group["0/data"].shape == IMAGE.shape
    tree = xr.open_datatree(store, engine="zarr")
    assert tree["0"].sizes["x"] == 320
    keys = sync(_collect_aiterator(store.list()))
    assert sum(key.startswith("0/data/c/") for key in keys) == 4 * 5
    assert sync(store.getsize("0/data/c/0/0/0")) > 0
    assert server.log == []


def test_a_tile_costs_one_request_for_just_its_bytes(store, server):
    refs = store.table.refs("0/data")
    array = zarr.open_array(store, path="0/data", mode="r")
    np.testing.assert_array_equal(array[0, 64:128, 64:128], IMAGE[0, 64:128, 64:128])
    (request,) = server.log
    assert request.range == (refs.offset[6], refs.offset[6] + refs.length[6])
    assert "if-match" in {name.lower() for name in request.headers}


def test_neighbours_asked_for_together_come_in_one_request(store, server):
    async def together():
        keys = [f"0/data/c/0/{y}/{x}" for y in range(4) for x in range(5)]
        return await asyncio.gather(*(store.get(key, default_buffer_prototype()) for key in keys))

    asyncio.run(together())  # the rows of the index are loaded by now, so that all ask in one turn of the loop
    server.log.clear()
    found = asyncio.run(together())
    refs = store.table.refs("0/data")
    assert [buffer.to_bytes() for buffer in found] == [
        BYTES[offset : offset + length] for offset, length in zip(refs.offset, refs.length, strict=True)
    ]
    assert len(server.log) == 1


def test_a_range_of_a_chunk_fetches_that_range_only(store, server):
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest

    refs = store.table.refs("0/data")
    for asked, want in ((RangeByteRequest(3, 9), (3, 9)), (SuffixByteRequest(4), (int(refs.length[0]) - 4, None))):
        server.log.clear()
        found = sync(store.get("0/data/c/0/0/0", default_buffer_prototype(), asked))
        whole = BYTES[refs.offset[0] : refs.offset[0] + refs.length[0]]
        assert found.to_bytes() == whole[want[0] : want[1]]
        assert server.log[0].sent == len(found)


def test_chunks_decoded_here_are_fetched_together_too(server):
    with periplus.index([f"{server.url}/{name}.tif" for name in "ab"], arrange="stack") as index:
        store = index.store()
        assert not store.layout.leaves["0/data"].raw
        array = zarr.open_array(store, path="0/data", mode="r")
        np.testing.assert_array_equal(array[...], np.stack([IMAGE, IMAGE[:, ::-1]]))
        server.log.clear()
        array[...]
        assert len(server.log) < 40


def read(store):
    """One chunk: with several, requests would still be under way when the first of them fails."""
    return zarr.open_array(store, path="0/data", mode="r")[0, :64, :64]


def test_a_source_that_changed_is_stale_and_not_read(store, server):
    server.files["a.tif"] = BYTES[:-1] + b"\0"
    with pytest.raises(StaleError):
        read(store)


def test_a_source_that_is_gone_is_an_error_and_never_fill(store, server):
    del server.files["a.tif"]
    with pytest.raises(MissingError, match=r"a\.tif"):
        read(store)
    with pytest.raises(MissingError):
        xr.open_dataset(store, engine="zarr", group="0").data[0, :64, :64].load()


def test_a_source_out_of_reach_is_denied_and_others_are_not(server, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.tif").write_bytes(BYTES if name == "a" else MIXED[1])
    with periplus.index([tmp_path / "a.tif", f"{server.url}/b.tif"], arrange="stack", to=tmp_path / "i.parquet"):
        pass
    with periplus.open(tmp_path / "i.parquet") as index:
        array = zarr.open_array(index.store(), path="0/data", mode="r")
        np.testing.assert_array_equal(array[0], IMAGE)
        with pytest.raises(DeniedError):
            array[1]


def test_an_answer_that_is_cut_short_is_no_chunk(server):
    with periplus.index(f"{server.url}/a.tif") as index:
        table = index.table
    server.faults["*"] = [Fault(kind="truncate", times=-1)]
    with Fetch(retries=0) as fetch, pytest.raises(FetchError):
        read(IndexStore(table, fetch))


def test_bytes_that_do_not_decode_name_the_chunk_and_the_place(tmp_path):
    path = tmp_path / "a.tif"
    data = bytearray(MIXED[1])
    path.write_bytes(data)
    refs = periplus.index(path).table.refs("0/data")
    data[int(refs.offset[7]) : int(refs.offset[7]) + int(refs.length[7])] = b"\xff" * int(refs.length[7])
    path.write_bytes(data)
    index = periplus.index(path)
    array = zarr.open_array(index.store(), path="0/data", mode="r")
    np.testing.assert_array_equal(array[0, :64], IMAGE[0, ::-1][:64])
    with pytest.raises(DecodeError, match=r"chunk \(0, 1, 2\) of 0/data") as caught:
        array[0, 64:128]
    assert caught.value.url == str(path)
    assert caught.value.offset == refs.offset[7]


def test_plain_chunks_of_another_length_are_refused(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(100))
    array = Array(name="a", dims=("x",), shape=(20,), chunks=(10,), dtype=np.dtype("u2"),
                  encodings=(Encoding(({"name": "bytes", "configuration": {"endian": "big"}},)),))  # fmt: skip
    refs = Refs(chunk=np.array([[0, 1]], np.int32), offset=np.array([0, 40]), length=np.array([20, 19]))
    files = files_of([str(path)], size=100)
    files = replace(files, etag=[None], last_modified=np.array(["NaT"], "M8[us]"))
    store = IndexStore(memory_table(Catalog(arrays={"a": array}), {"a": refs}, files), Fetch())
    found = zarr.open_array(store, path="a", mode="r")
    assert not found[:10].any()
    with pytest.raises(DecodeError, match=r"chunk \(1,\) of a has 19 bytes where its shape takes 20") as caught:
        found[10:]
    assert (caught.value.url, caught.value.offset) == (str(path), 40)


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "transpose", "configuration": {"order": [7]}}, *RAW],
        [*RAW, *RAW],
        [{"name": "zstd"}],
        [{"name": "bytes", "configuration": {"endian": "middle"}}],
        [*RAW, {"name": "made.up"}],
        [{"name": "periplus.unpack", "configuration": {"dtype": "object"}}, *RAW],
    ],
)
def test_an_array_said_wrongly_fails_alone_and_when_it_is_read(codecs, tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(100))
    good = Array(name="good", dims=("x",), shape=(10,), chunks=(10,), dtype=np.dtype("u2"), encodings=(Encoding(RAW),))
    arrays = {"good": good, "bad": replace(good, name="bad", encodings=(Encoding(tuple(codecs)),))}
    refs = Refs(chunk=np.zeros((1, 1), np.int32), offset=np.array([0]), length=np.array([20]))
    files = replace(files_of([str(path)], size=100), etag=[None], last_modified=np.array(["NaT"], "M8[us]"))
    store = IndexStore(memory_table(Catalog(arrays=arrays), dict.fromkeys(arrays, refs), files), Fetch(), codecs="all")
    group = zarr.open_group(store, mode="r")
    assert not group["good"][...].any()
    assert store.layout.leaves["bad"].why
    with pytest.raises(FormatError):
        group["bad"][...]


def test_settings_of_effort_are_said_as_zarr_allows(tmp_path):
    odd = ({"name": "zstd", "configuration": {"level": "hard", "checksum": 3}},)
    array = Array(
        name="a", dims=("x",), shape=(10,), chunks=(10,), dtype=np.dtype("u2"), encodings=(Encoding((*RAW, *odd)),)
    )
    store = IndexStore(memory_table(Catalog(arrays={"a": array}), {}, files_of([])), Fetch())
    assert not zarr.open_array(store, path="a", mode="r")[...].any()


def test_a_grid_far_larger_than_its_rows_is_listed_at_once():
    array = Array(name="a", dims=("y", "x"), shape=(1 << 40, 1 << 40), chunks=(1, 1), dtype=np.dtype("u1"),
                  encodings=(Encoding(({"name": "bytes"},)),))  # fmt: skip
    chunk = np.array([[5, 5, 7], [2**31 - 1, 2**31 - 1, 3]], np.int32)
    refs = Refs(chunk=chunk, offset=np.arange(3), length=np.array([1, 0, 1]), part=np.array([0, 1, 0], np.uint16))
    store = IndexStore(memory_table(Catalog(arrays={"a": array}), {"a": refs}, files_of(["s3://b/a"])), Fetch())
    keys = sync(_collect_aiterator(store.list()))
    assert sorted(keys) == ["a/c/5/2147483647", "a/c/7/3", "a/zarr.json", "zarr.json"]
    assert sync(_collect_aiterator(store.list_dir("a/c"))) == ("5", "7")
    assert sync(_collect_aiterator(store.list_dir("a/c/7"))) == ("3",)


def test_a_local_file_that_changed_or_went_is_told_so(tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(BYTES)
    periplus.index(path, to=tmp_path / "i.parquet").close()
    path.write_bytes(BYTES + b"\0")
    with periplus.open(tmp_path / "i.parquet") as index, pytest.raises(StaleError):
        read(index.store())
    path.unlink()
    with periplus.open(tmp_path / "i.parquet") as index, pytest.raises(MissingError):
        read(index.store())
