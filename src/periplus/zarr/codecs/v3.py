"""Zarr v3 codecs for chunks of imagery files: the five of osml-imagery-io and ours, with one decoder. They only decode.

Codecs of whole blocks follow `bytes` in a codec list, as in osml-imagery-io: they turn stored bytes into the
little-endian bytes of the chunk in C order. The list has the same meaning whichever of the two libraries zarr-python
picks for a URI.
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

from periplus.decode import pipeline, prepare
from periplus.decode.pipeline import CROP, EXTENTS, extent, stored_shape
from periplus.decode.settings import known
from periplus.decode.zarr import unpack
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Shape
from periplus.model.codecnames import DTED, JBP_BLOCK, JPEG, JPEG2000, PIPELINE, PNG, TIFF_TILE, VECTOR_QUANTISED
from periplus.zarr.codecs import v2 as filters
from periplus.zarr.codecs.v2 import IMAGE_CODECS, ImageCodec
from periplus.zarr.description.codecs import ANY

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec


class _Configured:
    """A codec with a name, and its configuration as written in the metadata."""

    name: ClassVar[str]
    is_fixed_size = False

    def __init__(self, **configuration: Any) -> None:
        self.configuration = configuration
        self._check()

    def _check(self) -> None:
        """FormatError for unknown settings, when an array is opened."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The codec of one entry in a codec list."""
        configuration = data.get("configuration") or {}
        if not isinstance(configuration, Mapping) or data.get("name", cls.name) != cls.name:
            raise FormatError(f"codec {cls.name}: a name and a configuration are required")
        return cls(**configuration)

    def to_dict(self) -> dict[str, Any]:
        """The entry in a codec list."""
        return {"name": self.name} | ({"configuration": self.configuration} if self.configuration else {})

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> NoReturn:
        """Not supported: these codecs only decode."""
        raise NotImplementedError(f"the codec {self.name} only decodes")

    async def _encode_single(self, chunk_data: Any, chunk_spec: ArraySpec) -> NoReturn:
        raise NotImplementedError(f"the codec {self.name} only decodes")

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


def _class_of(codec: ImageCodec) -> type[_Image]:
    return type(codec.class_name, (_Image,), {"name": codec.name, "__doc__": codec.summary, "__module__": __name__})


IMAGES: dict[str, type[_Image]] = {codec.name: _class_of(codec) for codec in IMAGE_CODECS}
Jpeg2000, Jpeg, JbpBlock, TiffTile = IMAGES[JPEG2000], IMAGES[JPEG], IMAGES[JBP_BLOCK], IMAGES[TIFF_TILE]
Dted, Png, Listed, VectorQuantised = IMAGES[DTED], IMAGES[PNG], IMAGES[PIPELINE], IMAGES[VECTOR_QUANTISED]


class Crop(_Configured, ArrayArrayCodec):
    """Stored chunks that are larger than the array's: shape."""

    name = CROP

    def _check(self) -> None:
        known(self.name, self.configuration, {"shape"})

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        """The chunk as it is stored."""
        return replace(chunk_spec, shape=stored_shape(self.configuration, chunk_spec.shape))

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


CODECS: dict[str, type[_Configured]] = {**IMAGES, Crop.name: Crop, Unpack.name: Unpack}


def register() -> None:
    """Make zarr-python and numcodecs use our codec for every name in the table, also where another library offers it.

    Entry points register the codecs without this; but osml-imagery-io offers the same URIs, and zarr-python then picks
    any of the two, with a warning. Cheap to call again.
    """
    from zarr import config

    chosen = {name: fully_qualified_name(each) for name, each in CODECS.items()}
    present = config.get("codecs", {})
    for name, each in CODECS.items():
        register_codec(name, each)  # type: ignore[arg-type]
    if any(present.get(name) != path for name, path in chosen.items()):
        config.set({"codecs": {**present, **chosen}})
    for name in CODECS:
        # Import all libraries that offer the name: osml-imagery-io registers its own in numcodecs when it is first
        # imported, which must not be after us. zarr-python reports one that cannot be imported when it is used.
        with suppress(ImportError):
            get_codec_class(name)
    filters.register()
