"""Conventions into a Zarr hierarchy: its metadata alone are changed, and consolidated again if they were."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import zarr

from periplus.conventions.layers import layer_of, transform_of
from periplus.conventions.meaning import Pyramid
from periplus.conventions.node import DIMENSIONS, ROOT, Node, join, parent
from periplus.conventions.read import Reader
from periplus.conventions.usual import usual_dims
from periplus.conventions.write import Layer, Written, merged
from periplus.engine.publishlayers import Wanted, filled, place_of, written
from periplus.engine.xgroupnodes import dims_of
from periplus.errors import DeniedError, FormatError, MissingError
from periplus.model import Georeference


def open_to_write(target: Any, storage_options: Mapping[str, Any] | None) -> zarr.Group:
    """The Zarr group at a URL or path, or in a store."""
    options = None if storage_options is None else dict(storage_options)
    where = str(target) if isinstance(target, str | os.PathLike) else None
    try:
        return zarr.open_group(target, mode="r+", storage_options=options)
    except FileNotFoundError as error:
        raise MissingError("there is no Zarr group", url=where) from error
    except PermissionError as error:
        raise DeniedError("the Zarr group may not be written to", url=where) from error
    except ValueError as error:
        raise FormatError(f"no Zarr group that can be written to: {error}", url=where) from error


def into_zarr(group: zarr.Group, wanted: Wanted, consolidate: bool | None) -> Written:
    """Declare what belongs on every node of a group; answers what was written."""
    nodes = _nodes(group)
    reader = Reader(lookup=nodes.get, strict=False)
    pyramids = _pyramids(nodes, reader)
    said = written(filled(_placed(group, nodes, reader, pyramids, wanted), pyramids), pyramids, wanted)
    for path, attributes in said.attributes.items():
        node = group[path] if path else group
        node.update_attributes(merged(dict(node.attrs), attributes))
    for path, attributes in said.grid_mappings.items():
        _scalar(group, path, attributes)
    if consolidate or (consolidate is None and group.metadata.consolidated_metadata is not None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that consolidated metadata are no part of Zarr 3 is known
            zarr.consolidate_metadata(group.store, path=group.path or None)
    return said


def _placed(
    group: zarr.Group, nodes: Mapping[str, Node], reader: Reader, pyramids: Mapping[str, list[str]], wanted: Wanted
) -> list[Layer]:
    """The arrays over y and x, where the user says they lie, or else the store."""
    finest = {join(join(ROOT, path), names[0]) for path, names in pyramids.items()}
    layers = []
    for node in nodes.values():
        layer = _layer(group, node, nodes, reader, wanted.dims)
        if layer is None:
            continue
        place = place_of(layer)
        first = parent(node.path) in finest or not pyramids
        place = Georeference(
            crs=wanted.crs or place.crs,
            transform=wanted.transform if wanted.transform is not None and first else place.transform,
            registration=wanted.registration or place.registration,
        )
        layers.append(replace(layer, georeference=place))
    return layers


def _nodes(group: zarr.Group) -> dict[str, Node]:
    members = {join(ROOT, name): member for name, member in group.members(max_depth=None)}
    children: dict[str, list[str]] = {}
    for path in members:
        children.setdefault(parent(path) or ROOT, []).append(path.rpartition("/")[2])
    found = {ROOT: Node(path=ROOT, kind="group", attributes=dict(group.attrs), members=tuple(children.get(ROOT, ())))}
    for path, member in members.items():
        attributes = dict(member.attrs)
        if isinstance(member, zarr.Group):
            inside = tuple(children.get(path, ()))
            found[path] = Node(path=path, kind="group", attributes=attributes, members=inside)
        else:
            dims = dims_of(member.metadata)
            found[path] = Node(path=path, kind="array", attributes=attributes, dims=dims, shape=member.shape)
    return found


def _pyramids(nodes: Mapping[str, Node], reader: Reader) -> dict[str, list[str]]:
    """Groups with levels, finest first: those that say so, and those whose children are 0, 1, 2 …"""
    found: dict[str, list[str]] = {}
    for path, node in nodes.items():
        if node.kind != "group":
            continue
        said: Pyramid | None = reader.group(node).pyramid
        if said is not None and all(level.kind == "group" and level.asset != "." for level in said.levels):
            found[path.strip("/")] = [level.asset for level in said.levels if level.arrays]
        elif said is None:
            numbers = [name for name in node.members or () if _has_images(nodes, join(path, name))]
            if numbers and set(numbers) == {str(n) for n in range(len(numbers))}:
                found[path.strip("/")] = sorted(numbers, key=int)
    return {path: names for path, names in found.items() if names}


def _has_images(nodes: Mapping[str, Node], path: str) -> bool:
    node = nodes[path]
    return node.kind == "group" and any(len(nodes[join(path, name)].shape) >= 2 for name in node.members or ())


def _layer(
    group: zarr.Group, node: Node, nodes: Mapping[str, Node], reader: Reader, dims: tuple[str, str] | None
) -> Layer | None:
    """An array over y and x, placed as the store says or as the labels beside it say; None for others."""
    if node.kind != "array" or len(node.shape) < 2 or None in node.dims or len(node.dims) != len(node.shape):
        return None
    layer = layer_of(node, reader.array(node))
    over = dims or layer.spatial_dims or usual_dims(node.dims)
    if over is None or not set(over) <= set(node.dims):
        return None
    y, x = over
    layer = replace(layer, spatial_dims=over)
    if layer.georeference is not None and layer.georeference.transform is not None:
        return layer
    beside = [nodes.get(join(parent(node.path) or ROOT, name)) for name in (x, y)]
    if any(one is None or one.kind != "array" or len(one.shape) != 1 for one in beside):
        return layer
    labels = [_values(group, one.path) for one in beside if one is not None]
    try:
        transform = transform_of(*labels)
    except FormatError:
        return layer  # uneven labels are the coordinates; there is no transform to be written
    return replace(layer, georeference=replace(place_of(layer), transform=transform))


def _values(group: zarr.Group, path: str) -> Any:
    array: Any = group[path.strip("/")]
    return np.asarray(array[:])


def _scalar(group: zarr.Group, path: str, attributes: Mapping[str, Any]) -> None:
    if path in group:
        here = group[path]
        here.update_attributes({**dict(here.attrs), **attributes})
        return
    names: dict[str, Any] = {DIMENSIONS: []} if group.metadata.zarr_format == 2 else {}
    group.create_array(path, shape=(), dtype="int64", attributes={**names, **attributes})
