"""A hostile index is refused with the right error, from its footer or before anything of it is used; never a crash."""

from __future__ import annotations

import base64
import io
import json
import resource
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from periplus.errors import DeniedError, FormatError, LimitError, PeriplusError, StaleError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Inline
from periplus.table import copy_table, open_table, write_table
from periplus.table.document.document import FILES_KEY, KEY, document_for, dump
from periplus.table.parquet import sinks
from periplus.table.parquet.schema import chunks_to_arrow
from periplus.testing.indexes import dense_refs, files_of, stacked
from periplus.testing.memory_use import measure_memory

NAME = "0/data"


def honest() -> tuple[dict, dict, dict]:
    """Columns, document and files of a sound flat index, to be spoilt."""
    array = Array(
        name=NAME, dims=("y", "x"), shape=(40, 60), chunks=(10, 10), dtype=np.dtype("u1"), encodings=(Encoding(()),)
    )
    refs = dense_refs(array)
    count = len(refs)
    columns = {
        "array": pa.array([NAME] * count),
        "y_chunk": pa.array(refs.chunk[0]),
        "x_chunk": pa.array(refs.chunk[1]),
        "path": pa.array(["a.tif"] * count),
        "offset": pa.array(refs.offset),
        "length": pa.array(refs.length),
    }
    files = {"file_id": pa.array([0], pa.int32()), "path": pa.array(["a.tif"]), "size": pa.array([1 << 30])}
    return columns, json.loads(dump(document_for(Catalog(arrays={NAME: array})))), files


def build(path, columns, document, files, **options) -> str:
    keys = {}
    if document is not None:
        keys[KEY] = document if isinstance(document, bytes) else json.dumps(document).encode()
    if isinstance(files, bytes):
        keys[FILES_KEY] = files
    elif files is not None:
        buffer = io.BytesIO()
        pq.write_table(pa.table(files), buffer)
        keys[FILES_KEY] = base64.b64encode(buffer.getvalue())
    pq.write_table(pa.table(columns).replace_schema_metadata(keys), path, **options)
    return str(path)


def altered(column: str, row: int, value, kind=None):
    def change(columns, document, files):
        values = columns[column].to_pylist()
        values[row] = value
        columns[column] = pa.array(values, kind)

    return change


def replaced(column: str, values):
    def change(columns, document, files):
        columns[column] = values(len(columns["offset"]))

    return change


def dropped(column: str):
    return lambda columns, document, files: columns.pop(column)


def said(*path, value):
    def change(columns, document, files):
        target = document
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return change


def several(*changes):
    def change(columns, document, files):
        for one in changes:
            one(columns, document, files)

    return change


def aimed(path: str):
    """All rows at one path, which the files table lists."""
    return several(replaced("path", lambda n: pa.array([path] * n)), listed("path", pa.array([path])))


def numbered(value: int):
    """File ids instead of paths."""
    return several(dropped("path"), replaced("file_id", lambda n: pa.array([value] * n)))


def twice_listed(columns, document, files):
    files |= {"file_id": pa.array([0, 1]), "path": pa.array(["a.tif"] * 2), "size": pa.array([1 << 30] * 2)}


def last_byte_short(columns, document, files):
    ends = np.asarray(columns["offset"]) + np.asarray(columns["length"])
    files["size"] = pa.array([int(ends.max()) - 1])


def listed(column: str, values):
    def change(columns, document, files):
        files[column] = values

    return change


