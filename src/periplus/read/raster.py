"""A georeferenced window of an image, read by bounding box, resolution, time and bands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, MissingError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, BBox, GroundControlPoint, Transform, pyramid_of
from periplus.model.affine import box, cropped
from periplus.read.choose import Bands, Images, at_level, attributes_of, band_key, nodata_of, only, pick, time_key
from periplus.read.plan import Progress, select_outer
from periplus.read.reader import read_array
from periplus.read.window import Window, axes, columns_in, crs_of, georeference_of, level_for, window_in
from periplus.table.query.boxes import InDegrees, Reproject
from periplus.table.query.footprint import WORLD, corners, upright
from periplus.table.query.times import time_coordinate

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RasterWindow:
    """Pixels as stored, with their georeference and metadata.

    Pixels are never resampled. Where only ground control points or RPCs locate them they are not `rectified`, and the
    window shows at least the box that was asked for.
    """

    values: NDArray[Any]
    dims: tuple[str, ...]
    transform: Transform | None
    """From pixel corners of this window to the CRS; None for pixels that are not rectified."""
    crs: str | None
    """Of the transform, or of the control points; EPSG:4326 where only RPCs locate the pixels."""
    array: str
    """Name of the array that was read."""
    level: int
    nodata: Any = None
    """The nodata value as stored, or a list with one for each band; None where there is none."""
    coordinates: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Coordinates by dimension; `x` and `y` are pixel centres, and absent where the image is rotated; `bands` are
    names, or numbers from 1 where not every band has a name of its own."""
    bands: tuple[str, ...] = ()
    """Names of the bands read, where the file has names."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the array: scale_factor, add_offset, units and others; lists have a value for each band read."""
    gcps: tuple[GroundControlPoint, ...] = ()
    """Ground control points, at pixel corners of this window."""
    rpc: Mapping[str, Any] | None = None
    """Rational polynomial coefficients for the pixels of this window, under the names that rasterio gives them."""

    @property
    def rectified(self) -> bool:
        """Whether pixels are on a grid of the CRS."""
        return self.transform is not None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def bbox(self) -> BBox:
        """Bounding box of the window at pixel edges; in pixels without a transform."""
        rows, columns = self.values.shape[self.dims.index(self._y)], self.values.shape[self.dims.index(self._x)]
        return box(self.transform or (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), 0, 0, columns, rows)

    @property
    def _y(self) -> str:
        return "y" if "y" in self.dims and "x" in self.dims else self.dims[-2]

    @property
    def _x(self) -> str:
        return "x" if "y" in self.dims and "x" in self.dims else self.dims[-1]

    def masked(self) -> np.ma.MaskedArray[Any, Any]:
        """The values as a masked array, with `nodata` masked."""
        if self.nodata is None:
            return np.ma.MaskedArray(self.values)
        nodata = np.asarray(self.nodata)
        if nodata.ndim:
            nodata = nodata.reshape([-1 if dim == "bands" else 1 for dim in self.dims])
        mask = self.values == nodata
        if nodata.dtype.kind in "fc" and np.isnan(nodata).any():
            mask |= np.isnan(self.values) & np.isnan(nodata)
        return np.ma.MaskedArray(self.values, mask=mask)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        dims = ", ".join(f"{d}: {n}" for d, n in zip(self.dims, self.values.shape, strict=True))
        box = ", ".join(f"{v:.10g}" for v in self.bbox)
        crs = self.crs if self.crs is None or len(self.crs) <= 16 else "a CRS in WKT or PROJJSON"
        where = f"bbox ({box}) in {crs}"
        if not self.rectified and (self.gcps or self.rpc):
            by = [f"{len(self.gcps)} control points in {crs}"] * bool(self.gcps) + ["RPCs"] * (self.rpc is not None)
            where = f"not rectified: located by {' and '.join(by)}"
        return f"<periplus raster of {self.array!r} ({dims}) {self.values.dtype}, {where}>"


