"""spatial: the affine grid of an array, from its own attributes and those it inherits, and the coordinates it gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from periplus.conventions.context import Reading, numbers, shown, texts, whole
from periplus.conventions.meaning import Affine, Coord, Grid, Regular, edges
from periplus.conventions.node import Node
from periplus.model import BBox, Transform

PAIRS = (("y", "x"), ("lat", "lon"), ("latitude", "longitude"), ("northing", "easting"))
"""Usual names of y and x, in lower case."""
TOLERANCE = 1e-5
"""Relative: published examples round pixel sizes to five digits."""
_OLD = {
    "proj:transform": "spatial:transform",
    "proj:bbox": "spatial:bbox",
    "proj:shape": "spatial:shape",
    "proj:spatial_dimensions": "spatial:dimensions",
}


def properties(reading: Reading, node: Node, *, by_group: bool = False) -> dict[str, Any]:
    """`spatial:` attributes of one node, if it declares the convention, with those of older drafts in their place.

    `by_group`: the group around it declares the convention, which covers what the array adds or overrides.
    """
    found: dict[str, Any] = {}
    own = {key: value for key, value in node.attributes.items() if key.startswith("spatial:") and value is not None}
    if own and (by_group or reading.declares(node, "spatial")):
        found = own
        if by_group and "spatial" not in reading.declared_by(node):
            reading.note("spatial.by-group", "info", next(iter(own)), "declared by the group only", path=node.path)
    return upgraded(reading, node, node.attributes, found, "")


def upgraded(
    reading: Reading, node: Node, attributes: Mapping[str, Any], found: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The properties, including those with the prefix of the proj convention of 2025."""
    added = dict(found)
    old = [key for key in _OLD if attributes.get(key) is not None and _OLD[key] not in added]
    if old and (where or "proj" in reading.declared_by(node)):
        added |= {_OLD[key]: attributes[key] for key in old}
        message = f"{', '.join(old)} are of the proj drafts of 2025"
        reading.note("proj.old-keys", "info", where or old[0], message, "write spatial:*", path=node.path)
    return added


def grid_of(reading: Reading, given: Mapping[str, Any], own: bool, inherited: Mapping[str, Any]) -> Grid | None:
    """The grid of the array being read, from merged properties; `own` is whether the array itself declares some.

    None without a finding where an inherited grid simply does not concern the array.
    """
    node = reading.node
    if "spatial:bbox" in inherited and not given.keys() & {"spatial:transform", "spatial:dimensions"}:
        return None  # the footprint of a group is not the grid of its arrays
    dims = _dims(reading, given, own)
    if dims is None:
        return None
    kind = given.get("spatial:transform_type", "affine")
    if kind != "affine":
        message = f"the transform type {shown(kind)} is unknown; there are no coordinates"
        reading.note("spatial.transform-type", "warning", "spatial:transform_type", message)
        return None
    y, x = (node.dims.index(dim) for dim in dims)
    shape = (node.shape[y], node.shape[x])
    if not _shape_fits(reading, given, shape, inherited):
        return None
    registration = _registration(reading, given)
    transform, bbox = None, None
    if "spatial:transform" in given:
        transform, bbox = read_transform(reading, given["spatial:transform"]), read_bbox(reading, given)
    elif "spatial:bbox" in given:
        transform = transform_from_bbox(reading, given["spatial:bbox"], shape, registration)
    if transform is None:
        if own and not given.keys() & {"spatial:transform", "spatial:bbox"}:
            hint = "write spatial:transform"
            reading.note("spatial.transform-missing", "warning", "spatial:transform", "there is no transform", hint)
        return None
    grid = Grid(dims=dims, shape=shape, transform=transform, registration=registration)
    if bbox is not None and "spatial:bbox" not in inherited:
        check_bbox(reading, grid, bbox, node.path)
    named = by_names(grid)
    if named is not grid and not named.upright:
        message = f"{list(dims)} looks swapped: by this order, `{dims[0]}` counts rows and `{dims[1]}` columns"
        hint = "write y before x, or rename the dimensions"
        reading.note("spatial.dimensions-order", "warning", "spatial:dimensions", message, hint)
    return named


def _registration(reading: Reading, given: Mapping[str, Any]) -> Literal["pixel", "node"]:
    stated = given.get("spatial:registration", "pixel")
    if stated in ("pixel", "node"):
        return "node" if stated == "node" else "pixel"
    message = f"the registration {shown(stated)} is neither pixel nor node; pixel is used"
    reading.note("spatial.registration", "warning", "spatial:registration", message)
    return "pixel"


