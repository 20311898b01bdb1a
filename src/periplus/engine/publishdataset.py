"""Conventions on a Dataset or a DataTree: a copy with the attributes that say where its arrays lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import xarray as xr

from periplus.conventions.layers import layers_of
from periplus.conventions.write import Layer, Written, merged
from periplus.engine.labels import LazyIndex
from periplus.engine.publishlayers import Wanted, filled, place_of, written


def on_dataset(dataset: xr.Dataset, wanted: Wanted, labels: bool | None) -> xr.Dataset:
    """The Dataset with what belongs on it; `labels` keeps or drops all labels that the transform gives."""
    layers = _layers(dataset, wanted)
    return _laid(_without(dataset, layers, labels), written(layers, {}, wanted), "")


def on_tree(tree: xr.DataTree, wanted: Wanted, labels: bool | None) -> xr.DataTree:
    """The tree with its children as levels of a pyramid, the largest being the finest."""
    found = {name: child.to_dataset(inherit=False) for name, child in tree.children.items() if child.has_data}
    ordered = sorted(found, key=lambda name: -max((v.size for v in found[name].data_vars.values()), default=0))
    layers = [layer for n, name in enumerate(ordered) for layer in _layers(found[name], wanted, name, n)]
    layers = filled(layers, {"": ordered})
    said = written(layers, {"": ordered} if ordered else {}, wanted)
    made: dict[str, xr.Dataset] = {"/": _laid(tree.to_dataset(inherit=False), said, "")}
    for node in tree.subtree:
        if node.path != "/" and node.path.strip("/") not in found:
            made[node.path] = node.to_dataset(inherit=False)
    made |= {f"/{name}": _laid(_without(dataset, layers, labels), said, name) for name, dataset in found.items()}
    return xr.DataTree.from_dict(made, name=tree.name)


def _layers(dataset: xr.Dataset, wanted: Wanted, group: str = "", level: int = 0) -> list[Layer]:
    registration = wanted.registration or "area"
    layers = layers_of(
        dataset, crs=wanted.crs, group=group, level=level, spatial_dims=wanted.dims, registration=registration
    )
    if wanted.transform is None or level > 0:
        return layers
    return [replace(one, georeference=replace(place_of(one), transform=wanted.transform)) for one in layers]


def _without(dataset: xr.Dataset, layers: Sequence[Layer], labels: bool | None) -> xr.Dataset:
    """The Dataset without labels that a transform gives: those that are lazy, unless all or none are to go."""
    if labels or not layers or place_of(layers[0]).transform is None:
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