MOST = 2**63 - 1
REFUSED = {
    "negative offset": (altered("offset", 3, -1), FormatError),
    "negative length": (altered("length", 3, -5), FormatError),
    "length -1 for the whole object": (altered("length", 0, -1), FormatError),
    "null length": (altered("length", 0, None), FormatError),
    "null offset": (altered("offset", 0, None), FormatError),
    "offset plus length overflows": (altered("offset", 0, MOST), FormatError),
    "both at the end of 64 bits": (several(altered("offset", 0, MOST), altered("length", 0, MOST)), FormatError),
    "unsigned offset over 63 bits": (altered("offset", 0, 2**64 - 1, pa.uint64()), FormatError),
    "past the end of its file": (listed("size", pa.array([100])), FormatError),
    "ends one byte past its file": (last_byte_short, FormatError),
    "offset of the wrong type": (replaced("offset", lambda n: pa.array(["x"] * n)), FormatError),
    "offset as float": (replaced("offset", lambda n: pa.array([1.5] * n)), FormatError),
    "length as list": (replaced("length", lambda n: pa.array([[1]] * n)), FormatError),
    "path as number": (replaced("path", lambda n: pa.array([1] * n)), FormatError),
    "path null": (altered("path", 0, None), FormatError),
    "path not in the files table": (altered("path", 0, "b.tif"), FormatError),
    "chunk position negative": (altered("y_chunk", 0, -1), FormatError),
    "chunk position outside": (altered("x_chunk", 5, 6), FormatError),
    "chunk position over 32 bits": (altered("x_chunk", 5, 2**40, pa.int64()), FormatError),
    "chunk position null": (altered("x_chunk", 5, None), FormatError),
    "chunk position as text": (replaced("x_chunk", lambda n: pa.array(["0"] * n)), FormatError),
    "chunk twice": (altered("x_chunk", 0, 1), FormatError),
    "no column for a dimension": (dropped("y_chunk"), FormatError),
    "no offset": (dropped("offset"), FormatError),
    "no source at all": (dropped("path"), FormatError),
    "encoding out of range": (replaced("encoding", lambda n: pa.array([1] * n, pa.uint16())), FormatError),
    "encoding over 16 bits": (replaced("encoding", lambda n: pa.array([65536] * n, pa.int32())), FormatError),
    "parts that are all the first": (replaced("part", lambda n: pa.array([0] * n, pa.uint16())), None),
    "parts that do not begin with the first": (replaced("part", lambda n: pa.array([7] * n, pa.uint16())), FormatError),
    "parts over 16 bits": (replaced("part", lambda n: pa.array([65536] * n, pa.int32())), FormatError),
    "inline bytes of another length": (
        several(altered("path", 0, None), replaced("data", lambda n: pa.array([b"x"] * n))), FormatError
    ),
    "data as text": (replaced("data", lambda n: pa.array(["x"] * n)), FormatError),
    "unknown array": (replaced("array", lambda n: pa.array(["zz"] * n)), FormatError),
    "array null": (replaced("array", lambda n: pa.nulls(n, pa.string())), FormatError),
    "more rows than the grid has room for": (said("arrays", NAME, "shape", value=[10, 10]), FormatError),
    "unknown newer version": (said("version", value=99), FormatError),
    "no files table for file ids": (several(numbered(0), lambda c, d, f: f.clear()), FormatError),
    "file id out of range": (numbered(9), FormatError),
    "file id below zero": (numbered(-2), FormatError),
    "files out of order": (listed("file_id", pa.array([4])), FormatError),
    "files of negative size": (listed("size", pa.array([-7])), FormatError),
    "files without paths": (lambda c, d, f: f.pop("path"), FormatError),
    "files with a null path": (listed("path", pa.nulls(1, pa.string())), FormatError),
    "files with sizes as text": (listed("size", pa.array(["7"])), FormatError),
    "files with times as text": (listed("last_modified", pa.array(["now"])), FormatError),
    "files twice": (twice_listed, FormatError),
    "path outside the folder": (aimed("../../etc/passwd"), DeniedError),
    "absolute path elsewhere": (aimed("/etc/passwd"), DeniedError),
    "escaped dots": (aimed("%2e%2e/%2e%2e/etc/passwd"), DeniedError),
    "path of a megabyte": (aimed("x" * 1_000_000), FormatError),
    "host of a cloud's own metadata": (aimed("http://169.254.169.254/x"), DeniedError),
}  # fmt: skip


SORTED = {"chunk twice", "parts that do not begin with the first"}
"""What shows only among sorted rows: a copy finds it when it sorts them."""


def test_the_honest_index_is_accepted(tmp_path, fetch):
    table = open_table(build(tmp_path / "i.parquet", *honest()), fetch=fetch)
    assert len(table.refs(NAME)) == 24
    assert table.select(array=NAME).num_rows == 24


@pytest.mark.parametrize("case", REFUSED)
def test_a_lying_index_is_refused_before_anything_is_fetched(case, tmp_path, fetch):
    change, error = REFUSED[case]
    columns, document, files = honest()
    change(columns, document, files)
    url = build(tmp_path / "i.parquet", columns, document, files or None)
    if error is None:
        assert len(open_table(url, fetch=fetch).refs(NAME)) == 24
        return
    uses = [lambda t: t.refs(NAME)]
    uses += [] if error is DeniedError else [lambda t: t.select()]  # which only tells what is written there
    uses += [] if case in SORTED else [lambda t: list(t.blocks())]
    for use in uses:
        with pytest.raises(error) as failure:
            use(open_table(url, fetch=fetch))
        assert "etc" not in str(failure.value) or isinstance(failure.value, DeniedError)


