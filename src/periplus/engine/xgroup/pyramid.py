"""Levels of a pyramid: choose one, list its arrays, and crop it to a box."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from periplus.conventions.cf.encode import geotransform
from periplus.conventions.meaning import CrsText, Grid, Level, Pyramid, edges
from periplus.conventions.node import parent
from periplus.conventions.proj.crs import in_degrees, reproject_bbox
from periplus.engine.xgroup.source import ZarrSource
from periplus.errors import FormatError, MissingError
from periplus.model import BBox, Transform
from periplus.model.affine import pixel_size, reach, shifted
from periplus.read.window import Window, columns_in, window_across

SLACK = 1e-5
"""Relative: published pixel sizes are rounded to five digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRequest:
    """Which level and which part of a pyramid a user asks for."""

    level: int | str | None = None
    resolution: float | None = None
    """Largest acceptable pixel size, in units of the CRS."""
    max_pixels: int | None = None
    bbox: BBox | None = None
    """(xmin, ymin, xmax, ymax), in the CRS of the arrays."""
    bbox_crs: str | None = None

    def __post_init__(self) -> None:
        if self.level is not None and (self.resolution is not None or self.max_pixels is not None):
            raise ValueError("level= names a level, so resolution= and max_pixels= have no effect; pass one of them")
        if self.bbox_crs is not None and self.bbox is None:
            raise ValueError("bbox_crs= has no effect without bbox=")
        if self.resolution is not None and not (_is_number(self.resolution) and self.resolution > 0):
            raise ValueError(f"resolution is a pixel size above 0, not {self.resolution!r}")
        if self.max_pixels is not None and not (_is_number(self.max_pixels) and self.max_pixels > 0):
            raise ValueError(f"max_pixels is a number of pixels above 0, not {self.max_pixels!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def choose(pyramid: Pyramid, request: LevelRequest) -> Level:
    """The requested level; the finest by default."""
    there = [level for level in pyramid.levels if level.kind != "missing" and level.arrays]
    if not there:
        raise MissingError(f"the pyramid of {pyramid.path} has no level with arrays")
    if request.level is not None:
        return _named(pyramid, there, request.level)
    at = 0
    if request.resolution is not None:
        at = _by_resolution(pyramid, there, float(request.resolution))
    if request.max_pixels is not None:
        fits = (
            n for n, level in enumerate(there) if n >= at and _pixels(level, request, pyramid.crs) <= request.max_pixels
        )
        at = next(fits, len(there) - 1)
    return there[at]


def _named(pyramid: Pyramid, there: Sequence[Level], asked: int | str) -> Level:
    if isinstance(asked, str):
        found = next((level for level in there if level.asset.strip("/") == asked.strip("/")), None)
    else:
        orders = {level.order: level for level in there}
        found = there[asked] if -len(there) <= asked < 0 else orders.get(int(asked))
    if found is None:
        known = ", ".join(f"{level.order} ({level.asset})" for level in there[:16])
        raise MissingError(f"no level {asked!r} in {pyramid.path}; there are {known}")
    return found


def _by_resolution(pyramid: Pyramid, there: Sequence[Level], wanted: float) -> int:
    sizes = _sizes(there)
    if not any(sizes):
        raise MissingError(f"no level of {pyramid.path} declares its pixel size; use level=")
    fine = [n for n, size in enumerate(sizes) if size is not None and size <= wanted * (1 + SLACK)]
    return fine[-1] if fine else next(n for n, size in enumerate(sizes) if size is not None)


def _sizes(levels: Sequence[Level]) -> list[float | None]:
    """Pixel sizes, the larger of both directions; computed from another level by factors where a level has none."""
    own = [None if level.grid is None else max(pixel_size(level.grid.transform)) for level in levels]
    known = next(
        ((size, level.factors) for size, level in zip(own, levels, strict=True) if size and level.factors), None
    )
    if known is None:
        return own
    size, factors = known
    return [
        mine if mine is not None or level.factors is None else size * max(level.factors) / max(factors)
        for mine, level in zip(own, levels, strict=True)
    ]


def _pixels(level: Level, request: LevelRequest, crs: CrsText | None) -> int:
    """Pixels of a level, or of the part of it that the box covers."""
    if request.bbox is not None and level.grid is not None:
        rows, columns = window(level.grid, in_crs(request, crs), crs)
        return len(range(rows.start, rows.stop)) * len(range(columns.start, columns.stop))
    return 1 << 62 if level.shape is None else level.shape[0] * level.shape[1]


def in_crs(request: LevelRequest, crs: CrsText | None) -> BBox:
    """The requested box in the CRS of the arrays."""
    if request.bbox is None:
        raise FormatError("no bbox is given")
    try:
        box = tuple(float(v) for v in request.bbox)
    except (TypeError, ValueError):
        box = ()
    if len(box) != 4 or not all(map(math.isfinite, box)) or box[0] > box[2] or box[1] > box[3]:
        raise ValueError(f"a box is (xmin, ymin, xmax, ymax), x before y, not {request.bbox!r}")
    if request.bbox_crs is None:
        return box[0], box[1], box[2], box[3]
    if crs is None:
        raise FormatError("bbox_crs is given, but the arrays have no CRS")
    return reproject_bbox((box[0], box[1], box[2], box[3]), request.bbox_crs, crs.text)


def window(grid: Grid, bbox: BBox, crs: CrsText | None) -> tuple[slice, slice]:
    """Rows and columns of the pixels that a box touches; empty slices where it touches none.

    Across the antimeridian, columns go on beyond the last.
    """
    cut = partial(window_across, cut=_cut) if crs is not None and in_degrees(crs.text) else _cut
    top, bottom, left, right = cut(bbox, grid.corner, *grid.shape) or (0, 0, 0, 0)
    return slice(top, bottom), slice(left, right)


def _cut(bbox: BBox, transform: Transform, height: int, width: int) -> Window | None:
    down, across = reach(transform, bbox)
    rows, columns = _span(*down, height), _span(*across, width)
    if rows.start == rows.stop or columns.start == columns.stop:
        return None
    return rows.start, rows.stop, columns.start, columns.stop


def _span(low: float, high: float, size: int) -> slice:
    # A box that ends on the edge of a pixel, within rounding, does not include that pixel.
    start = min(max(math.floor(low + SLACK), 0), size)
    stop = min(max(math.ceil(high - SLACK), 0), size)
    if start == stop and 0 <= low < size and high - low < 1:
        stop = start + 1  # a point, or a box inside one pixel
    return slice(start, max(start, stop))


def crop(
    dataset: xr.Dataset, grids: Mapping[tuple[str, str], tuple[Grid, Mapping[str, CrsText]]], request: LevelRequest
) -> xr.Dataset:
    """The part of a Dataset inside the box, on each of its grids; attributes that describe the grid are updated."""
    if request.bbox is None:
        return dataset
    if not grids:
        raise MissingError("bbox needs an affine grid, and no array here has one")
    if request.bbox_crs is None and len({text for _, known in grids.values() for text in known}) > 1:
        raise FormatError("the arrays have different CRSs; give that of the box as bbox_crs")
    parts: dict[str, slice] = {}
    for (y, x), (grid, known) in grids.items():
        if len(known) > 1:
            raise FormatError(f"the arrays over {y} and {x} have different CRSs; exclude some with drop_variables")
        crs = next(iter(known.values()), None)
        parts[y], parts[x] = window(grid, in_crs(request, crs), crs)
    if any(part.start == part.stop for part in parts.values()):
        reach = ", ".join(str(grid.bbox) for grid, _ in grids.values())
        raise MissingError(f"no array intersects {request.bbox}; they cover {reach}")
    part = dataset.isel({dim: part for dim, part in parts.items() if part.stop <= dataset.sizes.get(dim, 0)})
    for (y, x), (grid, _) in grids.items():
        if parts[x].stop > grid.shape[1]:
            part = _joined(part, x, grid, parts[x])
        moved = _moved(replace(grid, dims=(y, x)), parts[y], parts[x])
        if len(grids) == 1:
            part.attrs = _replaced(part.attrs, moved)
        for variable in part.data_vars.values():
            if y in variable.dims and x in variable.dims:
                mapping = variable.encoding.get("grid_mapping", variable.attrs.get("grid_mapping"))
                variable.attrs = _replaced(variable.attrs, moved)
                if mapping in part.coords:
                    part[mapping].attrs = _replaced(part[mapping].attrs, moved)
    return part


def _joined(dataset: xr.Dataset, x: str, grid: Grid, columns: slice) -> xr.Dataset:
    """The columns of a window across the antimeridian; labels go on eastwards or westwards as those before them."""
    part = dataset.isel({x: columns_in(columns, grid.corner, grid.shape[1])})
    if x not in dataset.coords:
        return part
    labels = grid.centre[2] + grid.centre[0] * np.arange(columns.start, columns.stop)
    return part.assign_coords({x: (x, labels, dataset[x].attrs)})


def _moved(grid: Grid, rows: slice, columns: slice) -> Grid:
    transform = shifted(grid.transform, rows.start, columns.start)
    return replace(grid, transform=transform, shape=(rows.stop - rows.start, columns.stop - columns.start))


def _replaced(attributes: Mapping[Any, Any], grid: Grid) -> dict[Any, Any]:
    """Attributes that described the whole grid, for the part."""
    height, width = grid.shape
    nodes = edges(grid.centre, (height - 1, width - 1))
    updated = {
        "GeoTransform": geotransform(grid.corner),
        "spatial:dimensions": list(grid.dims),
        "spatial:transform": list(grid.transform),
        "spatial:shape": [height, width],
        "spatial:bbox": list(grid.bbox if grid.registration == "pixel" else nodes),
    }
    return {key: updated.get(key, value) for key, value in attributes.items()}


# --- which arrays ---------------------------------------------------------------------------------------------------


def arrays_of(source: ZarrSource, pyramid: Pyramid, level: Level) -> dict[str, str]:
    """The arrays of a level by name: those it lists, and those of its group that fit and belong to no other level."""
    others = {path for one in pyramid.levels if one is not level for path in one.arrays.values()}
    mine = set(level.arrays.values())
    found = dict(level.arrays) if level.kind == "array" else {}
    sizes: dict[str, int] = {}
    for path in mine:
        node = source.hierarchy.lookup(path)
        if node is not None:
            sizes |= node.sizes
    for path in source.hierarchy.arrays(group_of(level)):
        name = path.rpartition("/")[2]
        if path in others or path in mine & set(found.values()) or name in found:
            continue
        node = source.hierarchy.lookup(path)
        fits = node is not None and all(sizes.get(dim, size) == size for dim, size in node.sizes.items())
        if path in mine or fits or level.kind == "group":
            found[name] = path
    return found


def group_of(level: Level) -> str:
    """The path of the group that contains the arrays of a level."""
    return level.path if level.kind == "group" else parent(level.path) or "/"