def read_raster(
    table: Table,
    fetch: Fetch,
    *,
    array: str | None = None,
    bbox: Sequence[float] | None = None,
    crs: str | None = None,
    level: int | None = None,
    resolution: float | tuple[float, float] | None = None,
    max_size: int | None = None,
    time: Any = None,
    bands: Bands | None = None,
    limits: Limits,
    progress: Progress | None = None,
    reproject_bbox: Reproject | None = None,
    in_degrees: InDegrees | None = None,
    workers: int | None = None,
) -> RasterWindow:
    """Read a window of an image: all pixels that intersect the bounding box, at the level for the resolution.

    `array` is an image (`data`, `scene/data`, or its group `scene`) or one of its levels (`0/data`); by default `data`,
    or the only image, or the only one in the box and time. `level` is the level to read; 0 is full resolution.
    `resolution` (a number or (x, y), in units of the CRS of the image) selects the coarsest level with pixels of at
    most that size. `max_size` then selects the finest level whose window has at most that many pixels along its longer
    side; where even the coarsest level has more, every n-th pixel of it is read. Without both, the level of `array` is
    read, or the finest. `bbox` is in `crs`, by default the CRS of the image; pixels are never resampled. `time` is a
    time or period, a pair or a slice. `bands` are numbers that count from 1, or names; a single band drops its axis.
    """
    several = Images(table.catalog) if array is None and (bbox is not None or time is not None) else ()
    if len(several) > 1 and "data" not in several:
        array = _image_at(table, several, bbox, crs, time, reproject_bbox, in_degrees)
        if time_coordinate(table.catalog, pick(table.catalog, array)[1]) is None:
            time = None  # the image was selected by the time of its file
    levels, image = pick(table.catalog, array)
    if level is not None:
        if resolution is not None or max_size is not None:
            raise ValueError("level= cannot be combined with resolution= or max_size=, which select a level")
        image = at_level(levels, level, None if array not in table.catalog.arrays else image)
    own = crs_of(levels, levels[0])
    degrees = own is not None and (in_degrees or WORLD.__eq__)(own)
    size, longest = _resolution(resolution), _positive(max_size)

    def window_at(wanted: Sequence[float] | None) -> tuple[Array, Window]:
        box, chosen = _own_bbox(levels, wanted, crs, reproject_bbox), image
        if size is not None or longest is not None:
            chosen = level_for(levels, bbox=box, resolution=size, max_size=longest, degrees=degrees)
        return chosen, window_in(levels, chosen, box, degrees=degrees)

    try:
        image, (top, bottom, left, right) = window_at(bbox)
    except MissingError as error:
        raise MissingError(error.message + _advice(bbox, crs, own, degrees, window_at)) from None
    step = 1 if max_size is None else max(1, -(-max(bottom - top, right - left) // max_size))
    keys: list[Any] = [slice(None)] * image.ndim
    y, x = axes(image)
    # Of each block of pixels, the one nearest to its centre is read.
    keys[y], keys[x] = _every(top, bottom, step), _every(left, right, step)
    place = georeference_of(levels, image)
    if place.transform is not None and right > image.shape[x]:
        keys[x] = columns_in(keys[x], place.transform, image.shape[x])
    coordinates = time_key(table.catalog, image, time, keys)
    names, chosen = band_key(image, bands, keys)
    if "bands" in image.dims and not isinstance(chosen, int):
        numbers = np.arange(1, image.shape[image.dims.index("bands")] + 1)[chosen]
        coordinates["bands"] = np.array(names, object) if _are_labels(names, len(numbers)) else numbers

    values = np.asarray(
        read_array(
            table,
            fetch,
            image,
            select_outer(tuple(keys), image.shape),
            limits=limits,
            progress=progress,
            workers=workers,
        )
    )
    place = cropped(place, top, left, step, step)
    transform = place.transform
    dims = tuple(dim for dim, key in zip(image.dims, keys) if not isinstance(key, int))
    if transform is not None and transform[1] == transform[3] == 0:
        a, _, c, _, e, f = transform
        with np.errstate(all="ignore"):  # huge numbers in a transform give infinite coordinates
            coordinates[image.dims[y]] = f + e * (np.arange(values.shape[dims.index(image.dims[y])]) + 0.5)
            coordinates[image.dims[x]] = c + a * (np.arange(values.shape[dims.index(image.dims[x])]) + 0.5)
    return RasterWindow(
        values=values,
        dims=dims,
        transform=transform,
        crs=place.crs,
        array=image.name,
        level=image.level,
        nodata=nodata_of(image, chosen),
        coordinates=coordinates,
        bands=names,
        attrs=attributes_of(image, chosen),
        gcps=place.gcps,
        rpc=place.rpc,
    )


def _are_labels(names: Sequence[str], count: int) -> bool:
    return len(set(names)) == len(names) == count and all(names)


def _image_at(
    table: Table,
    names: Collection[str],
    bbox: Sequence[float] | None,
    crs: str | None,
    time: Any,
    reproject: Reproject | None,
    in_degrees: InDegrees | None,
) -> str:
    """The only one of these images in the box and time."""

    def images_in(box: Sequence[float] | None) -> list[str]:
        box = None if box is None else upright(box)
        rows = table.select(level=0, bbox=box, crs=crs, time=time, reproject=reproject, in_degrees=in_degrees)
        met = dict.fromkeys(pyramid_of(name, 0) for name in rows.column("array").unique().to_pylist())
        return [name for name in met if name in names]

    found, advice = images_in(bbox), ""
    if not found:
        own = crs_of(*pick(table.catalog, next(iter(names))))
        degrees = own is not None and (in_degrees or WORLD.__eq__)(own)
        advice = _advice(bbox, crs, own, degrees, images_in)
    return only(found, f"{len(found) or 'none'} of the {len(names):,} images are in that box and time{advice}")


def _advice(
    bbox: Sequence[float] | None, crs: str | None, own: str | None, degrees: bool, found: Callable[[BBox], object]
) -> str:
    """What may be wrong with a box in which no image is; `found` of another raises, or is empty, if it has none."""
    if bbox is None:
        return ""
    xmin, ymin, xmax, ymax = corners(bbox)
    if crs is None and own is not None and not degrees and -180 <= xmin <= xmax <= 360 and -90 <= ymin <= ymax <= 90:
        return "; these look like degrees: pass crs=, for example EPSG:4326"
    if (xmin, xmax) == (ymin, ymax):
        return ""
    try:
        exchanged = found((ymin, xmin, ymax, xmax))
    except (PeriplusError, ValueError):
        exchanged = None
    return "; are x and y exchanged? The other way round there is an image" if exchanged else ""


def _own_bbox(
    levels: list[Array], bbox: Sequence[float] | None, crs: str | None, reproject_bbox: Reproject | None
) -> BBox | None:
    if bbox is None:
        return None
    own = crs_of(levels, levels[0])
    if crs is None or crs == own:
        return upright(bbox)
    if own is None:
        why = f"{levels[0].name} has no CRS, so a bbox in {crs} cannot be converted"
        raise FormatError(f"{why}; select pixels by index")
    if reproject_bbox is None:
        raise TypeError("a bbox in another CRS needs reproject_bbox")
    return upright(reproject_bbox(corners(bbox), crs, own))


def _resolution(resolution: float | tuple[float, float] | None) -> tuple[float, float] | None:
    if resolution is None:
        return None
    try:
        pair = np.broadcast_to(np.asarray(resolution, float), 2)
    except (TypeError, ValueError):
        pair = np.zeros(2)
    if not (np.isfinite(pair).all() and (pair > 0).all()):
        raise ValueError(f"a resolution is a positive number or a pair of them, not {resolution!r}")
    return float(pair[0]), float(pair[1])


def _positive(max_size: int | None) -> int | None:
    if max_size is not None and (not isinstance(max_size, Integral) or isinstance(max_size, bool)):
        raise TypeError(f"max_size is a whole number of pixels, not {max_size!r}")
    if max_size is not None and max_size < 1:
        raise ValueError(f"max_size is a number of pixels above 0, not {max_size}")
    return max_size


def _every(start: int, stop: int, step: int) -> slice:
    return slice(min(start + step // 2, stop - 1), stop, step)
