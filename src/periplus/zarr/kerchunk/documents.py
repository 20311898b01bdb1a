"""Metadata documents of kerchunk references, for Zarr v2 or v3; NotRepresentableError for arrays they cannot have."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from periplus.conventions.node import DIMENSIONS
from periplus.decode.pipeline import LIST
from periplus.model import Array, Inline, Refs, chunk_positions
from periplus.model.codecnames import IMAGERY
from periplus.parse.zarr.dtypes import is_number
from periplus.read.place import fill_of
from periplus.zarr.codecs.translate import NotRepresentableError, imagery_fault, v2_of
from periplus.zarr.description.codecs import KINDS, as_one, fill_value, jsonable, last_rows, with_facts
from periplus.zarr.description.metadata import CODECS, Codecs, Leaf, ZarrLayout, with_consolidated
from periplus.zarr.description.slabs import Slab

NAMES = {"standard": "stock Zarr", "imagery": "stock Zarr and imagery tools"}


def check_representable(leaf: Leaf, array: Array, codecs: Codecs) -> None:
    """NotRepresentableError where the chunks of an array have no list of allowed codecs."""
    if leaf.kind == "decoded":
        raise NotRepresentableError(leaf.why)
    if KINDS.index(leaf.kind) < CODECS.index(codecs):
        return
    first = with_facts(array.encodings[0], array)[0]
    fault = imagery_fault(first) if str(first["name"]).startswith(IMAGERY) else None
    if codecs == "imagery" and fault is not None:
        raise NotRepresentableError(f"imagery tools {fault}; use codecs='all'")
    short = last_rows(array.encodings[0], array) is not None
    strips = "its last strips are shorter than others, which" if short else "it"
    raise NotRepresentableError(f"{strips} needs codecs other than those of {NAMES.get(codecs, codecs)}")


# --- version 2 ------------------------------------------------------------------------------------------------------


def v2_array(leaf: Leaf, array: Array, codecs: Codecs) -> dict[str, Any]:
    """`.zarray` and `.zattrs` of an array of the index."""
    pipeline = leaf.pipeline
    try:
        coded = v2_of(pipeline, chunks=array.chunks, dtype=array.dtype)
        if codecs == "standard" and any(str(one["id"]).startswith(IMAGERY) for one in coded["filters"] or ()):
            raise NotRepresentableError("stock Zarr v2 has no codec for bands stored pixel by pixel")
    except NotRepresentableError as error:
        if not is_number(array.dtype):
            raise
        if codecs != "all":
            raise NotRepresentableError(f"{error.message}; use zarr_format=3") from None
        whole = pipeline[0] if pipeline[0]["name"] == LIST else as_one(pipeline, array.chunks, array.dtype)
        filters = [{"id": LIST, **whole["configuration"]}]
        coded = {"dtype": array.dtype.newbyteorder("<").str, "order": "C", "filters": filters, "compressor": None}
    attributes = {key: value for key, value in leaf.document["attributes"].items() if key != "_FillValue"}
    fill, nodata = array.fill or 0, array.attributes.get("_FillValue")
    stored_fill = jsonable(array.fill) if array.fill is None or is_number(array.dtype) else fill_value(fill_of(array))
    same = isinstance(nodata, int | float | np.generic) and (fill == nodata or (fill != fill and nodata != nodata))
    if "_FillValue" in leaf.document["attributes"] and not (same and fill):
        # Zero is the default of Zarr v2, and so does not declare nodata by itself.
        attributes["_FillValue"] = jsonable(nodata)
    return {
        ".zarray": {
            "zarr_format": 2,
            "shape": list(array.shape),
            "chunks": list(array.chunks),
            # xarray takes the fill value of Zarr v2 for nodata: omit it where zero only stands for missing chunks.
            "fill_value": stored_fill if same or fill else None,
            "dimension_separator": ".",
            **jsonable(coded),
        },
        ".zattrs": {**attributes, DIMENSIONS: leaf.document["dimension_names"]},
    }


def v2_labels(leaf: Leaf) -> dict[str, Any]:
    """`.zarray` and `.zattrs` of labels that are computed."""
    document = leaf.document
    words = document["data_type"] == "string"
    return {
        ".zarray": {
            "zarr_format": 2,
            "shape": document["shape"],
            "chunks": list(leaf.chunks),
            "dtype": "|O" if words else np.dtype(document["data_type"]).newbyteorder("<").str,
            "fill_value": "" if words else None,
            "order": "C",
            "filters": [{"id": "vlen-utf8"}] if words else None,
            "compressor": None,
            "dimension_separator": ".",
        },
        ".zattrs": {**document["attributes"], DIMENSIONS: document["dimension_names"]},
    }


# --- version 3 ------------------------------------------------------------------------------------------------------


def v3_array(leaf: Leaf) -> dict[str, Any]:
    """`zarr.json` of an array of the index, or of labels."""
    listed = [
        # zarr-python wants settings of these, if only an empty set.
        {**codec, "configuration": codec.get("configuration", {})} if codec["name"].startswith("numcodecs.") else codec
        for codec in leaf.document["codecs"]
    ]
    return {"zarr.json": {**leaf.dotted, "codecs": listed}}


def documents_of(
    layout: ZarrLayout, leaves: Mapping[str, Mapping[str, Any]], *, zarr_format: int
) -> dict[str, Mapping[str, Any]]:
    """Every metadata document by key; `leaves` are those of arrays and labels, by path."""
    found: dict[str, Mapping[str, Any]] = {}
    for path, document in layout.groups.items():
        prefix = f"{path}/" if path else ""
        if zarr_format == 2:
            found[f"{prefix}.zgroup"] = {"zarr_format": 2}
            found[f"{prefix}.zattrs"] = document["attributes"]
        else:
            found[f"{prefix}zarr.json"] = document
    for path, documents in leaves.items():
        for name, document in documents.items():
            found[f"{path}/{name}"] = document
    # zarr-python takes neighbours in consolidated metadata for the children of one group.
    return {key: found[key] for key in sorted(found, key=lambda key: (key.rpartition("/")[0], key))}


def consolidated(documents: Mapping[str, Mapping[str, Any]], *, zarr_format: int) -> dict[str, Mapping[str, Any]]:
    """The documents and, in the way of their version, all of them at the root."""
    if zarr_format == 2:
        return {**documents, ".zmetadata": {"zarr_consolidated_format": 1, "metadata": dict(documents)}}
    below = {key.removesuffix("/zarr.json"): doc for key, doc in sorted(documents.items()) if key != "zarr.json"}
    return {**documents, "zarr.json": with_consolidated(documents["zarr.json"], below)}


def label_rows(leaf: Leaf) -> Slab:
    """All chunks of labels, inline."""
    assert leaf.compute is not None
    data = [leaf.compute(place) or b"" for place in product(*(range(n) for n in leaf.grid))]
    count = len(data)
    refs = Refs(
        chunk=chunk_positions(leaf.grid),
        offset=np.zeros(count, np.int64),
        length=np.array([len(item) for item in data], np.int64),
        file=np.full(count, -1, np.int32),
        inline=Inline.of(data),
    )
    return Slab(refs, np.arange(count + 1), np.arange(count))
