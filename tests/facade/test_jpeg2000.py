"""A JPEG 2000 file in an index: levels, interleaved tile-parts and few bytes, over HTTP and at rest."""

import threading
from functools import lru_cache
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

import periplus
from periplus.read import reader
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.servers.http import RangeServer


def big() -> tuple[np.ndarray, bytes]:
    values = np.kron(j2ks.picture(1, "u1", 128, 128), np.ones((1, 8, 8), np.uint8))
    values = values + j2ks.picture(1, "u1", 1024, 1024) // 8
    options = {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS", "RESOLUTIONS": 6}
    return values, j2ks.interleaved(j2ks.made(values, blockxsize=256, blockysize=256, **options))


@lru_cache(maxsize=4)
def scene(side: int, **options: object) -> tuple[np.ndarray, bytes]:
    """A picture with detail at every scale, as nature has it, without loss in tiles of 512."""
    rng = np.random.default_rng(side)
    values = np.zeros((side, side))
    for step in (1, 2, 4, 8, 16, 32, 64, 128):
        values += np.kron(rng.normal(0, 2 * step**0.5, (side // step, side // step)), np.ones((step, step)))
    picture = np.clip(values + 128, 0, 255).astype(np.uint8)[None]
    return picture, j2ks.made(picture, blockxsize=512, blockysize=512, RESOLUTIONS=6, **options)


def test_interleaved_tiles_over_http_cost_few_bytes() -> None:
    values, data = big()
    with RangeServer({"a.j2k": data}) as server:
        index = periplus.index(f"{server.url}/a.j2k")
        assert sum(request.sent for request in server.log) < 128 << 10
        assert sorted(index.arrays) == [f"{level}/data" for level in range(6)]
        start = len(server.log)
        small = index["4/data"][...]
        assert sum(request.sent for request in server.log[start:]) < 0.05 * len(data)
        assert small.shape == (1, 64, 64)
        assert np.array_equal(index["0/data"][0, 200:700, 250:300], values[0, 200:700, 250:300])


def test_two_small_tiles_are_decoded_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = j2ks.picture(1, "u1", 64, 128)
    (tmp_path / "a.j2k").write_bytes(j2ks.made(picture, blockxsize=64, blockysize=64))
    array = periplus.index(str(tmp_path / "a.j2k"))["0/data"]
    assert array.chunks == (1, 64, 64)
    started: list[str] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self.name), start(self)))
    monkeypatch.setattr(reader, "_cores", lambda: 2)
    np.testing.assert_array_equal(array[:, :, :64], picture[:, :, :64])
    assert not started
    np.testing.assert_array_equal(array[...], picture)
    assert len(started) == 1


FORMS = {
    "tile-parts": {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS"},
    "lists": {"PROGRESSION": "RLCP", "PLT": "YES"},
    "position first": {"PROGRESSION": "PCRL", "PLT": "YES", "PRECINCTS": "{256,256},{256,256},{128,128}"},
    "layers first": {"PROGRESSION": "LRCP", "PLT": "YES", "QUALITY": "20,60,100"},
}


@pytest.mark.parametrize("name", FORMS)
def test_a_lower_resolution_costs_a_twentieth_of_its_tiles(name: str) -> None:
    values, data = scene(1024, **FORMS[name])
    with RangeServer({"a.j2k": data}) as server:
        index = periplus.index(f"{server.url}/a.j2k")
        # Less than its header is read of a file of this size anyway.
        assert sum(request.sent for request in server.log) < (48 << 10) + 0.01 * len(data)
        rows = index.select(array="0/data")
        tile = max(rows.column("length").to_pylist())
        for key, tiles in ((np.s_[:, 70:120, 70:120], 1), (np.s_[:, 40:90, 40:90], 4), (np.s_[...], 4)):
            start = len(server.log)
            found = index["3/data"][key]
            assert sum(request.sent for request in server.log[start:]) < 0.05 * tiles * tile
            assert np.array_equal(found, j2ks.pillow(data, 3)[key])
        assert np.array_equal(index["0/data"][:, 500:530, 500:530], values[:, 500:530, 500:530])


def test_an_index_without_a_table_of_lengths_takes_less_than_a_hundredth_of_the_file() -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (1, 2048, 2560), dtype=np.uint8)
    options = {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS", "RESOLUTIONS": 6}
    data = j2ks.made(noise, blockxsize=512, blockysize=512, **options)
    parts = len(j2ks.split(data)[1])
    for stream in (data, j2ks.interleaved(data)):
        with RangeServer({"a.j2k": stream}) as server:
            index = periplus.index(f"{server.url}/a.j2k")
            assert len(index.arrays) == 6
            assert len(server.log) <= parts + 2
            assert sum(request.sent for request in server.log) < 0.01 * len(stream)


def test_packets_apart_and_their_inline_starts_survive_at_rest(tmp_path: Path) -> None:
    values, data = scene(512, PROGRESSION="PCRL", PLT="YES")
    (tmp_path / "a.j2k").write_bytes(data)
    for target in ("a.parquet", "a.duckdb", "folder"):
        periplus.index(tmp_path / "a.j2k", to=tmp_path / target)
        with periplus.open(tmp_path / target, trust=True) as index:
            for level in range(4):
                assert np.array_equal(index[f"{level}/data"][...], j2ks.pillow(data, level))
            assert np.array_equal(index["0/data"][...], values)


def test_an_index_at_rest_reads_the_same(tmp_path: Path) -> None:
    values, data = big()
    (tmp_path / "a.j2k").write_bytes(data)
    (tmp_path / "b.jp2").write_bytes(j2ks.packed(j2ks.layout("parts-precincts"), main=True))
    for name, expected in (("a.j2k", values), ("b.jp2", j2ks.picture())):
        target = tmp_path / f"{name}.parquet"
        periplus.index(tmp_path / name, to=target)
        index = periplus.open(target)
        assert np.array_equal(index["0/data"][...], expected)
    level = periplus.open(tmp_path / "a.j2k.parquet")["1/data"][...]
    header, parts = j2ks.split(data)
    whole = header + b"".join(p.data for p in sorted(parts, key=lambda p: (p.tile, p.part))) + b"\xff\xd9"
    assert np.array_equal(imagecodecs.jpeg2k_decode(whole), values[0])
    assert level.shape == (1, 512, 512)
    assert abs(level.mean() - values.mean()) < 2
