"""The nouns that pass between packages: Source, Encoding, Array, Refs, Files, Coordinate, Catalog. All frozen data."""

from __future__ import annotations

from periplus.model.arrays import (
    MOST_LEVELS,
    RPC_COEFFICIENTS,
    RPC_NAMES,
    Array,
    BBox,
    Codec,
    Encoding,
    Georeference,
    GroundControlPoint,
    Pipeline,
    Region,
    Scalar,
    Shape,
    Transform,
    codecs_text,
    pyramid_of,
)
from periplus.model.catalog import Catalog, Coordinate, Placements
from periplus.model.files import Files, Source, TypedColumns
from periplus.model.refs import Bundle, Inline, Refs, chunk_positions
from periplus.model.steps import About, FirstSidecar, FolderListing, Found, Need, Step, Steps

__all__ = [
    "MOST_LEVELS",
    "RPC_COEFFICIENTS",
    "RPC_NAMES",
    "About",
    "Array",
    "BBox",
    "Bundle",
    "Catalog",
    "Codec",
    "Coordinate",
    "Encoding",
    "Files",
    "FirstSidecar",
    "FolderListing",
    "Found",
    "Georeference",
    "GroundControlPoint",
    "Inline",
    "Need",
    "Pipeline",
    "Placements",
    "Refs",
    "Region",
    "Scalar",
    "Shape",
    "Source",
    "Step",
    "Steps",
    "Transform",
    "TypedColumns",
    "chunk_positions",
    "codecs_text",
    "pyramid_of",
]
