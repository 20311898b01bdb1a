"""Grid and CRS of an array: its own, or inherited from its group or its pyramid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from periplus.conventions.context import Reading
from periplus.conventions.meaning import CrsText, Grid, Level, Pyramid
from periplus.conventions.multiscales.pyramid import level_of
from periplus.conventions.node import Node, ancestors
from periplus.conventions.proj.attributes import crs_of
from periplus.conventions.proj.crs import axis_attributes
from periplus.conventions.spatial.grid import close, grid_of, properties
from periplus.errors import FormatError

_FROM_PYRAMID = ("spatial:dimensions", "spatial:registration", "spatial:transform_type")
"""What levels take from the group of their pyramid; its transform and box are those of one level only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPlace:
    """Grid, CRS and level of an array by spatial, proj and multiscales together."""

    grid: Grid | None
    crs: CrsText | None
    pyramid: Pyramid | None
    level: Level | None
    concerned: bool
    """Whether the array or a group it inherits from declares spatial, even if this array has no such dimensions."""


def place_of(reading: Reading) -> ArrayPlace:
    """The grid and CRS of the array being read."""
    node = reading.node
    found = level_of(reading)
    pyramid, level = (None, None) if found is None else found
    chain = list(_inherited_from(reading, pyramid))
    inherited, by_group = _inherited(reading, chain, pyramid)
    own = properties(reading, node, by_group=by_group)
    speaks = bool(own) or "spatial" in reading.declared_by(node)
    far = None
    if not (own or inherited) and not reading.strict:
        far = next((group for group in _far(reading, chain) if properties(reading, group)), None)
        inherited = {} if far is None else properties(reading, far)
    merged = {**inherited, **own}
    kept = {key: value for key, value in inherited.items() if key not in own}
    if level is not None:
        merged = _by_level(reading, level, merged, own)
        kept = {key: value for key, value in kept.items() if key != "spatial:transform" or not level.absolute}
    grid = grid_of(reading, merged, speaks, kept) if merged and (speaks or len(node.shape) >= 2) else None
    if far is not None and grid is not None:
        message = f"the grid is that of {far.path}, which is not its group"
        reading.note(
            "spatial.grandchild", "warning", "spatial:transform", message, "write it on the group or the array"
        )
    crs = _crs(reading, chain, pyramid) if len(node.shape) >= 2 or "proj" in reading.declared_by(node) else None
    return ArrayPlace(grid=grid, crs=crs, pyramid=pyramid, level=level, concerned=speaks or by_group)


def _inherited(reading: Reading, chain: list[Node], pyramid: Pyramid | None) -> tuple[dict[str, Any], bool]:
    """Properties of the groups that contain the array, and whether any of them declares spatial."""
    found: dict[str, Any] = {}
    declared = False
    for group in reversed(chain):
        given = properties(reading, group, by_group=declared)
        declared = declared or "spatial" in reading.declared_by(group)
        if pyramid is not None and group.path == pyramid.path:
            given = {key: value for key, value in given.items() if key in _FROM_PYRAMID}
        found |= given
    return found, declared


def axis_words(crs: CrsText | None) -> dict[str, dict[str, str]]:
    """CF attributes of x and y: those of the CRS, or only `axis`."""
    plain = {"x": {"axis": "X"}, "y": {"axis": "Y"}}
    if crs is None:
        return plain
    try:
        words = axis_attributes(crs.text)
    except FormatError:
        return plain
    return {axis: {**plain[axis], **words[axis]} for axis in plain}


def _inherited_from(reading: Reading, pyramid: Pyramid | None) -> Iterator[Node]:
    """Groups whose attributes are the array's too, the nearest first: its own, and up to that of its pyramid."""
    for path in ancestors(reading.node.path):
        group = reading.lookup(path)
        if group is not None:
            yield group
        if pyramid is None or path == pyramid.path:
            return


def _far(reading: Reading, chain: list[Node]) -> Iterator[Node]:
    near = {group.path for group in chain}
    for path in ancestors(reading.node.path):
        group = reading.lookup(path)
        if group is not None and path not in near and reading.declares(group, "spatial"):
            yield group


def _by_level(reading: Reading, level: Level, merged: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Properties overridden by those of the level, where the array has its size."""
    grid, node = level.grid, reading.node
    if grid is None or not set(grid.dims) <= set(node.dims):
        return merged
    size = tuple(node.shape[node.dims.index(dim)] for dim in grid.dims)
    if size != grid.shape:
        return merged
    if not level.absolute and "spatial:transform" in merged:
        return merged
    stated = own.get("spatial:transform")
    if isinstance(stated, list | tuple) and len(stated) == 6 and level.absolute:
        try:
            agrees = close(grid.transform, tuple(float(v) for v in stated), grid.shape)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            agrees = False
        if not agrees:
            message = "the array's transform is not that of its level in the layout, which is used"
            reading.note("multiscales.transform-conflict", "warning", "spatial:transform", message)
    placed = {**merged, "spatial:transform": list(grid.transform)}
    if "spatial:bbox" not in own:
        placed.pop("spatial:bbox", None)
    placed.setdefault("spatial:registration", grid.registration)
    placed.setdefault("spatial:dimensions", list(grid.dims))
    return placed


def _crs(reading: Reading, chain: list[Node], pyramid: Pyramid | None) -> CrsText | None:
    nodes = (reading.node, *chain)
    for n, node in enumerate(nodes):
        around = any("proj" in reading.declared_by(group) for group in nodes[n + 1 :])
        if (crs := crs_of(reading, node, by_group=around)) is not None:
            return crs
    if pyramid is not None:
        return pyramid.crs
    if not reading.strict:
        near = {group.path for group in chain}
        for path in ancestors(reading.node.path):
            group = None if path in near else reading.lookup(path)
            if group is not None and (crs := crs_of(reading, group)) is not None:
                message = f"the CRS is that of {path}, which is not its group"
                reading.note("proj.grandchild", "warning", "proj:code", message, "write it on its group")
                return crs
    return None
