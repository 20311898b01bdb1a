"""Zarr v3 metadata of an index as plain dicts: groups, arrays, labels. Pure; every Zarr exit begins here.

An index's own arrays keep their names. Each group also gets what tools without conventions need:
labels of x and y, times, names of bands, and `spatial_ref`, the CF grid mapping. `layout` states for each array whether
its chunks are handed out as they are stored. Nodes are described on demand: an index may have very many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from periplus.conventions.write.attributes import merged
from periplus.errors import FormatError
from periplus.harvest.sidecars import stored_sidecars
from periplus.model import Array, Catalog
from periplus.policy import storable
from periplus.zarr.description.codecs import jsonable
from periplus.zarr.description.geozarr import footprint, place, pyramid
from periplus.zarr.description.nodes import CODECS, Codecs, Leaf, leaves_of

if TYPE_CHECKING:
    from periplus.table import Table

__all__ = ["CODECS", "Codecs", "Leaf", "ZarrLayout", "layout", "only_image", "parent", "source_of", "with_consolidated"]

Source: TypeAlias = Callable[[], str | None]
SOURCE = "source"
"""The attribute of the root with the URL of an image, as in osml-imagery-io."""
MOST_CONSOLIDATED = 2_000
"""Groups beyond which their metadata are not repeated in that of the group around them all: some 25 megabytes."""
MOST_SIDECARS = 64
"""Files beyond which an index is not of one image."""
MOST_KEPT = 1_000
"""Groups whose arrays are kept described."""


@dataclass(frozen=True, slots=True, eq=False)
class ZarrLayout:
    """An index as a Zarr hierarchy. Paths have no leading slash; the root is the empty string."""

    groups: Mapping[str, Mapping[str, Any]]
    """Metadata of groups, parents before children."""
    leaves: Mapping[str, Leaf]
    _nodes: _CatalogNodes

    @property
    def documents(self) -> dict[str, Mapping[str, Any]]:
        """Metadata of every node by path."""
        return {**self.groups, **{path: leaf.document for path, leaf in self.leaves.items()}}

    def leaves_in(self, group: str) -> Mapping[str, Leaf]:
        """The arrays right in a group, by path."""
        return self._nodes.leaves(group)

    def members(self, group: str) -> list[str]:
        """Names of the groups and arrays right in a group."""
        return [path.rpartition("/")[2] for path in (*self._nodes.below[group], *self.leaves_in(group))]

    def consolidated(self, path: str = "") -> dict[str, Any]:
        """The metadata of a group with that of everything below it inline, as zarr-python consolidates it.

        Just the group's own where very many groups are below it: they are then better opened one by one.
        """
        inner = self._nodes.within(path)
        if len(inner) > MOST_CONSOLIDATED:
            return dict(self.groups[path])
        found: dict[str, Mapping[str, Any]] = {}
        for group in inner:
            found[group] = self.groups[group]
            found |= {name: leaf.document for name, leaf in self._nodes.leaves(group).items()}
        skipped = len(path) + 1 if path else 0
        below = {name[skipped:]: found[name] for name in sorted(found) if name != path}
        return with_consolidated(self.groups[path], below)


def with_consolidated(group: Mapping[str, Any], below: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The Zarr v3 metadata of a group with that of the nodes below it inline."""
    return {**group, "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": below}}


def layout(catalog: Catalog, *, codecs: Codecs = "all", source: Source | None = None) -> ZarrLayout:
    """The index as a Zarr hierarchy; arrays that need other codecs than `codecs` allows are plain values.

    `source` gives the URL of the file that the image at the root is from, an attribute there.
    """
    if codecs not in CODECS:
        raise ValueError(f"codecs must be one of {', '.join(CODECS)}, not {codecs!r}")
    nodes = _CatalogNodes(catalog, codecs, source)
    return ZarrLayout(_GroupDocuments(nodes), _LeafArrays(nodes), nodes)


def source_of(table: Table) -> str | None:
    """The URL of the only image file of an index, without secrets; None where rows must be read to know it."""
    count = table.known_file_count
    image = None if count is None else only_image(table.catalog, count)
    return None if image is None else storable(table.files.path[image])


def only_image(catalog: Catalog, files: int) -> int | None:
    """The row of the only file that is not a sidecar of another, of so many files; None where there are several."""
    sidecars = stored_sidecars(catalog.arrangement, files) if files <= MOST_SIDECARS else {}
    images = set(range(min(files, MOST_SIDECARS))).difference(*sidecars.values())
    return images.pop() if len(images) == 1 else None


