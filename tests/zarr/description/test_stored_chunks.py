"""Facts of stored chunks at the exits: written as codecs, else decoded; and read back as facts."""

import gzip
import json
import zlib
from dataclasses import replace

import numpy as np
import pytest
import zarr

import periplus
from periplus.fetch import Fetch
from periplus.model import Array, Catalog, Encoding, Refs, Region
from periplus.model.codecnames import PIPELINE, TIFF_TILE
from periplus.table import memory_table
from periplus.testing.indexes import files_of
from periplus.zarr.codecs.translate import NotRepresentableError
from periplus.zarr.description.codecs import last_rows, zarr_codecs
from periplus.zarr.kerchunk.write import write_kerchunk
from periplus.zarr.store.store import IndexStore

ZLIB = {"name": "numcodecs.zlib", "configuration": {"level": 6}}
LITTLE, BIG = ({"name": "bytes", "configuration": {"endian": endian}} for endian in ("little", "big"))
GZIP = {"name": "gzip", "configuration": {"level": 1}}
UNPACK = {"name": "periplus.unpack", "configuration": {"dtype": "<i2", "nodata": 7, "scale": 0.5, "offset": None}}
STRIPS = Array(name="a", dims=("bands", "y", "x"), shape=(1, 10, 6), chunks=(1, 4, 6), dtype=np.dtype("i2"))


def stored(tmp_path, array, values, encode=bytes, *, rows=None):
    """A table of strips, each only as far as the array goes, or of `rows` rows and no more than there are."""
    body, offset, length = b"", [], []
    for k in range(array.grid[1]):
        at = k * array.chunks[1]
        part = encode(np.ascontiguousarray(values[:, at : at + (rows or array.chunks[1])]).tobytes())
        offset.append(len(body))
        length.append(len(part))
        body += part
    path = tmp_path / "strips.bin"
    path.write_bytes(body)
    chunk = np.zeros((3, len(offset)), np.int32)
    chunk[1] = np.arange(len(offset))
    refs = Refs(chunk=chunk, offset=np.array(offset), length=np.array(length))
    files = replace(files_of([str(path)], size=len(body)), etag=[None], last_modified=np.array(["NaT"], "M8[us]"))
    return memory_table(Catalog(arrays={"a": array}), {"a": refs}, files)


@pytest.mark.parametrize(
    ("codecs", "encode", "name"),
    [
        ((LITTLE,), bytes, PIPELINE),
        ((LITTLE, ZLIB), zlib.compress, PIPELINE),
        ((BIG,), lambda data: np.frombuffer(data, "<i2").astype(">i2").tobytes(), PIPELINE),
        ((LITTLE, GZIP), gzip.compress, PIPELINE),
        ((UNPACK, LITTLE, ZLIB), zlib.compress, TIFF_TILE),
    ],
    ids=["plain", "deflate", "big-endian", "gzip", "unpacked"],
)
@pytest.mark.usefixtures("our_codecs")
def test_a_clipped_strip_is_read_by_zarr_and_comes_back_as_a_fact(tmp_path, codecs, encode, name):
    raw = np.arange(60, dtype="<i2").reshape(STRIPS.shape)
    array = replace(STRIPS, encodings=(Encoding(codecs, clipped=("y",)),))
    values = raw
    if UNPACK in codecs:
        array, values = replace(array, dtype=np.dtype("f4")), np.where(raw == 7, np.nan, raw * np.float32(0.5))
    said = zarr_codecs(array)
    assert said.kind == "ours"
    image = next(codec for codec in said.codecs if codec["name"] == name)
    assert image["configuration"]["last_rows"] == 2
    table = stored(tmp_path, array, raw, encode)
    with Fetch() as fetch:
        store = IndexStore(table, fetch, codecs="all")
        np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[...], values)
        for version in (2, 3):
            path = tmp_path / f"v{version}.json"
            write_kerchunk(table, str(path), fetch=fetch, codecs="all", zarr_format=version)
            with periplus.open(str(path), allow=[str(tmp_path)]) as index:
                found = index["a"].array.encodings[0]
                assert found.clipped == ("y",)
                assert "last_rows" not in json.dumps(found.codecs)
                np.testing.assert_array_equal(index["a"][...], values)


def test_what_is_written_does_not_depend_on_what_is_reachable(tmp_path):
    array = replace(STRIPS, encodings=(Encoding((LITTLE, ZLIB), clipped=("y",)),))
    table = stored(tmp_path, array, np.zeros(STRIPS.shape, "<i2"), zlib.compress)
    with Fetch() as fetch:
        write_kerchunk(table, str(tmp_path / "there.json"), fetch=fetch)
        (tmp_path / "strips.bin").unlink()
        write_kerchunk(table, str(tmp_path / "gone.json"), fetch=fetch)
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "gone.json").read_bytes()


@pytest.mark.usefixtures("our_codecs")
def test_larger_stored_chunks_are_cropped(tmp_path):
    """Of stored chunks of 8 rows the array shows 5; all of them may be clipped to that."""
    values = np.arange(60, dtype="<i2").reshape(STRIPS.shape)
    array = replace(STRIPS, chunks=(1, 5, 6), encodings=(Encoding((LITTLE,), (1, 8, 6), ("y",)),))
    assert zarr_codecs(array).codecs[0]["name"] == "periplus.crop"
    table = stored(tmp_path, array, values, rows=8)
    with Fetch() as fetch:
        store = IndexStore(table, fetch, codecs="all")
        np.testing.assert_array_equal(zarr.open_array(store, path="a", mode="r")[...], values)


@pytest.mark.parametrize(
    "encoding",
    [
        Encoding((LITTLE,), clipped=("x",)),
        Encoding((LITTLE,), clipped=("y", "x")),
        Encoding((LITTLE,), (1, 8, 6), ("y",)),
        Encoding((LITTLE,), (1, 4, 6), region=Region(begin=(0, 0, 0), at=(0, 0, 0), size=(1, 4, 6))),
        Encoding((), clipped=("y",)),
        Encoding(({"name": TIFF_TILE},), clipped=("y",)),
        Encoding(({"name": "transpose"}, LITTLE), clipped=("y",)),
    ],
    ids=["columns", "both", "two lengths", "region", "no codecs", "no settings", "no order"],
)
def test_what_no_codec_says_is_handed_out_decoded(encoding):
    said = zarr_codecs(replace(STRIPS, shape=(1, 10, 5), encodings=(encoding,)))
    assert said.kind == "decoded"
    assert said.why


def test_clipping_where_all_chunks_are_whole_means_nothing():
    array = replace(STRIPS, shape=(1, 8, 6), encodings=(Encoding((LITTLE,), clipped=("y", "x")),))
    assert last_rows(array.encodings[0], array) is None
    assert zarr_codecs(array).kind == "standard"
    with pytest.raises(NotRepresentableError, match="clipped along x"):
        last_rows(Encoding((LITTLE,), clipped=("x",)), replace(array, shape=(1, 8, 5)))
