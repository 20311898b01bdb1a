"""Conventions written where people have their arrays: into a Zarr hierarchy, onto a Dataset or a DataTree."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
import zarr

from periplus.conventions import publish, scales
from periplus.conventions.layers import layer_of, layers_of, transform_of
from periplus.conventions.meaning import Pyramid
from periplus.conventions.node import ROOT, Node, join, parent
from periplus.conventions.read import Reader
from periplus.conventions.write import Layer, Written, merged, size
from periplus.engine.labels import LazyIndex
from periplus.errors import DeniedError, FormatError, MissingError
from periplus.model import Georeference, Transform


def write_conventions(
    target: Any,
    *,
    crs: str | None = None,
    transform: Transform | None = None,
    registration: str | None = None,
    spatial_dims: tuple[str, str] | None = None,
    resampling: str | None = None,
    cf: bool = True,
    labels: bool | None = None,
    consolidate: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Declare multiscales, spatial and proj where they belong, with edges, WKT2, code, PROJJSON and CF's twin.

    A Dataset or DataTree comes back with the attributes on it. Anything else is opened as a Zarr group and changed: its
    metadata only, and consolidated again if they were (`consolidate`); what was written is returned. Places are those
    given (`transform`: pixel corners of the finest level), else those the store says already, in whatever draft, else
    those of even labels. Groups 0, 1, 2 …, or the children of a DataTree, are levels of a pyramid. Labels of x and y of
    a Dataset that are computed when asked for are dropped, for the transform gives them; `labels` keeps or drops all.
    """
    given = Georeference(crs=crs, transform=transform, registration=registration or "area")
    if isinstance(target, xr.Dataset):
        return _on_dataset(target, given, spatial_dims, cf, labels)
    if isinstance(target, xr.DataTree):
        return _on_tree(target, given, spatial_dims, resampling, cf, labels)
    group = target if isinstance(target, zarr.Group) else _opened(target, storage_options)
    if group.read_only:
        raise DeniedError("the Zarr group was opened to be read only")
    return _into_zarr(group, given, registration, spatial_dims, resampling, cf, consolidate)


# --- Datasets -------------------------------------------------------------------------------------------------------


def _layers(
    dataset: xr.Dataset, given: Georeference, dims: tuple[str, str] | None, group: str = "", level: int = 0
) -> list[Layer]:
    layers = layers_of(
        dataset, crs=given.crs, group=group, level=level, spatial_dims=dims, registration=given.registration
    )
    if given.transform is None or level > 0:
        return layers
    return [replace(one, georeference=replace(_place(one), transform=given.transform)) for one in layers]


def _on_dataset(
    dataset: xr.Dataset, given: Georeference, dims: tuple[str, str] | None, cf: bool, labels: bool | None
) -> xr.Dataset:
    layers = _layers(dataset, given, dims)
    written = publish.write_conventions(layers, pyramids={}, cf=cf)
    return _laid(_without(dataset, layers, labels), written, "")


def _on_tree(
    tree: xr.DataTree,
    given: Georeference,
    dims: tuple[str, str] | None,
    resampling: str | None,
    cf: bool,
    labels: bool | None,
) -> xr.DataTree:
    found = {name: child.to_dataset(inherit=False) for name, child in tree.children.items() if child.has_data}
    ordered = sorted(found, key=lambda name: -max((v.size for v in found[name].data_vars.values()), default=0))
    layers = [layer for n, name in enumerate(ordered) for layer in _layers(found[name], given, dims, name, n)]
    layers = _filled(layers, {"": ordered})
    written = publish.write_conventions(layers, pyramids={"": ordered} if ordered else {}, resampling=resampling, cf=cf)
    made: dict[str, xr.Dataset] = {"/": _laid(tree.to_dataset(inherit=False), written, "")}
    for node in tree.subtree:
        if node.path != "/" and node.path.strip("/") not in found:
            made[node.path] = node.to_dataset(inherit=False)
    made |= {f"/{name}": _laid(_without(dataset, layers, labels), written, name) for name, dataset in found.items()}
    return xr.DataTree.from_dict(made, name=tree.name)


def _without(dataset: xr.Dataset, layers: Sequence[Layer], labels: bool | None) -> xr.Dataset:
    """The Dataset without labels that a transform gives: those that are lazy, unless all or none are to go."""
    if labels or not layers or _place(layers[0]).transform is None:
        return dataset
    over = set(layers[0].spatial_dims or ())
    lazy = [name for name, index in dataset.xindexes.items() if isinstance(index, LazyIndex)]
    plain = [name for name in dataset.coords if name in over] if labels is False else []
    return dataset.drop_vars({*(name for name in lazy if over & set(dataset[name].dims)), *plain})


