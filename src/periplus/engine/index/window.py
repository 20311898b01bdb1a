"""A window that was read, as a DataArray: by the same assembler as arrays of an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from periplus.engine.index.array import OpenIndex
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Array, Catalog, Coordinate, Encoding, Files, Georeference, Inline, Refs
from periplus.table import Table, memory_table

if TYPE_CHECKING:
    from periplus.read.raster import RasterWindow


@dataclass(slots=True, eq=False)
class _WindowIndex:
    """An index of one array whose bytes are in memory."""

    table: Table
    fetch: Fetch
    limits: Limits

    def close(self) -> None:
        """Nothing is open."""


def open_index(index: OpenIndex, **options: Any) -> xr.Dataset:
    """An index by the engine `periplus`."""
    return xr.open_dataset(index, engine="periplus", **options)  # type: ignore[arg-type]


def data_array(window: RasterWindow, *, mask_and_scale: bool) -> xr.DataArray:
    """The window with its coordinates, CRS and transform, in memory."""
    name = window.array.rpartition("/")[2]
    values = np.asarray(window.values)
    kept = {key: value for key, value in window.attrs.items() if key not in ("band_names", "_FillValue")}
    nodata = {} if window.nodata is None else {"_FillValue": window.nodata}
    in_degrees_only = window.transform is None and not window.gcps and window.rpc is not None
    crs = None if in_degrees_only else window.crs
    place = Georeference(crs=crs, transform=window.transform, gcps=window.gcps, rpc=window.rpc)
    array = Array(
        name=name,
        dims=window.dims,
        shape=values.shape,
        chunks=tuple(max(1, n) for n in values.shape),
        dtype=values.dtype,
        encodings=(Encoding(codecs=({"name": "bytes", "configuration": {"endian": "little"}},)),),
        georeference=place if place != Georeference() else None,
        attributes={**kept, **nodata},
    )
    coordinates = {
        dim: Coordinate(name=dim, dims=(dim,), values=np.asarray(labels))
        for dim, labels in window.coordinates.items()
        if dim in window.dims and (window.transform is None or dim not in ("x", "y"))
    }
    data = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    refs = Refs(
        chunk=np.zeros((values.ndim, 1), np.int32),
        offset=np.zeros(1, np.int64),
        length=np.array([data.nbytes]),
        file=np.array([-1], np.int32),
        inline=Inline(np.zeros(1, np.int64), data.reshape(-1).view(np.uint8)),
    )
    limits = Limits(read_bytes=1 << 62, chunk_bytes=1 << 62)  # they are in memory already
    rows = {name: refs} if values.size else {}
    table = memory_table(Catalog(arrays={name: array}, coordinates=coordinates), rows, Files.of([]), limits=limits)
    return open_index(_WindowIndex(table, Fetch(), limits), mask_and_scale=mask_and_scale)[name].load()
