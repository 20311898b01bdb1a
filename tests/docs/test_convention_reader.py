"""The reader printed in the convention gives the values that periplus gives, for every kind of array it claims."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import periplus
from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Encoding, Inline, Refs, Region, chunk_positions
from periplus.table import write_table
from periplus.testing.indexes import RAW, files_of
from periplus.testing.scenes import tile

PAGE = (Path(__file__).parent.parent.parent / "docs" / "convention.md").read_text()
NAT = -(2**63)


@pytest.fixture(scope="module")
def reader():
    """The functions of the page, without the examples that follow them."""
    (code,) = re.findall(r"```python\n(import base64\n.*?)^arrays, rows, files = ", PAGE, re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(code, "convention.md", "exec"), names)
    return names


def same(reader, path):
    """Every array of an index, read both ways."""
    arrays, rows, _ = reader["open_index"](path)
    with periplus.open(path) as index:
        assert set(arrays) == set(index)
        for name in index:
            want = index[name][...]
            got = reader["read"](arrays, rows, name)
            assert (got.dtype, got.shape) == (want.dtype, want.shape), name
            np.testing.assert_array_equal(got, want, err_msg=name)
    return arrays


def written(folder, arrays, refs, files=None):
    """A flat index of these arrays."""
    path = str(folder / "i.parquet")
    files = files_of([]) if files is None else files
    with Fetch() as fetch:
        write_table(
            path, Catalog(arrays={array.name: array for array in arrays}), refs.items(), files, fetch=fetch
        ).close()
    return path


def inline(array, *items):
    """References of the first chunks, all of them inline."""
    chunk = chunk_positions(array.grid)[:, : len(items)]
    length = np.array([len(item) for item in items], np.int64)
    none = np.full(len(items), -1, np.int32)
    return Refs(chunk=chunk, offset=np.zeros(len(items), np.int64), length=length, file=none, inline=Inline.of(items))


@pytest.mark.parametrize("compress", ["deflate", "none"])
@pytest.mark.parametrize("nodata", [math.nan, -1.0])
def test_overlaps_whose_nodata_is_transparent(reader, tmp_path, nodata, compress):
    values = np.arange(2 * 2 * 70 * 70, dtype="float32").reshape(2, 2, 70, 70)
    values[:, :, 20:60, 10:60] = nodata
    options = {"nodata": nodata, "dtype": "float32", "compress": compress}
    paths = [tile(tmp_path / f"{n}.tif", 7 * n, 40 * n, (70, 70), values=values[n], **options) for n in range(2)]
    to = tmp_path / "i.parquet"
    periplus.index(paths, to=to, arrange="mosaic", duplicates="first-valid").close()
    arrays = same(reader, str(to))
    regions = [one.get("region", {}) for one in arrays["0/data"]["encodings"] if isinstance(one, dict)]
    assert ("NaN" if math.isnan(nodata) else nodata) in [region.get("transparent") for region in regions]


FILLS = [
    ("uint8", 7), ("uint64", 2**64 - 1), ("bool", True), ("float32", math.nan), ("float64", -math.inf), ("int16", None),
    ("complex64", 1.5 - 2j), ("complex128", complex(math.nan, math.inf)), ("complex64", None),
    ("S3", b"ab\xff"), ("S3", None), ("U4", "größ"), ("U4", None),
    ("M8[us]", 1_600_000_000), ("M8[s]", NAT), ("M8[D]", None), ("m8[ms]", -5), ("m8[ns]", NAT), ("m8[h]", None),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "fill"), FILLS, ids=str)
def test_chunks_without_a_row_have_the_fill_value(reader, tmp_path, dtype, fill):
    dtype = np.dtype(dtype)
    grid = Array(
        name="a/grid", dims=("y", "x"), shape=(5, 4), chunks=(3, 2), dtype=dtype, fill=fill, encodings=(Encoding(RAW),)
    )
    single = replace(grid, name="a/single", dims=(), shape=(), chunks=())
    stored = np.random.default_rng(1).integers(32, 90, 6 * dtype.itemsize).astype("uint8")
    if dtype.kind == "U":
        stored = np.frombuffer(np.array(["ab", "c", "", "defg", "h", "ij"], "<U4").tobytes(), "uint8")
    if dtype.kind == "b":
        stored %= 2
    refs = {grid.name: inline(grid, stored.tobytes()), single.name: inline(single)}
    same(reader, written(tmp_path, [grid, single], refs))


@pytest.mark.parametrize("dtype", ["<i4", "S3", "M8[s]", "c8", "U2"])
def test_arrays_without_dimensions(reader, tmp_path, dtype):
    raw = np.array(["ab"], "<U2") if dtype == "U2" else np.arange(1, 1 + np.dtype(dtype).itemsize, dtype="uint8")
    one = Array(name="one", dims=(), shape=(), chunks=(), dtype=np.dtype(dtype), fill=None, encodings=(Encoding(RAW),))
    same(reader, written(tmp_path, [one], {"one": inline(one, raw.tobytes())}))


@pytest.mark.parametrize("template", ["store/c/{time}/{y}.{x}", "store/t{time}.bin"])
def test_path_templates(reader, tmp_path, monkeypatch, template):
    array = Array(
        name="data", dims=("time", "y", "x"), shape=(3, 4, 6), chunks=(1, 2, 4), dtype=np.dtype("<i2"), fill=-1,
        encodings=(Encoding(RAW),),
    )  # fmt: skip
    values = np.arange(3 * 4 * 8, dtype="<i2").reshape(3, 4, 8)
    chunk = chunk_positions(array.grid)
    offset = []
    for t, y, x in chunk.T.tolist():
        path = tmp_path / template.format(time=t, y=y, x=x)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            offset.append(file.tell())
            file.write(values[t, 2 * y : 2 * y + 2, 4 * x : 4 * x + 4].tobytes())
    count = len(offset)
    refs = Refs(chunk=chunk, offset=np.array(offset), length=np.full(count, 16), file=np.zeros(count, np.int32))
    files = replace(
        files_of([f"{tmp_path}/{template}"]), size=np.array([-1]), etag=[None],
        last_modified=np.array(["NaT"], "M8[us]"), columns={"template": np.array([True])},
    )  # fmt: skip
    path = written(tmp_path, [array], {"data": refs}, files)
    monkeypatch.chdir("/")  # relative paths count from the folder of the index
    same(reader, path)
    arrays, rows, _ = reader["open_index"](path)
    np.testing.assert_array_equal(reader["read"](arrays, rows, "data"), values[:, :, :6])


def test_extents_edges_parts_and_clipped_chunks(reader, tmp_path):
    turned = ({"name": "transpose", "configuration": {"order": [1, 0]}}, *RAW)
    array = Array(
        name="data", dims=("y", "x"), shape=(5, 7), chunks=(2, 4), dtype=np.dtype("uint8"), fill=9,
        edges=(None, (3, 4)), encodings=(Encoding(turned, extent=(3, 5)), Encoding(RAW, clipped=("y",))),
    )  # fmt: skip
    items = [bytes(range(15)), bytes(range(20, 35)), bytes(range(40, 46)), bytes(range(50, 58)), b"abc", b"stuv"]
    refs = inline(array, *items)
    refs = replace(refs, encoding=np.array([0, 0, 1, 1, 1, 1], np.uint16))
    same(reader, written(tmp_path, [array], {"data": refs}))


@pytest.mark.parametrize(("data", "problem"), [(b"abc", "early"), (b"ab", "early"), (b"", "early")])
def test_a_chunk_that_is_short_is_an_error(reader, tmp_path, data, problem):
    whole = Array(
        name="whole", dims=("y", "x"), shape=(3, 1), chunks=(4, 1), dtype=np.dtype("uint8"), fill=0,
        encodings=(Encoding(RAW),),
    )  # fmt: skip
    region = Region(begin=(0, 0), at=(0, 0), size=(3, 1))
    cut = replace(whole, name="cut", encodings=(Encoding(RAW, extent=(4, 1), clipped=("y",), region=region),))
    path = written(tmp_path, [whole, cut], {"whole": inline(whole, data), "cut": inline(cut, data)})
    arrays, rows, _ = reader["open_index"](path)
    with pytest.raises(ValueError, match=problem):
        reader["read"](arrays, rows, "whole")
    if data == b"abc":
        assert reader["read"](arrays, rows, "cut").tobytes() == data
    else:
        with pytest.raises(ValueError, match=problem):
            reader["read"](arrays, rows, "cut")
