"""Data that a scanner looks at once are read once, in pieces, and are no header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest

import periplus
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.limits import Limits
from periplus.scan.nitf import streams as nitfstreams
from periplus.testing.formats import nitf as nitfs
from periplus.testing.servers.http import RangeServer

VALUES = nitfs.values_of("u8", 1, (512, 512))


@pytest.fixture(scope="module")
def blocks() -> bytes:
    streams = [
        imagecodecs.jpeg8_encode(np.ascontiguousarray(VALUES[0, y : y + 64, x : x + 64]), 95)
        for y in range(0, 512, 64)
        for x in range(0, 512, 64)
    ]
    return nitfs.nitf(nitfs.ImageSegment(values=VALUES, block=(64, 64), streams=streams, coding="C3"))


def test_they_do_not_count_as_header(tmp_path: Path, blocks: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nitfstreams, "WINDOW", 20_000)
    path = tmp_path / "a.ntf"
    path.write_bytes(blocks)
    assert len(blocks) > 100_000
    index = periplus.index(path, limits=Limits(header_bytes=60_000))
    assert index["0/data"].chunks == (1, 64, 64)
    found: Any = index["0/data"][...]
    assert np.abs(found.astype(int) - VALUES).mean() < 5


def test_they_are_fetched_once(
    server: RangeServer, blocks: bytes, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nitfstreams, "WINDOW", 20_000)
    server.files["a.ntf"] = blocks
    table, _ = index_into([f"{server.url}/a.ntf"], fetch=fetch, sidecars=False)
    assert table.rows == 64
    assert sum(request.sent for request in server.log) < len(blocks) + 80_000
