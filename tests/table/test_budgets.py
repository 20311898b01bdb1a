"""A small Parquet index that decodes to very much is refused before it is decoded, whatever its footer declares."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from periplus.errors import FormatError, LimitError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Inline, Refs
from periplus.table import open_table, write_table
from periplus.table.document.document import FILES_KEY, KEY, document_for, dump, parse
from periplus.table.document.values import read_coordinate
from periplus.table.parquet.footer import pages
from periplus.testing.indexes import files_of, inline_list
from periplus.testing.memory_use import measure_memory

NAME = "0/data"
LONG = 20_000_000


def written(path, columns, files, *, shape=(1 << 20, 60), groups=1, **options) -> str:
    """A flat index of rows that repeat in every row group, one line of chunks further down."""
    array = Array(
        name=NAME, dims=("y", "x"), shape=shape, chunks=(1, 1), dtype=np.dtype("u1"), encodings=(Encoding(()),)
    )
    buffer = io.BytesIO()
    pq.write_table(pa.table(files), buffer, compression="zstd")
    keys = {
        KEY: dump(document_for(Catalog(arrays={NAME: array}))).encode(),
        FILES_KEY: base64.b64encode(buffer.getvalue()),
    }
    table = pa.table(columns).replace_schema_metadata(keys)
    with pq.ParquetWriter(path, table.schema, compression="zstd", **options) as writer:
        for group in range(groups):
            place = table.schema.get_field_index("y_chunk")
            lines = pa.array(np.asarray(columns["y_chunk"]) + group, pa.int32())
            writer.write_table(table.set_column(place, "y_chunk", lines), row_group_size=table.num_rows)
    return str(path)


def columns(count: int = 24, **changes) -> dict:
    zeros = pa.array(np.zeros(count, np.int32))
    return {
        "array": pa.DictionaryArray.from_arrays(zeros, [NAME]),
        "y_chunk": zeros,
        "x_chunk": pa.array(np.arange(count, dtype=np.int32)),
        "path": pa.DictionaryArray.from_arrays(zeros, ["a.tif"]),
        "offset": pa.array(np.zeros(count, np.int64)),
        "length": pa.array(np.zeros(count, np.int64)),
        **changes,
    }


FILES = {"file_id": pa.array([0], pa.int32()), "path": pa.array(["a.tif"]), "size": pa.array([1 << 30])}


def varint(value: int) -> bytes:
    """A number of Thrift's compact protocol."""
    value, out = value << 1, b""
    while value > 127:
        value, out = value >> 7, out + bytes([value & 127 | 128])
    return out + bytes([value])


def lying(path: str) -> str:
    """The same file, whose footer declares that nothing takes more than a thousand bytes."""
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]
    group = pq.read_metadata(path).row_group(0)
    for size in {group.total_byte_size, *(group.column(i).total_uncompressed_size for i in range(group.num_columns))}:
        old, new = varint(size), varint(1000)
        if size > 1 << 20:
            padded = new[:-1] + bytes([new[-1] | 128]) + b"\x80" * (len(old) - len(new) - 1) + b"\0"
            footer = footer.replace(old, padded)
    with open(path, "wb") as file:
        file.write(data[: -8 - length] + footer + data[-8:])
    return path


def bombs(folder) -> dict[str, str]:
    long = pa.array(["x" * LONG] + ["a.tif"] * 23)
    inline = pa.array([b"x" * LONG] + [None] * 23)
    repeated = pa.array(["x" * 25_000] * 2000)
    return {
        "path": written(folder / "path.parquet", columns(path=long), FILES, use_dictionary=False),
        "lying path": lying(written(folder / "lying.parquet", columns(path=long), FILES, use_dictionary=False)),
        "inline": written(folder / "inline.parquet", columns(data=inline), FILES, use_dictionary=False),
        "files": written(folder / "files.parquet", columns(), {**FILES, "path": pa.array(["x" * LONG])}),
        "repeated prefix": written(
            folder / "delta.parquet",
            columns(2000, path=repeated),
            FILES,
            shape=(1 << 20, 2000),
            use_dictionary=False,
            column_encoding={"path": "DELTA_BYTE_ARRAY"},
        ),
        "rows": written(
            folder / "rows.parquet", columns(125_000), FILES, shape=(1 << 20, 125_000), groups=9
        ),
    }  # fmt: skip


