"""One level of a pyramid, as the layout and its own nodes declare it: arrays, size, transform, registration and CRS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from periplus.conventions.context import Reading, texts
from periplus.conventions.meaning import CrsText, Grid
from periplus.conventions.multiscales.layout import LayoutItem
from periplus.conventions.multiscales.scales import Pair
from periplus.conventions.node import Node
from periplus.conventions.proj.attributes import crs_of
from periplus.conventions.spatial.grid import close, properties, read_transform, transform_from_bbox, usual_dims
from periplus.model import Transform


@dataclass(slots=True, kw_only=True)
class LevelDraft:
    """A level while it is being worked out."""

    item: LayoutItem
    kind: Literal["group", "array", "missing"]
    arrays: dict[str, str]
    dims: tuple[str, str]
    names: tuple[str | None, ...] = ()
    """Dimensions of the array that represents the level."""
    shape: tuple[int, int] | None = None
    transform: Transform | None = None
    registration: Literal["pixel", "node"] = "pixel"
    crs: CrsText | None = None
    sofar: Pair = (1.0, 1.0)
    """How much larger pixels are than those of the first level of its chain."""
    known: bool = True


def draft_of(reading: Reading, group: Node, item: LayoutItem, given: Mapping[str, Any]) -> LevelDraft:
    """A level as its layout item and its nodes declare it; `given` are the `spatial:` properties of the pyramid."""
    node = reading.lookup(item.path)
    if node is None:
        reading.note("multiscales.asset-missing", "error", f"{item.where}.asset", f"asset {item.asset!r} missing")
        return LevelDraft(
            item=item, kind="missing", arrays={}, dims=("y", "x"), shape=item.shape, transform=item.transform
        )
    declared = "spatial" in reading.declared_by(group)
    level = properties(reading, node, by_group=declared) if node.path != group.path else {}
    arrays = _arrays(reading, node)
    merged = {**given, **level, **item.properties}
    dims = _dims(merged, list(arrays))
    having = [array for array in arrays if not array.dims or {*dims} <= {*array.dims}]
    chosen = _representative(reading, item, having, dims)
    declared = declared or "spatial" in reading.declared_by(node)
    own = {} if chosen is None or node.kind == "array" else properties(reading.of(chosen), chosen, by_group=declared)
    draft = LevelDraft(
        item=item,
        kind=node.kind,
        arrays={array.name: array.path for array in having},
        dims=dims,
        names=() if chosen is None else chosen.dims,
        shape=item.shape if chosen is None else _size(chosen, dims),
        transform=item.transform,
        registration="node" if {**merged, **own}.get("spatial:registration") == "node" else "pixel",
        crs=next((crs for one in (chosen, node) if one is not None and (crs := _crs(reading, one, group))), None),
    )
    declared_word = given.get("spatial:registration")
    if declared_word in ("pixel", "node") and declared_word != draft.registration:
        message = f"asset {item.asset!r} has the registration {draft.registration}, and its pyramid {declared_word}"
        reading.note("multiscales.registration", "warning", item.where, message)
    if chosen is not None:
        _take_transform(reading, draft, own, chosen)
    _take_transform(reading, draft, level, node)
    for stated, by in ((item.properties, group), (own, chosen or node), (level, node)):
        if draft.transform is None:
            near = reading.of(by)
            draft.transform = transform_by_box(near, stated, draft)
            reading.add(*near.notes)
    return draft


def _representative(reading: Reading, item: LayoutItem, arrays: Sequence[Node], dims: tuple[str, str]) -> Node | None:
    """The array that represents a level: the first of the size in the layout, else the first."""
    if not arrays:
        return None
    right = next((array for array in arrays if _size(array, dims) == item.shape), None)
    if right is None and item.shape is not None:
        found = list(_size(arrays[0], dims))
        message = f"spatial:shape {list(item.shape)} of asset {item.asset!r} is not its arrays' {found}"
        reading.note("multiscales.shape-mismatch", "error", f"{item.where}.spatial:shape", message)
    return right or arrays[0]


def _take_transform(reading: Reading, draft: LevelDraft, stated: Mapping[str, Any], node: Node) -> None:
    """The transform that a node declares for a level, unless the layout or another node has declared one."""
    transform, item = declared_transform(reading, stated, node), draft.item
    if transform is None:
        return
    if draft.transform is None:
        draft.transform = transform
    elif item.transform is not None and draft.shape and not close(item.transform, transform, draft.shape):
        message = f"the transform of {node.path} is not that of the layout, which is taken"
        reading.note("multiscales.transform-conflict", "warning", f"{item.where}.spatial:transform", message)


def _crs(reading: Reading, node: Node, group: Node) -> CrsText | None:
    if node.path == group.path:
        return None
    return crs_of(reading.of(node), node, by_group="proj" in reading.declared_by(group))


def declared_transform(reading: Reading, stated: Mapping[str, Any], node: Node) -> Transform | None:
    """The affine transform among `spatial:` properties of a node."""
    if "spatial:transform" not in stated or stated.get("spatial:transform_type", "affine") != "affine":
        return None
    return read_transform(reading.of(node), stated["spatial:transform"])


def transform_by_box(reading: Reading, stated: Mapping[str, Any], draft: LevelDraft) -> Transform | None:
    """The transform of a level by its box, where a node or an item declares only the box."""
    affine = stated.get("spatial:transform_type", "affine") == "affine"
    if draft.shape is None or "spatial:bbox" not in stated or "spatial:transform" in stated or not affine:
        return None
    return transform_from_bbox(reading, stated["spatial:bbox"], draft.shape, draft.registration)


def _arrays(reading: Reading, node: Node) -> list[Node]:
    """Arrays of a level that may have a grid: itself, or direct children of two dimensions and more."""
    if node.kind == "array":
        return [node] if len(node.shape) >= 2 else []
    prefix = node.path.rstrip("/") + "/"
    children = (reading.lookup(prefix + name) for name in node.members)
    return [child for child in children if child is not None and child.kind == "array" and len(child.shape) >= 2]


def _dims(merged: Mapping[str, Any], arrays: Sequence[Node]) -> tuple[str, str]:
    stated = texts(merged.get("spatial:dimensions"))
    if stated is not None and len(stated) >= 2:
        return stated[-2], stated[-1]
    for array in arrays:
        if (usual := usual_dims(array.dims)) is not None:
            return usual
    first = next((array.dims for array in arrays if len(array.dims) >= 2 and None not in array.dims[-2:]), ("y", "x"))
    return str(first[-2]), str(first[-1])


def _size(array: Node, dims: tuple[str, str]) -> tuple[int, int]:
    if not array.dims:
        return array.shape[-2], array.shape[-1]  # without names the last two are rows and columns
    return array.shape[array.dims.index(dims[0])], array.shape[array.dims.index(dims[1])]


def grid_of(draft: LevelDraft) -> Grid | None:
    """The grid of a level whose transform and shape are known."""
    if draft.transform is None or draft.shape is None or draft.kind == "missing":
        return None
    return Grid(dims=draft.dims, shape=draft.shape, transform=draft.transform, registration=draft.registration)
