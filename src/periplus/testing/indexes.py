"""Small indexes for tests: files, dense references, and a Hypothesis strategy for indexes of any shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from periplus.model import Array, Catalog, Coordinate, Encoding, Files, Georeference, Inline, Refs, chunk_positions

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

IndexParts = tuple[Catalog, dict[str, Refs], Files]
RAW = ({"name": "bytes", "configuration": {"endian": "little"}},)
ZSTD = (*RAW, {"name": "zstd", "configuration": {"level": 0, "checksum": False}})


def files_of(paths: Sequence[str], *, size: int = 1 << 40) -> Files:
    """A files table without failures."""
    count = len(paths)
    moments = np.datetime64("2021-01-01", "us") + np.arange(count) * np.timedelta64(86_400_000_000, "us")
    return Files(
        path=list(paths),
        size=np.full(count, size, np.int64),
        etag=[f'"{number}"' for number in range(count)],
        last_modified=moments,
        datetime=moments,
        format=["tiff"] * count,
        status=["ok"] * count,
        error=[None] * count,
    )


def dense_refs(array: Array, *, files: int = 1, seed: int = 0, keep: float = 1.0) -> Refs:
    """One byte range for every chunk (or a share `keep` of them), the file being the leading position."""
    random = np.random.default_rng(seed)
    chunk = chunk_positions(array.grid)
    chunk = chunk[:, random.random(chunk.shape[1]) < keep]
    count = chunk.shape[1]
    length = np.asarray(random.integers(0, 5_000, count), np.int64)
    leading = chunk[0] if array.ndim else np.zeros(count, np.int32)
    return Refs(
        chunk=chunk,
        offset=100 + np.cumsum(length + 8) - length,
        length=length,
        file=(leading % files).astype(np.int32),
    )


def stacked(
    steps: int = 5, rows: int = 4, columns: int = 6, *, paths: Sequence[str] | None = None, seed: int = 0
) -> IndexParts:
    """A stack of images in two levels, one file per step, with a daily time coordinate."""
    time = np.datetime64("2021-01-01", "us") + np.arange(steps) * np.timedelta64(86_400_000_000, "us")
    arrays = {}
    for level in (0, 1):
        name, size = f"{level}/data", 10.0 * 2**level
        arrays[name] = Array(
            name=name,
            dims=("time", "bands", "y", "x"),
            shape=(steps, 3, math.ceil((rows * 64 - 10) / 2**level), math.ceil((columns * 64 - 20) / 2**level)),
            chunks=(1, 3, 64, 64),
            dtype=np.dtype(np.uint16),
            fill=0,
            encodings=(Encoding(ZSTD),),
            attributes={"_FillValue": 0, "scale_factor": 1e-4, "band_names": ["green", "red", "nir"]},
            level=level,
            georeference=Georeference(crs="EPSG:32633", transform=(size, 0.0, 300_000.0, 0.0, -size, 5_200_000.0)),
        )
    catalog = Catalog(
        arrays=arrays,
        coordinates={"time": Coordinate(name="time", dims=("time",), values=time)},
        attributes={"": {"title": "a stack"}},
        arrangement={"kind": "stack", "dim": "time"},
    )
    refs = {name: dense_refs(array, files=steps, seed=seed + array.level) for name, array in arrays.items()}
    return catalog, refs, files_of(paths or [f"s3://bucket/scenes/{number:04}.tif" for number in range(steps)])


def same_refs(one: Refs, two: Refs) -> None:
    """AssertionError where two Refs differ; an absent column equals a column of zeros."""
    assert len(one) == len(two), (len(one), len(two))
    for name in ("chunk", "offset", "length"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    for name in ("file", "part", "encoding"):
        have, want = (np.zeros(len(one)) if (c := getattr(r, name)) is None else c for r in (one, two))
        np.testing.assert_array_equal(have, want, err_msg=name)
    assert inline_list(one) == inline_list(two)


def inline_list(refs: Refs) -> list[bytes | None]:
    """The inline bytes of every row; None where they are in a file."""
    held = (refs.inline_bytes(row) for row in range(len(refs)))
    return [None if item is None else bytes(item) for item in held]


def indexes() -> SearchStrategy[IndexParts]:
    """Indexes: several arrays of several ranks, sparse, in parts, inline, with several encodings."""
    from hypothesis import strategies as st

    @st.composite
    def draw_index(draw: DrawFn) -> IndexParts:
        count = draw(st.integers(1, 4))
        files = files_of([f"s3://bucket/scenes/{number}.tif" for number in range(count)])
        names = draw(st.lists(array_names(), min_size=1, max_size=4, unique=True))
        arrays: dict[str, Array] = {}
        refs: dict[str, Refs] = {}
        for name in names:
            array = draw(arrays_named(name))
            arrays[name] = array
            refs[name] = draw(refs_of(array, count))
        return Catalog(arrays=arrays), refs, files

    return draw_index()


def array_names() -> SearchStrategy[str]:
    """Names of arrays, plain ones and some that need quoting in SQL or paths."""
    from hypothesis import strategies as st

    awkward = st.sampled_from(
        ['"; DROP TABLE chunks; --', "a.b/c d", "Größe/データ", "x'y", "0/data", "%s{}$1", "a" * 200]
    )
    letters = st.text("abcXYZ019_-. ", min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
    return st.one_of(awkward, letters)


def arrays_named(name: str) -> SearchStrategy[Array]:
    """Arrays of rank 0 to 4 with regular or varying chunks."""
    from hypothesis import strategies as st

    @st.composite
    def draw_array(draw: DrawFn) -> Array:
        dims = draw(st.lists(st.sampled_from(["time", "bands", "y", "x", "X", "a.b", 'z"z']), unique=True, max_size=4))
        shape = tuple(draw(st.integers(0, 7)) for _ in dims)
        chunks = tuple(draw(st.integers(1, 4)) for _ in dims)
        edges: tuple[tuple[int, ...] | None, ...] | None = None
        varied: bool = draw(st.booleans())
        if dims and varied:
            edges = tuple(_edges(draw, extent) for extent in shape)
            chunks = tuple(max(e) if e else c for e, c in zip(edges, chunks, strict=True))
        dtype = np.dtype(draw(st.sampled_from(["bool", "uint8", "int16", "float32", "float64", "complex64"])))
        return Array(
            name=name,
            dims=tuple(dims),
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill=draw(fills(dtype)),
            encodings=(Encoding(RAW), Encoding(ZSTD)),
            attributes=draw(attributes()),
            level=draw(st.integers(0, 3)),
            edges=edges,
        )

    return draw_array()


def _edges(draw: DrawFn, extent: int) -> tuple[int, ...] | None:
    from hypothesis import strategies as st

    if not draw(st.booleans()):
        return None
    cuts = sorted(draw(st.sets(st.integers(1, extent - 1), max_size=3))) if extent > 1 else []
    ends = [*cuts, extent] if extent else []
    return tuple(b - a for a, b in zip([0, *ends], ends, strict=False))


def fills(dtype: np.dtype[Any]) -> SearchStrategy[Any]:
    """Values of missing chunks that a dtype can hold, NaN and infinities among them."""
    from hypothesis import strategies as st

    if dtype.kind == "b":
        return st.one_of(st.none(), st.booleans())
    if dtype.kind in "iu":
        return st.one_of(st.none(), st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)))
    if dtype.kind == "c":
        return st.one_of(st.none(), st.complex_numbers(width=64))
    return st.one_of(st.none(), st.floats(width=32))


def attributes() -> SearchStrategy[Mapping[str, Any]]:
    """JSON values as attributes, numbers that JSON lacks included."""
    from hypothesis import strategies as st

    leaf = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(), st.text(max_size=8))
    tree = st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    )
    return st.dictionaries(st.text(max_size=6), tree, max_size=3)


def refs_of(array: Array, files: int) -> SearchStrategy[Refs]:
    """References of some chunks of an array, some of them in parts, some inline."""
    from hypothesis import strategies as st

    @st.composite
    def draw_refs(draw: DrawFn) -> Refs:
        random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        chunk = chunk_positions(array.grid)
        chunk = chunk[:, random.random(chunk.shape[1]) < draw(st.sampled_from([0.0, 0.5, 1.0]))]
        parts = draw(st.sampled_from([1, 1, 3]))
        count = chunk.shape[1] * parts
        file = random.integers(0, files, count).astype(np.int32)
        length = random.integers(0, 1_000, count)
        data: list[bytes | None] | None = None
        if draw(st.booleans()):
            file[random.random(count) < 0.3] = -1
            data = [
                random.bytes(int(n)) if f < 0 else None for f, n in zip(file.tolist(), length.tolist(), strict=True)
            ]
        refs = Refs(
            chunk=np.repeat(chunk, parts, axis=1),
            offset=np.where(file < 0, 0, random.integers(0, 1 << 39, count)),
            length=length,
            file=file,
            part=None if parts == 1 else np.tile(np.arange(parts, dtype=np.uint16), chunk.shape[1]),
            encoding=random.integers(0, 2, count).astype(np.uint16) if draw(st.booleans()) else None,
            inline=None if data is None else Inline.of(data),
        )
        return refs.take(random.permutation(count))

    return draw_refs()
