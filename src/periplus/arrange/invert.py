"""The way back: from the arrays of an arrangement to those of single files, so that no harvest is stored twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.packing import NAMES, lowered, split_unpack, without_packing
from periplus.model import Array, Catalog, Files, Refs


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an array of an arrangement comes from."""

    prefix: str
    """The group or series; the root is the empty string."""
    name: str
    """The array's name in its file."""


def origins(catalog: Catalog, files: Files | None = None) -> dict[str, Origin] | None:
    """Every array's prefix and name in its file; None where the arrangement is not one of ours."""
    arrangement = catalog.arrangement
    kind = arrangement.get("kind")
    told = arrangement.get("series") or ("",)
    if kind == "collect":
        told = () if files is None or "group" not in files.columns else files.columns["group"].tolist()
    if kind not in ("collect", "stack") or not isinstance(told, list | tuple):
        return None
    prefixes = {prefix for prefix in told if isinstance(prefix, str)}
    found = {}
    for name in catalog.arrays:
        parts = name.split("/")
        for k in range(len(parts) - 1, -1, -1):
            prefix = "/".join(parts[:k])
            if prefix in prefixes:
                found[name] = Origin(prefix=prefix, name="/".join(parts[k:]))
                break
        else:
            return None
    return found


def is_stack(catalog: Catalog) -> bool:
    """Whether arrays have a dimension that their files do not have."""
    return catalog.arrangement.get("kind") == "stack"


def unstacked(array: Array, name: str, codes: Sequence[int]) -> Array:
    """A file's array, from the stacked one and the numbers of the pipelines the file uses."""
    pipelines, unpack = [], None
    for code in codes if array.encodings else ():
        unpack, rest = split_unpack(array.encodings[code])
        pipelines.append(lowered(rest))
    dtype, fill, attributes = array.dtype, array.fill, dict(array.attributes)
    if unpack is not None:
        settings: Mapping[str, Any] = unpack["configuration"]
        dtype = np.dtype(settings["dtype"])
        fill = settings["nodata"]
        packing = zip(NAMES, (settings["nodata"], settings["scale"], settings["offset"]), strict=True)
        attributes = without_packing(attributes) | {key: value for key, value in packing if value is not None}
    return Array(
        name=name,
        dims=array.dims[1:],
        shape=array.shape[1:],
        chunks=array.chunks[1:],
        dtype=dtype,
        fill=fill,
        encodings=tuple(pipelines),
        attributes=attributes,
        level=array.level,
        georeference=array.georeference,
        edges=None if array.edges is None else array.edges[1:],
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Undone:
    """One block of references, taken apart: rows sorted by file, with positions inside the file."""

    refs: Refs
    """Still with the arrangement's own numbers of pipelines."""
    files: NDArray[np.int64]
    """File ids in the block."""
    starts: NDArray[np.int64]
    """Where each file's rows begin, and the end: one more than files."""
    codes: list[tuple[int, ...]] = field(default_factory=list)
    """Pipelines each file uses."""


def undo(refs: Refs, *, stacked: bool) -> Undone:
    """Split a block by file; rows without a file (inline bytes) must not be in it."""
    file = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
    order = np.argsort(file, kind="stable")
    refs = refs.take(order)
    if stacked:
        refs = Refs(
            chunk=refs.chunk[1:],
            offset=refs.offset,
            length=refs.length,
            part=refs.part,
            encoding=refs.encoding,
            inline=refs.inline,
        )
    ordered = file[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    files = ordered[starts].astype(np.int64)
    ends = np.append(starts, len(ordered))
    codes: list[tuple[int, ...]] = [(0,)] * len(files)
    if refs.encoding is not None:
        limits = zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
        codes = [tuple(np.unique(refs.encoding[a:b]).tolist()) for a, b in limits]
    return Undone(refs=refs, files=files, starts=ends.astype(np.int64), codes=codes)
