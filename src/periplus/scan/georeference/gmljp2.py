"""Georeferencing by GMLJP2: the rectified grid in the labelled XML of a JP2 file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from periplus.errors import FormatError
from periplus.model import Georeference
from periplus.scan.georeference.geodetic import register
from periplus.scan.xml import parse_xml

ROOT_LABEL = "gml.root-instance"
EPSG = re.compile(r"(?:urn:ogc:def:crs:EPSG:[0-9.]*:|http://www\.opengis\.net/def/crs/EPSG/0/|EPSG:)([0-9]{4,6})\Z")

EASTING_FIRST = (range(32601, 32661), range(32701, 32761), range(25828, 25839), range(26901, 26924), (3857,))
"""Systems that always have x first: UTM on WGS 84, ETRS89 and NAD83, and Web Mercator."""


def georeference(labels: Sequence[tuple[str, bytes]]) -> Georeference | None:
    """The georeference of the first rectified grid; None if there is none, or it is ambiguous."""
    for label, text in labels:
        if label == ROOT_LABEL:
            return _grid(text)
    return None


def _grid(text: bytes) -> Georeference | None:
    try:
        # Some writers put NULs between words.
        root = parse_xml(text.replace(b"\0", b" ").strip(), "the GMLJP2 box")
    except FormatError:
        # The pixels can be read without georeferencing.
        return None
    nodes = () if root is None else root.iter()
    grid = next((node for node in nodes if _name(node.tag) == "RectifiedGrid"), None)
    if grid is None:
        return None
    nodes = list(grid.iter())
    places = [_pair(node.text) for node in nodes if _name(node.tag) == "pos"]
    steps = [_pair(node.text) for node in nodes if _name(node.tag) == "offsetVector"]
    names = [EPSG.match(value) for node in nodes if (value := node.get("srsName"))]
    if len(places) != 1 or len(steps) != 2 or not names:
        return None
    place, right, down, named = places[0], steps[0], steps[1], names[0]
    if place is None or right is None or down is None or named is None:
        return None
    return _georeference(int(named[1]), place, right, down)


def _georeference(
    code: int, place: tuple[float, float], right: tuple[float, float], down: tuple[float, float]
) -> Georeference | None:
    """The grid with x before y, whichever comes first in the CRS; its place is the centre of the first pixel."""
    swapped = _swapped(code, right, down)
    if swapped is None:
        return None
    if swapped:
        place, right, down = place[::-1], right[::-1], down[::-1]
    a, d = right
    b, e = down
    if a * e - b * d == 0:
        return None
    corner = place[0] - (a + b) / 2, place[1] - (d + e) / 2
    return Georeference(crs=f"EPSG:{code}", transform=(a, b, corner[0], d, e, corner[1]))


def _swapped(code: int, right: tuple[float, float], down: tuple[float, float]) -> bool | None:
    """Whether y comes before x in the CRS, as far as the grid shows it; None if it does not.

    Columns run right and rows down: with the axes swapped the image would be mirrored.
    """
    straight, turned = right[1] == 0 == down[0], right[0] == 0 == down[1]
    if code in register().systems:
        # A geographic system has latitude first, and writers disagree on what that means for a grid with x first.
        return True if turned else None
    if any(code in codes for codes in EASTING_FIRST):
        return False
    mirrored = right[0] * down[1] - right[1] * down[0] > 0
    # A grid along the axes may also be one whose rows run up.
    return None if (straight and mirrored) or (turned and not mirrored) else mirrored


def _name(tag: object) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _pair(text: str | None) -> tuple[float, float] | None:
    try:
        numbers = [float(word) for word in (text or "").replace(",", " ").split()]
    except ValueError:
        return None
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        return None
    return numbers[0], numbers[1]
