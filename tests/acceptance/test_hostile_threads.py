"""Sixteen threads read sound and damaged chunks of one file at once: sound ones are exact, damaged ones as if alone."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest

import periplus
from periplus.errors import PeriplusError
from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import tiff as tiffs

SIDE, ACROSS = 64, 6
"""Pixels along the side of a chunk, and chunks along that of the image."""
THREADS, READS = 16, 30
SHAPE = (3, SIDE * ACROSS, SIDE * ACROSS)


def picture() -> np.ndarray:
    return tiffs.picture("threads", "u1", SHAPE)


def tiled(compression: str) -> Callable[[], bytes]:
    return lambda: tiffs.written(picture(), compression=compression, tile=(SIDE, SIDE), planarconfig="contig")


def blocks() -> bytes:
    values = picture()
    cells = [(y, x) for y in range(0, SHAPE[1], SIDE) for x in range(0, SHAPE[2], SIDE)]
    streams = [
        imagecodecs.jpeg8_encode(np.ascontiguousarray(np.moveaxis(values[:, y : y + SIDE, x : x + SIDE], 0, -1)))
        for y, x in cells
    ]
    return nitfs.nitf(
        nitfs.ImageSegment(
            values=values, mode="P", coding="M3", streams=streams, block=(SIDE, SIDE), masked=True, pad=1
        )
    )


FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "deflate": ("a.tif", tiled("deflate")),
    "zstd": ("a.tif", tiled("zstd")),
    "lzw": ("a.tif", tiled("lzw")),
    "webp": ("a.tif", tiled("webp")),
    "JPEG in NITF": ("a.ntf", blocks),
    "JPEG 2000": ("a.j2k", lambda: j2ks.made(picture(), blockxsize=SIDE, blockysize=SIDE)),
}


def places(data: bytes) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Byte ranges of the chunks of the first array."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    refs = next(step for step in scan_bytes(data) if isinstance(step, Found)).refs
    for (_, y, x), offset, length in zip(
        refs.chunk.T.tolist(), refs.offset.tolist(), refs.length.tolist(), strict=True
    ):
        found.setdefault((y, x), []).append((offset, length))
    return found


@pytest.mark.parametrize("name", FILES)
def test_threads_do_not_disturb_each_other(name: str, tmp_path: Path) -> None:
    file, make = FILES[name]
    data = make()
    (tmp_path / file).write_bytes(data)
    rng = random.Random(7)
    with periplus.index(tmp_path / file) as index:
        truth = index["0/data"][...]
    where = places(data)
    assert len(where) == ACROSS**2
    broken = set(rng.sample(sorted(where), 12))
    harmed = bytearray(data)
    for cell in broken:
        # What is first and last in a chunk: magic numbers, markers, checksums and the ends of streams.
        for offset, length in where[cell]:
            if name == "JPEG 2000":
                # Where its tile-parts lie is found out while indexing, so only what is in them is harmed.
                harmed[offset + 14 : offset + length] = rng.randbytes(length - 14)
                continue
            harmed[offset : offset + 12] = rng.randbytes(12)
            harmed[offset + length // 2 : offset + length] = bytes(length - length // 2)
    (tmp_path / "harmed").mkdir()
    (tmp_path / "harmed" / file).write_bytes(harmed)
    with periplus.index(tmp_path / "harmed" / file) as index:
        array = index["0/data"]
        alone = {cell: outcome(array, *cell) for cell in sorted(where)}
        plan = [[rng.choice(sorted(where)) for _ in range(READS)] for _ in range(THREADS)]

        def labour(cells: list[tuple[int, int]]) -> list[str | bytes]:
            return [outcome(array, *cell) for cell in cells]

        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(labour, plan))
    sound = [cell for cell in where if cell not in broken]
    for y, x in sound:
        expected = truth[:, y * SIDE : (y + 1) * SIDE, x * SIDE : (x + 1) * SIDE]
        assert alone[y, x] == expected.tobytes()
    # A tile of JPEG 2000 has nothing to check it by: the decoder makes something of whatever it holds.
    assert name == "JPEG 2000" or sum(isinstance(alone[cell], str) for cell in broken) > 6
    for cells, found in zip(plan, results, strict=True):
        for cell, result in zip(cells, found, strict=True):
            assert result == alone[cell], cell


def outcome(array: Any, y: int, x: int) -> str | bytes:
    """The values of one chunk as bytes, or the kind of the error it gave."""
    try:
        values = array[:, y * SIDE : (y + 1) * SIDE, x * SIDE : (x + 1) * SIDE]
    except PeriplusError as error:
        return error.kind
    return np.ascontiguousarray(values).tobytes()