def test_rows_of_an_array_that_is_not_described_are_not_copied(tmp_path, fetch):
    columns, document, files = honest()
    columns["array"] = pa.array(["zz"] * 24)
    table = open_table(build(tmp_path / "i.parquet", columns, document, files), fetch=fetch)
    with pytest.raises(FormatError, match="no array of the index"):
        list(table.blocks())


@pytest.mark.parametrize(
    "document",
    [None, b"", b"{", b"\xff\xfe", b"[1]", b'{"version":1}', b'{"version":1,"arrays":{"a":{}}}', b'{"version":NaN}'],
)
def test_a_footer_document_that_is_none_is_refused(document, tmp_path, fetch):
    columns, _, files = honest()
    with pytest.raises(FormatError):
        open_table(build(tmp_path / "i.parquet", columns, document, files), fetch=fetch)


@pytest.mark.parametrize("files", [b"", b"!!!", base64.b64encode(b"PAR1"), base64.b64encode(b"x" * 100)])
def test_an_embedded_files_table_that_is_none_is_refused(files, tmp_path, fetch):
    columns, document, _ = honest()
    table = open_table(build(tmp_path / "i.parquet", columns, document, files), fetch=fetch)
    with pytest.raises(FormatError):
        table.refs(NAME)


def test_two_columns_of_one_name_are_refused(tmp_path, fetch):
    columns, document, _ = honest()
    keys = {KEY: json.dumps(document).encode()}
    table = pa.table([*columns.values(), columns["offset"]], names=[*columns, "offset"])
    pq.write_table(table.replace_schema_metadata(keys), tmp_path / "i.parquet")
    with pytest.raises(FormatError, match="same name"):
        open_table(str(tmp_path / "i.parquet"), fetch=fetch)


def test_a_truncated_index_is_refused_and_an_overwritten_one_gives_only_our_errors(tmp_path, fetch):
    whole = (tmp_path / "i.parquet", build(tmp_path / "i.parquet", *honest()))[0].read_bytes()
    random = np.random.default_rng(3)
    refused = {0: 0, 1: 0, 2: 0}
    for number in range(60):
        spoilt, way = bytearray(whole), number % 3
        if way == 0:
            spoilt = spoilt[: random.integers(0, len(whole))]
        elif way == 1:
            for place in random.integers(0, len(whole), 8):
                spoilt[place] ^= 1 << random.integers(0, 8)
        else:
            start = random.integers(0, len(whole))
            spoilt[start : start + 50] = random.bytes(50)
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(spoilt)
        try:
            open_table(str(path), fetch=fetch).refs(NAME)
        except (FormatError, LimitError, DeniedError):
            refused[way] += 1
    assert refused[0] == 20
    assert refused[1] > 10
    assert refused[2] > 10


def test_a_footer_longer_than_the_file_or_the_budget_is_refused(tmp_path, fetch):
    for length in (2**32 - 1, 5000, 60 << 20):
        (tmp_path / "i.parquet").write_bytes(b"PAR1" + b"x" * 100 + length.to_bytes(4, "little") + b"PAR1")
        with pytest.raises(FormatError, match="longer"):
            open_table(str(tmp_path / "i.parquet"), fetch=fetch)
    url = build(tmp_path / "j.parquet", *honest())
    with pytest.raises(LimitError, match="footer"):
        open_table(url, fetch=fetch, limits=Limits(header_bytes=100))


