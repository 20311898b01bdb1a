"""Stored labels read once, and all labels of a store together: a tree has many, and requests are slow."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import numpy as np
import xarray as xr
from xarray.core.indexing import ExplicitIndexer, LazilyIndexedArray
from zarr.core.sync import sync

from periplus.engine.assemble.coordinates import ComputedArray
from periplus.forks import renewed

LARGEST = 1 << 20
"""Bytes of labels that are kept in memory; longer ones are read like any array."""
AT_ONCE = 16
"""Reads at a time: they mostly wait for their store."""


class LabelBatch:
    """Labels of one store that are all read when the first is needed, by decoding or for an index."""

    lock: threading.Lock

    def __init__(self) -> None:
        self.waiting: dict[str, CachedLabels] = {}
        renewed(self, lock=threading.Lock)

    def load(self) -> None:
        """Read all waiting labels."""
        with self.lock:
            found, self.waiting = list(self.waiting.values()), {}
        if len(found) > 1:
            with contextlib.suppress(TimeoutError):  # zarr-python's timeout is meant for one read
                sync(_attempted(found))


async def _attempted(found: list[CachedLabels]) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def attempted(one: CachedLabels) -> None:
        async with places:
            await one.attempt()

    await asyncio.gather(*map(attempted, found))


class CachedLabels(ComputedArray):
    """An array that is read on first use and then kept in memory."""

    kept: Any
    """Its values, None until they are read."""

    def __init__(self, inner: xr.Variable, batch: LabelBatch, path: str) -> None:
        self.inner, self.kept = inner, None
        self.batch: LabelBatch | None = batch
        self.shape, self.dtype = inner.shape, inner.dtype
        batch.waiting[path] = self

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "kept": self.kept, "shape": self.shape, "dtype": self.dtype}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, batch=None)

    async def attempt(self) -> None:
        """Read it now if that is possible."""
        with contextlib.suppress(Exception):  # the next use reads again, and raises
            whole = await self.inner.copy(deep=False).load_async()
            self.kept = np.asarray(whole.values, self.dtype)

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        if self.kept is None and self.batch is not None:
            batch, self.batch = self.batch, None
            batch.load()
        if self.kept is None:
            self.kept = np.asarray(self.inner.values, self.dtype)
        return super().__getitem__(key)

    def _at(self, key: tuple[Any, ...]) -> Any:
        return np.array(self.kept[key], self.dtype)  # a copy, so that users may modify it


def cached(variable: xr.Variable, batch: LabelBatch, path: str) -> xr.Variable:
    """The variable, read at most once; `path` is its key in the batch."""
    data = LazilyIndexedArray(CachedLabels(variable, batch, path))
    return xr.Variable(variable.dims, data, dict(variable.attrs), dict(variable.encoding))


def is_small(variable: xr.Variable) -> bool:
    """Whether a variable is short labels in one chunk, so that reading any of them reads all."""
    chunks: Any = variable.encoding.get("chunks") or (0,)
    whole = isinstance(chunks[0], int) and chunks[0] >= variable.size
    return variable.ndim == 1 and whole and variable.size * variable.dtype.itemsize <= LARGEST
