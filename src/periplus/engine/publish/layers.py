"""Settings for writing conventions, and georeferences of pyramid levels that have none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from periplus.conventions import publish
from periplus.conventions.multiscales import scales
from periplus.conventions.write.attributes import Layer, WrittenConventions, layer_grid, size
from periplus.conventions.write.layers import georeference_of, registration_of, with_grid
from periplus.errors import FormatError
from periplus.model import Transform
from periplus.model.affine import scaled


@dataclass(frozen=True, slots=True, kw_only=True)
class ConventionSettings:
    """What a user declares for the arrays; None where the store or the labels decide."""

    crs: str | None
    transform: Transform | None
    """Of the finest level: of samples where the registration is `node`, else of pixel corners."""
    registration: str | None
    dims: tuple[str, str] | None
    """Names of y and x."""
    resampling: str | None
    cf: bool
    """Whether CF's grid mapping is written as well."""

    def __post_init__(self) -> None:
        if self.registration is not None:
            registration_of(self.registration)
        if self.dims is not None and (isinstance(self.dims, str) or len(set(self.dims)) != 2):
            raise ValueError(f"spatial_dims must be the names of y and x, not {self.dims!r}")
        if self.resampling is not None and not isinstance(self.resampling, str):
            raise TypeError(f"resampling must be the name of a method, not {self.resampling!r}")


def transform_of(transform: Sequence[float] | None) -> Transform | None:
    """The transform that a user passes, (a, b, c, d, e, f) or an Affine; ValueError for anything else."""
    if transform is None:
        return None
    message = f"transform must be six finite numbers (a, b, c, d, e, f) that have an inverse, not {transform!r}"
    try:
        numbers = tuple(float(v) for v in transform)
        if len(numbers) == 9 and numbers[6:] == (0, 0, 1):
            numbers = numbers[:6]  # an Affine is a matrix of three rows
        a, b, c, d, e, f = numbers
    except (TypeError, ValueError):
        raise ValueError(message) from None
    area = a * e - b * d
    if not area or not all(map(math.isfinite, (area, c, f))):
        raise ValueError(message)
    return a, b, c, d, e, f


def written(
    layers: Iterable[Layer], pyramids: Mapping[str, Sequence[str]], wanted: ConventionSettings
) -> WrittenConventions:
    """Attributes of all nodes for georeferenced layers."""
    return publish.write_conventions(layers, pyramids=pyramids, resampling=wanted.resampling, cf=wanted.cf)


def filled(layers: Iterable[Layer], pyramids: Mapping[str, Sequence[str]]) -> list[Layer]:
    """Levels with a transform, computed from the size of the next finer level where they have none."""
    made = {layer.name: layer for layer in layers}
    for group, names in pyramids.items():
        prefix = f"{group}/" if group else ""
        finer: dict[str, Layer] = {}  # by variable
        for folder in (prefix + one for one in names):
            for name, layer in list(made.items()):
                above, _, variable = name.rpartition("/")
                if above != folder:
                    continue
                if variable in finer and georeference_of(layer).transform is None:
                    made[name] = _coarser(finer[variable], layer)
                if layer_grid(made[name]) is not None:
                    finer[variable] = made[name]
    return list(made.values())


def _coarser(finer: Layer, layer: Layer) -> Layer:
    """A level with the scaled transform of the finer one: pixels keep their first corner, nodes their first sample."""
    grid, small = layer_grid(finer), size(layer)
    if grid is None or small is None:
        return layer
    nodes = grid.registration == "node"
    factors = scales.size_factors(grid.shape, small, nodes=nodes)
    if factors is None or scales.is_open(factors, nodes=nodes):
        message = f"the size {list(small)} of {layer.name} does not give its pixel size from {list(grid.shape)}"
        hint = "declare the spatial:transform of every level and pass no transform, or label its dimensions"
        raise FormatError(f"{message}; {hint}")
    place = georeference_of(finer)
    coarse = replace(grid, transform=scaled(grid.transform, *factors))
    return with_grid(replace(layer, georeference=place), coarse, place.registration, crs=georeference_of(layer).crs)