USE = """
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.table import open_table
with Fetch() as fetch:
    table = open_table(given[0], fetch=fetch, limits=Limits(memory_bytes=64 << 20))
    if given[1] is not None:
        table.refs("0/data", given[1])
"""


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    """What opening or querying takes in memory, each in a process of its own."""
    folder = tmp_path_factory.mktemp("large")
    work = {}
    columns, document, files = honest()
    for bits in (40, 63):
        high = min(bits, 62) // 2
        shape = [2**high, 2 ** (bits - high) - (bits == 63)]
        document["arrays"][NAME] |= {"shape": shape, "chunks": [2**10, 2**13]}
        url = build(folder / f"{bits}.parquet", columns, document, files)
        work[f"2**{bits} pixels"] = USE, [url, [(0, 1), (0, 1)]]
    # A small file of very many rows: columns of one repeated value.
    rows = 2_000_000
    _, document, files = honest()
    zeros = pa.array(np.zeros(rows, np.int32))
    names = pa.DictionaryArray.from_arrays(zeros, ["0/data"])
    paths = pa.DictionaryArray.from_arrays(zeros, ["a.tif"])
    many = {"array": names, "y_chunk": zeros, "x_chunk": zeros, "path": paths, "offset": zeros, "length": zeros}
    options = {"compression": "zstd", "row_group_size": rows}
    work["open a bomb"] = USE, [build(folder / "small.parquet", many, document, files, **options), None]
    document["arrays"][NAME] |= {"shape": [2**30, 2**30], "chunks": [1, 1]}
    url = build(folder / "large.parquet", many, document, files, **options)
    work["open a bomb with a grid"] = USE, [url, None]
    work["query a bomb with a grid"] = USE, [url, [(0, 5), (0, 5)]]
    columns, document, files = honest()
    long = "x" * 1_000_000
    columns["path"] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(24, np.int32)), [long])
    count = 20_000
    ids = pa.array(np.arange(count), pa.int32())
    files = {"file_id": ids, "path": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [long])}
    work["a repeated string"] = USE, [build(folder / "string.parquet", columns, document, files), [(0, 1), (0, 1)]]
    return measure_memory(work)


@pytest.mark.parametrize(
    ("case", "outcome", "most"),
    [
        ("open a bomb", "format", 20),
        ("open a bomb with a grid", "done", 20),
        ("query a bomb with a grid", "limit", 20),
        ("2**40 pixels", "done", 50),
        ("2**63 pixels", "done", 50),
        ("a repeated string", "format", 100),
    ],
)
def test_an_index_does_not_take_more_memory_than_it_declares(case, outcome, most, costs):
    assert costs[case].outcome == outcome, costs[case].message
    assert costs[case].mebibytes < most


def test_a_decoded_row_group_is_counted_before_it_is_decoded(tmp_path, fetch):
    url = str(tmp_path / "i.parquet")
    catalog, refs, files = stacked(rows=40, columns=60)
    write_table(url, catalog, refs.items(), files, fetch=fetch)
    with pytest.raises(LimitError, match="row group"):
        open_table(url, fetch=fetch, limits=Limits(memory_bytes=100_000), allow=["s3://"]).refs("0/data")
    with pytest.raises(LimitError, match="number of rows"):
        open_table(url, fetch=fetch, limits=Limits(index_rows=10))


def test_the_parts_of_a_dataset_must_be_what_it_says(tmp_path, fetch):
    catalog, refs, files = stacked()
    write_table(str(tmp_path / "i"), catalog, refs.items(), files, fetch=fetch)
    (part,) = (tmp_path / "i" / "chunks").glob("*.parquet")
    open_one = lambda: open_table(str(tmp_path / "i"), fetch=fetch, allow=["s3://"]).refs(NAME)  # noqa: E731
    assert len(open_one()) == 120
    whole = part.read_bytes()
    part.write_bytes(whole + b"x")
    with pytest.raises(StaleError, match="bytes"):
        open_one()
    time.sleep(0.01)
    part.unlink()
    with pytest.raises(PeriplusError) as failure:
        open_one()
    assert failure.value.kind == "missing"


def test_a_part_with_other_rows_than_declared_is_refused(tmp_path, fetch):
    catalog, refs, files = stacked()
    write_table(str(tmp_path / "i"), catalog, refs.items(), files, fetch=fetch)
    base = tmp_path / "i" / "files.parquet"
    table = pq.read_table(base)
    document = json.loads(pq.read_metadata(base).metadata[KEY])
    document["chunks"][0]["rows"] -= 1
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(document)}), base)
    with pytest.raises(FormatError, match="rows, but the index declares"):
        open_table(str(tmp_path / "i"), fetch=fetch, allow=["s3://"]).refs(NAME)


def test_names_that_look_like_sql_stay_names(tmp_path, fetch):
    name = '"; DROP TABLE chunks; --'
    array = Array(name=name, dims=('y"; select 1', "x'"), shape=(4, 6), chunks=(1, 1), dtype=np.dtype("u1"))
    catalog, files = Catalog(arrays={name: array}), files_of(["s3://b/'; drop table files; --.tif"])
    for form in ("i.parquet", "i", "i.duckdb"):
        write_table(str(tmp_path / form), catalog, [(name, dense_refs(array))], files, fetch=fetch)
        table = open_table(str(tmp_path / form), fetch=fetch, allow=["s3://"], trust=True)
        assert len(table.refs(name, [(1, 3), (0, 2)])) == 4
        assert table.sql('select count(*) as n from chunks where "array" = ?', [name]).to_pylist() == [{"n": 24}]
        assert table.sql("select path from files").to_pylist() == [{"path": files.path[0]}]


