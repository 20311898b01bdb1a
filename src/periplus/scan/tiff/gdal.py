"""GDAL's own TIFF tags: the metadata items in XML, and the nodata value as text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from periplus.scan.xml import parse_xml

ITEM_BYTES, ALL_BYTES = 1024, 8192
"""Longest item kept, and the most text kept in all: attributes travel in every index."""
ROLES = {"scale": "scale", "offset": "offset", "unittype": "unit", "description": "description", "colorinterp": "color"}
ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
ENTITY = re.compile(f"&({'|'.join(ENTITIES)});")
SAMPLE = re.compile(r"[0-9]{1,9}\Z")


@dataclass(slots=True)
class GdalItems:
    """The items of a GDAL_METADATA tag, by what they belong to."""

    image: dict[str, str] = field(default_factory=dict)
    bands: dict[int, dict[str, str]] = field(default_factory=dict)
    roles: dict[str, dict[int, str]] = field(default_factory=dict)
    """`scale`, `offset`, `unit`, `description` and `color` by band."""
    whole: bool = True
    """False where the text is no XML."""


@lru_cache(maxsize=64)
def items(text: str) -> GdalItems:
    """The items of a GDAL_METADATA tag; text that is not XML is ignored, XML with entities is refused."""
    root = parse_xml(text, "the GDAL metadata")
    if root is None:
        return GdalItems(whole=False)
    found = GdalItems()
    total = 0
    for item in root.iter("Item"):
        name, value, sample = item.get("name", ""), _unescaped((item.text or "").strip()), item.get("sample", "")
        band = int(sample) if SAMPLE.match(sample) else None
        role = ROLES.get(item.get("role", ""))
        if role is not None and band is not None:
            found.roles.setdefault(role, {})[band] = value
            continue
        total += len(name) + len(value)
        if len(value) > ITEM_BYTES or total > ALL_BYTES or item.get("domain"):
            continue
        (found.image if band is None else found.bands.setdefault(band, {}))[name] = value
    return found


def _unescaped(text: str) -> str:
    """The text of an item: GDAL escapes it once for itself and once for XML, and the parser undid only the second."""
    return ENTITY.sub(lambda entity: ENTITIES[entity[1]], text) if "&" in text else text


NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?\Z")
"""Possessive quantifiers: backtracking over a long row of digits would take hours."""


def number(text: str) -> float | int | None:
    """A number as GDAL writes it, exact for integers; None for anything else."""
    text = text.strip()
    lowered = text.lower().lstrip("+")
    if lowered.lstrip("-") in ("nan", "1.#qnan", "1.#ind"):
        return math.nan
    if lowered.lstrip("-") in ("inf", "infinity", "1.#inf"):
        return -math.inf if lowered.startswith("-") else math.inf
    if not NUMBER.match(text):
        return None
    if text.lstrip("+-").isdigit():
        return int(text) if len(text) < 40 else None
    return float(text)


@lru_cache(maxsize=256)
def nodata(text: str, dtype: np.dtype[Any]) -> int | float | None:
    """The nodata value as a value of the array's type; None where the type cannot hold it."""
    value = number(text)
    if value is None:
        return None
    if dtype.kind in "ui":
        if not math.isfinite(value) or value != int(value):
            return None
        info = np.iinfo(dtype)
        return int(value) if info.min <= value <= info.max else None
    if not math.isfinite(value):
        return float(value)
    kind = np.dtype({"f2": "f2", "f4": "f4", "c8": "f4"}.get(f"{dtype.kind}{dtype.itemsize}", "f8"))
    with np.errstate(over="ignore"):
        held = float(np.array(float(value)).astype(kind))
    return held if math.isfinite(held) else None


def per_band(values: Mapping[int, str], bands: int, default: float) -> float | list[float] | None:
    """One number where all bands agree, a list where they differ, None where every band has the default."""
    numbers = [default if (n := number(values.get(b, ""))) is None else float(n) for b in range(bands)]
    if all(n == default for n in numbers):
        return None
    return numbers[0] if len(set(numbers)) == 1 else numbers
