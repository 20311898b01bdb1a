"""Arrays to be placed, from what people have: labels of x and y, a Dataset, or what a store says already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from periplus.conventions.meaning import Meaning
from periplus.conventions.node import Node
from periplus.conventions.proj import crs_from_cf
from periplus.conventions.usual import usual_dims
from periplus.conventions.write import Layer
from periplus.errors import FormatError
from periplus.model import Georeference, Transform

_MAPPINGS = ("spatial_ref", "crs")


def transform_of(x: Any, y: Any) -> Transform:
    """The transform of pixel corners of a grid whose centres have these labels; FormatError where they are uneven."""
    (a, c), (e, f) = _axis(x, "x"), _axis(y, "y")
    return (a, 0.0, c - a / 2, 0.0, e, f - e / 2)


def layers_of(
    dataset: Any,
    *,
    crs: str | None = None,
    group: str = "",
    level: int = 0,
    spatial_dims: tuple[str, str] | None = None,
    registration: str = "area",
) -> list[Layer]:
    """A layer for each variable of a Dataset that lies over x and y, placed by the labels of these.

    Anything with `data_vars`, `coords` and `dims` will do. The CRS, if not given, is that of the grid mapping; so is
    the transform of a grid that has no labels along its dimensions.
    """
    y, x = spatial_dims or _dims(dataset)
    mapping = _mapping(dataset)
    if x in dataset.coords and y in dataset.coords:
        transform: Transform | None = transform_of(dataset.coords[x], dataset.coords[y])
    else:
        transform = _geotransform(mapping.get("GeoTransform"))
    place = Georeference(crs=crs or crs_from_cf(mapping), transform=transform, registration=registration)
    prefix = f"{group.strip('/')}/" if group.strip("/") else ""
    return [
        Layer(
            name=f"{prefix}{name}",
            dims=tuple(str(dim) for dim in variable.dims),
            shape=tuple(int(size) for size in variable.shape),
            level=level,
            georeference=place,
            spatial_dims=(y, x),
        )
        for name, variable in dataset.data_vars.items()
        if x in variable.dims and y in variable.dims
    ]


def layer_of(node: Node, meaning: Meaning) -> Layer:
    """An array as its store places it now, to be written again in the current conventions."""
    grid, crs = meaning.grid, meaning.crs
    place = None
    if grid is not None or crs is not None:
        place = Georeference(
            # A code that agrees with the text says more: PROJ knows the members of its datum, a text drops them.
            crs=None if crs is None else crs.code or crs.text,
            transform=None if grid is None else grid.corner,
            registration="point" if grid is not None and grid.registration == "node" else "area",
        )
    return Layer(
        name=node.path.strip("/"),
        dims=tuple(name or f"dim_{n}" for n, name in enumerate(node.dims)) or _nameless(node.shape),
        shape=node.shape,
        level=0 if meaning.level is None else meaning.level.order,
        georeference=place,
        spatial_dims=None if grid is None else grid.dims,
    )


def _nameless(shape: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"dim_{n}" for n in range(len(shape)))


def _axis(labels: Any, name: str) -> tuple[float, float]:
    """Step and first label of an even axis."""
    values = np.asarray(labels, np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise FormatError(f"the labels of {name} are not two or more finite numbers along one dimension")
    step = float(values[-1] - values[0]) / (len(values) - 1)
    even = values[0] + step * np.arange(len(values))
    # Labels stored as float32 are off by their rounding; a thousandth of a pixel is still the same grid.
    if step == 0 or float(np.abs(values - even).max()) > 1e-3 * abs(step):
        raise FormatError(f"the labels of {name} are uneven: no transform gives them")
    return step, float(values[0])


def _dims(dataset: Any) -> tuple[str, str]:
    found = usual_dims(dataset.dims)
    if found is None:
        raise FormatError(f"which of {sorted(map(str, dataset.dims))} are y and x? Say so by spatial_dims")
    return found


def _mapping(dataset: Any) -> dict[str, Any]:
    """Attributes of the grid mapping of a Dataset, by the names that are usual."""
    for name in _MAPPINGS:
        if name in dataset.coords or name in dataset.data_vars:
            return dict(dataset[name].attrs)
    return {}


def _geotransform(text: Any) -> Transform | None:
    """Six numbers in GDAL's order, in ours."""
    try:
        c, a, b, f, d, e = (float(word) for word in str(text).split())
    except ValueError:
        return None
    return (a, b, c, d, e, f)
