"""Filters of Zarr v2 (numcodecs codecs) for chunks of imagery files, with the decoders of the v3 codecs.

The codecs of whole image blocks are listed here once: the classes for Zarr v3 are made of the same table.
A filter is given neither the shape nor the type of its chunk, so it must be a codec whose settings have both;
`periplus.pipeline` adds them to all others. They only decode, to little-endian values in C order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from periplus.decode import pipeline, prepare
from periplus.decode.pipeline import extent
from periplus.forks import cached_property
from periplus.limits import Limits
from periplus.model.codecnames import DTED, JBP_BLOCK, JPEG, JPEG2000, PIPELINE, PNG, TIFF_TILE, VECTOR_QUANTISED
from periplus.zarr.description.codecs import ANY


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


class _Filter(Codec):  # type: ignore[misc]
    """One whole block, strip, tile or file."""

    codec_id: ClassVar[str]

    def __init__(self, **configuration: Any) -> None:
        self.configuration = configuration
        self._prepared(ANY)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The filter of an entry in `.zarray`; FormatError for unknown settings."""
        return cls(**{key: value for key, value in config.items() if key != "id"})

    def get_config(self) -> dict[str, Any]:
        """The entry in `.zarray`."""
        return {"id": self.codec_id, **self.configuration}

    def _prepared(self, limits: Limits) -> pipeline.Decoder:
        shape, dtype = extent(self.codec_id, self.configuration)
        codecs = ({"name": self.codec_id, "configuration": self.configuration},)
        return prepare(codecs, chunks=shape, dtype=dtype, limits=limits)

    @cached_property
    def _decoder(self) -> pipeline.Decoder:
        return self._prepared(Limits())

    def decode(self, buf: Any, out: Any = None) -> Any:
        """The chunk as an array; into `out` where it is given."""
        values = self._decoder.whole(ensure_contiguous_ndarray(buf).view(np.uint8).data)
        return ndarray_copy(values.astype(values.dtype.newbyteorder("<"), copy=False), out)

    def encode(self, buf: Any) -> NoReturn:
        """Not supported."""
        raise NotImplementedError(f"the codec {self.codec_id} only decodes")


def _class_of(codec: ImageCodec) -> type[_Filter]:
    members = {"codec_id": codec.name, "__doc__": codec.summary, "__module__": __name__}
    return type(codec.class_name, (_Filter,), members)


FILTERS: dict[str, type[_Filter]] = {codec.name: _class_of(codec) for codec in IMAGE_CODECS if codec.is_filter}
Jpeg2000, Jpeg, JbpBlock = FILTERS[JPEG2000], FILTERS[JPEG], FILTERS[JBP_BLOCK]
TiffTile, Dted, Png, Listed = FILTERS[TIFF_TILE], FILTERS[DTED], FILTERS[PNG], FILTERS[PIPELINE]


def register() -> None:
    """Make numcodecs use our filter for every name in the table, also where another library offers it."""
    for name, each in FILTERS.items():
        register_codec(each, codec_id=name)
