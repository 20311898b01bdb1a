"""JPEG 2000: raw codestreams and JP2, JPX or JPH files; resolutions become levels where the packet order allows."""

from __future__ import annotations

from typing import Any

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Found, Georeference, Source, Steps
from periplus.scan.buffer import FileBuffer
from periplus.scan.drive import scan_bytes
from periplus.scan.georeference import gmljp2
from periplus.scan.georeference.worldfile import Placed, placed
from periplus.scan.jpeg2000.arrays import arrays, turned
from periplus.scan.jpeg2000.boxes import SIGNATURE, Jp2Boxes, read_boxes
from periplus.scan.jpeg2000.markers import Codestream
from periplus.scan.jpeg2000.tile_parts import scan_codestream
from periplus.scan.tiff import scan as tiff

NAME = "jpeg2000"
HEAD_BYTES = 8_192
RAW = b"\xff\x4f\xff\x51"
ALPHA = {1: "alpha", 2: "associated_alpha"}
"""Kinds of channels that are no colour, as TIFF's attributes name them."""
RGB, YCBCR = 16, 18
PHOTOMETRIC = {12: "cmyk", 14: "cielab", RGB: "rgb", 17: "min_is_black", YCBCR: "ycbcr"}
"""Enumerated colour spaces."""


def sniff(head: bytes) -> bool:
    """Whether a file that starts so is a JPEG 2000 file."""
    return bytes(head[:4]) == RAW or bytes(head[:12]) == SIGNATURE


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every codestream and resolution of a file, and what the file says of itself."""
    file = FileBuffer(source, limits)
    try:
        boxed = (yield from file.read("the header", 0, 12, ahead=HEAD_BYTES)) == SIGNATURE
        boxes = (yield from read_boxes(file, limits)) if boxed else Jp2Boxes(((0, None),), None, ())
        if not boxes.codestreams:
            raise FormatError(
                "a codestream in fragments is not read" if boxes.fragments else "the file holds no codestream"
            )
        where, lost = _georeference(boxes, limits)
        beside = (yield from placed(source, limits)) if where is None else Placed(where)
        comments: list[str] = []
        for number, (offset, length) in enumerate(boxes.codestreams):
            facts, ranges = yield from scan_codestream(file, offset, length, limits)
            comments += facts.comments
            prefix = f"images/{number}/" if number else ""
            place = Placed() if number else beside
            told = _told(boxes, facts) if number == 0 else {}
            if place.told_by:
                told["georeferenced_by"] = list(place.told_by)
            for array, refs in arrays(facts, ranges, limits, prefix=prefix, attributes=told, georeference=place.where):
                yield Found(array, refs, told_by=place.told_by)
        about = {"comments": comments, "refused": [*lost, *beside.refused]}
        if any(about.values()):
            yield About(attributes={name: value for name, value in about.items() if value})
    except PeriplusError as error:
        raise error.at(url=source.url) from None


def _told(boxes: Jp2Boxes, facts: Codestream) -> dict[str, Any]:
    """What boxes say of the components: the palette of a single one, or their colours, and which ones are alpha."""
    components = facts.components
    if boxes.palette:
        told: dict[str, Any] = {"colormap": [list(colour[:3]) for colour in boxes.palette]}
        if len(boxes.palette[0]) == 4:
            told["colormap_alpha"] = [colour[3] for colour in boxes.palette]
        return {"photometric": "palette", **told} if components == 1 else {}
    if boxes.indexed and components == 1:
        return {"photometric": "palette"}
    space = RGB if turned(facts) and boxes.colours == YCBCR else boxes.colours
    told = {"photometric": PHOTOMETRIC[space]} if space in PHOTOMETRIC else {}
    alphas = {number: ALPHA[kind] for number, kind, _ in boxes.channels if kind in ALPHA and number < components}
    first = min(alphas, default=components)
    if sorted(alphas) != list(range(first, components)) or first == components:
        return told
    return {**told, "extra_samples": [alphas[number] for number in range(first, components)]}


def _georeference(boxes: Jp2Boxes, limits: Limits) -> tuple[Georeference | None, list[str]]:
    """Of the GeoTIFF of one pixel that GeoJP2 puts into a box, else of GMLJP2; and what of them could not be read."""
    where, lost = None, list(boxes.unread)
    if boxes.geotiff is not None:
        try:
            found = scan_bytes(boxes.geotiff, limits=limits, scanner=tiff)
        except PeriplusError as error:
            # It only tells where the pixels lie; they are as good without it.
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
