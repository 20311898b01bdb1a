"""The arrays of an index: described by their metadata, read by NumPy indexing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from periplus.errors import MissingError, some
from periplus.model import Array, BBox, Georeference, Shape

if TYPE_CHECKING:
    from periplus.facade import Index

Progress = Callable[[int, int], None]
SHOWN = 12
"""Arrays shown in a repr."""


class IndexArray:
    """One array of an index: its metadata, and its values by NumPy indexing."""

    __slots__ = ("_index", "array")

    def __init__(self, index: Index, array: Array) -> None:
        self._index = index
        self.array = array

    @property
    def name(self) -> str:
        return self.array.name

    @property
    def shape(self) -> Shape:
        return self.array.shape

    @property
    def dims(self) -> tuple[str, ...]:
        return self.array.dims

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def chunks(self) -> Shape:
        return self.array.chunks

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def level(self) -> int:
        return self.array.level

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes as the files give them: `_FillValue`, `scale_factor`, `units` and others."""
        return self.array.attributes

    @property
    def fill_value(self) -> Any:
        """The value of missing chunks, as in zarr; nodata is `attrs["_FillValue"]`."""
        return self.array.fill

    @property
    def georeference(self) -> Georeference | None:
        return self.array.georeference

    @property
    def bbox(self) -> BBox | None:
        """(xmin, ymin, xmax, ymax) at pixel edges, in the CRS; None for an array that is not georeferenced.

        Without a transform it is the box of the control points, or, in degrees, the area for which the RPCs are valid.
        """
        from periplus.table.query.footprint import around

        found = around(self.array)
        return None if found is None else found[0]

    def read(self, key: Any = ..., *, progress: Progress | None = None) -> np.ndarray[Any, Any]:
        """The selected values, raw as stored; `key` is any basic NumPy index."""
        from periplus.read import read_array

        index = self._index
        return read_array(index.table, index.fetch, self.array, key, limits=index.limits, progress=progress)

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return self.read(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        values = self.read()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.array.shape:
            raise TypeError("len() of an array without dimensions")
        return self.array.shape[0]

    def __repr__(self) -> str:
        dims = ", ".join(f"{d}: {n}" for d, n in zip(self.dims, self.shape, strict=True))
        return f"<periplus array {self.name!r} ({dims}) {self.dtype} chunks {self.chunks}>"


class Arrays(Mapping[str, IndexArray]):
    """The arrays of an index by name."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __getitem__(self, name: str) -> IndexArray:
        arrays = self._index.table.catalog.arrays
        if name not in arrays:
            raise MissingError(f"no array {name!r}; this index has {some(arrays, like=str(name))}")
        return IndexArray(self._index, arrays[name])

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index.table.catalog.arrays)

    def __len__(self) -> int:
        return len(self._index.table.catalog.arrays)

    def __repr__(self) -> str:
        shown = "\n".join(repr(self[name]) for name in islice(self, SHOWN)) or "<no arrays>"
        return shown + (f"\n… {len(self) - SHOWN:,} more" if len(self) > SHOWN else "")
