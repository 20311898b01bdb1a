"""Georeferencing of a TIFF: GeoKeys, pixel scale, tie points, transformation and RPC tags, as GDAL reads them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from periplus.model import RPC_COEFFICIENTS, RPC_NAMES, Georeference, GroundControlPoint, Transform, affine
from periplus.scan.georeference import geokeys
from periplus.scan.tiff import tags as tag
from periplus.scan.tiff.tags import Fields


def georeference(fields: Fields) -> Georeference | None:
    """The georeference of a full-resolution image; None if the file does not declare it."""
    keys, crs = geo_keys(fields)
    point = keys.get(geokeys.RASTER) == 2
    transform = _transform(fields, point)
    gcps = () if transform is not None else _gcps(fields, point)
    rpc = _rpc(fields)
    if crs is None and transform is None and not gcps and rpc is None:
        return None
    return Georeference(crs=crs, transform=transform, registration="point" if point else "area", gcps=gcps, rpc=rpc)


def georeference_unread(fields: Fields) -> list[str]:
    """Georeferencing tags with invalid values, as sentences."""
    found = []
    if (tag.TRANSFORMATION in fields or tag.PIXEL_SCALE in fields) and _transform(fields, False) is None:
        found.append("its pixel scale, tie points or transformation matrix do not give a transform")
    if tag.RPC_COEFFICIENTS in fields and _rpc(fields) is None:
        found.append("its RPC tag does not hold 92 numbers")
    return found


def geo_keys(fields: Fields) -> tuple[dict[int, geokeys.Value], str | None]:
    """GeoKeys by number, and the text of the CRS they describe."""
    if tag.GEO_KEYS not in fields:
        return {}, None
    return _meaning(fields.integers(tag.GEO_KEYS), fields.numbers(tag.GEO_DOUBLES), fields.raw(tag.GEO_TEXT))


@lru_cache(maxsize=256)
def _meaning(
    directory: tuple[int, ...], doubles: tuple[float, ...], text: bytes
) -> tuple[dict[int, geokeys.Value], str | None]:
    keys, whole = geokeys.parse(directory, doubles, text)
    return keys, geokeys.crs(keys) if whole else None


def reduced(where: Georeference | None, x: float, y: float) -> Georeference | None:
    """The georeferencing of a level, whose pixels are `x` columns by `y` rows of the image."""
    return where if where is None or x == y == 1 else affine.cropped(where, 0, 0, y, x)


def _transform(fields: Fields, point: bool) -> Transform | None:
    """Pixel corners to coordinates; half a pixel up and left where the file's pixels are points."""
    scale, ties, matrix = (fields.numbers(t) for t in (tag.PIXEL_SCALE, tag.TIE_POINTS, tag.TRANSFORMATION))
    if len(scale) >= 2 and scale[0] != 0 and scale[1] != 0 and len(ties) >= 6:
        # A negative vertical scale is a common mistake for north up, not an upside-down picture.
        a, b, d, e = float(scale[0]), 0.0, 0.0, -abs(float(scale[1]))
        c, f = ties[3] - ties[0] * a, ties[4] - ties[1] * e
    elif len(matrix) == 16:
        a, b, c, d, e, f = (float(matrix[i]) for i in (0, 1, 3, 4, 5, 7))
    else:
        return None
    if point:
        c, f = c - (a + b) / 2, f - (d + e) / 2
    if not all(map(math.isfinite, (a, b, c, d, e, f))) or a * e - b * d == 0:
        return None
    return a, b, float(c), d, e, float(f)


def _gcps(fields: Fields, point: bool) -> tuple[GroundControlPoint, ...]:
    ties = fields.numbers(tag.TIE_POINTS)
    shift = 0.5 if point else 0.0
    points = (ties[i : i + 6] for i in range(0, len(ties) - 5, 6))
    return tuple(
        GroundControlPoint(column=p[0] + shift, row=p[1] + shift, x=float(p[3]), y=float(p[4]), z=float(p[5]))
        for p in points
        if all(map(math.isfinite, p))
    )


def _rpc(fields: Fields) -> dict[str, Any] | None:
    """Rational polynomial coefficients under the names rasterio gives them."""
    numbers = [float(n) for n in fields.numbers(tag.RPC_COEFFICIENTS)]
    if len(numbers) != 92 or not all(map(math.isfinite, numbers)):
        return None
    rpc: dict[str, Any] = dict(zip(RPC_NAMES, numbers[:12], strict=True))
    for place, name in enumerate(RPC_COEFFICIENTS):
        rpc[name] = numbers[12 + 20 * place : 32 + 20 * place]
    return rpc
