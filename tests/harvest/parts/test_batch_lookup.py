"""Files of a collection looked up together have the rows, arrays and attributes that they have one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from periplus.arrange import collect
from periplus.harvest.inputs import Input
from periplus.harvest.parts.gather import Gathered
from periplus.harvest.scanning.drive import Harvested
from periplus.model import Array, Encoding, Found, Georeference, Inline, Refs, Source, chunk_positions
from periplus.table import write_table
from periplus.table.collection.build import FEWEST
from periplus.table.collection.bundles import Bundled, apart
from periplus.table.collection.groups import GroupedArrays
from periplus.testing.indexes import RAW, ZSTD, same_refs


def found(name: str, size: int, corner: float, kind: str, seed: int) -> Found:
    """An array of few chunks, whose references are whole, sparse, in parts, of two encodings or inline."""
    rank = 2 if name.endswith("mask") else 3
    array = Array(
        name=name,
        dims=("bands", "y", "x")[-rank:],
        shape=(1, size, size + 3)[-rank:],
        chunks=(1, 4, 4)[-rank:],
        dtype=np.dtype("u1"),
        encodings=(Encoding(codecs=RAW), Encoding(codecs=ZSTD)),
        georeference=Georeference(crs="EPSG:4326", transform=(1.0, 0.0, corner, 0.0, -1.0, 7.0)),
    )
    random = np.random.default_rng(seed)
    chunk = chunk_positions(array.grid)
    if kind == "sparse":
        chunk = chunk[:, random.permutation(chunk.shape[1])[::2]]
    if kind == "parts":
        chunk = np.repeat(chunk, 2, axis=1)
    count = chunk.shape[1]
    length = random.integers(1, 9, count)
    inline = Inline.of([random.bytes(n) if i % 2 else None for i, n in enumerate(length.tolist())])
    refs = Refs(
        chunk=chunk,
        offset=random.integers(0, 1000, count),
        length=length,
        part=np.arange(count, dtype=np.uint16) % 2 if kind == "parts" else None,
        encoding=random.integers(0, 2, count).astype(np.uint16) if kind == "encodings" else None,
        inline=inline if kind == "inline" else None,
    )
    return Found(array, refs)


KINDS = ("whole", "sparse", "parts", "encodings", "inline")
FILES = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["0/data", "1/data", "0/mask"]), st.integers(3, 9), st.sampled_from(KINDS)),
        min_size=1,
        max_size=3,
        unique_by=lambda item: item[0],
    ),
    min_size=1,
    max_size=6,
)


def gathered(files, repeat=1) -> Gathered:
    answer = Gathered()
    for number, items in enumerate(files * repeat):
        founds = tuple(
            found(name, size, number * 1.5 + (size == 9 and name == "1/data"), kind, number)
            for name, size, kind in items
        )
        url = f"s3://bucket/{number:03}.tif"
        said = {"day": "ab"[number % 2]} if number % 3 else {}
        source = Source(url=url, size=10_000)
        answer.add(Harvested(input=Input(url=url), source=source, founds=founds, attributes=said, number=number))
        if number % 4 == 3:
            answer.flush()
    answer.finish()
    return answer


@settings(max_examples=40, deadline=None)
@given(FILES)
def test_rows_of_many_files_are_those_of_each(files):
    entries = gathered(files)
    one = collect(entries.entries, lambda entry, which: entries.refs(entry, which))
    many = collect(entries.entries, entries.refs)
    assert isinstance(many.blocks, Bundled)
    assert list(one.catalog.arrays) == list(many.catalog.arrays)
    want = dict(one.blocks)
    have: dict[str, list[Refs]] = {}
    for bundle in many.blocks.bundles:
        for name, refs in apart(bundle, many.catalog.arrays):
            have.setdefault(name, []).append(refs)
    assert have.keys() == want.keys()
    for name, refs in want.items():
        same_refs(Refs.joined(have[name], refs.chunk.shape[0]), refs)


@pytest.mark.parametrize("form", ["i.parquet", "i", "i.duckdb"])
def test_a_collection_is_written_as_if_array_by_array(tmp_path, fetch, form):
    kinds = [[("0/data", 4 + n, kind), ("1/data", 9, "whole")] for n, kind in enumerate(KINDS)]
    entries = gathered([*kinds, [("0/mask", 5, "whole")], [("0/data", 5, "whole")]], FEWEST // 7 + 1)
    one = collect(entries.entries, lambda entry, which: entries.refs(entry, which))
    many = collect(entries.entries, entries.refs)
    assert isinstance(many.catalog.arrays, GroupedArrays)
    tables = [
        write_table(str(tmp_path / f"{place}-{form}"), laid.catalog, laid.blocks, laid.files, fetch=fetch)
        for place, laid in enumerate((one, many))
    ]
    first, second = (table.catalog for table in tables)
    assert {name: repr(array) for name, array in first.arrays.items()} == {
        name: repr(array) for name, array in second.arrays.items()
    }
    assert dict(first.attributes) == dict(second.attributes) != {}
    assert tables[0].files.columns["group"].tolist() == tables[1].files.columns["group"].tolist()
    for name in first.arrays:
        same_refs(tables[0].refs(name), tables[1].refs(name))
