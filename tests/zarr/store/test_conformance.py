"""The store passes zarr-python's own battery for stores, so far as a store can that nobody writes to."""

import asyncio
import functools
import inspect
import json
import pickle

import numpy as np
import pytest
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator
from zarr.storage._utils import _normalize_byte_range_index
from zarr.testing.store import StoreTests
from zarr.testing.utils import assert_bytes_equal

from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Encoding, Files, Inline, Refs, Source
from periplus.table import memory_table
from periplus.zarr.store.store import IndexStore

ROWS = [bytes([1, 2, 3, 4]), bytes([5, 6, 7, 8]), bytes(range(10, 14))]
"""Three of the four chunks of the array `foo/data`."""
WRITES = "the store cannot be written to"
SKIPPED = {
    "test_serializable_store": WRITES,
    "test_get_many": "writes keys that an index cannot have; see test_get_many_keys",
    "test_getsize_prefix": "writes its keys; see test_sizes_add_up",
    "test_set": WRITES,
    "test_set_not_open": WRITES,
    "test_set_many": WRITES,
    "test_set_if_not_exists": WRITES,
    "test_delete": WRITES,
    "test_delete_dir": WRITES,
    "test_delete_nonexistent_key_does_not_raise": WRITES,
    "test_clear": WRITES,
    "test_is_empty": "begins with an empty store; see test_what_is_empty",
    "test_list": "writes its keys; see test_listings_agree",
    "test_list_prefix": "writes its keys; see test_listings_agree",
    "test_list_empty_path": "writes its keys; see test_listings_agree",
    "test_list_dir": "writes its keys; see test_listings_agree",
    "test_get_sync": "the store answers on an event loop only",
    "test_get_sync_missing": "the store answers on an event loop only",
    "test_set_sync": WRITES,
    "test_delete_sync": WRITES,
    "test_delete_sync_missing": WRITES,
}


