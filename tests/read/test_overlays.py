"""Chunks of several regions are read as the regions overlaid by hand; invalid regions are refused."""

import copy
import random
from dataclasses import replace

import numpy as np
import pytest

from periplus.errors import DecodeError, FormatError, LimitError, PeriplusError
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Refs
from periplus.table.document.encodings import encoding_of, frame_of
from periplus.testing.servers.http import RangeServer

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
FILL, CLEAR = -9, 7


def piece(shape, first, at, size, **more):
    return {"name": "periplus.piece", "configuration": {"shape": shape, "from": first, "at": at, "size": size, **more}}


def encoding(pipeline, array):
    """The encoding of codecs whose first may be periplus.piece, as in documents of version 1."""
    return encoding_of(pipeline, frame_of(array.dims, array.chunks, array.dtype, array.edges), "a")


def overlaid(rng, shape, chunks, edges, count, *, clear):
    """Random stored chunks and regions of them: the values by hand, the array, its rows, stored chunks and codecs."""
    array = Array(
        name="a", dims=("y", "x"), shape=shape, chunks=chunks, dtype=np.dtype("i2"), fill=FILL, edges=edges,
        encodings=(Encoding((BYTES,)),),
    )  # fmt: skip
    whole = np.full(shape, FILL, np.int16)
    starts = [array.starts(d) for d in range(2)]
    stored = [rng.integers(0, 9, (int(rng.integers(1, 9)), int(rng.integers(1, 9)))).astype("<i2") for _ in range(6)]
    pipelines, rows = [(BYTES,)], []
    for y, x in np.ndindex(*array.grid):
        low = [int(starts[d][k]) for d, k in enumerate((y, x))]
        limit = [min(int(starts[d][k + 1]), shape[d]) - low[d] for d, k in enumerate((y, x))]
        last = None
        for _ in range(int(rng.integers(0, count + 1))):
            slot = int(rng.integers(len(stored)))
            values = stored[slot]
            size = [int(rng.integers(1, min(values.shape[d], limit[d]) + 1)) for d in range(2)]
            first = [int(rng.integers(0, values.shape[d] - size[d] + 1)) for d in range(2)]
            at = [int(rng.integers(0, limit[d] - size[d] + 1)) for d in range(2)]
            more = {"clear": CLEAR} if clear and rng.random() < 0.7 else {}
            pipeline = (piece(list(values.shape), first, at, size, **more), BYTES)
            if pipeline == last:
                pipeline = (piece(list(values.shape), first, at, size, layer=1, **more), BYTES)
            last = pipeline
            if pipeline not in pipelines:
                pipelines.append(pipeline)
            rows.append((y, x, slot, pipelines.index(pipeline)))
            part = values[first[0] : first[0] + size[0], first[1] : first[1] + size[1]]
            view = whole[low[0] + at[0] :, low[1] + at[1] :][: size[0], : size[1]]
            view[...] = np.where(part == CLEAR, view, part) if more else part
    return whole, replace(array, encodings=tuple(encoding(each, array) for each in pipelines)), rows, stored, pipelines


def joined(array, rows, stored):
    body, at = b"junk", []
    for values in stored:
        at.append((len(body), values.nbytes))
        body += values.tobytes() + b"gap"
    part, seen = [], {}
    for y, x, *_ in rows:
        part.append(seen.get((y, x), 0))
        seen[y, x] = part[-1] + 1
    refs = Refs(
        chunk=np.array([[row[0] for row in rows], [row[1] for row in rows]], np.int32).reshape(2, -1),
        offset=np.array([at[row[2]][0] for row in rows], np.int64),
        length=np.array([at[row[2]][1] for row in rows], np.int64),
        file=np.zeros(len(rows), np.int32),
        part=np.array(part, np.uint16),
        encoding=np.array([row[3] for row in rows], np.uint16),
    )
    return body, refs


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("edges", [None, ((3, 8, 2, 7), (8, 1, 8, 6))])
@pytest.mark.parametrize("seed", range(4))
def test_regions_are_overlaid_in_order(tmp_path, kit, seed, edges, clear):
    rng = np.random.default_rng(seed)
    whole, array, rows, stored, _ = overlaid(rng, (20, 23), (8, 8), edges, 4, clear=clear)
    body, refs = joined(array, rows, stored)
    path = tmp_path / "stored.bin"
    path.write_bytes(body)
    with Fetch() as fetch:
        shelf = kit.Shelf(
            Catalog(arrays={"a": array}), {"a": refs}, kit.files_of([fetch.run(fetch.head(str(path)))]), fetch
        )
        for workers in (1, 3):
            np.testing.assert_array_equal(shelf.read("a", workers=workers), whole)
        for _ in range(25):
            top, bottom = np.sort(rng.choice(21, 2, replace=False)).tolist()
            left, right = np.sort(rng.choice(24, 2, replace=False)).tolist()
            key = slice(top, bottom, int(rng.integers(1, 4))), slice(left, right)
            np.testing.assert_array_equal(shelf.read("a", key), whole[key])
        np.testing.assert_array_equal(shelf.read("a", limits=Limits(memory_bytes=3000)), whole)


