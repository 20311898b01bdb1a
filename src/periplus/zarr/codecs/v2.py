"""Zarr v2 filters (numcodecs codecs) for chunks as they lie in imagery files, on the decoder of the v3 codecs.

A filter is told neither the shape nor the type of its chunk, so only codecs whose own settings say both can be one;
`periplus.pipeline` says them for all others. They only decode, to little-endian values in C order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from periplus.decode import dted, jbp, pipeline, png, prepare
from periplus.decode.declared import extent
from periplus.decode.jpeg import codec as jpegblock
from periplus.decode.jpeg2000 import codec as jpeg2000
from periplus.decode.tiff import codec as tifftile
from periplus.forks import cached_property
from periplus.limits import Limits
from periplus.zarr.description.codecs import ANY


class _Filter(Codec):  # type: ignore[misc]
    """One whole block, strip, tile or file."""

    codec_id: ClassVar[str]

    def __init__(self, **configuration: Any) -> None:
        self.configuration = configuration
        self._prepared(ANY)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The filter of an entry in `.zarray`; FormatError for settings that are not known."""
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
        """Files are indexed, none is written."""
        raise NotImplementedError(f"the codec {self.codec_id} only decodes: periplus indexes files and writes none")


class Jpeg2000(_Filter):
    """Tile-parts of one tile; tiles at the edges are filled up to the size of the others."""

    codec_id = jpeg2000.NAME


class Jpeg(_Filter):
    """A JPEG stream."""

    codec_id = jpegblock.NAME


class JbpBlock(_Filter):
    """An uncompressed NITF block."""

    codec_id = jbp.NAME


class TiffTile(_Filter):
    """A strip or tile of TIFF."""

    codec_id = tifftile.NAME


class Dted(_Filter):
    """An elevation cell."""

    codec_id = dted.NAME


class Png(_Filter):
    """A PNG file."""

    codec_id = png.NAME


class Listed(_Filter):
    """Any Zarr v3 codec list of ours as one filter: codecs, shape, dtype, and last_rows where it applies."""

    codec_id = pipeline.LIST


FILTERS: dict[str, type[_Filter]] = {
    each.codec_id: each for each in (Jpeg2000, Jpeg, JbpBlock, TiffTile, Dted, Png, Listed)
}


def register() -> None:
    """Have numcodecs take ours for every name we know, also where another library offers it too."""
    for name, each in FILTERS.items():
        register_codec(each, codec_id=name)
