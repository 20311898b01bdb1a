"""Write conventions to a copy of a Dataset or a DataTree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from periplus.conventions.node import Node
from periplus.conventions.write.attributes import Layer, WrittenConventions, layer_grid, merged
from periplus.conventions.write.layers import check_labels, georeference_of, layers_of, nodes_of
from periplus.engine.assemble.indexes import GridIndex, LazyIndex
from periplus.engine.publish.layers import ConventionSettings, filled, written
from periplus.model import Transform


def on_dataset(dataset: xr.Dataset, wanted: ConventionSettings, labels: bool | None) -> xr.Dataset:
    """The Dataset with attributes; `labels` keeps or drops all labels that the transform gives."""
    layers = _layers(dataset, wanted)
    return _with_attributes(_without(dataset, layers, labels), written(layers, {}, wanted), "")


def on_tree(tree: xr.DataTree, wanted: ConventionSettings, labels: bool | None) -> xr.DataTree:
    """The tree with its children as levels of a pyramid, the largest being the finest."""
    found = {name: child.to_dataset(inherit=False) for name, child in tree.children.items() if child.has_data}
    ordered = sorted(found, key=lambda name: -max((v.size for v in found[name].data_vars.values()), default=0))
    nodes = nodes_of({"": tree.to_dataset(inherit=False), **found})
    placing = {name: _layers(found[name], wanted, name, n, nodes) for n, name in enumerate(ordered)}
    layers = filled([layer for name in ordered for layer in placing[name]], {"": ordered})
    stated = written(layers, {"": ordered} if ordered else {}, wanted)
    made: dict[str, xr.Dataset] = {"/": _with_attributes(tree.to_dataset(inherit=False), stated, "")}
    for node in tree.subtree:
        if node.path != "/" and node.path.strip("/") not in found:
            made[node.path] = node.to_dataset(inherit=False)
    for name, dataset in found.items():
        own = [layer for layer in layers if layer.name.startswith(f"{name}/")]
        made[f"/{name}"] = _with_attributes(_without(dataset, own, labels), stated, name)
    return xr.DataTree.from_dict(made, name=tree.name)


def _layers(
    dataset: xr.Dataset,
    wanted: ConventionSettings,
    group: str = "",
    level: int = 0,
    nodes: Mapping[str, Node] | None = None,
) -> list[Layer]:
    return layers_of(
        dataset,
        crs=wanted.crs,
        group=group,
        level=level,
        spatial_dims=wanted.dims,
        registration=wanted.registration,
        transform=wanted.transform if level == 0 else None,
        # Declarations of coarser levels belong to the transform that is replaced.
        by_attributes=wanted.transform is None,
        rotated=_rotated(dataset),
        nodes=nodes,
    )


def _rotated(dataset: xr.Dataset) -> dict[tuple[str, str], Transform]:
    """Transforms of samples by (y, x), where a lazy index computes the coordinates of a rotated grid."""
    found = {}
    for index in dataset.xindexes.values():
        if isinstance(index, GridIndex):
            grid = index.transform
            found[str(grid.dims[0]), str(grid.dims[1])] = grid.samples
    return found


def _without(dataset: xr.Dataset, layers: Sequence[Layer], labels: bool | None) -> xr.Dataset:
    """The Dataset without labels that a transform gives: those that are lazy, unless `labels` keeps or drops all."""
    placed = [layer for layer in layers if georeference_of(layer).transform is not None]
    over = {dim for layer in placed for dim in layer.spatial_dims or ()}
    lazy = [name for name, index in dataset.xindexes.items() if isinstance(index, LazyIndex)]
    plain = [name for name in dataset.coords if name in over] if labels is False else []
    gone = {*(name for name in lazy if over & set(dataset[name].dims)), *plain}
    made = dataset if labels or not placed else dataset.drop_vars(gone)
    for layer in placed:
        if (grid := layer_grid(layer)) is not None:
            check_labels(layer, grid, {dim: made.coords[dim] for dim in over if dim in made.coords})
    return made


def _with_attributes(dataset: xr.Dataset, written: WrittenConventions, group: str) -> xr.Dataset:
    """A copy of the Dataset with attributes on it and its variables."""
    made = dataset.copy()
    made.attrs = merged(made.attrs, written.attributes.get(group, {}))
    prefix = f"{group}/" if group else ""
    before: set[str] = set()
    for name in made.data_vars:
        stated = written.attributes.get(f"{prefix}{name}")
        if stated:
            # xarray moves it to the encoding when it reads, and does not write it from both.
            old = made[name].encoding.pop("grid_mapping", made[name].attrs.get("grid_mapping"))
            before |= {old} if isinstance(old, str) and "grid_mapping" in stated else set()
            made[name].attrs = merged(made[name].attrs, stated)
    mappings = {
        path.rpartition("/")[2]: attributes
        for path, attributes in written.grid_mappings.items()
        if path.rpartition("/")[0] == group
    }
    made = made.drop_vars(name for name in before if name in made.coords and made[name].ndim == 0)
    return made.assign_coords({name: xr.Variable((), 0, attributes) for name, attributes in mappings.items()})
