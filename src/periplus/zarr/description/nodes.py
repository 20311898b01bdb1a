"""One Zarr array of an index as plain data: its metadata document, and whether its chunks are the stored bytes."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from periplus.errors import FormatError
from periplus.forks import cached_property
from periplus.model import Array, Catalog, Pipeline
from periplus.read.place import fill_of
from periplus.zarr.description.codecs import KINDS, array_document, data_type, fill_value, jsonable, plain, zarr_codecs
from periplus.zarr.description.geozarr import place
from periplus.zarr.description.labels import GroupLabels, group_labels

Codecs = Literal["none", "standard", "imagery", "all"]
CODECS: tuple[Codecs, ...] = ("none", "standard", "imagery", "all")
"""Which codecs chunks may be returned with: none (all are decoded), those of stock Zarr, also the five of imagery
tools, also our own."""
PACKING = {"_FillValue": "band_nodata", "scale_factor": "band_scales", "add_offset": "band_offsets"}
"""CF attributes of a whole array, and our names for them where bands differ."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaf:
    """One Zarr array: an array of the index, or labels that are computed."""

    path: str
    document: Mapping[str, Any]
    """Its Zarr v3 metadata."""
    array: Array | None = None
    """The array of the index; None for labels."""
    kind: str = "computed"
    """`standard`, `imagery`, `ours`, `decoded` (see codecs.py), or `computed`."""
    raw: bool = False
    """Whether its chunks are the stored bytes; else they are plain little-endian values in C order."""
    why: str = ""
    """Why its chunks are not returned as they are stored."""
    compute: Callable[[tuple[int, ...]], bytes | None] | None = None
    """Labels only: the bytes of the chunk at a position."""
    pipeline: Pipeline = ()
    """The codecs of stored chunks as our decoders take them; empty where these cannot be returned."""

    @property
    def dotted(self) -> dict[str, Any]:
        """The metadata with a dot between the numbers of chunk keys, which keeps them in one folder."""
        return {**self.document, "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}}

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk, by the metadata."""
        return tuple(self.document["chunk_grid"]["configuration"]["chunk_shape"])

    @cached_property
    def exact(self) -> int | None:
        """Bytes that a stored chunk must have; None where it is compressed, or not returned as it is stored."""
        if (
            self.array is None
            or not self.raw
            or any(codec["name"] not in ("transpose", "bytes") for codec in self.document["codecs"])
        ):
            return None
        return math.prod(self.chunks) * self.array.dtype.itemsize

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each dimension, by the metadata."""
        return tuple(-(-n // c) for n, c in zip(self.document["shape"], self.chunks, strict=True))


def leaves_of(catalog: Catalog, group: str, arrays: Sequence[Array], codecs: Codecs) -> dict[str, Leaf]:
    """The arrays of one group by path, and the labels of the group."""
    fitted, sizes = _fitted(arrays)
    around = group_labels(catalog, fitted, sizes)
    found = {array.name: _leaf(array, own, around, codecs) for array, own in zip(fitted, arrays, strict=True)}
    for name, label in around.labels.items():
        path = f"{group}/{name}" if group else name
        if path not in found:
            found[path] = Leaf(path=path, document=label.document(), compute=label.chunk)
    return found


def _fitted(arrays: Sequence[Array]) -> tuple[list[Array], dict[str, int]]:
    """The arrays of one group with dimensions that agree: `bands` of a mask is `mask_bands` where there are others."""
    sizes: dict[str, int] = {}
    # The mask comes last, so that its dimensions are the ones renamed.
    order = sorted(range(len(arrays)), key=lambda i: (arrays[i].is_mask, i))
    made: dict[int, Array] = {}
    for i in order:
        array = arrays[i]
        name = array.name.rpartition("/")[2]
        dims = []
        for dim, size in zip(array.dims, array.shape, strict=True):
            dims.append(dim if sizes.setdefault(dim, size) == size else f"{name}_{dim}")
        made[i] = replace(array, dims=tuple(dims))
    return [made[i] for i in range(len(arrays))], sizes


def _leaf(array: Array, original: Array, around: GroupLabels, codecs: Codecs) -> Leaf:
    found = zarr_codecs(original)  # clipped chunks name dimensions of the array itself
    raw = KINDS.index(found.kind) < CODECS.index(codecs)
    why = found.why or (
        "" if raw else f"its codecs are not those of {'stock Zarr' if codecs == 'standard' else codecs}"
    )
    document = array_document(
        array.shape,
        array.chunks,
        array.dims,
        codecs=found.codecs if raw else plain(array.dtype),
        attributes={**_attributes(array, around), **place(array)},
        data_type=data_type(array.dtype),
        fill_value=fill_value(fill_of(array)),
    )
    return Leaf(
        path=array.name,
        document=document,
        array=original,
        kind=found.kind,
        raw=raw,
        why=why,
        pipeline=found.pipeline,
    )


def _attributes(array: Array, around: GroupLabels) -> dict[str, Any]:
    """Attributes as xarray and CF expect them, with the grid mapping's name."""
    attributes: dict[str, Any] = {}
    for name, value in array.attributes.items():
        if isinstance(value, list | tuple) and name in PACKING:
            attributes[PACKING[name]] = value
        elif name == "_FillValue":
            encoded = _nodata(value, array.dtype)
            if encoded is not None:
                attributes[name] = encoded
        elif name in PACKING and value is not None:
            attributes[name] = _number(value, f"{name} of {array.name}")
        elif value is not None:
            attributes[name] = value
    if array.name in around.mappings:
        attributes["grid_mapping"] = around.mappings[array.name]
    named = attributes.pop("coordinates", "")
    names = dict.fromkeys([*(named.split() if isinstance(named, str) else ()), *around.auxiliary(array)])
    if names:
        attributes["coordinates"] = " ".join(names)
    answer: dict[str, Any] = jsonable(attributes)
    return answer


def _number(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise FormatError(f"{what} is {value!r:.40}, which is not a number") from None


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
