"""Attributes of a TIFF image: nodata, scale, band names, colour map, author and date."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from periplus.scan.georeference import geokeys
from periplus.scan.georeference.geotiff import geo_keys, georeference_unread
from periplus.scan.tiff import gdal as gdalmetadata
from periplus.scan.tiff import tags as tag
from periplus.scan.tiff.image import TiffImage
from periplus.scan.tiff.tags import Fields

PHOTOMETRIC = {
    0: "min_is_white", 1: "min_is_black", 2: "rgb", 3: "palette", 4: "mask", 5: "cmyk", 6: "ycbcr", 8: "cielab",
    9: "icclab", 10: "itulab", 32803: "cfa", 32844: "logl", 32845: "logluv", 34892: "linear_raw", 51177: "depth",
}  # fmt: skip
EXTRA = {0: "unspecified", 1: "associated_alpha", 2: "alpha"}
WORDS = {"description": tag.DESCRIPTION, "software": tag.SOFTWARE, "artist": tag.ARTIST, "datetime": tag.DATETIME}
MEANING = {
    tag.COLORMAP: "the colour map",
    tag.GDAL_METADATA: "GDAL's metadata (band names, scales, units)",
    tag.GDAL_NODATA: "the nodata value",
}
"""Tags that decide the meaning of values; missing ones are reported."""
RESOLUTION_UNITS: dict[int | float, str] = {2: "inch", 3: "centimetre"}
STATISTICS = {
    "STATISTICS_MINIMUM": "minimum", "STATISTICS_MAXIMUM": "maximum", "STATISTICS_MEAN": "mean",
    "STATISTICS_STDDEV": "stddev", "STATISTICS_VALID_PERCENT": "valid_percent",
}  # fmt: skip
DATE = re.compile(r"(\d{4})[:/.-](\d\d?)[:/.-](\d\d?)(?:[ T]+(\d\d?):(\d\d?)(?::(\d\d?))?)?")


def attributes(image: TiffImage, fields: Fields) -> dict[str, Any]:
    """Attributes of every level of an image, under CF names if there are any."""
    found: dict[str, Any] = {}
    if text := fields.text(tag.GDAL_NODATA):
        value = gdalmetadata.nodata(text, image.dtype)
        found.update({"nodata_text": text} if value is None else {"_FillValue": value})
    if tag.GDAL_METADATA in fields:
        found.update(_packing(gdalmetadata.items(fields.text(tag.GDAL_METADATA)), image.samples))
    if "units" not in found and (unit := geokeys.height_unit(geo_keys(fields)[0])):
        found["units"] = unit
    if image.becomes_rgb:
        found |= {"photometric": "rgb", "source_color_space": "YCbCr"}
    elif image.photometric is not None:
        found["photometric"] = PHOTOMETRIC.get(image.photometric, str(image.photometric))
    if extra := image.fields.numbers(tag.EXTRA_SAMPLES):
        found["extra_samples"] = [EXTRA.get(int(e), str(int(e))) for e in extra[: image.samples]]
    if colors := _colormap(fields, image):
        found["colormap"] = colors
    return found


def unread(fields: Fields, missing: Sequence[int]) -> tuple[str, ...]:
    """Metadata that could not be read, in sentences; `missing` are the tags whose values were not."""
    found = [f"{MEANING[number]} is too large or outside the file" for number in missing if number in MEANING]
    if tag.GDAL_METADATA in fields and not gdalmetadata.items(fields.text(tag.GDAL_METADATA)).whole:
        found.append(f"{MEANING[tag.GDAL_METADATA]} is not valid XML")
    return (*found, *georeference_unread(fields))


def _packing(items: gdalmetadata.GdalItems, bands: int) -> dict[str, Any]:
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


def full_attributes(fields: Fields, bands: int) -> dict[str, Any]:
    """Attributes of the full resolution: about the file, or computed from all pixels."""
    found: dict[str, Any] = {name: text for name, number in WORDS.items() if (text := fields.text(number))}
    if tag.X_RESOLUTION in fields and tag.Y_RESOLUTION in fields:
        x, y = fields.numbers(tag.X_RESOLUTION)[0], fields.numbers(tag.Y_RESOLUTION)[0]
        unit = RESOLUTION_UNITS.get((*fields.numbers(tag.RESOLUTION_UNIT), 2)[0])
        if unit and x > 0 and y > 0:
            found["resolution"] = {"x": x, "y": y, "per": unit}
    if (orientation := (*fields.numbers(tag.ORIENTATION), 1)[0]) in range(2, 9):
        found["orientation"] = int(orientation)
    if tag.GDAL_METADATA in fields:
        found.update(_metadata(gdalmetadata.items(fields.text(tag.GDAL_METADATA)), bands))
    keys, crs = geo_keys(fields)
    if keys and crs is None:
        found["geo_keys"] = {str(key): list(v) if isinstance(v, tuple) else v for key, v in keys.items()}
    return found


def _metadata(items: gdalmetadata.GdalItems, bands: int) -> dict[str, Any]:
    """Statistics as numbers, other items as text."""
    found: dict[str, Any] = {}
    own = [items.bands.get(band, {}) for band in range(bands)] if items.bands else []
    statistics = [
        {name: n for k, name in STATISTICS.items() if (n := gdalmetadata.number(band.get(k, ""))) is not None}
        for band in own
    ]
    others = [{k: v for k, v in band.items() if k not in STATISTICS} for band in own]
    if any(statistics):
        found["statistics"] = statistics
    if any(others):
        found["band_metadata"] = others
    if items.image:
        found["gdal_metadata"] = items.image
    return found


def _colormap(fields: Fields, image: TiffImage) -> list[list[int]] | None:
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
