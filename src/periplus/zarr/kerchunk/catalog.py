"""All metadata of references or of a repository to a catalog: arrays, groups, levels, georeferences, labels."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from periplus.conventions.cf.grid_mapping import BY_GRID_MAPPING
from periplus.conventions.diagnostic import Diagnostic
from periplus.conventions.meaning import Meaning, Regular
from periplus.conventions.node import Node, node_of
from periplus.conventions.read import Reader
from periplus.conventions.spatial.transform import labels_differ, labels_finding
from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Coordinate, Refs
from periplus.model.arrays import MOST_LEVELS
from periplus.parse.zarr import ArrayMetadata, GroupMetadata, NodeDocuments
from periplus.parse.zarr.documents import key_of
from periplus.table.query.footprint import spatial_axes
from periplus.zarr.description.metadata import SOURCE
from periplus.zarr.kerchunk.arrays import ReferencedArray, georeference, indexed_grid, kept_attributes, referenced_array
from periplus.zarr.kerchunk.labels import LabelBudget, labels_of, text_labels

ROOT_ARRAY = "data"
"""The name of an array that is the root itself."""
MOST_WARNINGS = 10
"""Findings that are reported when an index is opened; `periplus validate` lists all of a store."""
OF_AN_INDEX = ("spatial.", "proj.", "multiscales.", "identity.", "node.", "cf.grid-mapping")
"""Codes of findings about what an index takes from attributes: CRS, transform and levels. It keeps other attributes."""
Metadata: TypeAlias = Mapping[str, ArrayMetadata | GroupMetadata]
"""Parsed metadata by the path of the node; the root is the empty string."""
RowsOf: TypeAlias = Callable[[str], Refs | None]
"""The rows of an array by its path; None where it has none, or where they are certainly not inline."""
FirstChunk: TypeAlias = Callable[[str], tuple[str, bytes | None]]
"""The key of the first chunk of an array of text, and its bytes where they are inline."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedNodes:
    """The metadata of a hierarchy by path, and the arrays that can be read."""

    metadata: Metadata
    arrays: Mapping[str, ReferencedArray]
    others: tuple[str, ...]
    """Paths of arrays that cannot be read: text of variable length, which may be labels, and those left out."""

    @property
    def texts(self) -> dict[str, ArrayMetadata]:
        """Arrays of plain strings, one after the other, which labels may be."""
        arrays = ((path, one) for path, one in self.metadata.items() if isinstance(one, ArrayMetadata))
        return {path: one for path, one in arrays if one.is_text and len(one.codecs) == 1 and len(one.shape) == 1}


def parse_nodes(
    nodes: Mapping[str, NodeDocuments], *, limits: Limits, skip_unsupported: bool | Collection[str] = ()
) -> ParsedNodes:
    """All nodes, parsed; an array that cannot be read is an error, unless `skip_unsupported` names it or is True."""
    metadata: dict[str, ArrayMetadata | GroupMetadata] = {}
    arrays: dict[str, ReferencedArray] = {}
    for path, node in nodes.items():
        if not isinstance(skip_unsupported, bool) and path in skip_unsupported:
            continue
        name = path or ROOT_ARRAY
        try:
            one = metadata[path] = node.parse(limits)
            if isinstance(one, ArrayMetadata) and not one.is_text:
                arrays[path] = _stored(name, node, one, limits)
        except FormatError as error:
            if skip_unsupported is not True:
                error.message += f"; skip_unsupported=[{name!r}] opens the others"
                raise
    others = tuple(path for path, node in nodes.items() if node.kind == "array" and path not in arrays)
    return ParsedNodes(metadata, arrays, others)


def _stored(name: str, node: NodeDocuments, metadata: ArrayMetadata, limits: Limits) -> ReferencedArray:
    try:
        return referenced_array(name, metadata, limits)
    except PeriplusError as error:
        if not error.message.startswith(name):
            error.message = f"{key_of(node.path, node.name)}: {error.message}"
        raise