def coords_of(grid: Grid, axes: Mapping[str, Mapping[str, str]], taken: frozenset[str] = frozenset()) -> list[Coord]:
    """Coordinates of a grid: one for each dimension, or `xc` and `yc` over both where it is rotated."""
    grid = by_names(grid)
    (y, x), (height, width) = grid.dims, grid.shape
    a, _, c, _, e, f = grid.transform
    offset = 0.5 if grid.registration == "pixel" else 0.0
    if grid.upright:
        ways = ((y, Regular(f, e, height, offset), "y"), (x, Regular(c, a, width, offset), "x"))
        return [
            Coord(name=dim, dims=(dim,), values=values, convention="spatial", attributes=dict(axes.get(axis, {})))
            for dim, values, axis in ways
            if dim not in taken
        ]
    made = []
    for name, axis in (("yc", "y"), ("xc", "x")):
        words = {key: value for key, value in axes.get(axis, {}).items() if key != "axis"}
        values = Affine(grid.transform, axis, grid.shape, offset)  # type: ignore[arg-type]
        made.append(
            Coord(name=name, dims=(y, x), values=values, role="auxiliary", convention="spatial", attributes=words)
        )
    return made


def check_bbox(reading: Reading, grid: Grid, bbox: BBox | tuple[float, ...], path: str) -> None:
    """A finding where the box that is written is not the one the transform gives."""
    where = "spatial:bbox"
    samples = edges(grid.centre, (max(grid.shape[0] - 1, 0), max(grid.shape[1] - 1, 0)))
    right, wrong = (grid.bbox, samples) if grid.registration == "pixel" else (samples, grid.bbox)
    cell = min(abs(v) for v in (grid.transform[0] or grid.transform[1], grid.transform[4] or grid.transform[3]))
    span = max(right[2] - right[0], right[3] - right[1])
    if _close(bbox, right, 0.01 * cell):
        return
    if _close(bbox, wrong, 0.01 * cell) and grid.registration == "node":
        message = "spatial:bbox is that of cell edges, where registration is node"
        reading.note("spatial.bbox-edges", "info", where, message, f"write {list(right)}", path=path)
    elif _close(bbox, wrong, 0.01 * cell):
        message = "spatial:bbox is that of pixel centres, half a pixel inside the edges"
        reading.note("spatial.bbox-half-pixel", "warning", where, message, f"write {list(right)}", path=path)
    elif not _close(bbox, right, TOLERANCE * span):
        message = f"spatial:bbox {list(bbox)} is not what the transform gives; the transform is taken"
        reading.note("spatial.bbox-differs", "warning", where, message, f"the edges are {list(right)}", path=path)


def close(one: Transform, other: Transform, shape: tuple[int, int]) -> bool:
    """Whether two transforms place a grid of this shape alike, within a thousandth of a cell or the usual rounding."""
    cell = max(abs(v) for v in (one[0], one[1], one[3], one[4])) or 1.0
    ends = [edges(t, shape) for t in (one, other)]
    largest = max(abs(a - b) for a, b in zip(*ends, strict=True))
    return bool(largest <= max(1e-3 * cell, TOLERANCE * cell * max(shape)))


def _close(bbox: tuple[float, ...], other: BBox, slack: float) -> bool:
    # A box across the antimeridian may be written with xmin greater than xmax, on either sheet of the globe.
    turns = (0.0,) if bbox[0] <= bbox[2] else (0.0, 360.0)
    return any(
        abs(bbox[0] - turn - other[0]) <= slack and abs(bbox[2] - turn + full - other[2]) <= slack
        for turn in turns
        for full in ((0.0,) if len(turns) == 1 else (360.0,))
    ) and all(abs(bbox[i] - other[i]) <= slack for i in (1, 3))


def _dims(reading: Reading, given: Mapping[str, Any], own: bool) -> tuple[str, str] | None:
    names = [name for name in reading.node.dims if name is not None]
    raw = given.get("spatial:dimensions")
    where = "spatial:dimensions"
    if raw is None:
        guess = usual_dims(names)
        if guess is None:
            if own:
                reading.note(
                    "spatial.dimensions-missing",
                    "error",
                    where,
                    "spatial:dimensions is missing, and names do not show y and x",
                )
            return None
        reading.note("spatial.dimensions-missing", "warning", where, f"it is missing; {list(guess)} are used")
        return guess
    dims = texts(raw)
    if dims is None or len(dims) < 2:
        reading.note("spatial.dimensions-malformed", "error", where, "spatial:dimensions is two names")
        return None
    if len(dims) > 2:
        reading.note("spatial.dimensions-many", "info", where, f"of {list(dims)[:8]} the last two are taken")
    y, x = dims[-2:]
    if y not in names or x not in names or y == x:
        if own:
            message = f"{[y, x]} are not two of the array's dimensions {names}"
            reading.note("spatial.dimensions-unknown", "error", where, message)
        return None
    return y, x


