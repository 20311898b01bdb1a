"""Zarr v3 metadata of an index as plain dicts: groups, arrays, labels. Pure; every Zarr exit begins here.

An index's own arrays keep their names. Beside them each group gets what tools that know no convention need: labels of x
and y, times, names of bands, and `spatial_ref`, the CF grid mapping. `layout` says for each array whether its chunks
can be handed out as they are stored.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from periplus.model import Array, Catalog
from periplus.read.place import fill_of
from periplus.zarr.express import KINDS, express, jsonable, plain
from periplus.zarr.geozarr import place, pyramid
from periplus.zarr.labels import GRID_MAPPING, labels

Codecs = Literal["none", "standard", "imagery", "all"]
CODECS: tuple[Codecs, ...] = ("none", "standard", "imagery", "all")
"""Which codecs chunks may be handed out with: none (all are decoded), those of stock Zarr, also the five of imagery
tools, also our own."""
PACKING = {"_FillValue": "band_nodata", "scale_factor": "band_scales", "add_offset": "band_offsets"}
"""What CF says of a whole array, and our names where bands differ in it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leaf:
    """One Zarr array: an array of the index, or labels that are computed."""

    path: str
    document: Mapping[str, Any]
    """Its Zarr v3 metadata."""
    array: Array | None = None
    """The array of the index; None for labels."""
    kind: str = "computed"
    """`standard`, `imagery`, `ours`, `decoded` (see express.py), or `computed`."""
    raw: bool = False
    """Whether its chunks are the stored bytes; else they are plain little-endian values in C order."""
    why: str = ""
    """Why its chunks are not handed out as they are stored."""
    compute: Callable[[tuple[int, ...]], bytes | None] | None = None
    """Labels only: the bytes of the chunk at a position."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each dimension, as the metadata say."""
        chunks = self.document["chunk_grid"]["configuration"]["chunk_shape"]
        return tuple(-(-n // c) for n, c in zip(self.document["shape"], chunks, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A whole index in Zarr's words. Paths have no leading slash; the root is the empty string."""

    groups: Mapping[str, Mapping[str, Any]]
    """Metadata of groups, parents before children."""
    leaves: Mapping[str, Leaf]

    @property
    def documents(self) -> dict[str, Mapping[str, Any]]:
        """Metadata of every node by path."""
        return {**self.groups, **{path: leaf.document for path, leaf in self.leaves.items()}}

    def consolidated(self, path: str = "") -> dict[str, Any]:
        """The metadata of a group with that of everything below it inline, as zarr-python consolidates it."""
        prefix = f"{path}/" if path else ""
        below = {
            name[len(prefix) :]: document
            for name, document in sorted(self.documents.items())
            if name.startswith(prefix) and name != path
        }
        return {
            **self.groups[path],
            "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": below},
        }


def documents(catalog: Catalog, *, codecs: Codecs = "all") -> dict[str, Mapping[str, Any]]:
    """Zarr v3 metadata of every group and array by path; the root is the empty string."""
    return layout(catalog, codecs=codecs).documents


def layout(catalog: Catalog, *, codecs: Codecs = "all") -> Layout:
    """The index in Zarr's words; arrays that need other codecs than those asked for are presented as plain values."""
    if codecs not in CODECS:
        raise ValueError(f"codecs must be one of {', '.join(CODECS)}, not {codecs!r}")
    by_group: dict[str, list[Array]] = {}
    for array in catalog.arrays.values():
        by_group.setdefault(parent(array.name), []).append(array)
    leaves: dict[str, Leaf] = {}
    attributes: dict[str, dict[str, Any]] = {
        path: {} for name in (*by_group, *catalog.attributes) for path in _ancestry(name)
    }
    for group, arrays in by_group.items():
        fitted, sizes = _fitted(arrays)
        for array, original in zip(fitted, arrays, strict=True):
            leaves[array.name] = _leaf(array, original, codecs)
        for name, label in labels(catalog, fitted, sizes).items():
            path = f"{group}/{name}" if group else name
            if path not in leaves and path not in attributes:
                leaves[path] = Leaf(path=path, document=label.document(), compute=label.chunk)
        attributes[group] |= _level(fitted)
    for group, found in _pyramids(catalog).items():
        attributes[group] = {**pyramid(*found), **{k: v for k, v in attributes[group].items() if k not in _OWNED}}
    for name, own in catalog.attributes.items():
        attributes[name] = {**jsonable({k: v for k, v in own.items() if v is not None}), **attributes[name]}
    groups = {
        path: {"zarr_format": 3, "node_type": "group", "attributes": attributes[path]} for path in sorted(attributes)
    }
    return Layout(groups, leaves)


_OWNED = ("zarr_conventions",)


def parent(name: str) -> str:
    """The group an array lies in."""
    return name.rpartition("/")[0]


def _ancestry(group: str) -> Iterator[str]:
    """The root, and every group on the way to this one."""
    parts = group.split("/") if group else []
    for n in range(len(parts) + 1):
        yield "/".join(parts[:n])


def _fitted(arrays: Sequence[Array]) -> tuple[list[Array], dict[str, int]]:
    """The arrays of one group with dimensions that agree: `bands` of a mask is `mask_bands` where there are others."""
    sizes: dict[str, int] = {}
    fitted = []
    # The mask comes last, so that it is the one whose dimensions give way.
    order = sorted(range(len(arrays)), key=lambda i: (arrays[i].name.rpartition("/")[2] == "mask", i))
    made: dict[int, Array] = {}
    for i in order:
        array = arrays[i]
        name = array.name.rpartition("/")[2]
        dims = []
        for dim, size in zip(array.dims, array.shape, strict=True):
            dims.append(dim if sizes.setdefault(dim, size) == size else f"{name}_{dim}")
        made[i] = replace(array, dims=tuple(dims))
    fitted = [made[i] for i in range(len(arrays))]
    return fitted, sizes


def _level(arrays: Sequence[Array]) -> dict[str, Any]:
    """Attributes of a group whose arrays lie on one grid: where that is."""
    places = [place(array) for array in arrays if array.georeference is not None]
    return places[0] if places and all(one == places[0] for one in places) else {}


def _pyramids(catalog: Catalog) -> dict[str, tuple[list[Array], list[str]]]:
    """The image of every group that holds levels: the one with most pixels, its levels and their names in the group."""
    best: dict[str, tuple[int, list[Array], list[str]]] = {}
    for name, levels in catalog.pyramids().items():
        group = parent(name)
        if any(array.name == name for array in levels) or name.rpartition("/")[2] == "mask":
            continue  # its name has no level in it
        names = [parent(array.name)[len(group) + 1 if group else 0 :] for array in levels]
        pixels = math.prod(levels[0].shape)
        if group not in best or pixels > best[group][0]:
            best[group] = pixels, levels, names
    return {group: (levels, names) for group, (_, levels, names) in best.items()}


def _leaf(array: Array, original: Array, codecs: Codecs) -> Leaf:
    said = express(array)
    raw = KINDS.index(said.kind) < CODECS.index(codecs)
    why = said.why or ("" if raw else f"its codecs are not those of {'stock Zarr' if codecs == 'standard' else codecs}")
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(array.chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": jsonable(fill_of(array)),
        "codecs": [dict(codec) for codec in (said.codecs if raw else plain(array.dtype))],
        "attributes": {**_attributes(array), **place(array)},
        "dimension_names": list(array.dims),
    }
    return Leaf(path=array.name, document=document, array=original, kind=said.kind, raw=raw, why=why)


def _attributes(array: Array) -> dict[str, Any]:
    """Attributes as xarray and CF expect them, with the grid mapping's name."""
    said: dict[str, Any] = {}
    for name, value in array.attributes.items():
        if isinstance(value, list | tuple) and name in PACKING:
            said[PACKING[name]] = value
        elif name == "_FillValue":
            encoded = _nodata(value, array.dtype)
            if encoded is not None:
                said[name] = encoded
        elif value is not None:
            said[name] = value
    if array.georeference is not None:
        said.setdefault("grid_mapping", GRID_MAPPING)
        said.setdefault("coordinates", GRID_MAPPING)
    answer: dict[str, Any] = jsonable(said)
    return answer


def _nodata(value: Any, dtype: np.dtype[Any]) -> Any:
    """`_FillValue` as xarray writes it in Zarr v3: floats in base64; None where no stored value can equal it."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", number)).decode()
    if dtype.kind not in "iu" or not math.isfinite(number) or number != int(number):
        return None
    exact, limits = int(value), np.iinfo(dtype)
    return exact if limits.min <= exact <= limits.max else None
