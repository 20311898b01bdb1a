"""All metadata of a kerchunk index to a catalog: arrays, groups, levels, places on Earth, labels that are inline."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from periplus.errors import FormatError, LimitError
from periplus.limits import Limits
from periplus.model import Array, Catalog, Coordinate, Georeference
from periplus.table.document.values import shown, text
from periplus.zarr.kerchunk.arrays import Described, describe
from periplus.zarr.kerchunk.place import located

ROOT_ARRAY = "data"
"""What an array is called that is the root itself."""
MOST_NODES = 1 << 20
Inline = Callable[[str], Coordinate | None]
"""Labels of one dimension whose chunks are inline, by the path of their array; None where they are not."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The metadata documents of an index, by path of the node; the root is the empty string."""

    arrays: Mapping[str, Any]
    attributes: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Mapping[str, Any]]
    zarr_format: int


def nodes(documents: Mapping[str, Any]) -> Nodes:
    """Documents by key (`a/.zarray`, `a/zarr.json`) sorted into arrays and groups; consolidated ones fill the gaps."""
    if len(documents) > MOST_NODES:
        raise LimitError(f"the index has {len(documents)} metadata documents, over the limit of {MOST_NODES}")
    known = {**_consolidated(documents), **documents}
    v3 = {_path(key, "zarr.json"): value for key, value in known.items() if key.rpartition("/")[2] == "zarr.json"}
    if v3:
        arrays = {path: doc for path, doc in v3.items() if isinstance(doc, Mapping) and doc.get("node_type") == "array"}
        rest = {path: doc for path, doc in v3.items() if path not in arrays}
        groups = {path: _object(doc, f"{path}/zarr.json").get("attributes") or {} for path, doc in rest.items()}
        return Nodes(arrays, {}, {path: _object(said, f"{path}/zarr.json") for path, said in groups.items()}, 3)
    by_leaf: dict[str, dict[str, Any]] = {".zarray": {}, ".zattrs": {}, ".zgroup": {}}
    for key, value in known.items():
        leaf = key.rpartition("/")[2]
        if leaf in by_leaf:
            by_leaf[leaf][_path(key, leaf)] = value
    attributes = {path: _object(value, f"{path}/.zattrs".lstrip("/")) for path, value in by_leaf[".zattrs"].items()}
    arrays = by_leaf[".zarray"]
    paths = {*by_leaf[".zgroup"], *(path for path in attributes if path not in arrays)}
    return Nodes(arrays, attributes, {path: attributes.get(path, {}) for path in paths}, 2)