def catalog_of(nodes: ParsedNodes, rows: RowsOf, first: FirstChunk, limits: Limits) -> tuple[Catalog, set[str]]:
    """The catalog, and the paths of arrays that are in it in another form: labels that are inline, grid mappings."""
    arrays = nodes.arrays
    used: set[str] = set()
    made: dict[str, Array] = {}
    labels = _labels(nodes, rows, first, limits)
    meanings = _Meanings(nodes.metadata)
    for path, stored in arrays.items():
        array = stored.array
        mapping_path = _grid_mapping(array, path, arrays)
        mapping = {} if mapping_path is None else arrays[mapping_path].array.attributes
        meaning = meanings.compared(path, meanings.of(path), labels)
        located = georeference(array, meaning, mapping)
        if meaning.grid is not None and indexed_grid(array, meaning) is None:
            meanings.note_lost_grid(path, meaning.grid.dims)
        made[path] = replace(
            array,
            level=_level(meaning),
            georeference=located,
            attributes=kept_attributes(array.attributes, array.dtype, located=located is not None),
        )
        if mapping_path is not None and located is not None:
            used.add(mapping_path)
    meanings.warn()
    data = {path: array for path, array in made.items() if path not in used and path not in labels}
    by_group = _by_group(data)
    computed = {path for path, one in labels.items() if _is_computed(one, by_group.get(_group(path), ()))}
    # A declared grid gives these as well; the index would have to read them, and they may differ.
    computed |= meanings.overruled | {path for path in data if _is_along_grid(data[path], by_group[_group(path)])}
    coordinates, given = _coordinates({path: labels[path] for path in labels if path not in computed}, data)
    used |= computed | given
    held = {array.name: array for path, array in made.items() if path not in used}
    unread = sorted(set(nodes.others) - labels.keys())
    arrangement = {"kind": "zarr", **({"left_out": unread} if unread else {})}
    groups = _group_attributes(nodes.metadata)
    return Catalog(arrays=held, coordinates=coordinates, attributes=groups, arrangement=arrangement), used


def _labels(nodes: ParsedNodes, rows: RowsOf, first: FirstChunk, limits: Limits) -> dict[str, Coordinate]:
    """Labels of dimensions whose values are inline, by path."""
    budget = LabelBudget()
    labels: dict[str, Coordinate] = {}
    for path, stored in nodes.arrays.items():
        refs = rows(path) if stored.array.dims == (_leaf(path),) else None
        found = None if refs is None else labels_of(stored.array, refs, limits, budget)
        if found is not None:
            labels[path] = found
    for path, metadata in nodes.texts.items():
        found = text_labels(path, metadata, *first(path))
        if found is not None:
            labels[path] = found
    return labels


