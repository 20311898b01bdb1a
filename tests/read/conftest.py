"""Sources for reading: raw chunks in a file of our own making, and TIFFs through the scanner."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from periplus.arrange import FileEntry
from periplus.arrange import files_table as files_of_entries
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Found, Refs, Source, chunk_positions
from periplus.read import read_array, read_raster
from periplus.table import memory_table

EDGE = -77
"""What padding beyond the edge of an array holds; it must never be seen."""


def files_of(sources):
    return files_of_entries([FileEntry(source=source, format="raw") for source in sources])


class Shelf:
    """An index in memory with the means to read it."""

    def __init__(self, catalog, refs, files, fetch=None):
        self.table = memory_table(catalog, refs, files)
        self.fetch = fetch or Fetch()
        self.limits = Limits()

    def read(self, name, key=..., **options):
        options.setdefault("limits", self.limits)
        return read_array(self.table, self.fetch, self.table.catalog.arrays[name], key, **options)

    def raster(self, **options):
        options.setdefault("limits", self.limits)
        return read_raster(self.table, self.fetch, **options)


def raw_bytes(values, array, *, rng, parts=1, gap=40):
    """Every chunk of `values` uncompressed, in shuffled order with junk between; the bytes, and the references."""
    positions = chunk_positions(array.grid)
    starts = [array.starts(d) for d in range(array.ndim)]
    body, at = bytearray(rng.bytes(16)), {}
    for i in rng.permutation(positions.shape[1]).tolist():
        place = positions[:, i].tolist()
        block = values[tuple(slice(s[p], s[p + 1]) for s, p in zip(starts, place))]
        stored = [n if e else c for n, c, e in zip(block.shape, array.chunks, array.edges or (None,) * array.ndim)]
        block = np.pad(block, [(0, c - n) for c, n in zip(stored, block.shape)], constant_values=EDGE % 256)
        data = block.tobytes()
        cuts = np.linspace(0, len(data), parts + 1).astype(int)
        for part in rng.permutation(parts).tolist():
            body += rng.bytes(int(rng.integers(0, gap + 1)))
            piece = data[cuts[part] : cuts[part + 1]]
            at[i, part] = len(body), len(piece)
            body += piece
    rows = [(i, part) for i in range(positions.shape[1]) for part in range(parts)]
    refs = Refs(
        chunk=np.repeat(positions, parts, axis=1),
        offset=np.array([at[row][0] for row in rows], np.int64),
        length=np.array([at[row][1] for row in rows], np.int64),
        file=np.zeros(len(rows), np.int32),
        part=None if parts == 1 else np.array([part for _, part in rows], np.uint16),
    )
    return bytes(body), refs


def raw_array(shape, chunks, *, dtype="<i4", name="a", dims=None, **facts):
    dtype = np.dtype(dtype)
    bytes_codec = {"name": "bytes"}
    if dtype.itemsize > 1:
        bytes_codec["configuration"] = {"endian": "big" if dtype.byteorder == ">" else "little"}
    return Array(
        name=name, dims=dims or tuple(f"d{i}" for i in range(len(shape))), shape=shape, chunks=chunks,
        dtype=dtype.newbyteorder("="), encodings=(Encoding((bytes_codec,)),), **facts,
    )  # fmt: skip


def values_of(shape, dtype="<i4"):
    return np.arange(1, math.prod(shape) + 1).reshape(shape).astype(dtype)


@pytest.fixture
def raw_shelf(tmp_path):
    """A shelf with one raw array in one local file; its `values` are what reading must give."""

    def make(shape, chunks, *, dtype="<i4", seed=0, parts=1, drop=(), **options):
        array = raw_array(shape, chunks, dtype=dtype, **options)
        values = values_of(shape, dtype)
        body, refs = raw_bytes(values, array, rng=np.random.default_rng(seed), parts=parts)
        path = tmp_path / f"raw-{seed}.bin"
        path.write_bytes(body)
        refs = refs.take(~np.isin(np.ravel_multi_index(tuple(refs.chunk), array.grid), drop))
        with Fetch() as fetch:
            source = fetch.run(fetch.head(str(path)))
        shelf = Shelf(Catalog(arrays={"a": array}), {"a": refs}, files_of([source]))
        shelf.values, shelf.path, shelf.refs, shelf.array = values.astype(array.dtype), path, refs, array
        return shelf

    return make


def scanned(source, data):
    """The arrays and references of a file's bytes."""
    from periplus.scan.drive import scan_bytes

    found = [step for step in scan_bytes(data, url=source.url) if isinstance(step, Found)]
    return {f.array.name: f.array for f in found}, {f.array.name: f.refs for f in found}


@pytest.fixture
def tiff_shelf(tmp_path):
    """A shelf of one TIFF on disk, given by its path or its bytes."""

    def make(content, *, url=None, fetch=None):
        if isinstance(content, bytes):
            path = tmp_path / "scene.tif"
            path.write_bytes(content)
        else:
            path = Path(content)
        fetch = fetch or Fetch()
        source = fetch.run(fetch.head(url or str(path)))
        arrays, refs = scanned(source, path.read_bytes())
        shelf = Shelf(Catalog(arrays=arrays), refs, files_of([source]), fetch)
        shelf.path = path
        return shelf

    return make


@pytest.fixture
def kit():
    """The makers above, for tests that put shelves together by hand."""
    return SimpleNamespace(
        Shelf=Shelf, files_of=files_of, raw_array=raw_array, raw_bytes=raw_bytes, scanned=scanned, values_of=values_of,
        Source=Source,
    )  # fmt: skip
