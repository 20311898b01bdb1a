"""Attributes for all nodes of a hierarchy: pyramids, grids and CRS of arrays, levels and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from periplus.conventions.proj.crs import grid_mapping
from periplus.conventions.write.attributes import (
    GRID_MAPPING,
    GriddedArray,
    Layer,
    WrittenConventions,
    array_attributes,
    declare,
    layer_grid,
    multiscales_attributes,
    proj_attributes,
    pyramid_footprint,
    size,
    spatial_dims,
    written_bbox,
)
from periplus.errors import FormatError
from periplus.model import BBox, Georeference


def write_conventions(
    arrays: Iterable[GriddedArray],
    *,
    pyramids: Mapping[str, Sequence[str]] | None = None,
    resampling: str | None = None,
    cf: bool = True,
) -> WrittenConventions:
    """Attributes for every array and group, from the names, shapes and georeferences of arrays.

    `pyramids` names the level groups of each group that has some, the finest first: {"": ["r10m", "r20m"]}. Without it
    `0/data`, `1/data` … (the last folder is the level's number) become a pyramid of the group around them. Any other
    array just gets its own place. With `cf`, each group that has placed arrays also gets a grid mapping.
    """
    placed = list(arrays)
    attributes: dict[str, dict[str, Any]] = {}
    mappings: dict[str, dict[str, Any]] = {}
    taken = {array.name for array in placed}
    for array in placed:
        mapping = _mapping_of(array, mappings, taken) if cf else None
        if mapping is not None or not cf:
            found = array_attributes(array, cf=None if mapping is None else mapping.rpartition("/")[2])
            if found:
                attributes[array.name] = found
    named = _numbered(placed) if pyramids is None else _named(placed, pyramids)
    for group, levels in named.items():
        attributes |= _pyramid(group, levels, resampling)
    if "" not in attributes and (footprint := _footprint(placed)):
        attributes[""] = footprint
    return WrittenConventions(attributes=attributes, grid_mappings=mappings)


def _mapping_of(array: GriddedArray, mappings: dict[str, dict[str, Any]], taken: set[str]) -> str | None:
    """Path of the grid mapping of an array, which is added where its group has no equal one."""
    place = array.georeference
    if place is None or len(array.shape) < 2 or (place.crs is None and place.transform is None):
        return None
    wanted = grid_mapping(place.crs, place.transform)
    folder = array.name.rpartition("/")[0]
    base = f"{folder}/{GRID_MAPPING}" if folder else GRID_MAPPING
    n = 0
    while True:
        path = base if n == 0 else f"{base}_{n}"
        if path not in taken and mappings.setdefault(path, wanted) == wanted:
            return path
        n += 1


def _numbered(arrays: Sequence[GriddedArray]) -> dict[str, dict[str, list[GriddedArray]]]:
    """Groups whose members are groups named by the levels of their arrays: for each, the arrays of every level."""
    found: dict[str, dict[int, list[GriddedArray]]] = {}
    for array in arrays:
        parts = array.name.split("/")
        if len(parts) >= 2 and parts[-2] == str(array.level) and len(array.shape) >= 2:
            found.setdefault("/".join(parts[:-2]), {}).setdefault(array.level, []).append(array)
    return {group: {str(n): levels[n] for n in sorted(levels)} for group, levels in found.items()}


def _named(
    arrays: Sequence[GriddedArray], pyramids: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, list[GriddedArray]]]:
    folders: dict[str, list[GriddedArray]] = {}
    for array in arrays:
        if len(array.shape) >= 2:
            folders.setdefault(array.name.rpartition("/")[0], []).append(array)
    found: dict[str, dict[str, list[GriddedArray]]] = {}
    for group, assets in pyramids.items():
        levels = {asset: folders.get(_below(group, asset), []) for asset in assets}
        if empty := [asset for asset, members in levels.items() if not members]:
            raise FormatError(f"the levels {empty} of {group or 'the root'!r} have no arrays")
        found[group] = levels
    return found


def _below(group: str, asset: str) -> str:
    return f"{group}/{asset}" if group else asset


def _pyramid(group: str, levels: Mapping[str, list[GriddedArray]], resampling: str | None) -> dict[str, dict[str, Any]]:
    """Attributes of a pyramid's group and of its level groups."""
    chosen = _representatives(levels)
    one_place = {asset: _shared(arrays) for asset, arrays in levels.items()}
    items: list[tuple[str, GriddedArray]] = [
        (
            asset,
            Layer(
                name=a.name,
                dims=a.dims,
                shape=a.shape,
                level=n,
                georeference=one_place[asset],
                spatial_dims=spatial_dims(a),
                nodes=None if one_place[asset] is None else getattr(levels[asset][0], "nodes", None),
            ),
        )
        for n, (asset, a) in enumerate(chosen.items())
    ]
    attributes: dict[str, Any] = multiscales_attributes(items, resampling=resampling)
    conventions = ["multiscales"]
    made: dict[str, dict[str, Any]] = {}
    for asset, array in items:
        if stated := array_attributes(array, cf=None):
            made[_below(group, asset)] = stated
    first = items[0][1]
    place = first.georeference
    if place is not None and place.transform is not None and size(first) is not None:
        attributes |= pyramid_footprint(array_attributes(first, cf=None))
        conventions.append("spatial")
    crs = {one.crs for one in one_place.values() if one is not None}
    if len(crs) == 1 and None not in one_place.values() and (text := next(iter(crs))) is not None:
        attributes |= proj_attributes(text)
        conventions.append("proj")
    made[group] = {**declare(*conventions), **attributes}
    return made


def _representatives(levels: Mapping[str, list[GriddedArray]]) -> dict[str, GriddedArray]:
    """One array a level: of the variable that most levels have, in the order of the first; cut to (y, x) if unlike."""
    variables = [array.name.rpartition("/")[2] for arrays in levels.values() for array in arrays]
    best = max(dict.fromkeys(variables), key=variables.count)
    chosen = {
        n: next((a for a in arrays if a.name.rpartition("/")[2] == best), arrays[0]) for n, arrays in levels.items()
    }
    if len({len(array.shape) for array in chosen.values()}) == 1:
        return chosen
    return {n: Layer(name=a.name, dims=spatial_dims(a), shape=size(a) or (0, 0)) for n, a in chosen.items()}


def _shared(arrays: Sequence[GriddedArray]) -> Georeference | None:
    """The georeference that all arrays of a level share; None where they differ and each declares its own."""
    places = {(a.georeference, size(a)) if _hashable(a.georeference) else id(a) for a in arrays}
    return arrays[0].georeference if len(places) == 1 else None


def _hashable(place: Georeference | None) -> bool:
    return place is None or place.rpc is None


def _footprint(arrays: Sequence[GriddedArray]) -> dict[str, Any]:
    """Attributes of the root for all arrays together: their box and CRS, if they share one.

    The box is at the outermost nodes if all arrays have nodes, else at the outer edges of pixels.
    """
    grids = {array.name: grid for array in arrays if (grid := layer_grid(array)) is not None}
    texts = {array.georeference.crs for array in arrays if array.name in grids and array.georeference is not None}
    if not grids or len(texts) != 1 or (text := next(iter(texts))) is None:
        return {}
    nodes = all(grid.registration == "node" for grid in grids.values())
    boxes: list[BBox] = [written_bbox(grid) if nodes else grid.bbox for grid in grids.values()]
    lows, highs = [[b[i] for b in boxes] for i in (0, 1)], [[b[i] for b in boxes] for i in (2, 3)]
    box = [*(min(low) for low in lows), *(max(high) for high in highs)]
    registration = {"spatial:registration": "node"} if nodes else {}
    return {**declare("spatial", "proj"), "spatial:bbox": box, **registration, **proj_attributes(text)}
