"""A hierarchy as a tree of Datasets: levels that share a group become siblings, so that all of them align."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from periplus.conventions.meaning import Pyramid
from periplus.conventions.node import ROOT, ancestors, join, relative
from periplus.engine.xgroup.dataset import assemble
from periplus.engine.xgroup.opening import Opening
from periplus.engine.xgroup.pyramid import home, members

BASE = "base"
"""The node of arrays that lie in a group beside groups of other resolutions."""
MOST_COMPARED = 1 << 22
"""Labels that are compared by value to see whether a group aligns with those below it."""


def datasets(opening: Opening, root: str) -> dict[str, xr.Dataset]:
    """Every group from `root` down by its path from there, such that xarray can make a tree of them."""
    made: dict[str, xr.Dataset] = {}
    groups = opening.hierarchy.walk(root)
    opening.hierarchy.prepare(path for group in groups for path in opening.hierarchy.arrays(group))
    for path in groups:
        place = ROOT if path == root else ROOT + relative(path, root)
        for name, arrays in _nodes(opening, path).items():
            attributes = opening.hierarchy.attributes(path) if name is None else {}
            made[place if name is None else join(place, name)] = assemble(opening, arrays, attributes).dataset
    return _aligned(made)


def grown(groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """The tree of `DataTree.from_dict`, which copies every node once more."""
    nodes = {place: xr.DataTree(dataset) for place, dataset in groups.items()}
    below: dict[str, dict[str, xr.DataTree]] = {}
    for place, node in nodes.items():
        if place != ROOT:
            above, _, name = place.rpartition("/")
            below.setdefault(above or ROOT, {})[name] = node
    # From the root down: what a group has like those around it is left to them, so these must be in their places.
    for above in sorted(below, key=lambda path: 0 if path == ROOT else path.count("/")):
        nodes[above].children = below[above]
    return nodes[ROOT]


def _nodes(opening: Opening, path: str) -> dict[str | None, dict[str, str]]:
    """Arrays of a group, those of levels apart: under None what stays in the group itself."""
    arrays = {one.rpartition("/")[2]: one for one in opening.hierarchy.arrays(path)}
    said = opening.group_meaning(path)
    pyramid = None if said is None else said.pyramid
    here = [] if pyramid is None else [level for level in pyramid.levels if level.arrays and home(level) == path]
    if pyramid is None or not here or len(pyramid.levels) == 1:
        return {None: arrays}
    nodes: dict[str | None, dict[str, str]] = {None: {}}
    taken = set(opening.hierarchy.children(path)) - {one.rpartition("/")[2] for one in _of_levels(pyramid)}
    for level in here:
        name = level.asset.rstrip("/").rpartition("/")[2]
        name = BASE if name in ("", ".") else name
        while name in taken or name in nodes:
            name = f"{name}_level"
        nodes[name] = members(opening, pyramid, level)
    placed = {one for node in nodes.values() for one in node.values()}
    nodes[None] = {name: one for name, one in arrays.items() if one not in placed and one not in _of_levels(pyramid)}
    return nodes


def _of_levels(pyramid: Pyramid) -> set[str]:
    return {path for level in pyramid.levels for path in level.arrays.values()}


def _aligned(made: dict[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """The same, with what a group cannot share with those below it in a node of its own beside them."""
    apart: set[str] = set()
    for place, dataset in made.items():
        above = [up for up in ancestors(place) if up in made and up not in apart and made[up].variables]
        apart |= {up for up in above if _conflict(made[up], dataset)}
    done: dict[str, xr.Dataset] = {}
    for place, dataset in made.items():
        if place not in apart:
            done[place] = dataset
            continue
        prefix = place.rstrip("/") + "/"
        name = BASE
        while prefix + name in made or name in dataset.variables:
            name += "_"
        done[place] = xr.Dataset(attrs=dataset.attrs)
        moved = dataset.copy()
        moved.attrs = {}
        done[prefix + name] = moved
    return done


def _conflict(above: xr.Dataset, below: xr.Dataset) -> bool:
    sizes: Mapping[object, int] = above.sizes
    if any(sizes.get(dim, size) != size for dim, size in below.sizes.items()):
        return True
    return any(_differ(above, below, name) for name in _labels(above) & _labels(below))


def _labels(dataset: xr.Dataset) -> set[object]:
    """Coordinates that have an index, or will once xarray has made the usual ones."""
    return {name for name, one in dataset.coords.items() if name in dataset.xindexes or one.dims == (name,)}


def _differ(above: xr.Dataset, below: xr.Dataset, name: object) -> bool:
    one, other = above.xindexes.get(name), below.xindexes.get(name)
    if one is not None and other is not None:
        return type(one) is not type(other) or not one.equals(other)
    if above[name].size > MOST_COMPARED:
        return True
    return not bool(above[name].variable.equals(below[name].variable))  # type: ignore[no-untyped-call]
