"""Georeferencing by sidecars: world files, GDAL's `.aux.xml`, and a CRS in `.prj`."""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import (
    RPC_COEFFICIENTS,
    RPC_NAMES,
    About,
    Array,
    FirstSidecar,
    Georeference,
    GroundControlPoint,
    Need,
    Source,
    Transform,
)
from periplus.scan.sidecars import name_of, sidecar_names
from periplus.scan.xml import parse_xml

AUXILIARY, PROJECTION, WORLD = ".aux.xml", ".prj", ".wld"
MOST_BYTES = 65_536
"""Most bytes of a georeferencing sidecar; larger files are something else."""
NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eEdD][+-]?\d++)?", re.ASCII)
"""Possessive quantifiers: backtracking over a long row of digits would take minutes."""
WKT = re.compile(r"(?:PROJCS|GEOGCS|COMPD_CS|PROJCRS|GEOGCRS|GEODCRS|COMPOUNDCRS|BOUNDCRS)\s*\[.*\]", re.DOTALL)
SYSTEM = re.compile(r"<SRS[^>]*>\s*[^<\s]")
"""The start of GDAL's element of a coordinate system that is not empty."""
AUTHORITY = re.compile(r'(?:AUTHORITY\["EPSG"\s*,\s*"(\d{4,6})"\]|ID\["EPSG"\s*,\s*(\d{4,6})\])\s*\]\s*\Z')


@dataclass(frozen=True, slots=True)
class SidecarGeoreference:
    """The georeference of a picture, the names of the sidecars it is from, and why others were refused."""

    where: Georeference | None = None
    names: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def apply(self, array: Array) -> Array:
        """The array with this georeference and the names of the sidecars."""
        if self.where is None:
            return array
        attributes = {**array.attributes, "georeferenced_by": list(self.names)}
        return replace(array, georeference=self.where, attributes=attributes)

    def about(self, moment: Any) -> About | None:
        """Metadata of the file; None if there is none."""
        if moment is None and not self.refused:
            return None
        return About(datetime=moment, attributes={"refused": list(self.refused)} if self.refused else {})


def read_sidecars(source: Source, limits: Limits) -> Generator[FirstSidecar | Need, Any, SidecarGeoreference]:
    """Ask for the sidecars that may georeference a picture; invalid ones are refused."""
    used: list[str] = []
    refused: list[str] = []
    crs, transform, other = None, None, Georeference()
    names = (*sidecar_names(source.url, after=(AUXILIARY,)), *world_names(source.url))
    while names and transform is None and not other.gcps:
        text = yield from _read(names, limits)
        if text is None:
            break
        name, content = text
        names = names[names.index(name) + 1 :]
        try:
            if name.lower().endswith(AUXILIARY):
                other = auxiliary(content)
                crs, transform = other.crs, other.transform
                if crs is None and SYSTEM.search(content):
                    refused.append(f"{name}: its SRS is not a coordinate system in WKT")
            else:
                transform = world(content)
            used += [name] if crs or transform or other.gcps or other.rpc else []
        except FormatError as error:
            refused.append(f"{name}: {error.message}")
    if transform is not None and crs is None:
        text = yield from _read(sidecar_names(source.url, instead=(PROJECTION,)), limits)
        if text is not None:
            crs = wkt(text[1])
            if crs is None:
                refused.append(f"{text[0]}: it contains no coordinate system in WKT")
            else:
                used.append(text[0])
    if transform is None and not other.gcps and other.rpc is None:
        return SidecarGeoreference(None, (), tuple(refused))
    where = replace(other, crs=crs, transform=transform)
    return SidecarGeoreference(where, tuple(used), tuple(refused))


def world_names(url: str) -> tuple[str, ...]:
    """What the world file of a picture may be called: `.jgw`, `.jpgw` and `.wld` for `.jpg`."""
    name = name_of(url)
    if name is None:
        return ()
    suffix = name.suffix.lower()
    short = (f".{suffix[1]}{suffix[-1]}w", f"{suffix}w") if len(suffix) > 2 else ()
    return sidecar_names(url, instead=(*short, WORLD))


