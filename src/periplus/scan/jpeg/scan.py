"""JPEG files: one picture, stored as one chunk or as row bands where restart markers allow it."""

from __future__ import annotations

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, Encoding, Source, Steps, codecnames
from periplus.parse.jpeg import LOSSLESS
from periplus.scan.buffer import FileBuffer
from periplus.scan.jpeg.bands import JpegBands, find_bands
from periplus.scan.jpeg.markers import CODINGS, JpegMarkers, read_markers
from periplus.scan.single_picture import Reading, picture_array, scan_picture, whole_file

NAME = "jpeg"
PHOTOMETRIC = {1: "min_is_black", 3: "rgb"}
"""By the number of bands; four bands are any data, because CMYK is converted to RGB."""
YCCK = 2


def sniff(head: bytes) -> bool:
    """Whether these are the first bytes of a JPEG file."""
    return bytes(head[:3]) == b"\xff\xd8\xff"


def scan(source: Source, limits: Limits) -> Steps:
    """The one array of a JPEG file; Exif metadata is reported, never applied."""
    yield from scan_picture(source, limits, _read)


def _read(file: FileBuffer, limits: Limits) -> Reading:
    markers = yield from read_markers(file, limits)
    bands = yield from find_bands(markers, file, limits)
    refs = whole_file(file) if bands is None else bands.refs
    return _array(markers, limits, bands), refs, markers.moment, ()


def _array(markers: JpegMarkers, limits: Limits, cut: JpegBands | None) -> Array:
    header = markers.header
    # CMYK is decoded to RGB, as in GDAL; so is YCbCr.
    bands = 3 if markers.inks else header.samples
    if not 2 <= header.bits <= 16:
        raise FormatError(f"a JPEG of {header.bits} bits a sample does not exist")
    colors = _color_space(markers)
    attributes = {**markers.attributes, "coding": CODINGS[header.kind]}
    if bands in PHOTOMETRIC:
        attributes["photometric"] = PHOTOMETRIC[bands]
    if markers.inks:
        attributes["source_color_space"] = "CMYK" if colors == "CMYK" else "YCbCrK"
    configuration = {
        "bits_per_pixel": header.bits,
        "num_bands": bands,
        "block_width": header.width,
        "block_height": header.height if cut is None else cut.rows,
        "imode": "P" if bands > 1 else "B",
        "color_space": colors,
        **({} if cut is None else cut.settings),
    }
    codec = {"name": codecnames.JPEG, "configuration": configuration}
    shape = (bands, header.height, header.width)
    encoding = Encoding((codec,), clipped=() if cut is None else cut.clipped)
    return picture_array(shape, header.bits, encoding, attributes, limits, None if cut is None else cut.rows)


def _color_space(markers: JpegMarkers) -> str:
    """The colour space of the stream by libjpeg's rules, which every decoder follows."""
    header = markers.header
    if header.samples == 3:
        return "RGB" if header.declared_colors == "RGB" or header.kind == LOSSLESS else "YCbCr601"
    if header.samples == 4:
        return "YCCK" if header.adobe == YCCK else "CMYK"
    return "MONO" if header.samples == 1 else "MULTI"
