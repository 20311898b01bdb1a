"""Attributes of the conventions for grids, node by node, to be merged into those of the nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from periplus.conventions.identity import KEY, declared, metadata
from periplus.conventions.meaning import Grid, edges
from periplus.conventions.multiscales.scales import sizes
from periplus.conventions.proj.crs import describe_crs
from periplus.errors import FormatError
from periplus.model import Georeference, Shape, Transform

GRID_MAPPING = "spatial_ref"
VERSION = "0.1.0"
"""Of the multiscales convention; in its object, since its declaration may have no further fields."""
_WHOLES = {
    "spatial:": ("spatial:", "proj:transform", "proj:bbox", "proj:shape", "proj:spatial_dimensions"),
    "proj:": ("proj:code", "proj:wkt2", "proj:projjson", "proj:epsg"),
}
"""Keys that are replaced together, by the prefix of those that replace them."""
WHOLE = 1e-6
"""By how much a factor that is whole may miss, as transforms are rounded."""


class GriddedArray(Protocol):
    """What the writer needs to know of an array; periplus.model.Array is one."""

    @property
    def name(self) -> str: ...
    @property
    def dims(self) -> tuple[str, ...]: ...
    @property
    def shape(self) -> Shape: ...
    @property
    def level(self) -> int: ...
    @property
    def georeference(self) -> Georeference | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """An array to be placed, for those who have no periplus.model.Array."""

    name: str
    """Its path without a leading slash: `0/data`."""
    dims: tuple[str, ...]
    shape: Shape
    level: int = 0
    georeference: Georeference | None = None
    spatial_dims: tuple[str, str] | None = None
    """(y, x) where these are not the last two dimensions."""
    nodes: Transform | None = None
    """The transform of samples that are nodes, where it is known: half a cell back and forth would round it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenConventions:
    """What to merge into which node; paths have no leading slash and the root is the empty string."""

    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of groups and arrays that exist anyway."""
    grid_mappings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """CF grid mappings: scalar integer arrays to create at these paths, with their attributes."""


def declare(*conventions: str, existing: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """`zarr_conventions` with these, each once, after the entries there are; those we know are brought up to date."""
    kept = [entry for entry in existing if _identity(entry) not in conventions]
    return {KEY: [*(dict(entry) for entry in kept), *(metadata(name) for name in dict.fromkeys(conventions))]}


def merged(attributes: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with further ones over them. What both declare is declared once.

    Keys of spatial and of proj are replaced as a whole: a transform with the shape of an earlier one would be wrong.
    """
    replaced = tuple(
        key for start, keys in _WHOLES.items() if any(one.startswith(start) for one in more) for key in keys
    )
    attributes = {key: value for key, value in attributes.items() if not str(key).startswith(replaced or ("\0",))}
    entries = attributes.get(KEY)
    if not isinstance(entries, list | tuple) or KEY not in more:
        return {**attributes, **more}
    kept = [entry for entry in entries if isinstance(entry, Mapping)]
    ours = [name for entry in more[KEY] if (name := _identity(entry)) is not None]
    foreign = [dict(entry) for entry in more[KEY] if _identity(entry) is None and entry not in kept]
    return {**attributes, **more, **declare(*ours, existing=[*kept, *foreign])}


def spatial_attributes(
    place: Georeference | Grid, shape: Shape, dims: Sequence[str], *, spatial_dims: tuple[str, str] | None = None
) -> dict[str, Any]:
    """The `spatial:` attributes of an array: dimensions, shape, and transform and edges where they are known.

    `spatial_dims` are its (y, x), by default the last two. Undeclared: see `declare`.
    """
    y, x = spatial_dims or (dims[-2], dims[-1])
    if y not in dims or x not in dims or len(shape) != len(dims):
        raise FormatError(f"an array of dimensions {tuple(dims)} and shape {tuple(shape)} has no grid over {(y, x)}")
    size = (shape[list(dims).index(y)], shape[list(dims).index(x)])
    attributes: dict[str, Any] = {"spatial:dimensions": [y, x], "spatial:shape": [int(n) for n in size]}
    grid = place if isinstance(place, Grid) else as_grid(place, size, (y, x))
    if grid is None:
        return attributes
    if not all(math.isfinite(v) for v in (*grid.transform, *written_bbox(grid))):
        raise FormatError(f"the transform {grid.transform} puts pixels nowhere")
    attributes["spatial:transform"] = [float(v) for v in grid.transform]
    attributes["spatial:bbox"] = [float(v) for v in written_bbox(grid)]
    attributes["spatial:registration"] = grid.registration
    return attributes


