"""JPEG 2000: raw codestreams and JP2, JPX or JPH files; resolutions become levels where the packet order allows."""

from __future__ import annotations

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import About, Found, Georeference, Source, Steps
from periplus.scan import gmljp2, tiff
from periplus.scan.blocks import Blocks
from periplus.scan.drive import scan_bytes
from periplus.scan.j2karray import arrays
from periplus.scan.j2kparts import scan_codestream
from periplus.scan.jp2boxes import SIGNATURE, Boxes, walk

NAME = "jpeg2000"
HEAD_BYTES = 8_192
RAW = b"\xff\x4f\xff\x51"


def sniff(head: bytes) -> bool:
    """Whether a file that starts so is a JPEG 2000 file."""
    return bytes(head[:4]) == RAW or bytes(head[:12]) == SIGNATURE


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every codestream and resolution of a file, and what the file says of itself."""
    blocks = Blocks(source, limits)
    try:
        yield from blocks.hold("the header", 0, 12, ahead=HEAD_BYTES)
        head = blocks.locate(0, 12)
        boxed = head is not None and head[0][:12] == SIGNATURE
        boxes = (yield from walk(blocks, limits)) if boxed else Boxes(((0, None),), None, ())
        if not boxes.codestreams:
            raise FormatError("the file holds no codestream")
        where = _georeference(boxes, limits)
        comments: list[str] = []
        for number, (offset, length) in enumerate(boxes.codestreams):
            facts, ranges = yield from scan_codestream(blocks, offset, length, limits)
            comments += facts.comments
            prefix = f"images/{number}/" if number else ""
            place = None if number else where
            shown = boxes.palette if facts.components == 1 and number == 0 else None
            told = {"colormap": [list(colour) for colour in shown]} if shown else {}
            for array, refs in arrays(facts, ranges, limits, prefix=prefix, attributes=told, georeference=place):
                yield Found(array, refs)
        if comments:
            yield About(attributes={"comments": comments})
    except PeriplusError as error:
        raise error.at(url=source.url) from None


def _georeference(boxes: Boxes, limits: Limits) -> Georeference | None:
    """Of the GeoTIFF of one pixel that GeoJP2 puts into a box, else of GMLJP2."""
    where = None
    if boxes.geotiff is not None:
        try:
            found = scan_bytes(boxes.geotiff, limits=limits, scanner=tiff)
        except PeriplusError:
            # It only tells where the pixels lie; they are as good without it.
            found = []
        where = next((item.array.georeference for item in found if isinstance(item, Found)), None)
    return where or gmljp2.georeference(boxes.labels)
