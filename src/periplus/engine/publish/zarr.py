"""Write conventions to a Zarr hierarchy: only its metadata change, and are consolidated again if they were."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import zarr

from periplus.conventions.meaning import Grid, Pyramid
from periplus.conventions.node import DIMENSIONS, ROOT, Node, join, parent
from periplus.conventions.read import Reader
from periplus.conventions.write.attributes import Layer, WrittenConventions, merged
from periplus.conventions.write.layers import (
    check_labels,
    declared,
    declared_registration,
    given_grid,
    layer_over,
    no_such_dims,
    placed,
    registration_of,
    unsized,
    with_grid,
)
from periplus.engine.publish.layers import ConventionSettings, filled, written
from periplus.engine.xgroup.hierarchy import ZarrHierarchy
from periplus.errors import DeniedError, FormatError, MissingError


def open_to_write(target: Any, storage_options: Mapping[str, Any] | None) -> zarr.Group:
    """The Zarr group at a URL or path, or in a store."""
    options = None if storage_options is None else dict(storage_options)
    where = str(target) if isinstance(target, str | os.PathLike) else None
    try:
        if target is None:
            raise TypeError(target)  # zarr would make a new store
        return zarr.open_group(target, mode="r+", storage_options=options)
    except FileNotFoundError as error:
        raise MissingError("there is no Zarr group", url=where) from error
    except PermissionError as error:
        raise DeniedError("the Zarr group is not writable", url=where) from error
    except TypeError as error:
        named = type(target).__name__
        raise TypeError(f"conventions are written to a Zarr group, a Dataset or a DataTree, not {named}") from error
    except ValueError as error:
        raise FormatError(f"not a writable Zarr group: {error}", url=where) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise FormatError("conventions are written to a Zarr group, and this is a file", url=where) from error


def into_zarr(group: zarr.Group, wanted: ConventionSettings, consolidate: bool | None) -> WrittenConventions:
    """Write the attributes of every node of a group; returns what was written."""
    nodes = _nodes(group)
    reader = unsized(nodes)
    pyramids = _pyramids(nodes, reader)
    stated = written(filled(_placed(group, nodes, reader, pyramids, wanted), pyramids), pyramids, wanted)
    for path, attributes in stated.attributes.items():
        node = group[path] if path else group
        node.attrs.put(merged(dict(node.attrs), attributes))
    for path, attributes in stated.grid_mappings.items():
        _scalar(group, path, attributes)
    if consolidate or (consolidate is None and group.metadata.consolidated_metadata is not None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr-python warns that consolidated metadata are not part of Zarr 3
            zarr.consolidate_metadata(group.store, path=group.path or None)
    return stated


def _placed(
    group: zarr.Group,
    nodes: Mapping[str, Node],
    reader: Reader,
    pyramids: Mapping[str, list[str]],
    wanted: ConventionSettings,
) -> list[Layer]:
    """The arrays over y and x, georeferenced by the user, else by their labels or the store."""
    finest = {join(join(ROOT, path), names[0]) for path, names in pyramids.items()}
    layers = []
    values = cache(partial(_values, group))
    for node in nodes.values():
        layer = layer_over(node, reader, wanted.dims)
        if layer is None:
            continue
        first = parent(node.path) in finest or not pyramids
        grid = _grid(layer, _labels(values, node, nodes, layer), nodes, reader, wanted, first)
        registration = wanted.registration and registration_of(wanted.registration)
        layers.append(with_grid(layer, grid, registration or declared_registration(nodes, layer), crs=wanted.crs))
    if not layers and wanted.dims is not None:
        raise no_such_dims(wanted.dims, (str(dim) for node in nodes.values() for dim in node.dims))
    return layers


def _grid(
    layer: Layer,
    labels: Mapping[str, Any],
    nodes: Mapping[str, Node],
    reader: Reader,
    wanted: ConventionSettings,
    first: bool,
) -> Grid | None:
    if wanted.transform is not None and first:
        given = given_grid(layer, wanted.transform, wanted.registration)
        if given is not None:
            check_labels(layer, given, labels)
        return given
    # Declarations of coarser levels belong to the transform that is replaced.
    known = declared(nodes, reader, layer) if wanted.transform is None else None
    try:
        return placed(layer, known, labels=labels)
    except FormatError:
        if known is not None:
            raise
        return None  # uneven labels have no transform


def _nodes(group: zarr.Group) -> dict[str, Node]:
    hierarchy = ZarrHierarchy(group.store_path)
    paths = [one for path in hierarchy.walk(ROOT) for one in (path, *hierarchy.arrays(path))]
    for path, reason in hierarchy.unreadable.items():
        raise FormatError(f"the metadata of {path} cannot be read: {reason}")
    return {path: node for path in paths if (node := hierarchy.lookup(path)) is not None}


def _pyramids(nodes: Mapping[str, Node], reader: Reader) -> dict[str, list[str]]:
    """Groups with levels, finest first: those that declare it, and those whose children are 0, 1, 2 …"""
    found: dict[str, list[str]] = {}
    for path, node in nodes.items():
        if node.kind != "group":
            continue
        stated: Pyramid | None = reader.group(node).pyramid
        if stated is not None and all(level.kind == "group" and level.asset != "." for level in stated.levels):
            found[path.strip("/")] = [level.asset for level in stated.levels if level.arrays]
        elif stated is None:
            numbers = [name for name in node.members if _has_images(nodes, join(path, name))]
            if numbers and set(numbers) == {str(n) for n in range(len(numbers))}:
                found[path.strip("/")] = sorted(numbers, key=int)
    return {path: names for path, names in found.items() if names}


def _has_images(nodes: Mapping[str, Node], path: str) -> bool:
    node = nodes[path]
    return node.kind == "group" and any(len(nodes[join(path, name)].shape) >= 2 for name in node.members)


def _labels(values: Callable[[str], Any], node: Node, nodes: Mapping[str, Node], layer: Layer) -> dict[str, Any]:
    """Labels of y and x that the group of an array stores."""
    found = {}
    for dim in layer.spatial_dims or ():
        stored = nodes.get(join(parent(node.path) or ROOT, dim))
        if stored is not None and stored.kind == "array" and len(stored.shape) == 1:
            found[dim] = values(stored.path)
    return found


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
