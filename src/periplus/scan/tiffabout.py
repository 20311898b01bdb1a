"""What a TIFF tells about an image, as attributes: nodata, scale, band names, colour map, and who made it when."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from periplus.scan import gdalmetadata
from periplus.scan import tifftags as tag
from periplus.scan.geotiff import geo_keys
from periplus.scan.tiffimage import Image
from periplus.scan.tifftags import Fields

PHOTOMETRIC = {
    0: "min_is_white", 1: "min_is_black", 2: "rgb", 3: "palette", 4: "mask", 5: "cmyk", 6: "ycbcr", 8: "cielab",
    9: "icclab", 10: "itulab", 32803: "cfa", 32844: "logl", 32845: "logluv", 34892: "linear_raw", 51177: "depth",
}  # fmt: skip
EXTRA = {0: "unspecified", 1: "associated_alpha", 2: "alpha"}
WORDS = {"description": tag.DESCRIPTION, "software": tag.SOFTWARE, "artist": tag.ARTIST, "datetime": tag.DATETIME}
RESOLUTION_UNITS = {2: "inch", 3: "centimetre"}
STATISTICS = {
    "STATISTICS_MINIMUM": "minimum", "STATISTICS_MAXIMUM": "maximum", "STATISTICS_MEAN": "mean",
    "STATISTICS_STDDEV": "stddev", "STATISTICS_VALID_PERCENT": "valid_percent",
}  # fmt: skip
DATE = re.compile(r"(\d{4})[:/.-](\d\d?)[:/.-](\d\d?)(?:[ T]+(\d\d?):(\d\d?)(?::(\d\d?))?)?")


def fill_value(image: Image) -> int | float:
    """Value of a chunk that was never written: nodata, else zero."""
    value = _nodata(image)
    return 0 if value is None else value


def attributes(image: Image, *, full: bool) -> dict[str, Any]:
    """Attributes under CF's names where it has one. Levels (`full` false) leave out what holds for full resolution."""
    fields = image.fields
    found: dict[str, Any] = {}
    if (value := _nodata(image)) is not None:
        found["_FillValue"] = value
    elif text := fields.text(tag.GDAL_NODATA):
        found["nodata_text"] = text
    items = _items(fields.text(tag.GDAL_METADATA))
    found.update(_packing(items, image.samples))
    if image.photometric is not None:
        found["photometric"] = PHOTOMETRIC.get(image.photometric, str(image.photometric))
    if extra := fields.numbers(tag.EXTRA_SAMPLES):
        found["extra_samples"] = [EXTRA.get(int(e), str(int(e))) for e in extra[: image.samples]]
    if colors := _colormap(fields, image):
        found["colormap"] = colors
    if full:
        found.update(_told(fields, items, image.samples))
    return found


def _nodata(image: Image) -> int | float | None:
    text = image.fields.text(tag.GDAL_NODATA)
    return gdalmetadata.nodata(text, image.dtype) if text else None


@lru_cache(maxsize=64)
def _items(text: str) -> gdalmetadata.Items:
    return gdalmetadata.items(text) if text else gdalmetadata.Items()


def _packing(items: gdalmetadata.Items, bands: int) -> dict[str, Any]:
    """Scale, offset, unit and names of the bands."""
    roles = items.roles
    found: dict[str, Any] = {}
    for name, role, default in (("scale_factor", "scale", 1.0), ("add_offset", "offset", 0.0)):
        if (value := gdalmetadata.per_band(roles.get(role, {}), bands, default)) is not None:
            found[name] = value
    units = [roles.get("unit", {}).get(band, "") for band in range(bands)]
    if any(units):
        found["units"] = units[0] if len(set(units)) == 1 else units
    names = [roles.get("description", {}).get(band, "") for band in range(bands)]
    if any(names):
        found["band_names"] = names
        if bands == 1:
            found["long_name"] = names[0]
    return found


def _told(fields: Fields, items: gdalmetadata.Items, bands: int) -> dict[str, Any]:
    """What holds for the image as a whole, or was computed at full resolution."""
    found: dict[str, Any] = {name: text for name, number in WORDS.items() if (text := fields.text(number))}
    x, y = fields.numbers(tag.X_RESOLUTION), fields.numbers(tag.Y_RESOLUTION)
    unit = RESOLUTION_UNITS.get(fields.number(tag.RESOLUTION_UNIT, 2))
    if x and y and unit and x[0] and y[0]:
        found["resolution"] = {"x": x[0], "y": y[0], "per": unit}
    statistics = [
        {
            STATISTICS[k]: n
            for k, v in items.bands.get(b, {}).items()
            if k in STATISTICS and (n := gdalmetadata.number(v)) is not None
        }
        for b in range(min(bands, 64))
    ]
    if any(statistics):
        found["statistics"] = statistics
    others = {b: {k: v for k, v in own.items() if k not in STATISTICS} for b, own in items.bands.items() if b < bands}
    if any(others.values()):
        found["band_metadata"] = [others.get(band, {}) for band in range(bands)]
    if items.image:
        found["gdal_metadata"] = items.image
    keys, crs = geo_keys(fields)
    if keys and crs is None:
        found["geo_keys"] = {str(key): list(v) if isinstance(v, tuple) else v for key, v in keys.items()}
    return found


def _colormap(fields: Fields, image: Image) -> list[list[int]] | None:
    """Red, green and blue from 0 to 255 of every palette entry; files store 16 bits, some mistakenly 8."""
    values = [int(v) for v in fields.numbers(tag.COLORMAP)]
    size = len(values) // 3
    if image.photometric != 3 or size == 0:
        return None
    step = 1 if max(values) < 256 else 257 if any(v % 256 for v in values) else 256
    return [[values[c * size + i] // step for c in range(3)] for i in range(size)]


@lru_cache(maxsize=256)
def _moment(text: str) -> datetime | None:
    found = DATE.search(text)
    if found is None:
        return None
    try:
        return datetime(*(int(part or 0) for part in found.groups()), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        return None


def file_time(fields: Fields) -> datetime | None:
    """The DateTime tag, taken as UTC since TIFF has no time zones; None where no date can be read from it."""
    return _moment(fields.text(tag.DATETIME)) if tag.DATETIME in fields else None
