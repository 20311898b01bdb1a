"""JPEG 2000: codestreams and JP2, JPX or JPH files; resolutions become levels if the packet order allows it."""

from __future__ import annotations

from typing import Any

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Found, Georeference, Source, Steps
from periplus.scan.buffer import FileBuffer
from periplus.scan.drive import scan_bytes
from periplus.scan.georeference import gmljp2
from periplus.scan.georeference.worldfile import SidecarGeoreference, read_sidecars
from periplus.scan.jpeg2000.arrays import arrays
from periplus.scan.jpeg2000.boxes import SIGNATURE, Jp2Boxes, read_boxes
from periplus.scan.jpeg2000.markers import Codestream
from periplus.scan.jpeg2000.tile_parts import scan_codestream
from periplus.scan.tiff import scan as tiff

NAME = "jpeg2000"
HEAD_BYTES = 8_192
RAW = b"\xff\x4f\xff\x51"
ALPHA = {1: "alpha", 2: "associated_alpha"}
"""Kinds of channels other than colours, named as the attributes of TIFF."""
RGB, YCBCR = 16, 18
PHOTOMETRIC = {12: "cmyk", 14: "cielab", RGB: "rgb", 17: "min_is_black", YCBCR: "ycbcr"}
"""Enumerated colour spaces."""


def sniff(head: bytes) -> bool:
    """Whether these are the first bytes of a JPEG 2000 file."""
    return bytes(head[:4]) == RAW or bytes(head[:12]) == SIGNATURE


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every codestream and resolution of a file, and metadata of the file."""
    file = FileBuffer(source, limits)
    boxed = (yield from file.read("the header", 0, 12, ahead=HEAD_BYTES)) == SIGNATURE
    boxes = (yield from read_boxes(file, limits)) if boxed else Jp2Boxes([(0, None)])
    if not boxes.codestreams:
        raise FormatError(
            "a codestream in fragments is not supported" if boxes.fragments else "the file holds no codestream"
        )
    where, lost = _georeference(boxes, limits)
    sidecars = (yield from read_sidecars(source, limits)) if where is None else SidecarGeoreference(where)
    comments: list[str] = []
    for number, (offset, length) in enumerate(boxes.codestreams):
        facts, ranges = yield from scan_codestream(file, offset, length, limits)
        comments += facts.comments
        prefix = f"images/{number}/" if number else ""
        located = SidecarGeoreference() if number else sidecars
        attributes = _attributes(boxes, facts) if number == 0 else {}
        if located.names:
            attributes["georeferenced_by"] = list(located.names)
        found = arrays(
            facts,
            ranges,
            limits,
            prefix=prefix,
            attributes=attributes,
            georeference=located.where,
            stretched=_bit_alphas(boxes, facts) if number == 0 else (),
        )
        for array, refs in found:
            yield Found(array, refs, described_by=located.names)
    about = {"comments": comments, "refused": [*lost, *sidecars.refused]}
    if any(about.values()):
        yield About(attributes={name: value for name, value in about.items() if value})


def _attributes(boxes: Jp2Boxes, facts: Codestream) -> dict[str, Any]:
    """Attributes from the boxes: the palette of a single component, or the colours, and which components are alpha."""
    components = facts.size.count
    if boxes.palette:
        found: dict[str, Any] = {"colormap": [list(colour[:3]) for colour in boxes.palette]}
        if len(boxes.palette[0]) == 4:
            found["colormap_alpha"] = [colour[3] for colour in boxes.palette]
        return {"photometric": "palette", **found} if components == 1 else {}
    if boxes.indexed and components == 1:
        return {"photometric": "palette"}
    space = RGB if facts.size.chroma and boxes.colours == YCBCR else boxes.colours
    found = {"photometric": PHOTOMETRIC[space]} if space in PHOTOMETRIC else {}
    alphas = _alphas(boxes, facts)
    first = min(alphas, default=components)
    if sorted(alphas) != list(range(first, components)) or first == components:
        return found
    return {**found, "extra_samples": [alphas[number] for number in range(first, components)]}


def _alphas(boxes: Jp2Boxes, facts: Codestream) -> dict[int, str]:
    """Components that are alpha, and of which kind."""
    return {number: ALPHA[kind] for number, kind, _ in boxes.channels if kind in ALPHA and number < facts.size.count}


def _bit_alphas(boxes: Jp2Boxes, facts: Codestream) -> list[int]:
    """Alpha components of one bit next to bytes, whose opaque pixels are 255, as in GDAL."""
    depths = facts.size.depths
    return [n for n in sorted(_alphas(boxes, facts)) if depths[n] == 1 and max(depths) == 8 and not facts.size.signed]


def _georeference(boxes: Jp2Boxes, limits: Limits) -> tuple[Georeference | None, list[str]]:
    """The georeference in a GeoJP2 box (a GeoTIFF of one pixel), else in GMLJP2; and what could not be read."""
    where, lost = None, list(boxes.unread)
    if boxes.geotiff is not None:
        try:
            found = scan_bytes(boxes.geotiff, limits=limits, scanner=tiff)
        except PeriplusError as error:
            # The pixels can be read without georeferencing.
            found = []
            lost.append(f"the GeoJP2 box: {error.message}")
        where = next((item.array.georeference for item in found if isinstance(item, Found)), None)
        for item in found:
            if isinstance(item, About):
                lost += [f"the GeoJP2 box: {why}" for why in item.attributes.get("refused", [])]
    if where is not None:
        return where, lost
    where = gmljp2.georeference(boxes.labels)
    if where is None and any(label == gmljp2.ROOT_LABEL for label, _ in boxes.labels):
        lost.append("the GMLJP2 box holds no rectified grid with an EPSG code and a known axis order")
    return where, lost