def _shape_fits(
    reading: Reading, given: Mapping[str, Any], shape: tuple[int, int], inherited: Mapping[str, Any]
) -> bool:
    if "spatial:shape" not in given:
        return True
    stated = whole(given["spatial:shape"])
    if stated is None or len(stated) < 2:
        reading.note("spatial.shape", "error", "spatial:shape", "spatial:shape is two whole numbers")
        return True
    if stated[-2:] == shape:
        return True
    if "spatial:shape" in inherited and "spatial:transform" in inherited:
        message = f"the inherited grid of {list(stated[-2:])} does not fit this array of {list(shape)}; it is ignored"
        reading.note("spatial.shape-inherited", "warning", "spatial:shape", message)
        return False
    message = f"spatial:shape {list(stated[-2:])} is not the array's {list(shape)}"
    reading.note("spatial.shape-mismatch", "error", "spatial:shape", message)
    return True


def read_transform(reading: Reading, value: Any, where: str = "spatial:transform") -> Transform | None:
    """Six finite numbers with an inverse; a 3x3 matrix of older drafts is reduced to them."""
    found = numbers(value, 6, 9)
    if found is None or (len(found) == 9 and found[6:] != (0, 0, 1)):
        reading.note("spatial.transform", "error", where, "a transform is six finite numbers")
        return None
    if len(found) == 9:
        reading.note("spatial.transform-matrix", "info", where, "a 3x3 matrix is reduced to six numbers")
    a, b, c, d, e, f = found[:6]
    area = a * e - b * d
    if area == 0 or not math.isfinite(area):
        reading.note("spatial.transform-flat", "error", where, "the transform has no inverse")
        return None
    if c == 0 and e == 0 and a != 0:
        message = "rows do not move y: these look like six numbers in GDAL's order"
        reading.note("spatial.transform-order", "warning", where, message, "the order is a b c d e f")
    return a, b, c, d, e, f


def read_bbox(reading: Reading, given: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The four numbers of `spatial:bbox`; None, and a finding, where it is something else."""
    if "spatial:bbox" not in given:
        return None
    found = numbers(given["spatial:bbox"], 4)
    if found is None:
        reading.note("spatial.bbox", "error", "spatial:bbox", "spatial:bbox is four finite numbers")
    return found


def transform_from_bbox(
    reading: Reading, value: Any, shape: tuple[int, int], registration: Literal["pixel", "node"]
) -> Transform | None:
    """The transform of a north-up grid by its box: of outer edges for pixels, of the outermost samples for nodes."""
    bbox = read_bbox(reading, {"spatial:bbox": value})
    if bbox is None:
        return None
    xmin, ymin, xmax, ymax = bbox
    if xmax < xmin and -180 <= xmax <= 180 and -180 <= xmin <= 180:
        xmax += 360
    cells = shape if registration == "pixel" else (shape[0] - 1, shape[1] - 1)
    if xmax <= xmin or ymax <= ymin or min(cells) < 1:
        reading.note("spatial.bbox", "error", "spatial:bbox", f"{list(bbox)} gives no transform for {list(shape)}")
        return None
    message = "the transform is computed from spatial:bbox and the shape, north up"
    reading.note("spatial.transform-from-bbox", "warning", "spatial:transform", message, "write spatial:transform")
    return ((xmax - xmin) / cells[1], 0.0, xmin, 0.0, -(ymax - ymin) / cells[0], ymax)


# --- dimensions -----------------------------------------------------------------------------------------------------


def usual_dims(names: Iterable[object]) -> tuple[str, str] | None:
    """(y, x) among names of dimensions, as they are spelled there."""
    spelled = {str(name).lower(): str(name) for name in names if name is not None}
    return next(((spelled[y], spelled[x]) for y, x in PAIRS if y in spelled and x in spelled), None)


def by_names(grid: Grid) -> Grid:
    """The same grid with rows along y and columns along x, where its dimensions have the usual names the other way.

    The order in `spatial:dimensions` decides, and names never do: a grid whose order contradicts them is not upright
    by its names, so that no coordinate called x has values of y.
    """
    y, x = grid.dims
    return grid.transposed if (x.lower(), y.lower()) in PAIRS else grid
