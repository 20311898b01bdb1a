"""One array of an index as a lazy array of xarray: indexing it plans, fetches and decodes the chunks needed at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, VectorizedIndexer

from periplus.engine.index.packing import BandPacking
from periplus.errors import FormatError
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Array
from periplus.read import read_array, select_outer
from periplus.table import Table

READS = 8
"""Concurrent reads while points are gathered from scattered chunks: they mostly wait for their sources."""


@runtime_checkable
class OpenIndex(Protocol):
    """An open index: a table, and the means to fetch what it refers to. `periplus.Index` is one."""

    table: Table
    fetch: Fetch
    limits: Limits

    def close(self) -> None:
        """Close connections and files."""
        ...


class LazyArray(BackendArray):
    """Picklable and safe to share between threads: it holds the index and a description, and no state."""

    __slots__ = ("array", "dtype", "index", "packing", "shape")

    def __init__(self, index: OpenIndex, array: Array, packing: BandPacking | None = None) -> None:
        self.index = index
        self.array = array
        self.packing = packing
        self.shape = array.shape
        self.dtype = _xarray_dtype(array.dtype) if packing is None else packing.dtype

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        if isinstance(key, VectorizedIndexer):
            return self._points(key.tuple)
        return self._read(key.tuple)

    async def async_getitem(self, key: ExplicitIndexer) -> Any:
        return await asyncio.to_thread(self.__getitem__, key)

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Each dimension by an integer, a slice or a list of integers, independent of the others."""
        index = self.index
        raw = read_array(index.table, index.fetch, self.array, select_outer(key, self.shape), limits=index.limits)
        return _converted(np.asarray(raw), self.dtype) if self.packing is None else self.packing.apply(raw, key)

    def _points(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Points: the arrays of the key are broadcast together and come first; sliced dimensions follow.

        Points are gathered chunk by chunk; read as an outer product, n of them would take n by n chunks.
        """
        pointed = [d for d, k in enumerate(key) if not isinstance(k, slice)]
        sliced = [d for d, k in enumerate(key) if isinstance(k, slice)]
        places = np.broadcast_arrays(*(np.asarray(key[d]) for d in pointed))
        shape = places[0].shape + tuple(len(range(*key[d].indices(self.shape[d]))) for d in sliced)
        points = np.stack([_from_start(p.ravel(), self.shape[d]) for p, d in zip(places, pointed, strict=True)])
        out = np.empty((points.shape[1], *shape[places[0].ndim :]), self.dtype)
        if out.size == 0:
            return out.reshape(shape)

        def gather(members: NDArray[np.intp]) -> None:
            here = points[:, members]
            low, high = here.min(axis=1), here.max(axis=1)
            window = list(key)
            for d, start, stop in zip(pointed, low, high, strict=True):
                window[d] = slice(int(start), int(stop) + 1)
            block = self._read(tuple(window)).transpose(*pointed, *sliced)
            out[members] = block[tuple(here - low[:, None])]

        groups = self._by_chunk(points, pointed)
        if len(groups) == 1:
            gather(groups[0])
        else:
            with ThreadPoolExecutor(min(READS, len(groups))) as pool:
                for _ in pool.map(gather, groups):
                    pass
        return out.reshape(shape)

    def _by_chunk(self, points: NDArray[np.int64], dims: list[int]) -> list[NDArray[np.intp]]:
        """Positions of the points in `points`, grouped by the chunk that contains them."""
        chunks = [np.searchsorted(self.array.starts(d), p, side="right") for p, d in zip(points, dims, strict=True)]
        order = np.lexsort(chunks)
        steps = np.any(np.diff(np.stack(chunks)[:, order], axis=1) != 0, axis=0)
        return np.split(order, np.flatnonzero(steps) + 1)


def _xarray_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of values in xarray, whose times have units from nanoseconds to seconds."""
    if dtype.kind not in "mM" or (unit := np.datetime_data(dtype)[0]) in ("s", "ms", "us", "ns"):
        return dtype
    if unit in ("ps", "fs", "as") or (dtype.kind == "m" and unit in ("Y", "M")):
        raise FormatError(f"xarray does not support times of type {dtype}")
    return np.dtype(f"{dtype.kind}8[s]")


def _converted(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values in that type; FormatError where a time is outside its range."""
    if values.dtype == dtype:
        return values
    cast = values.astype(dtype)
    if not np.array_equal(cast.astype(values.dtype), values, equal_nan=True):
        raise FormatError(f"a time of type {values.dtype} is outside the range that xarray supports")
    return cast


def _from_start(places: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Positions counted from the start; IndexError where one is out of bounds, as in NumPy."""
    counted = np.where(places < 0, places + size, places).astype(np.int64)
    if ((counted < 0) | (counted >= size)).any():
        raise IndexError(f"index {int(places[(counted < 0) | (counted >= size)][0])} is out of bounds for size {size}")
    return counted