def _laid(dataset: xr.Dataset, written: Written, group: str) -> xr.Dataset:
    """A copy of the Dataset with what belongs on it and on its variables."""
    made = dataset.copy()
    made.attrs = merged(made.attrs, written.attributes.get(group, {}))
    prefix = f"{group}/" if group else ""
    for name in made.data_vars:
        said = written.attributes.get(f"{prefix}{name}")
        if said:
            made[name].attrs = merged(made[name].attrs, said)
            # xarray moves it there when it reads, and refuses to write it twice.
            made[name].encoding.pop("grid_mapping", None)
    for path, attributes in written.grid_mappings.items():
        if path.rpartition("/")[0] == group:
            made = made.assign_coords({path.rpartition("/")[2]: xr.Variable((), 0, attributes)})
    return made


# --- Zarr -----------------------------------------------------------------------------------------------------------


def _opened(target: Any, storage_options: Mapping[str, Any] | None) -> zarr.Group:
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


def _into_zarr(
    group: zarr.Group,
    given: Georeference,
    registration: str | None,
    dims: tuple[str, str] | None,
    resampling: str | None,
    cf: bool,
    consolidate: bool | None,
) -> Written:
    nodes = _nodes(group)
    reader = Reader(lookup=nodes.get, strict=False)
    pyramids = _pyramids(nodes, reader)
    base = {join(join(ROOT, path), names[0]) for path, names in pyramids.items()}
    layers = []
    for node in nodes.values():
        layer = _layer(group, node, nodes, reader, dims)
        if layer is None:
            continue
        place = _place(layer)
        first = parent(node.path) in base or not pyramids
        place = Georeference(
            crs=given.crs or place.crs,
            transform=given.transform if given.transform is not None and first else place.transform,
            registration=registration or place.registration,
        )
        layers.append(replace(layer, georeference=place))
    layers = _filled(layers, pyramids)
    written = publish.write_conventions(layers, pyramids=pyramids, resampling=resampling, cf=cf)
    for path, attributes in written.attributes.items():
        node_here = group[path] if path else group
        node_here.update_attributes(merged(dict(node_here.attrs), attributes))
    for path, attributes in written.grid_mappings.items():
        _scalar(group, path, attributes)
    if consolidate or (consolidate is None and group.metadata.consolidated_metadata is not None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that consolidated metadata are no part of Zarr 3 is known
            zarr.consolidate_metadata(group.store, path=group.path or None)
    return written


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
            named: Any = getattr(member.metadata, "dimension_names", None) or attributes.get("_ARRAY_DIMENSIONS")
            names = tuple(named) if isinstance(named, list | tuple) else ()
            found[path] = Node(path=path, kind="array", attributes=attributes, dims=names, shape=member.shape)
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
    y, x = dims or layer.spatial_dims or _usual(node)
    if y not in node.dims or x not in node.dims:
        return None
    layer = replace(layer, spatial_dims=(y, x))
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
    return replace(layer, georeference=replace(_place(layer), transform=transform))


def _values(group: zarr.Group, path: str) -> Any:
    array: Any = group[path.strip("/")]
    return np.asarray(array[:])


def _usual(node: Node) -> tuple[str, str]:
    for y, x in (("y", "x"), ("lat", "lon"), ("latitude", "longitude"), ("northing", "easting")):
        if y in node.dims and x in node.dims:
            return y, x
    return "", ""


def _place(layer: Layer) -> Georeference:
    return layer.georeference or Georeference()


def _filled(layers: Iterable[Layer], pyramids: Mapping[str, Sequence[str]]) -> list[Layer]:
    """Levels that nobody placed, placed by how much smaller they are than the finest of their pyramid."""
    made = {layer.name: layer for layer in layers}
    for group, names in pyramids.items():
        prefix = f"{group}/" if group else ""
        for name, layer in list(made.items()):
            folder, _, variable = name.rpartition("/")
            finest = made.get(f"{prefix}{names[0]}/{variable}")
            if finest is None or finest is layer or folder not in {prefix + one for one in names[1:]}:
                continue
            place, large, small = _place(finest), size(finest), size(layer)
            if place.transform is None or _place(layer).transform is not None or large is None or small is None:
                continue
            a, b, c, d, e, f = place.transform
            down, right = scales.whole_if_near((large[0] / small[0], large[1] / small[1]), large, small)
            transform = (a * right, b * down, c, d * right, e * down, f)
            made[name] = replace(layer, georeference=replace(place, transform=transform))
    return list(made.values())


def _scalar(group: zarr.Group, path: str, attributes: Mapping[str, Any]) -> None:
    if path in group:
        here = group[path]
        here.update_attributes({**dict(here.attrs), **attributes})
        return
    names: dict[str, Any] = {"_ARRAY_DIMENSIONS": []} if group.metadata.zarr_format == 2 else {}
    group.create_array(path, shape=(), dtype="int64", attributes={**names, **attributes})