def world(text: str) -> Transform:
    """The transform of pixel corners; the six numbers of a world file are of the first pixel's centre."""
    # Some programs write decimal commas; GDAL reads them too.
    words = [word.replace(",", ".") for word in text.split()[:6]]
    if len(words) < 6 or not all(NUMBER.fullmatch(word) for word in words):
        raise FormatError("it does not contain the six numbers of a world file")
    a, d, b, e, x, y = map(_number, words)
    return _invertible((a, b, x - (a + b) / 2, d, e, y - (d + e) / 2))


def auxiliary(text: str) -> Georeference:
    """CRS and transform, or ground control points, and RPCs of GDAL's persistent metadata, each if present."""
    root = parse_xml(text, "it")
    if root is None:
        raise FormatError("it is not valid XML")
    if root.tag != "PAMDataset":
        raise FormatError("it is not GDAL's metadata")
    numbers = [word.strip() for word in (root.findtext("GeoTransform") or "").split(",")]
    crs, rpc = wkt(root.findtext("SRS") or ""), _rpc(root)
    if numbers == [""]:
        points = root.find("GCPList")
        if points is None:
            return Georeference(crs=crs, rpc=rpc)
        return Georeference(crs=wkt(points.get("Projection", "")) or crs, gcps=_gcps(points), rpc=rpc)
    if len(numbers) != 6 or not all(NUMBER.fullmatch(word) for word in numbers):
        raise FormatError("it does not contain the six numbers of a transform")
    x, a, b, y, d, e = map(_number, numbers)
    return Georeference(crs=crs, transform=_invertible((a, b, x, d, e, y)), rpc=rpc)


def _gcps(points: Any) -> tuple[GroundControlPoint, ...]:
    found = []
    for point in points.iter("GCP"):
        words = [point.get(name, "0" if name == "Z" else "") for name in ("Pixel", "Line", "X", "Y", "Z")]
        if not all(map(_is_finite, words)):
            raise FormatError("a ground control point does not have four or five numbers")
        column, row, x, y, z = map(_number, words)
        found.append(GroundControlPoint(column=column, row=row, x=x, y=y, z=z))
    return tuple(found)


def _rpc(root: Any) -> dict[str, Any] | None:
    """Rational polynomial coefficients in the metadata domain RPC, under the names that rasterio gives them."""
    items = {
        item.get("key", "").lower(): (item.text or "").split()
        for domain in root.iter("Metadata")
        if domain.get("domain") == "RPC"
        for item in domain.iter("MDI")
    }
    if not items:
        return None
    found: dict[str, Any] = {}
    for name, count in (*dict.fromkeys(RPC_NAMES, 1).items(), *dict.fromkeys(RPC_COEFFICIENTS, 20).items()):
        # An offset or scale may be followed by its unit; errors are optional.
        words = items.get(name, ["-1"] if name.startswith("err_") else [])[:count]
        if len(words) < count or not all(map(_is_finite, words)):
            raise FormatError(f"its RPCs have no {count} numbers of {name.upper()}")
        numbers = [_number(word) for word in words]
        found[name] = numbers[0] if count == 1 else numbers
    return found


def wkt(text: str) -> str | None:
    """A CRS in WKT, by its EPSG code where it ends with one; None if the text is not WKT."""
    plain = text.strip().strip("\0").strip()
    if not WKT.fullmatch(plain):
        return None
    code = AUTHORITY.search(plain)
    return f"EPSG:{code[1] or code[2]}" if code else plain


def _is_finite(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None and math.isfinite(_number(text))


def _number(text: str) -> float:
    """One that NUMBER found; Fortran writes exponents with a D."""
    return float(re.sub("[dD]", "e", text))


def _invertible(found: Transform) -> Transform:
    a, b, _, d, e, _ = found
    if not all(map(math.isfinite, found)) or a * e == b * d:
        raise FormatError("its numbers give pixels without a size")
    return found


def _read(names: tuple[str, ...], limits: Limits) -> Generator[FirstSidecar | Need, Any, tuple[str, str] | None]:
    """The name and text of the first of these files that exists; empty text if it is too long."""
    if not names:
        return None
    found = yield FirstSidecar(names)
    if found is None:
        return None
    name, source = found
    most = min(MOST_BYTES, limits.header_bytes)
    length = most if source.size is None else source.size
    data = (yield Need(0, length, sidecar=name)) if 0 < length <= most else b""
    return name, bytes(data).decode("utf-8-sig", "replace")
