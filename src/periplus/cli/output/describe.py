"""The content of an index as JSON values, for `periplus info`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.arrangement import REPLACED
from periplus.errors import redact

if TYPE_CHECKING:
    from periplus import Index
    from periplus.arrays import IndexArray
    from periplus.model import BBox, Codec, Coordinate, Pipeline

COMPRESSIONS = {
    1: "none", 2: "CCITT RLE", 3: "CCITT T.4", 4: "CCITT T.6", 5: "LZW", 6: "old JPEG", 7: "JPEG", 8: "deflate",
    32766: "NeXT", 32773: "PackBits", 32809: "ThunderScan", 32946: "deflate", 33003: "JPEG 2000", 33004: "JPEG 2000",
    33005: "JPEG 2000", 34676: "LogLuv", 34677: "LogLuv 24", 34712: "JPEG 2000", 34887: "LERC", 34892: "JPEG",
    34925: "LZMA", 34926: "zstd", 34927: "WebP", 34933: "PNG", 34934: "JPEG XR", 50000: "zstd", 50001: "WebP",
    50002: "JPEG XL", 52546: "JPEG XL",
}  # fmt: skip
"""Names of TIFF compression numbers."""


def describe(index: Index, url: str, *, most: int | None = None) -> dict[str, Any]:
    """Arrays, bounding boxes, times, files and failures of an index; with `most`, only the first arrays are described.

    Describing all arrays of a collection of 100,000 files takes half a minute.
    """
    files, catalog = index.files, index.table.catalog
    several = most is not None and len(index.arrays) > most
    names = islice(index.arrays, most) if several else index.arrays
    arrays = [describe_array(index.arrays[name]) for name in names]
    failed, replaced = failures(index), replacements(index)
    return {
        "index": redact(url),
        "rows": index.table.rows,
        # Older indexes store facts about every file there, for appending.
        "arrangement": {
            name: value for name, value in catalog.arrangement.items() if name not in ("members", "groups")
        },
        "array_count": len(index.arrays),
        "arrays": arrays,
        "bbox": boxes_of_grid(index) if several else boxes(arrays),
        "coordinates": {name: describe_coordinate(c) for name, c in catalog.coordinates.items()},
        "groups": {} if several else {name: plain(value) for name, value in catalog.attributes.items()},
        "files": {
            "count": len(files),
            "bytes": int(files.size[files.size > 0].sum()),
            "formats": dict(Counter(name for name in files.format if name).most_common()),
            "taken": describe_values(np.asarray(files.datetime)),
            "failed": len(failed),
            "errors": failed,
            "replaced": len(replaced),
            "replacements": replaced,
        },
    }


def failures(index: Index) -> list[dict[str, Any]]:
    """Every file that could not be indexed, and why."""
    return [row for row in _left_out(index) if not str(row["error"]).startswith(REPLACED)]


def replacements(index: Index) -> list[dict[str, Any]]:
    """Every file that is in no array because another file is used instead, and why."""
    return [row for row in _left_out(index) if str(row["error"]).startswith(REPLACED)]


def _left_out(index: Index) -> list[dict[str, Any]]:
    rows = zip(index.files.path, index.files.status, index.files.error, strict=True)
    return [{"path": redact(path), "error": error} for path, status, error in rows if status != "ok"]


def describe_array(array: IndexArray) -> dict[str, Any]:
    """One array, with its georeference and its encodings in words."""
    place, box = array.georeference, array.bbox
    by_rpc = place is not None and place.transform is None and not place.gcps
    return {
        "name": array.name,
        "dims": list(array.dims),
        "shape": list(array.shape),
        "chunks": list(array.chunks),
        "dtype": str(array.dtype).lstrip("<>|"),
        "level": array.level,
        "nodata": plain(array.attrs.get("_FillValue")),
        "crs": None if place is None else "EPSG:4326" if by_rpc and box is not None else place.crs,
        "transform": None if place is None or place.transform is None else list(place.transform),
        "bbox": None if box is None else list(box),
        "gcps": [] if place is None else [[p.column, p.row, p.x, p.y, p.z] for p in place.gcps],
        "rpc": None if place is None else plain(place.rpc),
        "encodings": list(dict.fromkeys(words(encoding.codecs) for encoding in array.array.encodings)),
        "attributes": plain(array.attrs),
    }


def describe_coordinate(coordinate: Coordinate) -> dict[str, Any]:
    """The number of values of a coordinate, and the smallest and largest known value."""
    return {**describe_values(coordinate.values), "count": int(coordinate.values.size)}


def describe_values(values: NDArray[Any]) -> dict[str, Any]:
    """The number of known values, and the smallest and largest of them."""
    if values.dtype.kind in "mM":
        values = values[~np.isnat(values)]
    elif values.dtype.kind == "f":
        values = values[~np.isnan(values)]
    ends: list[Any] = []
    if values.size:
        # NumPy has no minimum of text.
        ends = [f(values.tolist()) for f in (min, max)] if values.dtype.kind in "OSUT" else [values.min(), values.max()]
    first, last = (plain(end) for end in ends or (None, None))
    return {"count": int(values.size), "first": first, "last": last}


def boxes_of_grid(index: Index) -> list[dict[str, Any]]:
    """Like `boxes`, for all arrays of the index by one query."""
    found = index.sql(
        "select crs, min(xmin) as a, min(ymin) as b, max(xmax) as c, max(ymax) as d from grid where level = 0 "
        "group by crs order by count(*) desc, crs"
    )
    return [{"crs": row["crs"], "bbox": [row[edge] for edge in "abcd"]} for row in found.to_pylist()]


def boxes(arrays: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bounding box of all images of each CRS, at level 0: pixels of coarser levels may extend beyond the image."""
    around: dict[str | None, BBox] = {}
    for array in arrays:
        if (box := array["bbox"]) is not None and array["level"] == 0:
            before = around.get(array["crs"], box)
            least, most = map(min, zip(before, box, strict=True)), map(max, zip(before, box, strict=True))
            around[array["crs"]] = (*list(least)[:2], *list(most)[2:])
    return [{"crs": crs, "bbox": list(box)} for crs, box in around.items()]


def words(pipeline: Pipeline) -> str:
    """A codec pipeline in words."""
    found = [word for codec in pipeline if (word := _word(codec)) is not None]
    return " + ".join(found) or "none"


def _word(codec: Codec) -> str | None:
    name, settings = str(codec.get("name", "?")), codec.get("configuration") or {}
    if name == "transpose":
        return None
    if name == "bytes":
        return "big endian" if settings.get("endian") == "big" else None
    short = name.rpartition("/")[2].removeprefix("numcodecs.").removeprefix("periplus.")
    if short == "zlib":
        return "deflate"
    if short != "tiff-tile":
        return short
    code = settings.get("compression")
    parts = [COMPRESSIONS.get(code, f"compression {code}")] if isinstance(code, int) else [short]
    if settings.get("predictor", 1) != 1:
        parts.append(f"predictor {settings['predictor']}")
    if settings.get("bits_per_sample", 8) not in (8, 16, 32, 64):
        parts.append(f"{settings['bits_per_sample']} bits")
    return ", ".join(parts)


def plain(value: Any) -> Any:
    """A value for JSON: NumPy scalars as Python values, times as ISO text, NaN and infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "dtype") and value.dtype.kind == "M":
        return str(value.astype("datetime64[s]")) + "Z"
    if hasattr(value, "item"):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, complex | bytes):
        return str(value)
    return value