def _object(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FormatError(f"{key}: a JSON object is wanted")
    return value


def _path(key: str, leaf: str) -> str:
    return key.removesuffix(leaf).removesuffix("/")


def _consolidated(documents: Mapping[str, Any]) -> dict[str, Any]:
    old = documents.get(".zmetadata")
    new = documents.get("zarr.json")
    held: dict[str, Any] = {}
    if isinstance(old, Mapping) and isinstance(old.get("metadata"), Mapping):
        held |= old["metadata"]
    if isinstance(new, Mapping) and isinstance(new.get("consolidated_metadata"), Mapping):
        below = new["consolidated_metadata"].get("metadata")
        held |= {f"{path}/zarr.json": doc for path, doc in below.items()} if isinstance(below, Mapping) else {}
    return held


def described(found: Nodes, *, limits: Limits, leave_out: bool | Collection[str] = ()) -> dict[str, Described]:
    """The arrays by path of their node; those that may be left out are, where they cannot be read."""
    made: dict[str, Described] = {}
    for path, document in found.arrays.items():
        name = checked_name(path) if path else ROOT_ARRAY
        if leave_out is not True and leave_out and path in leave_out:
            continue
        attributes = found.attributes.get(path, {}) if found.zarr_format == 2 else None
        try:
            made[path] = describe(name, document, attributes, limits)
        except FormatError as error:
            if leave_out is not True and not _is_text(document):
                error.message += f"; leave_out=[{name!r}] opens the others"
                raise
    return made


def _is_text(document: Any) -> bool:
    """Labels in words: they are read where they are inline, and no array of ours can hold them."""
    kind = document.get("data_type", document.get("dtype")) if isinstance(document, Mapping) else None
    filters = (document.get("filters") or [{}]) if isinstance(document, Mapping) else [{}]
    wordy = isinstance(filters, list) and isinstance(filters[0], Mapping) and filters[0].get("id") == "vlen-utf8"
    return kind == "string" or (kind == "|O" and wordy)


def checked_name(name: str) -> str:
    """A path that may name an array."""
    text(name, "a name")
    if len(name) > 4096 or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise FormatError(f"{shown(name)} cannot be the name of an array")
    return name


def catalog_of(found: Nodes, arrays: Mapping[str, Described], inline: Inline) -> tuple[Catalog, set[str]]:
    """The catalog, and the paths of arrays that became part of it otherwise: labels, grid mappings."""
    levels = _levels(found.groups)
    used: set[str] = set()
    made: dict[str, Array] = {}
    for path, one in arrays.items():
        array, group = one.array, path.rpartition("/")[0]
        mapping = _grid_mapping(array, group, found, arrays)
        place, kept = located(array, found.groups.get(group, {}), mapping)
        made[path] = replace(array, level=_level(path, levels), georeference=place, attributes=kept)
        if mapping is not None and place is not None:
            used.add(mapping[0])
    in_words = [path for path in found.arrays if path not in arrays]
    along = (path for path, array in made.items() if array.ndim == 1 and array.dims[0] == path.rpartition("/")[2])
    labels = {path: said for path in (*along, *in_words) if (said := inline(path)) is not None}
    data = {path: array for path, array in made.items() if path not in used and path not in labels}
    beside = _by_group(data)
    computed = {path for path, said in labels.items() if _is_computed(said, beside.get(path.rpartition("/")[0], ()))}
    coordinates, given = _coordinates({path: labels[path] for path in labels if path not in computed}, data)
    used |= computed | given
    held = {array.name: array for path, array in made.items() if path not in used}
    unread = sorted(set(in_words) - labels.keys())
    arrangement = {"kind": "zarr", **({"left_out": unread} if unread else {})}
    return Catalog(arrays=held, coordinates=coordinates, attributes=_groups(found), arrangement=arrangement), used


def _coordinates(labels: Mapping[str, Coordinate], data: Mapping[str, Array]) -> tuple[dict[str, Coordinate], set[str]]:
    """Labels that are coordinates, by path, and the paths where they lie: labels that are alike everywhere are one."""
    sizes = _by_dimension(data)
    by_name: dict[str, dict[str, Coordinate]] = {}
    for path, said in labels.items():
        by_name.setdefault(said.name, {})[path] = said
    coordinates: dict[str, Coordinate] = {}
    used: set[str] = set()
    for name, held in by_name.items():
        first = next(iter(held.values()))
        if sizes.get(first.dims[0]) == {first.values.size} and all(_agree(first, said) for said in held.values()):
            coordinates[name] = first
            used |= held.keys()
            continue
        fitting, before = dict(held), 0
        while len(fitting) != before:
            # Labels that do not fit an array stay an array; those above may then be the nearest.
            before, served = len(fitting), _served(fitting, data)
            fitting = {path: said for path, said in fitting.items() if served.get(path) == {said.values.size}}
        coordinates |= fitting
        used |= fitting.keys()
    return coordinates, used


def _served(labels: Mapping[str, Coordinate], data: Mapping[str, Array]) -> dict[str, set[int]]:
    """The extents of the arrays that labels of one name are the nearest of, by the path of the labels."""
    name = next(iter(labels)).rpartition("/")[2] if labels else ""
    found: dict[str, set[int]] = {}
    for group in data if labels else ():
        array = data[group]
        while group:
            group = group.rpartition("/")[0]
            path = f"{group}/{name}" if group else name
            if path in labels and labels[path].dims[0] in array.dims:
                found.setdefault(path, set()).add(array.shape[array.dims.index(labels[path].dims[0])])
                break
    return found


def _agree(one: Coordinate, two: Coordinate) -> bool:
    """Whether labels are the same."""
    return (one.dims, one.values.shape) == (two.dims, two.values.shape) and bool((one.values == two.values).all())


def _grid_mapping(
    array: Array, group: str, found: Nodes, arrays: Mapping[str, Described]
) -> tuple[str, Mapping[str, Any]] | None:
    name = array.attributes.get("grid_mapping")
    path = f"{group}/{name}" if group else str(name)
    if not isinstance(name, str) or path not in arrays:
        return None
    return path, found.attributes.get(path, arrays[path].array.attributes)


def _levels(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Level of every group that a multiscales layout names."""
    levels: dict[str, int] = {}
    for group, attributes in groups.items():
        said = attributes.get("multiscales")
        layout = said.get("layout") if isinstance(said, Mapping) else None
        for level, item in enumerate(layout if isinstance(layout, list) else []):
            if isinstance(item, Mapping) and isinstance(item.get("asset"), str) and level < 256:
                levels[f"{group}/{item['asset']}" if group else item["asset"]] = level
    return levels


def _level(path: str, levels: Mapping[str, int]) -> int:
    return levels.get(path, levels.get(path.rpartition("/")[0], 0))


def _by_group(data: Mapping[str, Array]) -> dict[str, list[Array]]:
    found: dict[str, list[Array]] = {}
    for path, array in data.items():
        found.setdefault(path.rpartition("/")[0], []).append(array)
    return found


def _by_dimension(data: Mapping[str, Array]) -> dict[str, set[int]]:
    """The sizes that every dimension has."""
    found: dict[str, set[int]] = {}
    for array in data.values():
        for dim, size in zip(array.dims, array.shape, strict=True):
            found.setdefault(dim, set()).add(size)
    return found


def _is_computed(labels: Coordinate, beside: Sequence[Array]) -> bool:
    """Whether the arrays beside these labels say the same: their transform, or the names and numbers of their bands."""
    dim = labels.name
    holders = [array for array in beside if dim in array.dims]
    if not holders:
        return False
    if dim in ("x", "y"):
        return all(_is_placed(array.georeference) for array in holders)
    values = labels.values.tolist()
    return dim == "bands" and (
        values == list(range(1, len(values) + 1)) or any(a.attributes.get("band_names") == values for a in holders)
    )


def _is_placed(place: Georeference | None) -> bool:
    return place is not None and place.transform is not None


def _groups(found: Nodes) -> dict[str, Mapping[str, Any]]:
    """Attributes of groups, without those that the arrays' own places and levels say again."""
    kept: dict[str, Mapping[str, Any]] = {}
    for path, attributes in found.groups.items():
        said = {
            key: value
            for key, value in attributes.items()
            if key not in ("multiscales", "zarr_conventions") and not key.startswith(("spatial:", "proj:"))
        }
        if said:
            json.dumps(said)  # JSON came in, JSON goes out
            kept[checked_name(path) if path else ""] = said
    return kept
