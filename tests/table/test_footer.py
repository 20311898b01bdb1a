"""Footers as pyarrow reads them, where they are sound; where they are not, the process lives on."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from periplus.errors import FormatError, LimitError
from periplus.table.parquet import footer as module
from periplus.table.parquet.footer import Footer

PARTS = max(1, 23 // int(os.environ.get("PERIPLUS_FUZZ") or "1"))
"""One in so many bits of a footer is flipped: coprime to eight, so that every bit of a byte is among them."""


def rows(count: int = 5_000) -> pa.Table:
    random = np.random.default_rng(5)
    words = [f"{'long ' * (n % 7)}name {n // 500}" for n in range(count)]
    return pa.table(
        {
            "small": pa.array(random.integers(-9, 9, count), pa.int8()),
            "word": pa.array(words).dictionary_encode(),
            "large": pa.array(np.cumsum(random.integers(0, 2**33, count))),
            "holes": pa.array([None if n % 3 else n for n in range(count)], pa.uint32()),
            "moment": pa.array(np.arange(count), pa.timestamp("us", "UTC")),
            "box": pa.array([{"x": float(n), "y": None} for n in range(count)]),
            "many": pa.array([list(range(n % 4)) for n in range(count)]),
        }
    )


def footer_of(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def written(**options) -> bytes:
    target = io.BytesIO()
    pq.write_table(rows(), target, row_group_size=500, **options)
    return target.getvalue()


def by_duckdb(tmp_path) -> bytes:
    import duckdb

    given = rows().select(["small", "word", "large"])
    with duckdb.connect() as connection:
        connection.register("given", given)
        connection.sql(f"copy given to '{tmp_path}/a.parquet' (format parquet, row_group_size 2048)")
    return (tmp_path / "a.parquet").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "write_page_index": True, "sorting_columns": [pq.SortingColumn(2)]},
        {"use_dictionary": False, "write_statistics": ["small"], "version": "1.0"},
        {"write_statistics": False, "data_page_version": "2.0", "store_schema": False},
        "duckdb",
    ],
)
def test_chunks_are_those_pyarrow_reads(options, tmp_path):
    data = by_duckdb(tmp_path) if options == "duckdb" else written(**options)
    metadata = pq.read_metadata(io.BytesIO(data))
    footer = Footer(footer_of(data), metadata.num_columns)
    assert len(footer) == metadata.num_row_groups > 1
    bounds = 0
    for group in range(len(footer)):
        for place in range(metadata.num_columns):
            have, want = footer.chunk(group, place), metadata.row_group(group).column(place)
            first = want.dictionary_page_offset if want.has_dictionary_page else want.data_page_offset
            assert (have.path, have.start) == (want.path_in_schema, min(first, want.data_page_offset))
            assert (have.compressed, have.uncompressed) == (want.total_compressed_size, want.total_uncompressed_size)
            told = want.statistics
            if told is not None and told.has_min_max and want.physical_type in ("INT32", "INT64"):
                low, high = (int.from_bytes(value, "little", signed=True) for value in (have.low, have.high))
                assert (low, high, have.nulls) == (told.min_raw, told.max_raw, told.null_count)
                bounds += 1
            elif told is not None and told.has_min_max and want.physical_type == "BYTE_ARRAY":
                assert (have.low.decode(), have.high.decode()) == (told.min, told.max)
                bounds += 1
    assert bounds or options.get("write_statistics") is False


def test_forms_learnt_and_not_learnt_give_the_same(monkeypatch):
    data = footer_of(written())
    columns = pq.read_metadata(io.BytesIO(written())).num_columns
    learnt = Footer(data, columns)
    monkeypatch.setattr(module, "LEARNED", 0)
    plain = Footer(data, columns)
    for group in range(len(plain)):
        assert [learnt.chunk(group, k) for k in range(columns)] == [plain.chunk(group, k) for k in range(columns)]


def test_what_is_no_footer_is_refused():
    data = footer_of(written())
    columns = pq.read_metadata(io.BytesIO(written())).num_columns
    for length in range(0, len(data), 97):
        with pytest.raises((FormatError, LimitError)):
            Footer(data[:length], columns)
    for bad in (
        b"\x4c" * 1000,
        b"\x49\xfc\xff\xff\xff\xff\x0f",
        b"\x1c" * 50,
        b"\xff" * 100,
        b"\x19\xf8\xff\xff\xff\xff\x0f",
    ):
        with pytest.raises((FormatError, LimitError)):
            Footer(bad, columns)
    with pytest.raises(FormatError, match="more or fewer columns"):
        Footer(data, columns + 1)


def test_an_endless_footer_is_refused_in_time(monkeypatch):
    monkeypatch.setattr(module, "MOST_VALUES", 1000)
    with pytest.raises(LimitError):
        Footer(b"\x19\xf5\xff\xff\x03" + bytes(70_000), 1)


FLIPS = """
import sys
import pyarrow.parquet
import periplus
from pathlib import Path
path, parts = Path(sys.argv[1]), int(sys.argv[2])
sound = path.read_bytes()
start = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
stop = start + sound[start:].index(b"array_references")
outcomes = dict.fromkeys(("read", "refused"), 0)
for bit in range(8 * start, 8 * stop, parts):
    data = bytearray(sound)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    try:
        with periplus.open(path) as index:
            index["0/data"][..., :40, :40]
            outcomes["read"] += 1
    except periplus.PeriplusError:
        outcomes["refused"] += 1
print(outcomes["read"], outcomes["refused"])
"""


@pytest.mark.fuzz
def test_no_flipped_bit_of_a_footer_ends_the_process(tmp_path):
    """Arrow's C++ throws, in places where nobody catches, for about one in a hundred of these."""
    import periplus
    from periplus.testing.formats import tiff as tiffs

    (tmp_path / "a.tif").write_bytes(tiffs.case("cog-mask").data)
    periplus.index(tmp_path / "a.tif", to=tmp_path / "index.parquet").close()
    command = [sys.executable, "-c", FLIPS, str(tmp_path / "index.parquet"), str(PARTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.split())
    assert min(read, refused) > 50