OPEN = "import periplus; index = periplus.open(given[0], limits=periplus.Limits(memory_bytes=128 << 20)); "
USES = {
    "refs": "index.table.refs('0/data', [(0, 1), (0, 1)])",
    "select": "index.select()",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    made = bombs(tmp_path_factory.mktemp("bombs"))
    return measure_memory(
        {f"{name}: {use}": (OPEN + code, [url]) for name, url in made.items() for use, code in USES.items()}
    )


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["path", "lying path", "inline", "files", "repeated prefix", "rows"])
def test_a_small_index_does_not_fill_the_memory(name, use, measured):
    cost = measured[f"{name}: {use}"]
    expected = "done" if (name, use) == ("rows", "refs") else "limit"
    assert cost.outcome == expected, cost.message
    assert cost.mebibytes < 50


def test_a_selection_that_is_too_large_says_how_to_narrow_it(tmp_path, fetch):
    url = written(tmp_path / "i.parquet", columns(60), FILES, groups=4)
    table = open_table(url, fetch=fetch, limits=Limits(memory_bytes=128 * 100))
    with pytest.raises(LimitError, match="narrow it by array, level, window, bbox or time") as caught:
        table.select()
    assert caught.value.url == url
    assert "memory_bytes" in str(caught.value)


def test_pages_are_counted_as_parquet_wrote_them(tmp_path):
    path = tmp_path / "i.parquet"
    values = {"a": pa.array([f"{n:08}" for n in range(50_000)]), "b": pa.array(np.arange(50_000))}
    pq.write_table(pa.table(values), path, compression="zstd", data_page_size=4096)
    data, group = path.read_bytes(), pq.read_metadata(path).row_group(0)
    for number in range(2):
        column = group.column(number)
        start = min(column.dictionary_page_offset or column.data_page_offset, column.data_page_offset)
        held = data[start : start + column.total_compressed_size]
        heads = column.total_uncompressed_size - pages(held).decompressed
        assert 0 < heads < column.total_compressed_size  # the footer counts the headers of pages too
        for cut in (len(held) // 2, len(held) - 1):
            with pytest.raises(FormatError, match="page"):
                pages(held[:cut])


def test_rows_with_large_inline_bytes_are_written_so_that_they_can_be_read(tmp_path, fetch):
    count, size = 12, 4 << 20
    array = Array(name=NAME, dims=("x",), shape=(count,), chunks=(1,), dtype=np.dtype("u1"), encodings=(Encoding(()),))
    refs = Refs(
        chunk=np.arange(count, dtype=np.int32)[None],
        offset=np.zeros(count, np.int64),
        length=np.full(count, size, np.int64),
        file=np.full(count, -1, np.int32),
        inline=Inline.of([bytes([n]) * size for n in range(count)]),
    )
    url = str(tmp_path / "i.parquet")
    write_table(url, Catalog(arrays={NAME: array}), [(NAME, refs)], files_of([]), fetch=fetch)
    found = open_table(url, fetch=fetch, limits=Limits(memory_bytes=320 << 20)).refs(NAME)
    assert json.dumps([item[0] for item in inline_list(found)]) == json.dumps(list(range(count)))


def test_one_long_label_does_not_widen_all_others():
    """NumPy would take 40 GB for this list of 300 kB."""
    labels = {"dims": ["x"], "dtype": "string", "values": ["y" * 100_000, *["z"] * 100_000]}
    with pytest.raises(LimitError, match="takes"):
        read_coordinate("x", labels, Limits())


def test_the_json_of_a_footer_is_counted_before_it_is_parsed():
    text = b"[" + b"[]," * 1000 + b"[]]"
    with pytest.raises(LimitError, match="the footer document, parsed as JSON"):
        parse(text, Limits(memory_bytes=100_000))