class _CatalogNodes:
    """Describes groups and arrays of a catalog on demand."""

    def __init__(self, catalog: Catalog, codecs: Codecs, source: Source | None) -> None:
        self.catalog, self.codecs, self.source = catalog, codecs, source
        self.arrays: dict[str, list[Array]] = {}
        for array in catalog.arrays.values():
            self.arrays.setdefault(parent(array.name), []).append(array)
        self.below: dict[str, list[str]] = {"": []}
        """Groups right in each group."""
        for group in (*self.arrays, *catalog.attributes):
            self._add(group)
        both = next((name for name in catalog.arrays if name in self.below), None)
        if both is not None:
            raise FormatError(f"{both!r} is both an array and a group, which Zarr does not allow")
        self.pyramids = _pyramids(catalog)
        self._kept: dict[str, dict[str, Leaf]] = {}

    def _add(self, group: str) -> None:
        """Note a group, and all groups around it."""
        new = []
        while group not in self.below:
            self.below[group] = []
            new.append(group)
            group = parent(group)
        for one in new:
            self.below[parent(one)].append(one)

    def within(self, path: str) -> list[str]:
        """The group itself and all groups in it, parents first; at most one more than are consolidated."""
        found: list[str] = []
        waiting = [path]
        while waiting and len(found) <= MOST_CONSOLIDATED:
            found.append(waiting.pop())
            waiting += reversed(self.below[found[-1]])
        return found

    def leaves(self, group: str) -> dict[str, Leaf]:
        """The arrays right in a group, by path."""
        found = self._kept.get(group)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            made = leaves_of(self.catalog, group, self.arrays[group], self.codecs) if group in self.arrays else {}
            # A group of the index comes before labels of the same name.
            found = self._kept[group] = {path: leaf for path, leaf in made.items() if path not in self.below}
        return found

    def group(self, path: str) -> dict[str, Any]:
        """Metadata of a group: its attributes in the index, its georeference, and its levels."""
        attributes = _level(self.arrays.get(path, ()))
        if path in self.pyramids:
            attributes |= pyramid(*self.pyramids[path])
        if not attributes and not path:
            attributes = footprint(levels[0] for levels, _ in self.pyramids.values())
        own = {name: value for name, value in self.catalog.attributes.get(path, {}).items() if value is not None}
        if not path and path in self.pyramids and SOURCE not in own and (url := self.source and self.source()):
            own[SOURCE] = url
        return {"zarr_format": 3, "node_type": "group", "attributes": merged(jsonable(own), attributes)}


class _GroupDocuments(Mapping[str, Mapping[str, Any]]):
    def __init__(self, nodes: _CatalogNodes) -> None:
        self._nodes = nodes

    def __getitem__(self, path: str) -> Mapping[str, Any]:
        if path not in self._nodes.below:
            raise KeyError(path)
        return self._nodes.group(path)

    def __contains__(self, path: object) -> bool:
        return path in self._nodes.below

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._nodes.below))

    def __len__(self) -> int:
        return len(self._nodes.below)


class _LeafArrays(Mapping[str, Leaf]):
    def __init__(self, nodes: _CatalogNodes) -> None:
        self._nodes = nodes

    def __getitem__(self, path: str) -> Leaf:
        return self._nodes.leaves(parent(path))[path]

    def __iter__(self) -> Iterator[str]:
        for group in self._nodes.arrays:
            yield from list(self._nodes.leaves(group))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def parent(name: str) -> str:
    """The group of an array or group."""
    return name.rpartition("/")[0]


def _level(arrays: Sequence[Array]) -> dict[str, Any]:
    """The georeference as attributes of a group whose arrays share one grid."""
    places = [place(array) for array in arrays if array.georeference is not None]
    return places[0] if places and all(one == places[0] for one in places) else {}


def _pyramids(catalog: Catalog) -> dict[str, tuple[list[Array], list[str]]]:
    """The image of every group that holds levels: the one with most pixels, its levels and their names in the group."""
    best: dict[str, tuple[int, list[Array], list[str]]] = {}
    for name, levels in catalog.pyramids().items():
        group = parent(name)
        if any(array.name == name for array in levels) or levels[0].is_mask:
            continue  # its name has no level in it, or it is of another image
        names = [parent(array.name)[len(group) + 1 if group else 0 :] for array in levels]
        pixels = math.prod(levels[0].shape)
        if group not in best or pixels > best[group][0]:
            best[group] = pixels, levels, names
    return {group: (levels, names) for group, (_, levels, names) in best.items()}
