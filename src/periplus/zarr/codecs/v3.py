"""Zarr v3 codecs for chunks as they lie in imagery files: the five of the imagery seed and ours, on one decoder.

Codecs of whole blocks follow `bytes` in a codec list, as osml-imagery-io has it: they turn stored bytes into the
little-endian bytes of the chunk in C order. Whichever of the two libraries zarr-python picks for a URI, the list means
the same. They only decode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, BytesBytesCodec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.core.dtype import get_data_type_from_native_dtype
from zarr.registry import fully_qualified_name, get_codec_class, register_codec

from periplus.decode import dted, jbp, pipeline, png, prepare, vq
from periplus.decode.declared import EXTENTS, extent
from periplus.decode.jpeg import codec as jpegblock
from periplus.decode.jpeg2000 import codec as jpeg2000
from periplus.decode.settings import known
from periplus.decode.tiff import codec as tifftile
from periplus.decode.zarr import crop, unpack
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Shape
from periplus.zarr.codecs import v2 as filters
from periplus.zarr.description.codecs import ANY

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec


class _Configured:
    """What all of them share: a name, and a configuration kept as it was written."""

    name: ClassVar[str]
    is_fixed_size = False

    def __init__(self, **configuration: Any) -> None:
        self.configuration = configuration
        self._check()

    def _check(self) -> None:
        """FormatError, when an array is opened, for settings that are not known."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The codec of one entry in a codec list."""
        configuration = data.get("configuration") or {}
        if not isinstance(configuration, Mapping) or data.get("name", cls.name) != cls.name:
            raise FormatError(f"a codec {cls.name} has its name and a configuration")
        return cls(**configuration)

    def to_dict(self) -> dict[str, Any]:
        """The entry in a codec list."""
        return {"name": self.name} | ({"configuration": self.configuration} if self.configuration else {})

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> NoReturn:
        """Nobody knows: these codecs only decode."""
        raise NotImplementedError(f"the codec {self.name} only decodes: its encoded size is not known")

    async def _encode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> NoReturn:
        raise NotImplementedError(f"the codec {self.name} only decodes: periplus indexes files and writes none")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.configuration == self.configuration

    def __hash__(self) -> int:
        return hash((self.name, str(sorted(self.configuration.items(), key=str))))

    def __repr__(self) -> str:
        settings = ", ".join(f"{key}={str(value)[:40]!r}" for key, value in self.configuration.items())
        return f"{type(self).__name__}({settings})"


class _Image(_Configured, BytesBytesCodec):
    """One whole block, strip, tile or file."""

    def _check(self) -> None:
        if self.name in EXTENTS and "codecs" not in self.configuration:
            self._decoder(*extent(self.name, self.configuration), ANY)

    def _decoder(self, shape: Shape, dtype: np.dtype[Any], limits: Limits) -> pipeline.Decoder:
        codecs = ({"name": self.name, "configuration": self.configuration},)
        return prepare(codecs, chunks=shape, dtype=dtype, limits=limits)

    def _decode_sync(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        decode = self._decoder(chunk_spec.shape, chunk_spec.dtype.to_native_dtype(), Limits())
        fill = 0 if chunk_spec.fill_value is None else chunk_spec.fill_value
        values = decode.whole(chunk_data.as_numpy_array().data, fill=fill)
        little = values.astype(values.dtype.newbyteorder("<"), copy=False)
        return chunk_spec.prototype.buffer.from_array_like(little.reshape(-1).view(np.uint8))

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        # The native decoders release the GIL, so chunks decode side by side.
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)


class Jpeg2000(_Image):
    """Tile-parts of one tile: main_header, resolution_level."""

    name = jpeg2000.NAME


class Jpeg(_Image):
    """A JPEG stream: bits_per_pixel, num_bands, block_width, block_height, imode, color_space."""

    name = jpegblock.NAME


class JbpBlock(_Image):
    """An uncompressed NITF block: num_bands, block_height, block_width, nbpp, imode, pvtype."""

    name = jbp.NAME


class TiffTile(_Image):
    """A strip or tile of TIFF: compression, bits_per_sample, samples_per_pixel, photometric and so on; byte_order."""

    name = tifftile.NAME


class Dted(_Image):
    """An elevation cell: num_lat_points, num_lon_lines, record_size, trim_top, trim_bottom, trim_left, trim_right."""

    name = dted.NAME


class Png(_Image):
    """A PNG file: width, height, bands, bits."""

    name = png.NAME


class VectorQuantised(_Image):
    """A block of CADRG or CIB with its code books before it."""

    name = vq.NAME


class Listed(_Image):
    """Any codec list of ours as one codec: codecs, and last_rows where the last strip of an image is shorter."""

    name = pipeline.LIST


class Crop(_Configured, ArrayArrayCodec):
    """Stored chunks that are larger than the array's: shape."""

    name = crop.NAME

    def _check(self) -> None:
        known(self.name, self.configuration, {"shape"})

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        """The chunk as it is stored."""
        return replace(chunk_spec, shape=crop.stored_shape(self.configuration, chunk_spec.shape))

    async def _decode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return chunk_data[tuple(slice(n) for n in chunk_spec.shape)]


class Unpack(_Configured, ArrayArrayCodec):
    """Stored numbers to physical ones: dtype, nodata, scale, offset."""

    name = unpack.NAME

    def _check(self) -> None:
        unpack.stored_dtype(self.configuration)

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        """The chunk as it is stored."""
        stored = get_data_type_from_native_dtype(unpack.stored_dtype(self.configuration))
        return replace(chunk_spec, dtype=stored, fill_value=stored.default_scalar())

    def _decode_sync(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        dtype = chunk_spec.dtype.to_native_dtype().newbyteorder("=")
        finish = unpack.unpacker(self.configuration, chunks=chunk_spec.shape, dtype=dtype)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(finish(chunk_data.as_numpy_array()).copy())

    async def _decode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)


CODECS: dict[str, type[_Configured]] = {
    each.name: each for each in (Jpeg2000, Jpeg, JbpBlock, TiffTile, Dted, Png, VectorQuantised, Listed, Crop, Unpack)
}


def register() -> None:
    """Have zarr-python and numcodecs take ours for every name we know, also where another library offers it too.

    Entry points make the codecs known without this; but osml-imagery-io offers the same URIs, and among equals
    zarr-python takes any, with a warning. Cheap to call again.
    """
    from zarr import config

    chosen = {name: fully_qualified_name(each) for name, each in CODECS.items()}
    present = config.get("codecs", {})
    for name, each in CODECS.items():
        register_codec(name, each)  # type: ignore[arg-type]
    if any(present.get(name) != path for name, path in chosen.items()):
        config.set({"codecs": {**present, **chosen}})
    for name in CODECS:
        # Loads all that offer the name: osml-imagery-io puts its own into numcodecs when it is first imported, which
        # must not come after us. That one of them cannot be imported is zarr-python's to say, when it is asked for.
        with suppress(ImportError):
            get_codec_class(name)
    filters.register()
