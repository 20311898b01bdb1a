"""Seeded TIFF fixtures: every flavour as a named case, with its bytes and the arrays an index of it must give."""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Raster = NDArray[Any]
BANDS, HEIGHT, WIDTH, TILE, ROWS = 3, 70, 90, 32, 16
"""Sizes of most cases: no tile or strip fits the image exactly, so edges and a short last strip always occur."""
TILED: Mapping[str, Any] = {"tiled": True, "blockxsize": 32, "blockysize": 32}
"""As GDAL's creation options."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One TIFF file and what it holds."""

    name: str
    data: bytes
    arrays: Mapping[str, Raster]
    """By name in the index (`0/data`, `0/mask`, `images/1/0/data`), each (bands, y, x), native byte order."""
    lossy: bool = False
    """Decoders may differ by a little from these values."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Options of the writer, for tests of metadata."""


Maker: TypeAlias = tuple[str, Callable[[str], Case]]
"""The name of a case, and the function that makes it."""


def picture(name: str, dtype: Any, shape: tuple[int, int, int] = (BANDS, HEIGHT, WIDTH)) -> Raster:
    """Smooth values with a little noise over the range of a type, the same for the same name always."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    kind = np.dtype(dtype)
    b, y, x = np.indices(shape)
    wave = np.sin(x / 9 + b) * np.cos(y / 7 - b) + rng.normal(0, 0.02, shape)
    if kind == np.bool_:
        return np.asarray(wave > 0)
    if kind.kind == "c":
        return np.asarray(wave * 1000 + 1j * np.roll(wave, 3, -1) * 500, kind)
    if kind.kind == "f":
        return np.asarray(wave * 1000, kind)
    info = np.iinfo(kind)
    half = min(info.max, 2**40) / 2.2
    centre = half * 1.1 if kind.kind == "u" else 0.0
    return np.asarray(np.clip(wave * half + centre, info.min, info.max), kind)


def written(
    image: Raster,
    *,
    big: bool = False,
    bigtiff: bool = False,
    tiled: bool = True,
    planar: bool = False,
    **options: Any,
) -> bytes:
    """One (bands, y, x) image as tifffile writes it."""
    import tifffile

    if tiled:
        options.setdefault("tile", (TILE, TILE))
    else:
        options.setdefault("rowsperstrip", ROWS)
    options.setdefault("photometric", "minisblack")
    if image.shape[0] > 1:
        options["planarconfig"] = "separate" if planar else "contig"
    stored = image[0] if image.shape[0] == 1 else image if planar else np.moveaxis(image, 0, -1)
    target = io.BytesIO()
    with tifffile.TiffWriter(target, bigtiff=bigtiff, byteorder=">" if big else "<") as writer:
        writer.write(np.ascontiguousarray(stored), metadata=None, software=False, **options)
    return target.getvalue()


def gdal_written(
    image: Raster, *, overviews: tuple[int, ...] = (), mask: Raster | None = None, **options: Any
) -> bytes:
    """One (bands, y, x) image as GDAL writes it; options are rasterio's profile and GDAL's creation options."""
    import rasterio
    from rasterio.enums import Resampling
    from rasterio.io import MemoryFile

    facts = {
        name: options.pop(name)
        for name in ("tags", "descriptions", "scales", "offsets", "units", "colormap")
        if name in options
    }
    gcps, rpcs = options.pop("gcps", None), options.pop("rpcs", None)
    settings = {"GDAL_TIFF_INTERNAL_MASK": True, "GDAL_NUM_THREADS": "1", **options.pop("settings", {})}
    options.setdefault("dtype", image.dtype.name)
    with warnings.catch_warnings(), rasterio.Env(**settings), MemoryFile() as memory:
        warnings.simplefilter("ignore")
        bands, height, width = image.shape
        with memory.open(driver="GTiff", count=bands, height=height, width=width, **options) as target:
            target.write(image)
            if mask is not None:
                target.write_mask(mask)
            for name, value in facts.items():
                if name == "tags":
                    target.update_tags(**value)
                elif name == "colormap":
                    target.write_colormap(1, value)
                else:
                    setattr(target, name, value)
            if gcps is not None:
                target.gcps = gcps
            if rpcs is not None:
                target.rpcs = rpcs
            if overviews:
                target.build_overviews(list(overviews), Resampling.nearest)
        return bytes(memory.read())


def seen_by_gdal(data: bytes, *, levels: int = 1, mask: bool = False) -> dict[str, Raster]:
    """The arrays of GDAL-made bytes as GDAL reads them back: levels, and masks as 0 and 1."""
    from rasterio.io import MemoryFile

    arrays: dict[str, Raster] = {}
    with warnings.catch_warnings(), MemoryFile(data) as memory:
        warnings.simplefilter("ignore")
        for level in range(levels):
            with memory.open(**({"overview_level": level - 1} if level else {})) as source:
                arrays[f"{level}/data"] = source.read()
                if mask:
                    arrays[f"{level}/mask"] = (source.dataset_mask()[None] > 0).astype("u1")
    return arrays


def _plain(name: str, dtype: Any, *, bands: int = BANDS, **options: Any) -> Case:
    image = picture(name, dtype, (bands, HEIGHT, WIDTH))
    stored = image.astype("u1") if image.dtype == np.bool_ else image
    return Case(name=name, data=written(image, **options), arrays={"0/data": stored}, facts=options)


def _lossy(name: str, dtype: Any, *, bands: int = BANDS, **options: Any) -> Case:
    import tifffile

    data = written(picture(name, dtype, (bands, HEIGHT, WIDTH)), **options)
    image = np.asarray(tifffile.imread(io.BytesIO(data)))
    seen = image[None] if image.ndim == 2 else image if options.get("planar") else np.moveaxis(image, -1, 0)
    return Case(name=name, data=data, arrays={"0/data": np.ascontiguousarray(seen)}, lossy=True, facts=options)


def _gdal(
    name: str, dtype: Any, *, bands: int = BANDS, lossy: bool = False, top: int | None = None, **options: Any
) -> Case:
    image = picture(name, dtype, (bands, HEIGHT, WIDTH))
    if top is not None:
        image = np.asarray(image % (top + 1), image.dtype)
    data = gdal_written(image, **options)
    seen = seen_by_gdal(data)
    if image.dtype == np.float32 and options.get("nbits") == 16:
        seen = {name: values.astype("f2") for name, values in seen.items()}  # exact: the file holds half precision
    return Case(name=name, data=data, arrays=seen, lossy=lossy, facts=options)


def _makers() -> Iterator[Maker]:
    from periplus.testing.formats import pyramids

    yield from _layouts()
    yield from _types()
    yield from _predictors()
    yield from _codecs()
    yield from _packed_bits()
    yield from _by_gdal()
    yield from pyramids.makers()


def _layouts() -> Iterator[Maker]:
    """Byte order, file size, tiles or strips, bands together or apart, each with each."""
    codecs = (("none", 0), ("deflate", 2), ("zstd", 1))
    ways = product(("le", "be"), ("classic", "big"), ("tiles", "strips"), ("chunky", "planar"), codecs)
    for order, size, tiled, planar, (codec, predictor) in ways:
        options: dict[str, Any] = {
            "big": order == "be",
            "bigtiff": size == "big",
            "tiled": tiled == "tiles",
            "planar": planar == "planar",
            "compression": None if codec == "none" else codec,
            "predictor": predictor,
        }
        name = f"{order}-{size}-{tiled}-{planar}-{codec}-p{max(predictor, 1)}"
        yield name, partial(_plain, dtype="u2", **options)


def _types() -> Iterator[Maker]:
    kinds = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
    for kind, order, bands in product(kinds, ("le", "be"), (1, 3)):
        if kind != "bool" or bands == 1:
            name = f"{order}-{np.dtype(kind).name}-{bands}"
            yield name, partial(_plain, dtype=kind, bands=bands, big=order == "be")


def _predictors() -> Iterator[Maker]:
    kinds = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "f2", "f4", "f8"]
    for kind, order, planar in product(kinds, ("le", "be"), ("chunky", "planar")):
        predictor = 3 if kind[0] == "f" else 2
        options: dict[str, Any] = {
            "big": order == "be",
            "planar": planar == "planar",
            "compression": "lzw",
            "predictor": predictor,
        }
        yield f"{order}-{np.dtype(kind).name}-{planar}-lzw-p{predictor}", partial(_plain, dtype=kind, **options)


def _codecs() -> Iterator[Maker]:
    """Compressions as tifffile writes them, lossy ones last."""
    ways = ("tiles", "strips")
    for codec, tiled in product(["lzw", "packbits", "adobe_deflate", "deflate", "zstd", "lzma", "png"], ways):
        yield f"{codec}-{tiled}", partial(_plain, dtype="u1", tiled=tiled == "tiles", compression=codec)
    lossless = {
        "jpegxl": {"lossless": True},
        "jpeg2000": {"level": 0, "reversible": True},
        "lerc": {"level": 0},
        "webp": {"lossless": True},
    }
    for (codec, arguments), tiled in product(lossless.items(), ways):
        options: dict[str, Any] = {
            "tiled": tiled == "tiles",
            "photometric": "rgb",
            "compression": codec,
            "compressionargs": arguments,
        }
        yield f"{codec}-lossless-{tiled}", partial(_plain, dtype="u1", **options)
    yield "lerc-float32", partial(_plain, dtype="f4", bands=1, compression="lerc", compressionargs={"level": 0})
    for codec, tiled in product(["jpeg", "webp", "jpegxl", "jpeg2000"], ways):
        options = {"tiled": tiled == "tiles", "photometric": "rgb", "compression": codec}
        yield f"{codec}-rgb-{tiled}", partial(_lossy, dtype="u1", **options)
    yield "jpeg-gray", partial(_lossy, dtype="u1", bands=1, compression="jpeg")
    yield "jpeg-ycbcr", partial(_lossy, dtype="u1", photometric="rgb", compression="jpeg", subsampling=(2, 2))
    yield "jpeg-planar", partial(_lossy, dtype="u1", planar=True, compression="jpeg")


def _packed_bits() -> Iterator[Maker]:
    """Samples whose size is not a multiple of 8 bits."""
    for bits in (1, 2, 3, 4, 5, 6, 7):
        yield f"uint{bits}", partial(_gdal, dtype="u1", top=2**bits - 1, nbits=bits, compress="lzw")
    for bits, planar in product((9, 10, 12, 14, 15), ("pixel", "band")):
        options: dict[str, Any] = {"nbits": bits, "compress": "deflate", "interleave": planar}
        yield f"uint{bits}-{planar}", partial(_gdal, dtype="u2", top=2**bits - 1, **options)
    for bits in (17, 24, 31):
        yield f"uint{bits}", partial(_gdal, dtype="u4", top=2**bits - 1, nbits=bits, **TILED)
    yield "uint12-big-endian", partial(_gdal, dtype="u2", top=4095, nbits=12, endianness="BIG")
    yield "uint12-uncompressed", partial(_gdal, dtype="u2", top=4095, nbits=12)


def _by_gdal() -> Iterator[Maker]:
    """Files that GDAL writes and tifffile does not, or differently."""
    for predictor in (1, 3):
        options: dict[str, Any] = {"nbits": 16, "compress": "deflate", "predictor": predictor}
        yield f"float16-gdal-p{predictor}", partial(_gdal, dtype="f4", **options)
    for kind, endian in product(("f4", "f8"), ("LITTLE", "BIG")):
        options = {"compress": "zstd", "predictor": 2, "endianness": endian}
        yield f"{np.dtype(kind).name}-{endian.lower()}-gdal-p2", partial(_gdal, dtype=kind, **options)
    for codec in ["ccittrle", "ccittfax3", "ccittfax4"]:
        yield codec, partial(_gdal, dtype="u1", bands=1, top=1, nbits=1, compress=codec, blockysize=ROWS)
    codecs = ["lerc", "lerc_deflate", "lerc_zstd", "lzma", "zstd", "webp", "jpeg", "lzw"]
    for codec, interleave in product(codecs, ("pixel", "band")):
        if (codec, interleave) != ("webp", "band"):
            options = {
                "compress": codec,
                "interleave": interleave,
                **TILED,
                "lossy": codec in ("jpeg", "webp"),
            }
            yield f"gdal-{codec}-{interleave}", partial(_gdal, dtype="u1", **options)
    yield "gdal-jpeg-ycbcr", partial(_gdal, dtype="u1", compress="jpeg", photometric="ycbcr", lossy=True)


@lru_cache(maxsize=1)
def _registry() -> dict[str, Callable[[str], Case]]:
    return dict(_makers())


def names() -> list[str]:
    """The names of all cases; `case` makes one."""
    return list(_registry())


@lru_cache(maxsize=512)
def case(name: str) -> Case:
    """The case of that name; the same bytes for the same name and library versions."""
    return _registry()[name](name)