def pyramid_footprint(spatial: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the spatial attributes of full resolution that the group of a pyramid has too.

    No transform: arrays directly in the group would inherit it. No `pixel`, which is the default: where a group has it,
    GDAL ignores levels whose scale does not count every dimension.
    """
    registration = spatial.get("spatial:registration")
    kept = {key: spatial[key] for key in ("spatial:dimensions", "spatial:bbox") if key in spatial}
    return kept if registration in (None, "pixel") else {**kept, "spatial:registration": registration}


def as_grid(place: Georeference, shape: tuple[int, int], dims: tuple[str, str] = ("y", "x")) -> Grid | None:
    """The grid of a georeference in terms of the convention: `node` where samples are points."""
    if place.transform is None:
        return None
    corner = Grid(dims=dims, shape=shape, transform=place.transform)
    if place.registration not in ("area", "point"):
        raise ValueError(f"the registration of a georeference must be area or point, not {place.registration!r}")
    if place.registration == "area":
        return corner
    return Grid(dims=dims, shape=shape, transform=corner.centre, registration="node")


def written_bbox(grid: Grid) -> tuple[float, float, float, float]:
    """`spatial:bbox`: outer edges of pixels; for nodes, as the convention asks, the places of the outermost samples."""
    if grid.registration == "pixel":
        return grid.bbox
    return edges(grid.transform, (max(grid.shape[0] - 1, 0), max(grid.shape[1] - 1, 0)))


def proj_attributes(crs: str) -> dict[str, Any]:
    """The `proj:` attributes of a CRS text: wkt2, projjson, and the code where it is exactly that one."""
    described = describe_crs(crs)
    code = {} if described.code is None else {"proj:code": described.code}
    return {**code, "proj:wkt2": described.wkt2, "proj:projjson": deepcopy(described.projjson)}


def multiscales_attributes(
    levels: Sequence[tuple[str, GriddedArray]], *, resampling: str | None = None
) -> dict[str, Any]:
    """`multiscales` of a group from (asset, array at that level), the finest first.

    Each level derives from the one before; scale, two numbers for y and x, is how much larger pixels are by their
    transforms, or else by the ratio of sizes; the absolute transform and shape of each are in its layout item.
    """
    layout: list[dict[str, Any]] = []
    for n, (asset, array) in enumerate(levels):
        item: dict[str, Any] = {"asset": asset}
        axes = scaled_dims(array)
        scale = dict.fromkeys(axes, 1.0)
        if n:
            source, finer = levels[n - 1]
            if len(finer.shape) != len(array.shape):
                raise FormatError(f"{asset} has {len(array.shape)} dimensions and {source} {len(finer.shape)}")
            sides = zip(array.dims, finer.shape, array.shape, strict=True)
            scale |= {dim: f / c for dim, f, c in sides if dim in scale and c}
            if len(axes) == 2 and (grown := _growth(finer, array)) is not None:
                scale |= dict(zip(spatial_dims(array), grown, strict=True))
            item["derived_from"] = source
        item["transform"] = {"scale": [scale[dim] for dim in axes], "translation": [0.0] * len(axes)}
        if n and resampling is not None:
            item["resampling_method"] = resampling
        if size(array) is not None:
            place = _spatial(array)
            item |= {key: place[key] for key in ("spatial:shape", "spatial:transform") if key in place}
        layout.append(item)
    if not layout:
        raise FormatError("a pyramid has at least one level")
    method = {} if resampling is None else {"resampling_method": resampling}
    return {"multiscales": {"version": VERSION, "layout": layout, **method}}


def scaled_dims(array: GriddedArray) -> tuple[str, ...]:
    """The dimensions that a scale counts: y and x; of an array of two dimensions these in its own order."""
    return array.dims if len(array.dims) <= 2 else spatial_dims(array)


def _growth(finer: GriddedArray, array: GriddedArray) -> tuple[float, float] | None:
    """How much larger the pixels of an array are, down and right, by the transforms of both; None where one has none.

    Sizes alone are not enough: 101 pixels halved are 51, which are not larger by 101 / 51.
    """
    ours, theirs = (one.georeference.transform if one.georeference else None for one in (array, finer))
    if ours is None or theirs is None:
        return None
    ratios = [new / old if old else math.nan for new, old in zip(sizes(ours), sizes(theirs), strict=True)]
    y, x = (round(ratio) if math.isfinite(ratio) and abs(ratio - round(ratio)) < WHOLE else ratio for ratio in ratios)
    return (float(y), float(x)) if all(math.isfinite(v) and v > 0 for v in (y, x)) else None


def array_attributes(array: GriddedArray, *, cf: str | None = GRID_MAPPING) -> dict[str, Any]:
    """Declared spatial and proj attributes of one array, and the name of its grid mapping; {} where it has no place."""
    place = array.georeference
    if place is None or len(array.shape) < 2:
        return {}
    attributes: dict[str, Any] = {}
    conventions: list[str] = []
    if place.transform is not None and size(array) is not None:
        attributes |= _spatial(array)
        conventions.append("spatial")
    if place.crs is not None:
        attributes |= proj_attributes(place.crs)
        conventions.append("proj")
    if not conventions:
        return {}
    return {**declare(*conventions), **attributes, **({} if cf is None else {"grid_mapping": cf})}


def size(array: GriddedArray) -> tuple[int, int] | None:
    """(height, width) of an array; None for one that has no pixel."""
    if len(array.shape) < 2:
        return None
    y, x = (list(array.dims).index(dim) for dim in spatial_dims(array))
    return None if 0 in (array.shape[y], array.shape[x]) else (array.shape[y], array.shape[x])


def spatial_dims(array: GriddedArray) -> tuple[str, str]:
    """(y, x) of an array of at least two dimensions: those it declares, else the last two."""
    stated: tuple[str, str] | None = getattr(array, "spatial_dims", None)
    if stated is not None and not set(stated) <= set(array.dims):
        raise FormatError(f"an array of dimensions {tuple(array.dims)} has no grid over {stated}")
    return stated or (array.dims[-2], array.dims[-1])


def layer_grid(array: GriddedArray) -> Grid | None:
    """The grid of an array that is placed and has pixels."""
    area = size(array)
    nodes: Transform | None = getattr(array, "nodes", None)
    if area is None or array.georeference is None:
        return None
    if nodes is not None:
        return Grid(dims=spatial_dims(array), shape=area, transform=nodes, registration="node")
    return as_grid(array.georeference, area, spatial_dims(array))


def _spatial(array: GriddedArray) -> dict[str, Any]:
    place = layer_grid(array) or array.georeference or Georeference()
    return spatial_attributes(place, array.shape, array.dims, spatial_dims=spatial_dims(array))


def _identity(entry: Mapping[str, Any]) -> str | None:
    found, _ = declared({KEY: [entry]})
    return found[0].name if found else None
