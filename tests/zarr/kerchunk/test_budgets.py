"""A small kerchunk index that would grow without bounds when it is opened is refused while it is small."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib

import imagecodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tifffile

import periplus
from periplus.errors import LimitError
from periplus.limits import Limits, check_json_budget, json_cost
from periplus.testing.memory_use import measure_memory
from periplus.zarr.kerchunk.extension import DeclaredFiles
from periplus.zarr.kerchunk.records import read_record
from periplus.zarr.kerchunk.references import expand

ARRAY = {
    "zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "compressor": None, "filters": None, "order": "C",
    "fill_value": 0,
}  # fmt: skip
GROUP = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(ARRAY)}
MIB = 1 << 20


def generated(**changes) -> dict:
    gen = {"key": "a/{{i}}", "url": "x", "offset": 0, "length": 4, "dimensions": {"i": {"stop": 1_250}}, **changes}
    return {"version": 1, "refs": GROUP, "templates": {"u": "x" * 60_000}, "gen": [gen]}


def labels(count: int) -> dict:
    """Compressed labels of 32 MiB each, a few kilobytes in the index."""
    size = 32 * MIB
    zeros = "base64:" + base64.b64encode(imagecodecs.zstd_encode(bytes(size))).decode()
    array = {**ARRAY, "shape": [size], "chunks": [size], "compressor": {"id": "zstd", "level": 1}}
    refs = {".zgroup": GROUP[".zgroup"]}
    for i in range(count):
        refs |= {f"g{i}/x/.zarray": json.dumps(array), f"g{i}/x/0": zeros}
        refs |= {f"g{i}/x/.zattrs": '{"_ARRAY_DIMENSIONS": ["x"]}', f"g{i}/.zgroup": GROUP[".zgroup"]}
    return refs


def listing(item: bytes, count: int) -> bytes:
    return b'{"version": 1, "refs": {"x": [' + (item + b",") * count + item + b"]}}"


BOMBS = {
    "gen with a dimension of zero": (lambda: generated(dimensions={"i": {"stop": 2 * 10**7}, "j": []}), "done"),
    "template in many URLs": (
        lambda: generated(url="{{u}}{{i}}"),
        "limit",
    ),
    "template many times in one URL": (
        lambda: {"version": 1, "templates": {"u": "x" * 50_000}, "refs": {**GROUP, "a/0": ["{{u}}" * 5_000, 0, 4]}},
        "limit",
    ),
    "URL of gen": (lambda: generated(url="y" * 60_000 + "{{i}}"), "limit"),
    "key of gen": (lambda: generated(key="a/{{i}}" + "y" * 60_000), "limit"),
    "lists": (lambda: listing(b"[]", 1_125_000), "limit"),
    "objects": (lambda: listing(b"{}", 625_000), "limit"),
    "numbers": (lambda: listing(b"300", 3_000_000), "limit"),
    "wide text": (lambda: listing(b'"' + b"a" * 17 * MIB + '\U0001f600"'.encode(), 0), "limit"),
    "compressed labels": (lambda: labels(12), "done"),
}


CHUNK_BYTES = 128 * MIB
OPEN = "import periplus; periplus.open(given[0], limits=periplus.Limits(memory_bytes=256 << 20))"
READ = """
import periplus, zarr
zarr.open_group(periplus.open(given[0]).store(), mode="r")["a"][:]
"""
COMPRESSED = {
    "zstd": ({"id": "zstd", "level": 1}, imagecodecs.zstd_encode),
    "gzip": ({"id": "gzip", "level": 1}, lambda data: gzip.compress(data, 1)),
    "zlib": ({"id": "zlib", "level": 1}, lambda data: zlib.compress(data, 1)),
    "blosc": (
        {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 0, "blocksize": 0},
        lambda data: imagecodecs.blosc_encode(data, level=5),
    ),
}


def inline_chunk(compressor: dict, data: bytes) -> dict:
    array = {**ARRAY, "shape": [4096], "chunks": [4096], "compressor": compressor}
    refs = {".zgroup": GROUP[".zgroup"], "a/.zarray": json.dumps(array)}
    return {"version": 1, "refs": {**refs, "a/0": "base64:" + base64.b64encode(data).decode()}}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """All in one process, which takes seconds to import what they need."""
    folder = tmp_path_factory.mktemp("bombs")
    work = {}

    def add(name, document, code=OPEN):
        path = folder / f"{name}.json"
        path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
        work[name] = (code, [str(path)])

    for name, (make, _) in BOMBS.items():
        add(name, make())
    zeros = bytes(CHUNK_BYTES)
    for name, (compressor, encode) in COMPRESSED.items():
        add(name, inline_chunk(compressor, encode(zeros)), READ)
        add(f"honest {name}", inline_chunk(compressor, encode(bytes(4096))), READ)
    return measure_memory(work)


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_index_does_not_fill_the_memory(name, measured):
    cost = measured[name]
    assert cost.outcome == BOMBS[name][1], cost.message
    assert cost.mebibytes < (50 if cost.outcome == "limit" else 200)  # the labels that an open index keeps


@pytest.mark.parametrize("name", COMPRESSED)
def test_the_store_gives_no_inline_bomb_to_stock_codecs(name, measured):
    assert measured[name].outcome == "decode", measured[name]
    assert measured[name].mebibytes < 100
    assert measured[f"honest {name}"].outcome == "done", measured[f"honest {name}"]


def test_a_record_file_is_counted_before_it_is_decoded():
    """Paths that differ in their last characters: a few kilobytes of Parquet."""
    target = io.BytesIO()
    paths = pa.array(["x" * 300_000 + str(n) for n in range(100)])
    numbers = pa.array([1] * 100)
    pq.write_table(pa.table({"path": paths, "offset": numbers, "size": numbers}), target, compression="zstd")
    with pytest.raises(LimitError, match="memory_bytes"):
        read_record(
            target.getvalue(), key="a/refs.0.parq", declared=DeclaredFiles(), limits=Limits(memory_bytes=100 * MIB)
        )
    assert len(read_record(target.getvalue(), key="a/refs.0.parq", declared=DeclaredFiles(), limits=Limits())) == 100


def test_what_templates_and_gen_yield_is_counted_together():
    limits = Limits(memory_bytes=80_000)  # 10,000 of them for text
    gen = {"key": "a/{{i}}", "url": "{{u}}/{{i}}", "dimensions": {"i": {"stop": 8}}}
    document = {"version": 1, "templates": {"u": "x" * 1_000}, "refs": {}, "gen": [gen]}
    assert len(expand(document, limits=limits)) == 8
    with pytest.raises(ValueError, match="memory_bytes"):
        expand({**document, "refs": {"a/9": ["{{u}}/9"], "a/10": ["{{u}}/10"]}}, limits=limits)


@pytest.mark.parametrize("text", ["[]", '{"a": [1, 2.5, "x"]}', '"' + "y" * 500 + '"', '"\\u00e9"', '"é"'])
def test_text_and_bytes_of_json_cost_the_same_but_for_their_encoding(text):
    assert abs(json_cost(text) - json_cost(text.encode())) <= 8 * (len(text.encode()) - len(text))


def test_documents_in_strings_cost_what_strings_do():
    inner = json.dumps({"wkt": 'AREA["12\u00b0E"],' * 1000})
    outer = json.dumps({"a/.zattrs": inner})
    assert json_cost(outer) < 10 * len(outer)
    assert json_cost(json.dumps("\U0001f600")) - json_cost(json.dumps("\u00e9")) > 30  # four bytes a character


@pytest.mark.parametrize("memory", [400_000, 4_000_000])
def test_json_that_could_not_be_opened_is_not_left(memory, tmp_path):
    paths = [tmp_path / f"{number}.tif" for number in range(60)]
    for path in paths:
        tifffile.imwrite(path, np.zeros((16, 16), "u1"))
    index = periplus.index([str(path) for path in paths], arrange="collect", limits=Limits(memory_bytes=memory))
    if memory == 4_000_000:
        assert len(index.write(tmp_path / "i.json")) == 60
        return
    with pytest.raises(LimitError, match="parsed as JSON"):
        index.write(tmp_path / "i.json")
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".tif"]


def test_an_honest_index_of_a_million_references_is_within_the_default_budget():
    entry = '"variable/123.45.67": ["s3://bucket/folder/2020/01/file_20200101.nc", 123456789, 123456],'
    check_json_budget(entry * 10_000, Limits(memory_bytes=Limits().memory_bytes // 100), what="the index")
