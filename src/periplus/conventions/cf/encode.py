"""CF: times as numbers since an epoch, transforms and ground control points as text for a grid mapping."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.model import GroundControlPoint, Transform

EPOCH = "1970-01-01"
_UNITS = {"D": "days", "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_MISSING = np.iinfo(np.int64).min


def encode_time(values: NDArray[np.datetime64]) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """Integers in the coarsest unit that loses nothing, and the CF attributes that declare it.

    Missing times (NaT) become `_FillValue`, the smallest int64, as NumPy itself stores them.
    """
    times = np.asarray(values)
    if times.dtype.kind != "M":
        raise TypeError(f"times must be datetime64, not {times.dtype}")
    missing = np.isnat(times)
    exact = (code for code in _UNITS if bool(np.all((times.astype(f"datetime64[{code}]") == times) | missing)))
    unit = next(exact, "ns")
    attributes: dict[str, Any] = {"units": f"{_UNITS[unit]} since {EPOCH}", "calendar": "proleptic_gregorian"}
    if bool(missing.any()):
        attributes["_FillValue"] = np.int64(_MISSING)
    return times.astype(f"datetime64[{unit}]").astype(np.int64), attributes


def geotransform(transform: Transform) -> str:
    """The six numbers in GDAL's order (c a b f d e), as rioxarray and GDAL read them from a grid mapping."""
    a, b, c, d, e, f = (float(v) for v in transform)
    return " ".join(repr(v) for v in (c, a, b, f, d, e))


def transform_of(value: Any) -> Transform | None:
    """The transform of such a text; None where it is none, or has no inverse."""
    try:
        c, a, b, f, d, e = (float(word) for word in value.split())
    except (AttributeError, ValueError):
        return None
    finite = all(map(math.isfinite, (a, b, c, d, e, f, a * e - b * d)))
    return (a, b, c, d, e, f) if finite and a * e != b * d else None


def control_points(points: Iterable[GroundControlPoint]) -> str:
    """Ground control points as the GeoJSON text that rioxarray reads from a grid mapping's `gcps`."""
    features = [
        {
            "type": "Feature",
            "properties": {"id": str(n), "info": "", "row": point.row, "col": point.column},
            "geometry": {"type": "Point", "coordinates": [point.x, point.y, point.z]},
        }
        for n, point in enumerate(points, 1)
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})
