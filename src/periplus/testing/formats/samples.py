"""Encoded chunks of every compression, each with its decoded values."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.model import Codec, Found, Pipeline, Shape
from periplus.model.codecnames import TIFF_TILE
from periplus.scan.drive import scan_bytes
from periplus.testing.formats.tiff import case, picture

HEIGHT, WIDTH = 40, 56


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """One chunk: its codecs, its bytes, and its values in (bands, y, x)."""

    name: str
    codecs: Pipeline
    data: bytes
    values: NDArray[Any]
    lossy: bool = False
    """Decoded values are only close to these."""

    @property
    def chunks(self) -> Shape:
        return self.values.shape


def tiff_tile(values: NDArray[Any], compression: int, **changes: Any) -> Codec:
    """The codec of a chunky tile that holds these (bands, y, x) values."""
    samples, height, width = values.shape
    configuration = {
        "compression": compression,
        "bits_per_sample": values.dtype.itemsize * 8,
        "samples_per_pixel": samples,
        "photometric": 2 if samples == 3 else 1,
        "planar_config": 1,
        "predictor": 1,
        "tile_width": width,
        "tile_height": height,
        "sample_format": {"u": 1, "i": 2, "f": 3, "c": 6}[values.dtype.kind],
        "jpeg_tables": None,
    }
    return {"name": TIFF_TILE, "configuration": {**configuration, **changes}}


def chunky(values: NDArray[Any]) -> NDArray[Any]:
    """(y, x, bands), or (y, x) of a single band."""
    return np.ascontiguousarray(values[0] if values.shape[0] == 1 else np.moveaxis(values, 0, -1))


def rgb(bands: int = 3, dtype: str = "u1") -> NDArray[Any]:
    """Seeded values with this many bands."""
    return picture(f"tile-{bands}-{dtype}", dtype, (bands, HEIGHT, WIDTH))


def _makers() -> Iterator[tuple[str, Callable[[str], Sample]]]:
    import imagecodecs as native

    def tiled(
        compression: int,
        values: NDArray[Any],
        encode: Callable[[NDArray[Any]], Any],
        *,
        lossy: bool = False,
        **tile: Any,
    ) -> Callable[[str], Sample]:
        return lambda name: Sample(
            name=name,
            codecs=(tiff_tile(values, compression, **tile),),
            data=bytes(encode(chunky(values))),
            values=values,
            lossy=lossy,
        )

    def plain(values: NDArray[Any], codec: str, data: bytes | bytearray) -> Callable[[str], Sample]:
        codecs = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": codec})
        return lambda name: Sample(name=name, codecs=codecs, data=bytes(data), values=values)

    grey, deep, real, colour, alpha = rgb(1), rgb(1, "u2"), rgb(1, "f4"), rgb(3), rgb(4)
    twelve = deep >> 4
    yield "lzw", tiled(5, colour, lambda a: native.lzw_encode(native.delta_encode(a, axis=-2).tobytes()), predictor=2)
    large = picture("tile-large", "u1", (1, 150, 170))
    yield "lzw-large", tiled(5, large, lambda a: native.lzw_encode(a.tobytes()))
    yield "packbits", tiled(32773, grey, lambda a: native.packbits_encode(a.tobytes()))
    yield "deflate", tiled(8, deep, lambda a: zlib.compress(native.delta_encode(a, axis=-1).tobytes()), predictor=2)
    yield (
        "zstd",
        tiled(50000, real, lambda a: native.zstd_encode(native.floatpred_encode(a, axis=-1).tobytes()), predictor=3),
    )
    yield "xz", tiled(34925, grey, lambda a: lzma.compress(a.tobytes()))
    yield (
        "jpeg-ycbcr",
        tiled(7, colour, lambda a: native.jpeg8_encode(a, 90, subsampling="420"), photometric=6, lossy=True),
    )
    yield "jpeg-rgb", tiled(7, colour, lambda a: native.jpeg8_encode(a, 90, outcolorspace="RGB"), lossy=True)
    yield "jpeg-progressive", tiled(7, grey, _progressive, lossy=True)
    yield "jpeg-cmyk", tiled(7, alpha, lambda a: native.jpeg8_encode(a, 95), photometric=5, lossy=True)
    yield (
        "jpeg-12",
        tiled(7, twelve, lambda a: native.jpeg8_encode(a, 95, bitspersample=12), bits_per_sample=12, lossy=True),
    )
    yield "jpeg-lossless", tiled(7, deep, lambda a: native.jpeg8_encode(a, lossless=True, bitspersample=16))
    yield "jpeg2000", tiled(34712, colour, lambda a: native.jpeg2k_encode(a, level=0, codecformat="j2k"))
    yield "jpeg2000-boxes", tiled(34712, deep, lambda a: native.jpeg2k_encode(a, level=0, codecformat="jp2"))
    yield (
        "jpeg2000-lossy",
        tiled(34712, grey, lambda a: native.jpeg2k_encode(a, level=50, codecformat="j2k"), lossy=True),
    )
    yield "webp", tiled(50001, colour, lambda a: native.webp_encode(a, level=90, lossless=False), lossy=True)
    yield "webp-lossless", tiled(50001, alpha, lambda a: native.webp_encode(a, lossless=True))
    yield "jpegxl", tiled(50002, colour, lambda a: native.jpegxl_encode(a, lossless=True))
    yield "jpegxl-deep", tiled(50002, deep, lambda a: native.jpegxl_encode(a, lossless=True))
    yield (
        "jpegxl-boxes",
        tiled(50002, colour, lambda a: native.jpegxl_encode(a, level=90, usecontainer=True), lossy=True),
    )
    yield "png", tiled(34933, colour, native.png_encode)
    yield "png-deep", tiled(34933, deep, native.png_encode)
    yield "lerc", tiled(34887, colour, native.lerc_encode)
    yield "lerc-float", tiled(34887, real, native.lerc_encode)
    yield (
        "lerc-deflate",
        tiled(34887, real, lambda a: zlib.compress(native.lerc_encode(a)), lerc_parameters=[4, 1]),
    )
    yield (
        "lerc-zstd",
        tiled(34887, deep, lambda a: native.zstd_encode(native.lerc_encode(a)), lerc_parameters=[4, 2]),
    )
    for name, number in (("ccittrle", 2), ("ccittfax3", 3), ("ccittfax4", 4)):
        yield name, lambda made, number=number: _fax(made, number)  # type: ignore[misc]
    yield "plain-zstd", plain(deep, "zstd", native.zstd_encode(deep.tobytes()))
    yield "plain-zlib", plain(deep, "numcodecs.zlib", zlib.compress(deep.tobytes()))
    yield "plain-gzip", plain(deep, "gzip", gzip.compress(deep.tobytes(), mtime=0))
    yield "plain-blosc", plain(deep, "blosc", native.blosc_encode(deep.tobytes()))
    yield "plain-lz4", plain(deep, "numcodecs.lz4", native.lz4_encode(deep.tobytes(), header=True))


def _progressive(values: NDArray[Any]) -> bytes:
    from PIL import Image

    target = io.BytesIO()
    Image.fromarray(values).save(target, "JPEG", progressive=True, quality=90)
    return target.getvalue()


def _fax(name: str, compression: int) -> Sample:
    """The first strip of what GDAL writes."""
    import tifffile

    made = case(name)
    with tifffile.TiffFile(io.BytesIO(made.data)) as file:
        page = file.pages.first
        start, length, rows = page.dataoffsets[0], page.databytecounts[0], page.rowsperstrip
    values = made.arrays["0/data"][:, :rows]
    codec = tiff_tile(values, compression, bits_per_sample=1)
    return Sample(name=name, codecs=(codec,), data=made.data[start : start + length], values=values)


def _files() -> Iterator[tuple[str, Callable[[str], Sample]]]:
    """Files that are one chunk each."""
    from periplus.testing.formats import dted as dteds
    from periplus.testing.formats import nitf as nitfs
    from periplus.testing.formats import pictures

    gray, heights = rgb(1) >> 4, dteds.heights("tile", 21, 17)
    some = np.full_like(heights, dteds.NULL)
    some[:, :, [0, 3, 9]] = heights[:, :, [0, 3, 9]]
    palette = (b"PLTE", bytes(range(48)))
    yield "dted", lambda name: _scanned(name, dteds.cell(heights), heights)
    yield "dted-partial", lambda name: _scanned(name, dteds.cell(some, stored=(0, 3, 9)), some)
    packed = nitfs.ImageSegment(values=rgb(3, "u2") >> 4, kind="u12", mode="P")
    yield "nitf-packed", lambda name: _scanned(name, nitfs.nitf(packed), packed.values)
    yield "nitf-quantised", _quantised
    yield "jpeg-file", lambda name: _scanned(name, _progressive(chunky(rgb())), rgb(), lossy=True)
    yield "png-file", lambda name: _scanned(name, pictures.png(rgb(4, "u2"), bits=16, colour=6), rgb(4, "u2"))
    yield (
        "png-palette",
        lambda name: _scanned(name, pictures.png(gray, bits=4, colour=3, interlaced=True, chunks=[palette]), gray),
    )


def _quantised(name: str) -> Sample:
    """A chunk of vector quantisation: codes of 4 x 4 pixels after their code books."""
    rng = np.random.default_rng(5)
    books = rng.integers(0, 256, (4, 4096, 4), dtype=np.uint8)
    codes = rng.integers(0, 4096, (HEIGHT // 4, WIDTH // 4))
    y, x = np.indices((HEIGHT, WIDTH))
    values = books[y % 4, codes[y // 4, x // 4], x % 4][None]
    bits = "".join(format(code, "012b") for code in codes.ravel().tolist())
    data = books.tobytes() + int(bits, 2).to_bytes(len(bits) // 8, "big")
    return Sample(name=name, codecs=({"name": "periplus.vq"},), data=data, values=values)


def _scanned(name: str, data: bytes, values: NDArray[Any], *, lossy: bool = False) -> Sample:
    """The one chunk of a file, with the codecs our scanner gives it."""
    (found,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    start, length = int(found.refs.offset[0]), int(found.refs.length[0])
    stored = data[start : start + length]
    return Sample(name=name, codecs=found.array.encodings[0].codecs, data=stored, values=values, lossy=lossy)


@lru_cache(maxsize=1)
def _registry() -> dict[str, Callable[[str], Sample]]:
    return {**dict(_makers()), **dict(_files())}


def names() -> list[str]:
    """The names of all samples."""
    return list(_registry())


@lru_cache(maxsize=128)
def sample(name: str) -> Sample:
    """The sample of that name, always the same for the same library versions."""
    return _registry()[name](name)
