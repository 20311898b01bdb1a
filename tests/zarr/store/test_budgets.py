"""The store hands no inline bytes to codecs of others that decode to more than the chunk they are of."""

from __future__ import annotations

import base64
import gzip
import json
import zlib

import imagecodecs
import pytest

from periplus.testing.memory_use import measure_memory

BOMB = 400 << 20
READ = """
import periplus, zarr
zarr.open_group(periplus.open(given[0]).store(), mode="r")["a"][:]
"""
CODECS = {
    "zstd": ({"id": "zstd", "level": 1}, imagecodecs.zstd_encode),
    "gzip": ({"id": "gzip", "level": 1}, lambda data: gzip.compress(data, 1)),
    "zlib": ({"id": "zlib", "level": 1}, lambda data: zlib.compress(data, 1)),
    "blosc": (
        {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 0, "blocksize": 0},
        lambda data: imagecodecs.blosc_encode(data, level=5),
    ),
}


def index(path, compressor, data):
    array = {
        "zarr_format": 2, "shape": [4096], "chunks": [4096], "dtype": "|u1", "compressor": compressor, "filters": None,
        "order": "C", "fill_value": 0,
    }  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(array)}
    refs["a/0"] = "base64:" + base64.b64encode(data).decode()
    path.write_text(json.dumps({"version": 1, "refs": refs}))
    return str(path)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder, zeros, work = tmp_path_factory.mktemp("store"), bytes(BOMB), {}
    for name, (compressor, encode) in CODECS.items():
        work[name] = (READ, [index(folder / f"{name}.json", compressor, encode(zeros))])
        work[f"honest {name}"] = (READ, [index(folder / f"{name}-4096.json", compressor, encode(bytes(4096)))])
    return measure_memory(work)


@pytest.mark.parametrize("name", CODECS)
def test_an_inline_bomb_is_not_given_to_stock_codecs(name, measured):
    assert measured[name].outcome == "decode", measured[name]
    assert measured[name].mebibytes < 100
    assert measured[f"honest {name}"].outcome == "done", measured[f"honest {name}"]
