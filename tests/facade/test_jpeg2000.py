"""A JPEG 2000 file in an index: levels, interleaved tile-parts and few bytes, over HTTP and at rest."""

from pathlib import Path

import imagecodecs
import numpy as np

import periplus
from periplus.testing import j2ks
from periplus.testing.servers import RangeServer


def big() -> tuple[np.ndarray, bytes]:
    values = np.kron(j2ks.picture(1, "u1", 128, 128), np.ones((1, 8, 8), np.uint8))
    values = values + j2ks.picture(1, "u1", 1024, 1024) // 8
    options = {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS", "RESOLUTIONS": 6}
    return values, j2ks.interleaved(j2ks.made(values, blockxsize=256, blockysize=256, **options))


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