class _Meanings:
    """What the conventions find in the attributes of arrays and of the groups around them."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._members: dict[str, list[str]] = {}
        for path in metadata:
            if path:
                self._members.setdefault(_group(path), []).append(_leaf(path))
        self._nodes: dict[str, Node | None] = {}
        self._reader = Reader(lookup=self._lookup)
        self._findings: dict[Diagnostic, None] = {}
        self.overruled: set[str] = set()
        """Paths of labels that are not those of a declared grid."""

    def of(self, path: str) -> Meaning:
        node = self._lookup(f"/{path}")
        if node is None or not node.shape or node.dims == (_leaf(path),):
            return Meaning(path=path)  # a scalar, or labels, which have no georeference
        meaning = self._reader.array(node)
        self._note(meaning.diagnostics)
        return meaning

    def compared(self, path: str, meaning: Meaning, labels: Mapping[str, Coordinate]) -> Meaning:
        """The meaning of an array without the grid of a GeoTransform, where stored labels may be others.

        Labels that are inline are compared with it; others cannot be, as opening an index reads no values.
        """
        grid = meaning.grid
        for coord in meaning.coords:
            near = self._lookup(f"/{_group(path)}/{coord.name}" if _group(path) else f"/{coord.name}")
            along = grid is not None and coord.name in grid.dims and isinstance(coord.values, Regular)
            if not along or near is None or near.dims != (coord.name,):
                continue
            stored = labels.get(near.path.strip("/"))
            declared = coord.convention != BY_GRID_MAPPING
            if stored is None and declared:
                continue
            if stored is not None and not labels_differ(stored.values, coord.values):  # type: ignore[arg-type]
                continue
            fault = "cannot be compared with" if stored is None else "are not those of"
            used = "those of the transform are used" if declared else "the transform is ignored"
            self._note([labels_finding(f"/{path}", coord.name, declared=declared, used=used, fault=fault)])
            if not declared:
                return replace(meaning, grid=None)
            self.overruled.add(near.path.strip("/"))
        return meaning

    def note_lost_grid(self, path: str, dims: tuple[str, str]) -> None:
        """Report a grid over dimensions that an index does not use as rows and columns."""
        message = f"the grid is over {list(dims)}, and an index has grids over y and x or the last two dimensions only"
        hint = "the transform is ignored"
        self._note([Diagnostic("spatial.dimensions-order", "warning", f"/{path}", "spatial:dimensions", message, hint)])

    def _note(self, diagnostics: Iterable[Diagnostic]) -> None:
        about = (one for one in diagnostics if one.code.startswith(OF_AN_INDEX) or one.code.endswith(".undeclared"))
        self._findings |= {one: None for one in about if one.warns}

    def warn(self) -> None:
        """Report attributes that are wrong, contradict each other or are ignored, the most severe first."""
        for path, metadata in self._metadata.items():
            if isinstance(metadata, GroupMetadata) and any(_places(key) for key in metadata.attributes):
                self._note(self._reader.group(node_of(f"/{path}", metadata, self._members.get(path, ()))).diagnostics)
        ranked = sorted(self._findings, key=lambda one: one.severity != "error")
        for one in ranked[:MOST_WARNINGS]:
            warnings.warn(str(one), UserWarning, stacklevel=2)

    def _lookup(self, path: str, /) -> Node | None:
        if path not in self._nodes:
            found = self._metadata.get(path.strip("/"))
            members = tuple(self._members.get(path.strip("/"), ()))
            self._nodes[path] = None if found is None else node_of(path, found, members)
        return self._nodes[path]


def _places(key: str) -> bool:
    """Whether an attribute of a group is about grids or levels; CRS are read with the arrays that inherit them."""
    return key == "multiscales" or key.startswith("spatial:")


def _level(meaning: Meaning) -> int:
    return meaning.level.order if meaning.level is not None and meaning.level.order < MOST_LEVELS else 0


def _grid_mapping(array: Array, path: str, arrays: Mapping[str, ReferencedArray]) -> str | None:
    """The path of the array that is the CF grid mapping of another."""
    name, group = array.attributes.get("grid_mapping"), _group(path)
    found = f"{group}/{name}" if group else str(name)
    return found if isinstance(name, str) and found in arrays else None


def _leaf(path: str) -> str:
    return path.rpartition("/")[2]


def _group(path: str) -> str:
    return path.rpartition("/")[0]


def _group_attributes(metadata: Metadata) -> dict[str, Mapping[str, Any]]:
    """Attributes of groups, without those that repeat the georeferences and levels of arrays."""
    kept: dict[str, Mapping[str, Any]] = {}
    for path, group in metadata.items():
        if not isinstance(group, GroupMetadata):
            continue
        attributes = {
            key: value
            for key, value in group.attributes.items()
            if key not in ("multiscales", "zarr_conventions")
            and not key.startswith(("spatial:", "proj:"))
            and not (key == SOURCE and "multiscales" in group.attributes)  # otherwise it is CF's: how data were made
        }
        if attributes:
            json.dumps(attributes)  # as JSON it was read, and as JSON it will be written
            kept[path] = attributes
    return kept


# --- labels ---------------------------------------------------------------------------------------------------------


def _coordinates(labels: Mapping[str, Coordinate], data: Mapping[str, Array]) -> tuple[dict[str, Coordinate], set[str]]:
    """Labels that are coordinates, by path, and the paths of their arrays; those equal in all groups are one."""
    sizes = _by_dimension(data)
    by_name: dict[str, dict[str, Coordinate]] = {}
    for path, one in labels.items():
        by_name.setdefault(one.name, {})[path] = one
    coordinates: dict[str, Coordinate] = {}
    used: set[str] = set()
    for name, held in by_name.items():
        first = next(iter(held.values()))
        if sizes.get(first.dims[0]) == {first.values.size} and all(_agree(first, one) for one in held.values()):
            coordinates[name] = first
            used |= held.keys()
            continue
        fitting, before = dict(held), 0
        while len(fitting) != before:
            # Labels that do not fit stay an array; the arrays they were nearest to may then use labels further up.
            before, served = len(fitting), _served(fitting, data)
            fitting = {path: one for path, one in fitting.items() if served.get(path) == {one.values.size}}
        coordinates |= fitting
        used |= fitting.keys()
    return coordinates, used


def _served(labels: Mapping[str, Coordinate], data: Mapping[str, Array]) -> dict[str, set[int]]:
    """The sizes of the dimension in the arrays that use labels of one name, by the path of the labels."""
    name = _leaf(next(iter(labels))) if labels else ""
    found: dict[str, set[int]] = {}
    for group in data if labels else ():
        array = data[group]
        while group:
            group = _group(group)
            path = f"{group}/{name}" if group else name
            if path in labels and labels[path].dims[0] in array.dims:
                found.setdefault(path, set()).add(array.shape[array.dims.index(labels[path].dims[0])])
                break
    return found


def _agree(one: Coordinate, two: Coordinate) -> bool:
    """Whether labels are the same."""
    return (one.dims, one.values.shape) == (two.dims, two.values.shape) and bool((one.values == two.values).all())


def _by_group(data: Mapping[str, Array]) -> dict[str, list[Array]]:
    found: dict[str, list[Array]] = {}
    for path, array in data.items():
        found.setdefault(_group(path), []).append(array)
    return found


def _by_dimension(data: Mapping[str, Array]) -> dict[str, set[int]]:
    """The sizes that every dimension has."""
    found: dict[str, set[int]] = {}
    for array in data.values():
        for dim, size in zip(array.dims, array.shape, strict=True):
            found.setdefault(dim, set()).add(size)
    return found


def _is_computed(labels: Coordinate, arrays: Sequence[Array]) -> bool:
    """Whether labels repeat facts of the arrays in their group: the transform, or the names or numbers of bands."""
    dim = labels.name
    holders = [array for array in arrays if dim in array.dims]
    if not holders:
        return False
    if dim in ("x", "y") and all(_has_upright_grid(one) for one in holders):
        return True
    values = labels.values.tolist()
    return dim == "bands" and (
        values == list(range(1, len(values) + 1)) or any(a.attributes.get("band_names") == values for a in holders)
    )


def _is_along_grid(labels: Array, arrays: Sequence[Array]) -> bool:
    """Whether an array is labels of a dimension along which all others of its group have an upright grid."""
    dim = _leaf(labels.name)
    holders = [array for array in arrays if dim in array.dims and array.name != labels.name]
    return (
        labels.dims == (dim,)
        and bool(holders)
        and all(
            _has_upright_grid(one) and axes is not None and dim in (one.dims[axes[0]], one.dims[axes[1]])
            for one in holders
            for axes in [spatial_axes(one)]
        )
    )


def _has_upright_grid(array: Array) -> bool:
    """Whether the transform gives labels along each dimension; that of a rotated grid does not."""
    place = array.georeference
    return place is not None and place.transform is not None and not (place.transform[1] or place.transform[3])
