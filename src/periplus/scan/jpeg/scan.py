"""JPEG: one picture a file; its markers say how it is coded, its pixels are one chunk, or bands where it can be cut."""

from __future__ import annotations

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Encoding, Source, Steps, codecnames
from periplus.scan.blocks import Blocks
from periplus.scan.jpeg.bands import Bands, banded
from periplus.scan.jpeg.markers import FRAMES, Markers, walk
from periplus.scan.picture import Reading, picture_array, scan_picture, whole_file

NAME = "jpeg"
PHOTOMETRIC = {1: "min_is_black", 3: "rgb"}
"""By the number of bands; four are inks, which become RGB, or without loss any data."""


def sniff(head: bytes) -> bool:
    """Whether a file that starts so is a JPEG."""
    return bytes(head[:3]) == b"\xff\xd8\xff"


def scan(source: Source, limits: Limits) -> Steps:
    """The one array of a JPEG file; Exif is told, never applied."""
    yield from scan_picture(source, limits, _read)


def _read(blocks: Blocks, limits: Limits) -> Reading:
    markers = yield from walk(blocks, limits)
    cut = yield from banded(markers.cut(), blocks, limits)
    refs = whole_file(blocks) if cut is None else cut.refs
    return _array(markers, limits, cut), refs, markers.moment, ()


def _array(markers: Markers, limits: Limits, cut: Bands | None) -> Array:
    stored = len(markers.components)
    # Inks become light, as in GDAL and on every screen; the red, green and blue of YCbCr are not stored either.
    bands = 3 if markers.inks else stored
    if not 2 <= markers.bits <= 16:
        raise FormatError(f"a JPEG of {markers.bits} bits a sample does not exist")
    attributes = {**markers.attributes, "coding": FRAMES[markers.frame]}
    if bands in PHOTOMETRIC:
        attributes["photometric"] = PHOTOMETRIC[bands]
    if markers.inks:
        attributes["source_color_space"] = "CMYK" if _colours(markers) == "CMYK" else "YCbCrK"
    configuration = {
        "bits_per_pixel": markers.bits,
        "num_bands": bands,
        "block_width": markers.width,
        "block_height": markers.height if cut is None else cut.rows,
        "imode": "P" if bands > 1 else "B",
        "color_space": _colours(markers),
        **({} if cut is None else cut.settings),
    }
    codec = {"name": codecnames.JPEG, "configuration": configuration}
    shape = (bands, markers.height, markers.width)
    encoding = Encoding((codec,), clipped=() if cut is None else cut.clipped)
    return picture_array(shape, markers.bits, encoding, attributes, limits, None if cut is None else cut.rows)


def _colours(markers: Markers) -> str:
    """The colour space of the stream by libjpeg's rules, which every decoder follows."""
    number = len(markers.components)
    if number == 3:
        if markers.jfif:
            return "YCbCr601"
        if markers.adobe is not None:
            return "RGB" if markers.adobe == 0 else "YCbCr601"
        return "RGB" if markers.components == b"RGB" else "YCbCr601"
    if number == 4:
        return "YCCK" if markers.adobe == 2 else "CMYK"
    return "MONO" if number == 1 else "MULTI"
