"""Many files of few kinds: a document that tells each kind once, and arrays that are as they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import periplus
from periplus.arrange import FileEntry, collect
from periplus.errors import LimitError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Georeference, GroundControlPoint, Refs, Source, chunk_positions
from periplus.table import copy_table, open_table, write_table
from periplus.table.collection.build import FEWEST, extended, gathered, members_of
from periplus.table.collection.groups import GroupedArrays, unlike
from periplus.table.document.document import IndexDocument, document_for, dump, load
from periplus.testing.scenes import tile

BYTES = ({"name": "bytes", "configuration": {"endian": "little"}},)
ALLOW = ["s3://bucket/"]


def image(number: int, level: int, *, size: int = 256, **changes) -> Array:
    pixel = 10.0 * 2**level
    facts = {
        "name": f"{level}/data",
        "dims": ("bands", "y", "x"),
        "shape": (1, size >> level, size >> level),
        "chunks": (1, 64, 64),
        "dtype": np.dtype("int16"),
        "fill": -1,
        "encodings": (Encoding(BYTES),),
        "attributes": {"_FillValue": -1, "units": "K", "odd": float("nan")},
        "level": level,
        "georeference": Georeference(
            crs="EPSG:32633", transform=(pixel, 0.0, 3e5 + number / 3, 0.0, -pixel, 5e6 - number)
        ),
    }
    return Array(**{**facts, **changes})


def collection(arrays_of, count=100):
    """Files laid side by side, each with its own arrays."""
    entries = [
        FileEntry(
            source=Source(url=f"s3://bucket/{n:04d}.tif", size=10_000),
            format="tiff",
            arrays=arrays_of(n),
            attributes={"taken": "ab"[n % 2]} if n % 3 else {},
        )
        for n in range(count)
    ]

    def refs(entry, which):
        chunk = chunk_positions(entries[entry].arrays[which].grid)
        rows = np.arange(chunk.shape[1])
        return Refs(chunk=chunk, offset=rows * 10 + entry, length=np.full(len(rows), 5))

    return collect(entries, refs)


def stored(laid, parts=None) -> IndexDocument:
    """The document of a collection, as it is when it was written and opened."""
    return opened(document_for(gathered(laid.catalog, laid.files, parts or {})), len(laid.files))


def opened(document: IndexDocument, count: int) -> IndexDocument:
    arrays = document.catalog.arrays
    members = (lambda: members_of(arrays, count)) if isinstance(arrays, GroupedArrays) else None
    return load(dump(document), limits=Limits(), members=members)


def text(array: Array) -> str:
    return repr(array)


APART = "levels that begin elsewhere"
KINDS = {
    "alike": lambda n: (image(n, 0), image(n, 1)),
    "of many sizes": lambda n: (image(n, 0, size=100 + n), image(n, 1, size=100 + n)),
    "some with a mask": lambda n: (image(n, 0), *([image(n, 0, name="0/mask")] if n % 2 else [])),
    "without a place": lambda n: (image(n, 0, georeference=None),),
    APART: lambda n: (image(n, 0), image(n + 7, 1)),
    "control points": lambda n: (
        image(
            n,
            0,
            georeference=Georeference(
                gcps=(GroundControlPoint(column=0.0, row=0.0, x=n / 2, y=1.0),), rpc={"LINE_OFF": n}
            ),
        ),
    ),
    "attributes that are not plain": lambda n: (image(n, 0, attributes={"list": [np.float32(n % 3)]}),),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_as_they_were(kind):
    laid = collection(KINDS[kind])
    catalog, document = laid.catalog, stored(laid)
    assert isinstance(document.catalog.arrays, GroupedArrays) == (kind != APART)
    assert dict(document.catalog.attributes) == dict(catalog.attributes)
    assert len(document.catalog.arrays) == len(catalog.arrays)
    assert set(document.catalog.arrays) == set(catalog.arrays)
    for name, array in catalog.arrays.items():
        assert name in document.catalog.arrays
        assert text(document.catalog.arrays[name]) == text(plain(array))
    assert "0000/9/data" not in document.catalog.arrays
    assert document.most_rows == document_for(catalog).most_rows
    with pytest.raises(KeyError):
        document.catalog.arrays["nothing"]
    again = opened(document, len(laid.files))
    assert {name: text(array) for name, array in again.catalog.arrays.items()} == {
        name: text(array) for name, array in document.catalog.arrays.items()
    }


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != APART])
def test_a_collection_that_grew_is_as_if_laid_at_once(kind):
    whole = collection(KINDS[kind], 100)
    old = stored(collection(KINDS[kind], 90)).catalog.arrays
    new = {name: array for name, array in whole.catalog.arrays.items() if name not in old}
    groups = {group: number for number, group in enumerate(whole.files.columns["group"]) if number >= 90}
    grown = extended(old, new, groups, whole.catalog.attributes)
    want = stored(whole).catalog.arrays
    assert {name: text(plain(array)) for name, array in grown.items()} == {name: text(a) for name, a in want.items()}
    assert list(unlike(old, grown)) == []
    assert list(unlike(old, {**grown})) == list(old)
    if kind == "alike":
        assert len(grown.families) == len(want.families) == 1
        moved = replace(grown, x=np.where(grown.file == 3, 1.0, grown.x))
        assert list(unlike(old, moved)) == ["0003/0/data", "0003/1/data"]


def plain(array: Array) -> Array:
    """The array with numbers as JSON gives them back."""
    said = array.attributes
    return replace(array, attributes={k: [float(n) for n in v] if isinstance(v, list) else v for k, v in said.items()})


def test_few_groups_and_other_arrangements_are_listed_one_by_one():
    few = collection(KINDS["alike"], FEWEST - 1)
    assert gathered(few.catalog, few.files, {}) is few.catalog
    many = collection(KINDS["alike"], FEWEST)
    assert isinstance(gathered(many.catalog, many.files, {}).arrays, GroupedArrays)
    other = Catalog(arrays=dict(many.catalog.arrays), arrangement={"kind": "stack"})
    assert gathered(other, many.files, {}) is other


@pytest.mark.parametrize("form", ["i.parquet", "i", "i.duckdb"])
def test_a_large_collection_fits_where_its_arrays_one_by_one_would_not(tmp_path, fetch, form):
    laid = collection(KINDS["alike"], 130)
    limits = Limits(header_bytes=20_000)
    one_by_one = dump(document_for(Catalog(arrays=dict(laid.catalog.arrays))))
    with pytest.raises(LimitError, match="the footer document"):
        load(one_by_one, limits=limits)
    refs = dict(laid.blocks)
    url = str(tmp_path / form)
    write_table(url, laid.catalog, refs.items(), laid.files, fetch=fetch, limits=limits)
    table = open_table(url, fetch=fetch, limits=limits, allow=ALLOW, trust=True)
    assert table.rows == sum(map(len, refs.values()))
    for name in ("0000/0/data", "0123/1/data", "0129/0/data"):
        found = table.refs(name)
        assert found.offset.tolist() == refs[name].offset.tolist()
        assert set(found.file.tolist()) == set(refs[name].file.tolist())
    assert table.sql("select count(*) n from arrays")["n"].to_pylist() == [260]
    assert table.sql("select count(*) n from grid")["n"].to_pylist() == [260]
    assert table.select(array="0129/1/data", bbox=(0, 0, 1, 1)).num_rows == 0
    copied = copy_table(table, str(tmp_path / "copy.parquet"), fetch=fetch, limits=limits)
    assert copied.rows == table.rows
    assert list(copied.catalog.arrays) == list(table.catalog.arrays)


@pytest.mark.parametrize("form", ["i.parquet", "i"])
def test_a_large_collection_grows(tmp_path, form):
    paths = [tile(tmp_path / "in" / f"{n:03d}.tif", 0, n * 16, (16, 16), bands=1) for n in range(FEWEST + 3)]
    for count in (FEWEST - 2, FEWEST + 1, FEWEST + 3, FEWEST + 3):
        periplus.index(paths[:count], to=tmp_path / form, arrange="collect").close()
        with periplus.open(tmp_path / form, allow=[str(tmp_path)]) as index:
            assert len(index.arrays) == count
            assert isinstance(index.table.catalog.arrays, GroupedArrays) == (count >= FEWEST)
            with periplus.index(paths[count - 1]) as one:
                np.testing.assert_array_equal(index[f"{count - 1:03d}/0/data"][...], one["0/data"][...])
            assert index.read(bbox=index["005/0/data"].bbox, array="005/0/data").values.shape == (1, 16, 16)
    with periplus.index(paths[1:], to=tmp_path / form, arrange="collect") as index:
        assert index.summary is not None
        assert index.summary.reused == len(paths) - 1
        assert "000/0/data" not in index.arrays
