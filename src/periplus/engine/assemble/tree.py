"""Datasets by path as a DataTree: groups that cannot share coordinates with those below them are moved aside."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from periplus.conventions.node import ROOT, ancestors

BASE = "base"
"""The node for arrays of a group that do not align with the groups below it."""
MOST_COMPARED = 1 << 22
"""Labels that are compared by value to find out whether two groups align."""


def build_tree(groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """The tree that `DataTree.from_dict` builds, without the copy that it makes of every node."""
    nodes = {path: xr.DataTree(dataset) for path, dataset in groups.items()}
    for path in list(nodes):
        for above in ancestors(path):
            nodes.setdefault(above, xr.DataTree())
    below: dict[str, dict[str, xr.DataTree]] = {}
    for path, node in nodes.items():
        if path != ROOT:
            above, _, name = path.rpartition("/")
            below.setdefault(above or ROOT, {})[name] = node
    # From the root down: a node inherits coordinates of those above it, which must be in place.
    for above in sorted(below, key=lambda path: 0 if path == ROOT else path.count("/")):
        nodes[above].children = below[above]
    return nodes[ROOT]


def aligned(groups: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The groups, with those that do not align with groups below them moved to a child `base`."""
    moved: set[str] = set()
    for path, dataset in groups.items():
        above = [up for up in ancestors(path) if up in groups and up not in moved and groups[up].variables]
        moved |= {up for up in above if _conflict(groups[up], dataset)}
    done: dict[str, xr.Dataset] = {}
    for path, dataset in groups.items():
        if path not in moved:
            done[path] = dataset
            continue
        prefix = path.rstrip("/") + "/"
        name = BASE
        while prefix + name in groups or name in dataset.variables:
            name += "_"
        done[path] = xr.Dataset(attrs=dataset.attrs)
        base = dataset.copy()
        base.attrs = {}
        done[prefix + name] = base
    return done


def _conflict(above: xr.Dataset, below: xr.Dataset) -> bool:
    sizes: Mapping[object, int] = above.sizes
    if any(sizes.get(dim, size) != size for dim, size in below.sizes.items()):
        return True
    return any(_differ(above, below, name) for name in _labels(above) & _labels(below))


def _labels(dataset: xr.Dataset) -> set[object]:
    """Coordinates that have an index, or get one when xarray creates the default ones."""
    return {name for name, one in dataset.coords.items() if name in dataset.xindexes or one.dims == (name,)}


def _differ(above: xr.Dataset, below: xr.Dataset, name: object) -> bool:
    one, other = above.xindexes.get(name), below.xindexes.get(name)
    if one is not None and other is not None:
        return type(one) is not type(other) or not one.equals(other)
    if above[name].size > MOST_COMPARED:
        return True
    return not bool(above[name].variable.equals(below[name].variable))  # type: ignore[no-untyped-call]
