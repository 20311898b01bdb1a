"""Labels that are stored: read once for all who ask, and together, since a tree has many and stores are far away."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, LazilyIndexedArray, explicit_indexing_adapter
from zarr.core.sync import sync

from periplus.forks import renewed

LARGEST = 1 << 20
"""Bytes of labels that are kept; longer ones are read as any array is."""
AT_ONCE = 16
"""Reads at a time: they mostly wait for their store."""


class Batch:
    """Labels of one opening that will all be wanted once the first is: by decoding, or by making indexes."""

    lock: threading.Lock

    def __init__(self) -> None:
        self.waiting: dict[str, Once] = {}
        renewed(self, lock=threading.Lock)

    def load(self) -> None:
        """Read all that wait."""
        with self.lock:
            found, self.waiting = list(self.waiting.values()), {}
        if len(found) > 1:
            with contextlib.suppress(TimeoutError):  # zarr-python's is for one read, and here are many
                sync(_attempted(found))


async def _attempted(found: list[Once]) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def attempted(one: Once) -> None:
        async with places:
            await one.attempt()

    await asyncio.gather(*map(attempted, found))


class Once(BackendArray):
    """An array in memory from the first time it is asked for."""

    kept: Any
    """Its values, None until they are read."""

    def __init__(self, inner: xr.Variable, batch: Batch, path: str) -> None:
        self.inner, self.kept = inner, None
        self.batch: Batch | None = batch
        self.shape, self.dtype = inner.shape, inner.dtype
        batch.waiting[path] = self

    def __getstate__(self) -> dict[str, Any]:
        return {"inner": self.inner, "kept": self.kept, "shape": self.shape, "dtype": self.dtype}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, batch=None)

    async def attempt(self) -> None:
        """Read it now if that is possible."""
        with contextlib.suppress(Exception):  # whoever asks for it by name reads it again, and hears what is wrong
            whole = await self.inner.copy(deep=False).load_async()
            self.kept = np.asarray(whole.values, self.dtype)

    def _read(self) -> Any:
        return np.asarray(self.inner.values, self.dtype)

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        if self.kept is None and self.batch is not None:
            batch, self.batch = self.batch, None
            batch.load()
        if self.kept is None:
            self.kept = self._read()
        return explicit_indexing_adapter(key, self.shape, IndexingSupport.OUTER, self._at)

    async def async_getitem(self, key: ExplicitIndexer) -> Any:
        return await asyncio.to_thread(self.__getitem__, key)

    def _at(self, key: tuple[Any, ...]) -> Any:
        return np.array(self.kept[key], self.dtype)  # a copy: what one user writes into is not what another reads


def kept(variable: xr.Variable, batch: Batch, path: str) -> xr.Variable:
    """The variable, read at most once; `path` is what the batch knows it by."""
    data = LazilyIndexedArray(Once(variable, batch, path))
    return xr.Variable(variable.dims, data, dict(variable.attrs), dict(variable.encoding))


def is_small(variable: xr.Variable) -> bool:
    """Whether a variable is labels of one chunk: reading any of them reads all."""
    chunks: Any = variable.encoding.get("chunks") or (0,)
    whole = isinstance(chunks[0], int) and chunks[0] >= variable.size
    return variable.ndim == 1 and whole and variable.size * variable.dtype.itemsize <= LARGEST
