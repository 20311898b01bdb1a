"""What is asked of writing conventions, and places for levels of a pyramid that nobody placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from periplus.affine import scaled, shifted
from periplus.conventions import publish, scales
from periplus.conventions.write import Layer, Written, size
from periplus.errors import FormatError
from periplus.model import Georeference, Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a user says of the arrays; None where the store or the labels are to say it."""

    crs: str | None
    transform: Transform | None
    """Pixel corners of the finest level."""
    registration: str | None
    dims: tuple[str, str] | None
    """Names of y and x."""
    resampling: str | None
    cf: bool
    """Whether CF's grid mapping is written as well."""


def written(layers: Iterable[Layer], pyramids: Mapping[str, Sequence[str]], wanted: Wanted) -> Written:
    """What the nodes of placed layers should say."""
    return publish.write_conventions(layers, pyramids=pyramids, resampling=wanted.resampling, cf=wanted.cf)


def place_of(layer: Layer) -> Georeference:
    """Where a layer lies; nowhere in particular where it does not say."""
    return layer.georeference or Georeference()


def filled(layers: Iterable[Layer], pyramids: Mapping[str, Sequence[str]]) -> list[Layer]:
    """Levels that nobody placed, placed by how much smaller they are than the finest of their pyramid."""
    made = {layer.name: layer for layer in layers}
    for group, names in pyramids.items():
        prefix = f"{group}/" if group else ""
        for name, layer in list(made.items()):
            folder, _, variable = name.rpartition("/")
            finest = made.get(f"{prefix}{names[0]}/{variable}")
            if finest is None or finest is layer or folder not in {prefix + one for one in names[1:]}:
                continue
            place, large, small = place_of(finest), size(finest), size(layer)
            if place.transform is None or place_of(layer).transform is not None or large is None or small is None:
                continue
            made[name] = replace(layer, georeference=_coarser(place, place.transform, large, layer.name, small))
    return list(made.values())


def _coarser(
    place: Georeference, transform: Transform, large: tuple[int, int], name: str, small: tuple[int, int]
) -> Georeference:
    """The place of a level by its size: pixels keep their first corner, points their first sample."""
    nodes = place.registration == "point"
    factors = scales.size_factors(large, small, nodes=nodes)
    if factors is None:
        message = f"the size {list(small)} of {name} does not give its pixel size; declare its spatial:transform first"
        raise FormatError(message)
    kept = 0.5 if nodes else 0.0
    moved = shifted(scaled(shifted(transform, kept, kept), *factors), -kept, -kept)
    return replace(place, transform=moved)