def test_only_selected_regions_are_fetched(kit):
    values = [np.full((4, 4), n, "<i2") for n in (1, 2)]
    array = kit.raw_array((4, 8), (4, 8), dtype="<i2", fill=FILL)
    encodings = tuple(encoding((piece([4, 4], [0, 0], [0, x], [4, 4]), BYTES), array) for x in (0, 4))
    array = replace(array, encodings=encodings)
    body, refs = joined(array, [(0, 0, 0, 0), (0, 0, 1, 1)], values)
    with RangeServer({"a.bin": body + bytes(100)}) as server, Fetch() as fetch:
        source = fetch.run(fetch.head(f"{server.url}/a.bin"))
        shelf = kit.Shelf(Catalog(arrays={"a": array}), {"a": refs}, kit.files_of([source]), fetch)
        np.testing.assert_array_equal(shelf.read("a", (slice(1, 3), slice(5, 7))), np.full((2, 2), 2))
        (request,) = (request for request in server.log if request.method == "GET")
        assert request.range == (int(refs.offset[1]), int(refs.offset[1] + refs.length[1]))


def test_a_hidden_region_is_not_fetched(kit):
    values = [np.full((4, 4), n, "<i2") for n in (1, 2)]
    for more, expected in (({}, 1), ({"clear": 7}, 2)):
        array = kit.raw_array((4, 8), (4, 8), dtype="<i2")
        pieces = [piece([4, 4], [0, 0], [0, 0], [4, 4], layer=n, **more) for n in range(2)]
        array = replace(array, encodings=tuple(encoding((each, BYTES), array) for each in pieces))
        body, refs = joined(array, [(0, 0, 0, 0), (0, 0, 1, 1)], values)
        with RangeServer({"a.bin": body + bytes(100)}) as server, Fetch() as fetch:
            source = fetch.run(fetch.head(f"{server.url}/a.bin"))
            shelf = kit.Shelf(Catalog(arrays={"a": array}), {"a": refs}, kit.files_of([source]), fetch)
            np.testing.assert_array_equal(shelf.read("a", (slice(1, 3), slice(1, 3))), np.full((2, 2), 2))
            spans = [request.range for request in server.log if request.method == "GET"]
            assert sum(stop - start for start, stop in spans) // refs.length[0] == expected


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [4]},
        {"shape": None},
        {"from": [0, 1]},
        {"from": [-1, 0]},
        {"at": [0, 1]},
        {"size": [0, 1]},
        {"size": [5, 4]},
        {"size": [True, 4]},
        {"clear": "7"},
        {"colour": 1},
    ],
    ids=str,
)
def test_a_region_outside_its_chunk_is_refused(tmp_path, kit, change):
    codec = piece([4, 4], [0, 0], [0, 0], [4, 4])
    codec["configuration"] |= change
    with pytest.raises(FormatError):
        read_of(tmp_path, kit, [(codec, BYTES)], [0])


def read_of(tmp_path, kit, encodings, codes, **options):
    array = kit.raw_array((4, 4), (4, 4), dtype="<i2")
    array = replace(array, encodings=tuple(encoding(each, array) for each in encodings))
    body, refs = joined(array, [(0, 0, 0, code) for code in codes], [np.ones((4, 4), "<i2")])
    path = tmp_path / "stored.bin"
    path.write_bytes(body)
    with Fetch() as fetch:
        files = kit.files_of([fetch.run(fetch.head(str(path)))])
        return kit.Shelf(Catalog(arrays={"a": array}), {"a": refs}, files, fetch).read("a", **options)