def test_the_memory_of_this_test_session_is_sane():
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20


@pytest.mark.parametrize("name", [None, "other"])
def test_rows_of_no_array_are_refused_and_not_taken_for_missing_chunks(tmp_path, fetch, name):
    columns, document, files = honest()
    columns["array"] = pa.array([NAME, name, *columns["array"].to_pylist()[2:]])
    with pytest.raises(FormatError, match="a row belongs to"):
        open_table(build(tmp_path / "i.parquet", columns, document, files), fetch=fetch).refs(NAME)


def test_an_array_without_an_encoding_is_handed_out_by_no_exit():
    from periplus.zarr.description.codecs import zarr_codecs

    catalog, _, _ = stacked()
    array = replace(catalog.arrays["0/data"], encodings=())
    for encodings in ((), (Encoding(()),)):
        assert zarr_codecs(replace(array, encodings=encodings)).kind == "decoded"


@pytest.mark.parametrize("name", ["last_modified", "datetime"])
@pytest.mark.parametrize("value", [2**62, -(2**63) + 5])
def test_times_that_no_calendar_has_are_format_errors(tmp_path, fetch, name, value):
    columns, document, files = honest()
    files[name] = pa.array([value] * len(files["path"]), pa.timestamp("us"))
    with pytest.raises(FormatError, match="after 9999"):
        open_table(build(tmp_path / "i.parquet", columns, document, files), fetch=fetch).files.source(0)


def test_inline_bytes_that_many_rows_share_are_counted_for_each(tmp_path, fetch):
    array = Array(name=NAME, dims=("x",), shape=(3000,), chunks=(1,), dtype=np.dtype("u1"), encodings=(Encoding(()),))
    count = 3000
    columns = {
        "array": pa.array([NAME] * count),
        "x_chunk": pa.array(np.arange(count, dtype=np.int32)),
        "path": pa.nulls(count, pa.string()),
        "offset": pa.nulls(count, pa.int64()),
        "length": pa.array([1 << 20] * count),
        "data": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([bytes(1 << 20)])),
    }
    document = json.loads(dump(document_for(Catalog(arrays={NAME: array}))))
    path = build(tmp_path / "i.parquet", columns, document, {"path": pa.array([], pa.string())})
    table = open_table(path, fetch=fetch)
    for form in ("copy.parquet", "copy"):
        with pytest.raises(LimitError, match="the inline bytes of a row group would take 3,145,728,000 bytes"):
            copy_table(table, str(tmp_path / form), fetch=fetch)


def test_row_groups_with_many_inline_bytes_are_written_in_pieces(tmp_path, fetch, monkeypatch):
    array = Array(name=NAME, dims=("x",), shape=(40,), chunks=(1,), dtype=np.dtype("u1"), encodings=(Encoding(()),))
    shared = Inline(np.arange(40, dtype=np.int64), np.arange((1 << 20) + 40, dtype=np.int64).astype(np.uint8))
    refs = replace(dense_refs(array), length=np.full(40, 1 << 20), file=np.full(40, -1, np.int32), inline=shared)
    catalog = Catalog(arrays={NAME: array})
    made = []
    monkeypatch.setattr(sinks, "chunks_to_arrow", lambda *given: made.append(chunks_to_arrow(*given)) or made[-1])
    table = write_table(str(tmp_path / "i.parquet"), catalog, [(NAME, refs)], files_of([]), fetch=fetch)
    assert max(piece.nbytes for piece in made) < 34 << 20
    (found,) = table.listed_all([(array, [(37, 39)])])
    assert [bytes(found.inline_bytes(row))[:2] for row in range(2)] == [bytes([37, 38]), bytes([38, 39])]


def test_a_query_does_not_begin_to_decode_long_strings(tmp_path, fetch):
    columns, document, files = honest()
    count = len(columns["offset"])
    columns["path"] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array(["p" * (5 << 20)]))
    limits = Limits(memory_bytes=64 << 20)
    table = open_table(build(tmp_path / "i.parquet", columns, document, files), fetch=fetch, limits=limits)
    with pytest.raises(LimitError, match="the strings of a row group"):
        table.sql("select * from chunks")
