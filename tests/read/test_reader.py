"""Reading arrays from local files, against NumPy."""

import math
import os
import threading
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from periplus.errors import DecodeError, DeniedError, FormatError, LimitError, MissingError, PeriplusError, StaleError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Inline, Refs
from periplus.policy import Policy
from periplus.read import local, read_array, read_chunk, select_outer


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_keys_on_random_grids_read_what_numpy_selects(raw_shelf, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)))
    chunks = tuple(data.draw(st.integers(max(1, n // 5), n + 3)) for n in shape)
    dtype = data.draw(st.sampled_from(["u1", "<i2", ">i2", "<f4", ">f8", "<c8"]))
    parts = data.draw(st.sampled_from([1, 1, 3]))
    shelf = raw_shelf(shape, chunks, dtype=dtype, parts=parts, seed=data.draw(st.integers(0, 99)))
    key = tuple(
        data.draw(
            st.integers(-n, n - 1)
            | st.builds(slice, st.none() | st.integers(-n - 2, n + 2), st.none() | st.integers(-n - 2, n + 2),
                        st.none() | st.integers(1, 9) | st.integers(-9, -1))
        )
        for n in shape
    )  # fmt: skip
    with mock.patch.object(local, "MERGE_CHUNKS", data.draw(st.sampled_from([1, local.MERGE_CHUNKS]))):
        got = shelf.read("a", key, workers=data.draw(st.sampled_from([None, 1, 3])))
    np.testing.assert_array_equal(got, shelf.values[key])
    assert np.asarray(got).dtype == shelf.values.dtype
    assert np.asarray(got).dtype.isnative


def test_rectilinear_chunks_are_read(raw_shelf):
    shelf = raw_shelf((10, 9), (6, 4), edges=((1, 6, 3), None))
    np.testing.assert_array_equal(shelf.read("a"), shelf.values)
    np.testing.assert_array_equal(shelf.read("a", (slice(9, None, -2), 5)), shelf.values[9::-2, 5])


def test_lists_are_read_independently_of_each_other(raw_shelf):
    shelf = raw_shelf((6, 20, 20), (2, 8, 8))
    key = ([5, 0, 1, 1], slice(3, 17, 2), [19, 2, 3])
    expected = shelf.values[np.ix_([5, 0, 1, 1], range(3, 17, 2), [19, 2, 3])]
    np.testing.assert_array_equal(shelf.read("a", select_outer(key, (6, 20, 20))), expected)


@pytest.mark.parametrize("fill", [None, 0, -9999, 7])
@pytest.mark.parametrize("drop", [[4], [0, 1, 2, 3, 5, 6, 7, 8], list(range(9))])
def test_missing_chunks_read_as_fill(raw_shelf, fill, drop):
    shelf = raw_shelf((30, 30), (10, 10), drop=drop, fill=fill)
    expected = shelf.values.copy()
    for i in drop:
        y, x = divmod(i, 3)
        expected[10 * y : 10 * y + 10, 10 * x : 10 * x + 10] = fill or 0
    np.testing.assert_array_equal(shelf.read("a"), expected)
    np.testing.assert_array_equal(shelf.read("a", (slice(29, 2, -3), slice(5, 25))), expected[29:2:-3, 5:25])


def test_a_fill_that_is_no_value_of_the_dtype_is_refused(raw_shelf):
    with pytest.raises(FormatError, match="fill value"):
        raw_shelf((4, 4), (2, 2), dtype="u1", fill=-1, drop=[0]).read("a")


def test_empty_selections_touch_nothing(raw_shelf):
    shelf = raw_shelf((4, 4), (2, 2))
    os.unlink(shelf.path)
    assert shelf.read("a", (slice(3, 1), slice(None))).shape == (0, 4)
    assert shelf.read("a", (slice(0, 0), 1)).shape == (0,)


def test_inline_parts_are_joined_with_stored_ones(raw_shelf):
    shelf = raw_shelf((4, 4), (2, 4), dtype="u1")
    whole = [shelf.path.read_bytes()[o : o + n] for o, n in zip(shelf.refs.offset.tolist(), shelf.refs.length.tolist())]
    refs = Refs(
        chunk=np.array([[0, 0, 1], [0, 0, 0]], np.int32),
        offset=np.array([0, shelf.refs.offset[0] + 3, 0]),
        length=np.array([3, 5, 8]),
        file=np.array([-1, 0, -1], np.int32),
        part=np.array([0, 1, 0], np.uint16),
        inline=Inline.of([whole[0][:3], None, whole[1]]),
    )
    shelf.table = type(shelf)(shelf.table.catalog, {"a": refs}, shelf.table.files).table
    np.testing.assert_array_equal(shelf.read("a"), shelf.values)


def test_files_of_one_array_may_be_encoded_differently(kit, tmp_path, raw_shelf):
    one, two = raw_shelf((1, 6, 6), (1, 3, 6), seed=1), raw_shelf((1, 6, 6), (1, 3, 6), dtype=">i4", seed=2)
    array = replace(one.array, shape=(2, 6, 6), encodings=one.array.encodings + two.array.encodings)
    chunk = np.concatenate([one.refs.chunk, two.refs.chunk + np.array([[1], [0], [0]], np.int32)], axis=1)
    refs = Refs(
        chunk=chunk,
        offset=np.concatenate([one.refs.offset, two.refs.offset]),
        length=np.concatenate([one.refs.length, two.refs.length]),
        file=np.array([0, 0, 1, 1], np.int32),
        encoding=np.array([0, 0, 1, 1], np.uint16),
    )
    sources = [one.table.files.source(0), two.table.files.source(0)]
    shelf = kit.Shelf(Catalog(arrays={"a": array}), {"a": refs}, kit.files_of(sources))
    np.testing.assert_array_equal(shelf.read("a"), np.concatenate([one.values, two.values]))


def test_too_large_a_selection_is_refused_before_anything_is_read_or_allocated(kit, raw_shelf):
    shelf = raw_shelf((64, 64), (16, 16))
    os.unlink(shelf.path)
    with pytest.raises(LimitError):
        shelf.read("a", limits=Limits(read_bytes=64 * 64 * 4 - 1))
    vast = Array(name="a", dims=("y", "x"), shape=(2**40, 2**40), chunks=(512, 512), dtype=np.dtype("f8"), fill=3,
                 encodings=shelf.array.encodings)  # fmt: skip
    none = Refs(chunk=np.zeros((2, 0), np.int32), offset=np.zeros(0, np.int64), length=np.zeros(0, np.int64))
    sparse = kit.Shelf(Catalog(arrays={"a": vast}), {"a": none}, kit.files_of([]))
    with pytest.raises(LimitError):
        sparse.read("a")
    with pytest.raises(LimitError, match="number of chunks"):
        sparse.read("a", (slice(None, None, 2**12), 0))
    assert sparse.read("a", (5, 6)) == 3
    assert sparse.read("a", (slice(None, None, 2**39), -1)).tolist() == [3, 3]


def test_a_changed_file_is_stale_and_a_deleted_one_missing(raw_shelf):
    shelf = raw_shelf((8, 8), (2, 2))
    shelf.read("a")
    body = shelf.path.read_bytes()
    os.utime(shelf.path, ns=(1, 1))
    with pytest.raises(StaleError) as caught:
        shelf.read("a")
    assert caught.value.url == str(shelf.path)
    shelf.path.write_bytes(body[:-50])
    with pytest.raises(StaleError):
        shelf.read("a", (0, 0))
    shelf.path.unlink()
    with pytest.raises(MissingError) as caught:
        shelf.read("a")
    assert caught.value.url == str(shelf.path)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_chunk_that_does_not_decode_says_where_it_lies(raw_shelf, workers):
    shelf = raw_shelf((40, 8), (2, 8))
    refs = shelf.table.refs("a")
    bad = 7
    refs.length[bad] -= 3
    shelf.table = type(shelf)(shelf.table.catalog, {"a": refs}, shelf.table.files).table
    before = threading.active_count()  # other tests, and libraries they use, may have left threads
    with pytest.raises(DecodeError) as caught:
        shelf.read("a", workers=workers)
    assert caught.value.url == str(shelf.path)
    assert caught.value.offset == refs.offset[bad]
    assert threading.active_count() <= before


def test_an_index_may_not_reach_outside_its_policy(raw_shelf, tmp_path):
    shelf = raw_shelf((8, 8), (2, 2))
    shelf.table.policy = Policy.beside(str(tmp_path / "elsewhere" / "index.parquet"))
    with pytest.raises(DeniedError):
        shelf.read("a")


def test_rows_that_name_no_file_or_no_encoding_are_refused(raw_shelf):
    shelf = raw_shelf((8, 8), (4, 4))
    for column, value in (("file", 1), ("file", -1), ("file", -2), ("encoding", 1)):
        kind = np.int32 if column == "file" else np.uint16
        refs = replace(shelf.refs, **{column: np.full(4, value, kind)})
        with pytest.raises(FormatError):
            type(shelf)(shelf.table.catalog, {"a": refs}, shelf.table.files).read("a")


def test_progress_rises_to_the_total_in_the_callers_thread(raw_shelf):
    shelf = raw_shelf((64, 64), (8, 8))
    seen = []

    def progress(done, total):
        assert threading.current_thread() is threading.main_thread()
        seen.append((done, total))

    for workers in (1, 4):
        seen.clear()
        shelf.read("a", progress=progress, workers=workers)
        counts = [done for done, _ in seen]
        assert counts == sorted(counts)
        assert seen[-1] == (64, 64)
        assert {total for _, total in seen} == {64}


def test_an_error_in_progress_cancels_the_read(raw_shelf):
    shelf = raw_shelf((512, 512), (8, 512), dtype="f8")

    def progress(done, total):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        shelf.read("a", progress=progress, workers=4)
    assert threading.active_count() <= before


@pytest.mark.parametrize("drop", [[], [5], list(range(1, 9))])
def test_an_array_may_be_given_for_the_result(raw_shelf, drop):
    shelf = raw_shelf((3, 30, 20), (3, 10, 10), drop=drop, fill=4)
    expected = shelf.read("a")
    interleaved = np.empty((30, 20, 3), "i4")
    assert shelf.read("a", out=interleaved.transpose(2, 0, 1)).base is interleaved
    np.testing.assert_array_equal(interleaved, np.moveaxis(expected, 0, -1))
    band = np.empty((30, 7), "i4")
    shelf.read("a", (1, slice(None, None, -1), slice(3, 10)), out=band)
    np.testing.assert_array_equal(band, expected[1, ::-1, 3:10])
    for wrong in (np.empty((30, 8), "i4"), np.empty((30, 7), "f4")):
        with pytest.raises(ValueError):
            shelf.read("a", (1, slice(None, None, -1), slice(3, 10)), out=wrong)


def test_a_few_chunks_start_no_thread(raw_shelf, monkeypatch):
    shelf = raw_shelf((64, 64), (8, 8))
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    np.testing.assert_array_equal(shelf.read("a", (slice(0, 8), slice(0, 16))), shelf.values[:8, :16])
    np.testing.assert_array_equal(shelf.read("a", (slice(0, 8), slice(0, 16)), workers=3), shelf.values[:8, :16])


def test_small_chunks_start_threads_only_where_those_are_asked_for(raw_shelf, monkeypatch):
    shelf = raw_shelf((64, 64), (8, 8))
    monkeypatch.setattr(local, "MERGE_CHUNKS", 1000)  # so that they are not read by one call
    started = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self.name), start(self)))
    np.testing.assert_array_equal(shelf.read("a"), shelf.values)
    assert not started
    np.testing.assert_array_equal(shelf.read("a", workers=3), shelf.values)
    assert started


def test_a_whole_chunk_is_padded_with_fill_beyond_the_edge(raw_shelf):
    shelf = raw_shelf((10, 7), (4, 4), fill=9, drop=[0])
    chunk = read_chunk(shelf.table, shelf.fetch, shelf.array, (2, 1), limits=shelf.limits)
    expected = np.full((4, 4), 9)
    expected[:2, :3] = shelf.values[8:, 4:]
    np.testing.assert_array_equal(chunk, expected)
    inner = read_chunk(shelf.table, shelf.fetch, shelf.array, (1, 0), limits=shelf.limits)
    np.testing.assert_array_equal(inner, shelf.values[4:8, :4])
    missing = read_chunk(shelf.table, shelf.fetch, shelf.array, (0, 0), limits=shelf.limits)
    np.testing.assert_array_equal(missing, np.full((4, 4), 9))
    for position in ((3, 0), (0, -1), (0,)):
        with pytest.raises(MissingError):
            read_chunk(shelf.table, shelf.fetch, shelf.array, position, limits=shelf.limits)


def test_every_failure_of_a_read_is_ours(raw_shelf):
    shelf = raw_shelf((8, 8), (4, 4))
    broken = replace(shelf.array, encodings=(Encoding(({"name": "no-such-codec"},)),))
    with pytest.raises(PeriplusError, match="no-such-codec"):
        read_array(shelf.table, shelf.fetch, broken, limits=shelf.limits)


def test_a_million_elements_in_one_go_have_the_right_sum(raw_shelf):
    shelf = raw_shelf((1000, 1000), (100, 90), dtype="<i8")
    assert int(shelf.read("a").sum()) == math.comb(1_000_001, 2)
