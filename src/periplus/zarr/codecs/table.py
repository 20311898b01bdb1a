"""The codecs of whole image blocks, once: the classes for Zarr v3 and for numcodecs are both made of this table."""

from __future__ import annotations

from dataclasses import dataclass

from periplus.model.codecnames import DTED, JBP_BLOCK, JPEG, JPEG2000, PIPELINE, PNG, TIFF_TILE, VECTOR_QUANTISED


@dataclass(frozen=True, slots=True)
class ImageCodec:
    """One codec: its name in metadata, the name of its classes, and what it decodes."""

    name: str
    class_name: str
    summary: str
    is_filter: bool = True
    """Whether it can be a filter of Zarr v2, which is given neither the shape nor the type of its chunk: then its
    settings have both."""


IMAGE_CODECS = (
    ImageCodec(JPEG2000, "Jpeg2000", "Tile-parts of one tile of JPEG 2000: main_header, resolution_level."),
    ImageCodec(JPEG, "Jpeg", "A JPEG stream: bits_per_pixel, num_bands, block_width, block_height, imode."),
    ImageCodec(
        JBP_BLOCK, "JbpBlock", "An uncompressed NITF block: num_bands, block_height, block_width, nbpp, imode, pvtype."
    ),
    ImageCodec(
        TIFF_TILE,
        "TiffTile",
        "A strip or tile of TIFF: compression, bits_per_sample, samples_per_pixel, photometric and so on.",
    ),
    ImageCodec(
        DTED,
        "Dted",
        "A DTED cell: num_lat_points, num_lon_lines, record_size, trim_top, trim_bottom, trim_left, trim_right.",
    ),
    ImageCodec(PNG, "Png", "A PNG file: width, height, bands, bits."),
    ImageCodec(PIPELINE, "Listed", "A list of codecs as one: codecs, shape, dtype, last_rows."),
    ImageCodec(VECTOR_QUANTISED, "VectorQuantised", "A block of CADRG or CIB after its code books.", is_filter=False),
)