def waited(test):
    """The test as one that pytest calls: run to its end on a loop of its own."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        return asyncio.run(test(*args, **kwargs))

    return run


def skipped(reason):
    @pytest.mark.skip(reason=reason)
    def test(self):
        raise AssertionError(reason)

    return test


def plain(cls):
    """Turn every asynchronous test of the battery into a plain one, and mark those that do not apply."""
    for name in dir(cls):
        test = inspect.getattr_static(cls, name)
        if name in SKIPPED:
            setattr(cls, name, skipped(SKIPPED[name]))
        elif inspect.iscoroutinefunction(test):
            setattr(cls, name, waited(test))
    return cls


@plain
class TestStore(StoreTests[IndexStore, cpu.Buffer]):
    store_cls = IndexStore
    buffer_cls = cpu.Buffer

    async def set(self, store, key, value):
        raise NotImplementedError

    async def get(self, store, key):
        raise NotImplementedError

    @pytest.fixture
    def store_kwargs(self, tmp_path):
        path = tmp_path / "a.bin"
        path.write_bytes(b"junk" + ROWS[0] + b"--" + ROWS[1][:3])
        array = Array(
            name="foo/data", dims=("y", "x"), shape=(2, 8), chunks=(1, 4), dtype=np.dtype("u1"),
            encodings=(Encoding(({"name": "bytes"},)),),
        )  # fmt: skip
        refs = Refs(
            chunk=np.array([[0, 0, 0, 1], [0, 1, 1, 0]], np.int32),
            offset=np.array([4, 10, 0, 0]),
            length=np.array([4, 3, 1, 4]),
            file=np.array([0, 0, -1, -1], np.int32),
            part=np.array([0, 0, 1, 0], np.uint16),
            inline=Inline.of([None, None, ROWS[1][3:], ROWS[2]]),
        )
        files = Files.of([Source(url=str(path), size=path.stat().st_size)], format="raw")
        table = memory_table(Catalog(arrays={array.name: array}), {array.name: refs}, files)
        return {"table": table, "fetch": Fetch()}

    @pytest.fixture
    def store(self, open_kwargs):
        return asyncio.run(IndexStore.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        return IndexStore(**store_kwargs)

    def test_store_repr(self, store):
        assert repr(store) == "IndexStore('periplus://memory')"

    def test_store_supports_writes(self, store):
        assert not store.supports_writes
        assert not store.supports_deletes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    @pytest.mark.parametrize(("key", "data"), [("foo/data/c/0/0", ROWS[0]), ("foo/data/c/0/1", ROWS[1]),
                                               ("foo/data/c/1/0", ROWS[2])])  # fmt: skip
    @pytest.mark.parametrize(
        "byte_range",
        [None, RangeByteRequest(1, 4), RangeByteRequest(2, 3), RangeByteRequest(3, 9), OffsetByteRequest(1),
         OffsetByteRequest(3), SuffixByteRequest(1), SuffixByteRequest(2), SuffixByteRequest(9)],
    )  # fmt: skip
    def test_get(self, store, key, data, byte_range):
        buffer = self.buffer_cls.from_bytes(data)
        observed = asyncio.run(store.get(key, prototype=default_buffer_prototype(), byte_range=byte_range))
        start, stop = _normalize_byte_range_index(buffer, byte_range=byte_range)
        assert_bytes_equal(observed, buffer[start:stop])

    def test_get_not_open(self, store_not_open):
        found = asyncio.run(store_not_open.get("foo/data/c/0/0", prototype=default_buffer_prototype()))
        assert found.to_bytes() == ROWS[0]

    def test_get_raises(self, store):
        with pytest.raises((ValueError, TypeError), match=r"Unexpected byte_range, got.*"):
            asyncio.run(store.get("foo/data/c/0/0", prototype=default_buffer_prototype(), byte_range=(0, 2)))

    @pytest.mark.parametrize(
        "key",
        [
            "foo/data/c/1/1",
            "foo/data/c/2/0",
            "foo/data/c/0",
            "foo/data/c/00/0",
            "foo/data",
            "foo/data/c",
            "c/0",
            "bar/zarr.json",
            "zarr.json/",
            "foo/data/c/0/0/0",
            "",
        ],
    )
    def test_what_is_not_there_is_none(self, store, key):
        assert asyncio.run(store.get(key, prototype=default_buffer_prototype())) is None
        assert not asyncio.run(store.exists(key))

    def test_get_many_keys(self, store):
        keys = ["foo/data/c/0/0", "foo/data/c/0/1", "foo/data/c/1/0"]
        asked = [(key, default_buffer_prototype(), None) for key in keys]
        found = asyncio.run(_collect_aiterator(store._get_many(asked)))
        assert {key: buffer.to_bytes() for key, buffer in found} == dict(zip(keys, ROWS, strict=True))

    @pytest.mark.parametrize("key", ["foo/data/c/0/0", "foo/data/c/0/1", "zarr.json", "foo/data/zarr.json"])
    def test_getsize(self, store, key):
        whole = asyncio.run(store.get(key, prototype=default_buffer_prototype()))
        assert asyncio.run(store.getsize(key)) == len(whole)

    def test_sizes_add_up(self, store):
        assert asyncio.run(store.getsize_prefix("foo/data/c")) == 12

    def test_get_partial_values(self, store):
        asked = [
            ("foo/data/c/0/1", RangeByteRequest(2, 4)),
            ("foo/data/c/1/1", None),
            ("zarr.json", SuffixByteRequest(1)),
        ]
        found = asyncio.run(store.get_partial_values(default_buffer_prototype(), asked))
        assert [None if one is None else one.to_bytes() for one in found] == [ROWS[1][2:], None, b"}"]

    def test_exists(self, store):
        assert asyncio.run(store.exists("foo/data/c/0/0"))
        assert asyncio.run(store.exists("foo/zarr.json"))

    def test_what_is_empty(self, store):
        assert not asyncio.run(store.is_empty(""))
        assert asyncio.run(store.is_empty("fo"))
        assert not asyncio.run(store.is_empty("foo/"))
        assert not asyncio.run(store.is_empty("foo/data/c/1"))
        assert asyncio.run(store.is_empty("spam/"))

    def test_listings_agree(self, store):
        keys = sorted(asyncio.run(_collect_aiterator(store.list())))
        chunks = [f"foo/data/c/{y}/{x}" for y, x in ((0, 0), (0, 1), (1, 0))]
        assert keys == sorted(["zarr.json", "foo/zarr.json", "foo/data/zarr.json", *chunks])
        for prefix in (
            "",
            "f",
            "foo/",
            "foo/data/c",
            "foo/data/c/0/",
            "foo/data/c/1",
            "foo/data/c/9/",
            "foo/data/c/x/",
            "z",
        ):
            found = asyncio.run(_collect_aiterator(store.list_prefix(prefix)))
            assert sorted(found) == [key for key in keys if key.startswith(prefix)], prefix
        for folder in (
            "",
            "foo",
            "foo/",
            "foo/data",
            "foo/data/c",
            "foo/data/c/0",
            "foo/data/c/1",
            "foo/data/c/1/0",
            "bar",
        ):
            stem = folder.strip("/") + "/" * bool(folder)
            expected = {key[len(stem) :].split("/")[0] for key in keys if key.startswith(stem)}
            found = asyncio.run(_collect_aiterator(store.list_dir(folder)))
            assert sorted(found) == sorted(expected), folder

    def test_get_bytes(self, store):
        assert asyncio.run(store._get_bytes("foo/data/c/0/0", prototype=default_buffer_prototype())) == ROWS[0]
        with pytest.raises(FileNotFoundError):
            asyncio.run(store._get_bytes("nonexistent_key", prototype=default_buffer_prototype()))

    def test_get_bytes_sync(self, store):
        assert store._get_bytes_sync("foo/data/c/0/0", prototype=default_buffer_prototype()) == ROWS[0]

    def test_get_json(self, store):
        document = asyncio.run(store._get_json("foo/data/zarr.json", prototype=default_buffer_prototype()))
        assert document["shape"] == [2, 8]

    def test_get_json_sync(self, store):
        document = store._get_json_sync("zarr.json", prototype=default_buffer_prototype())
        assert list(document["consolidated_metadata"]["metadata"]) == ["foo", "foo/data"]
        assert json.loads(json.dumps(document)) == document

    def test_a_pickled_store_reads_the_same(self, store):
        twin = pickle.loads(pickle.dumps(store))
        assert twin == store
        assert hash(twin) == hash(store)
        assert twin.read_only == store.read_only
        assert asyncio.run(twin.get("foo/data/c/0/1", default_buffer_prototype())).to_bytes() == ROWS[1]

    def test_nothing_is_written_whatever_the_mode(self, store):
        assert not store.read_only
        for one in (store, store.with_read_only(True)):
            with pytest.raises(ValueError, match="does not support writing"):
                asyncio.run(one.set("foo/data/c/0/0", self.buffer_cls.from_bytes(b"x")))
            with pytest.raises(ValueError, match="does not support writing"):
                asyncio.run(one.delete("foo/data/c/0/0"))
            with pytest.raises(ValueError, match="does not support writing"):
                asyncio.run(one.delete_dir("foo"))


def test_every_test_of_the_battery_is_run_replaced_or_skipped_with_a_reason():
    battery = {name for name in dir(StoreTests) if name.startswith("test_")}
    assert set(SKIPPED) <= battery
    assert all(name in SKIPPED or hasattr(TestStore, name) for name in battery)