@pytest.mark.parametrize("dtype", ["?", "u1", "<i2", "<u8", "<f4", "<c8"])
def test_any_number_may_be_transparent(tmp_path, kit, dtype):
    values = np.array([[0, 1], [1, 0]], dtype)
    codec = {"name": "bytes"} if values.itemsize == 1 else BYTES
    plain = kit.raw_array((2, 2), (2, 2), dtype=dtype, fill=0)
    body, refs = joined(plain, [(0, 0, 0, 0)], [values])
    path = tmp_path / "stored.bin"
    path.write_bytes(body)
    with Fetch() as fetch:
        files = kit.files_of([fetch.run(fetch.head(str(path)))])
        for transparent in (256, -1, 1 << 70, -(1 << 70), 1.5, float("inf"), float("nan"), 1, 0):
            codecs = (piece([2, 2], [0, 0], [0, 0], [2, 2], clear=transparent), codec)
            array = replace(plain, encodings=(encoding(codecs, plain),))
            found = kit.Shelf(Catalog(arrays={"a": array}), {"a": refs}, files, fetch).read("a")
            expected = np.zeros((2, 2)) if transparent == 1 else values
            np.testing.assert_array_equal(found, expected, err_msg=str(transparent))


def test_parts_with_different_encodings_that_are_not_regions_are_refused(tmp_path, kit):
    whole = piece([4, 4], [0, 0], [0, 0], [4, 4])
    for encodings in ([(BYTES,), (BYTES, BYTES)], [(BYTES,), (whole, BYTES)], [(whole, BYTES), (BYTES,)]):
        with pytest.raises(FormatError, match="different encodings"):
            read_of(tmp_path, kit, encodings, [0, 1])


def test_a_region_needs_exactly_one_codec_after_it(tmp_path, kit):
    whole = piece([4, 4], [0, 0], [0, 0], [4, 4])
    for encodings in ([(whole,)], [(whole, whole, BYTES)], [(BYTES, whole)]):
        with pytest.raises(FormatError):
            read_of(tmp_path, kit, encodings, [0])


def test_a_stored_chunk_that_is_short_or_giant_is_refused(tmp_path, kit):
    with pytest.raises(DecodeError) as caught:
        read_of(tmp_path, kit, [(piece([5, 5], [0, 0], [0, 0], [4, 4]), BYTES)], [0])
    assert str(caught.value.url).endswith("stored.bin")
    giant = piece([1 << 20, 1 << 20], [0, 0], [0, 0], [4, 4])
    with pytest.raises(LimitError):
        read_of(tmp_path, kit, [(giant, BYTES)], [0])


def test_random_settings_give_only_our_errors(tmp_path, kit):
    rng = random.Random(5)
    values = [None, True, -1, 0, 1, 7, 1 << 40, 1 << 70, 1.5, "x", [], [0, 0], [4, 4], {}, float("nan")]
    _, array, rows, stored, pipelines = overlaid(np.random.default_rng(1), (20, 23), (8, 8), None, 3, clear=True)
    body, refs = joined(array, rows, stored)
    path = tmp_path / "stored.bin"
    path.write_bytes(body)
    refused = 0
    with Fetch() as fetch:
        files = kit.files_of([fetch.run(fetch.head(str(path)))])
        for _ in range(300):
            encodings = copy.deepcopy(pipelines)
            settings = rng.choice(encodings[1:])[0]["configuration"]
            key = rng.choice(list(settings))
            if isinstance(settings[key], list) and rng.random() < 0.7:
                settings[key][rng.randrange(2)] = rng.choice(values)
            else:
                settings[key] = rng.choice(values)
            codes = refs.encoding.copy()
            codes[rng.randrange(len(codes))] = rng.randrange(len(encodings))
            try:
                made = replace(array, encodings=tuple(encoding(each, array) for each in encodings))
                catalog = Catalog(arrays={"a": made})
                kit.Shelf(catalog, {"a": replace(refs, encoding=codes)}, files, fetch).read("a", workers=1)
            except PeriplusError:
                refused += 1
    assert 0 < refused < 300
