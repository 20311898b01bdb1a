"""Seeded TIFF fixtures with more than one image: overviews, masks, pages, sparse tiles, and georeferenced files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from periplus.testing.formats import custom_tiff
from periplus.testing.formats import tiff as tiffs

if TYPE_CHECKING:
    from periplus.testing.formats.tiff import Case, Raster

TILED: dict[str, Any] = {"tiled": True, "blockxsize": 32, "blockysize": 32}
UTM: dict[str, Any] = {"crs": "EPSG:32633", "transform": (20.0, 0.0, 500_000.0, 0.0, -20.0, 5_200_000.0, 0.0, 0.0, 1.0)}


def _affine(options: dict[str, Any]) -> dict[str, Any]:
    from affine import Affine

    return {**options, "transform": Affine(*options["transform"][:6])} if "transform" in options else options


def pages(name: str, *, big: bool = False, bigtiff: bool = False, tree: str = "chain") -> Case:
    """Two images of different type, the first with two overviews: in the chain, or as SubIFDs."""
    import tifffile

    first, second = tiffs.picture(name, "u1"), tiffs.picture(name + "2", "f4", (1, 40, 50))
    target = io.BytesIO()
    rgb: dict[str, Any] = {
        "photometric": "rgb",
        "tile": (32, 32),
        "compression": "deflate",
        "metadata": None,
        "software": False,
    }
    with tifffile.TiffWriter(target, bigtiff=bigtiff, byteorder=">" if big else "<") as writer:
        writer.write(np.moveaxis(first, 0, -1), subifds=2 if tree == "sub" else 0, **rgb)
        for step in (2, 4):
            writer.write(np.moveaxis(first[:, ::step, ::step], 0, -1), subfiletype=1, **rgb)
        writer.write(second[0], rowsperstrip=16, metadata=None, software=False, photometric="minisblack")
    arrays = {"0/data": first, "1/data": first[:, ::2, ::2], "2/data": first[:, ::4, ::4], "images/1/0/data": second}
    return tiffs.Case(name=name, data=target.getvalue(), arrays=arrays)


def overviewed(name: str, *, mask: bool = False, cog: bool = False, **options: Any) -> Case:
    """GDAL's own pyramid with two overviews, with an internal mask or not, as GTiff or COG."""
    image = tiffs.picture(name, options.pop("dtype", "i2"), (options.pop("bands", 1), 140, 180))
    valid = np.asarray((np.add.outer(np.arange(140), np.arange(180)) % 60) > 9) * np.uint8(255)
    data = tiffs.gdal_written(
        image, overviews=(2, 4), mask=valid if mask else None, **{**TILED, **_affine(UTM), **options}
    )
    if cog:
        data = as_cog(data)
    return tiffs.Case(name=name, data=data, arrays=tiffs.seen_by_gdal(data, levels=3, mask=mask), facts=options)


def as_cog(data: bytes, **options: Any) -> bytes:
    """The same raster through GDAL's COG driver: ghost area, tile leaders and trailers, overviews first."""
    import rasterio
    from rasterio.io import MemoryFile
    from rasterio.shutil import copy

    with (
        rasterio.Env(GDAL_NUM_THREADS="1", GDAL_TIFF_INTERNAL_MASK=True),
        MemoryFile(data) as source,
        MemoryFile() as target,
    ):
        with source.open() as opened:
            copy(
                opened,
                target.name,
                driver="COG",
                **{"blocksize": 128, "compress": "zstd", "predictor": "yes", **options},
            )
        return bytes(target.read())


def sparse(name: str, **options: Any) -> Case:
    """A tiled image of which only one corner was ever written."""
    image = np.full((1, tiffs.HEIGHT, tiffs.WIDTH), 7, "i2")
    image[:, :40, :40] = tiffs.picture(name, "i2", (1, 40, 40))
    filled = {**TILED, **_affine(UTM), "nodata": 7, "sparse_ok": True, "compress": "zstd", **options}
    data = tiffs.gdal_written(image, **filled)
    return tiffs.Case(name=name, data=data, arrays={"0/data": image}, facts=filled)


def georeferenced(name: str, **options: Any) -> Case:
    """A small GDAL file with the given georeferencing and metadata."""
    options = _affine(options)
    image = tiffs.picture(name, options.pop("dtype", "i2"), (options.pop("bands", 1), 20, 30))
    data = tiffs.gdal_written(image, **options)
    return tiffs.Case(name=name, data=data, arrays={"0/data": image}, facts=options)


def complex_integers(name: str) -> Case:
    """Pairs of int16 (sample format 5); NumPy has no such type, so values are complex64."""
    image: Raster = np.round(tiffs.picture(name, "c8", (1, 20, 30)))
    return tiffs.Case(name=name, data=tiffs.gdal_written(image, dtype="complex_int16"), arrays={"0/data": image})


def half_more(name: str, *, big: bool = False) -> Case:
    """Floats of 24 bits: sign, 7 bits of exponent, 16 of fraction; no library writes them."""
    image: Raster = tiffs.picture(name, "f4", (1, 20, 30))
    image = (image.view("u4") & np.uint32(0xFFFFFF80)).view("f4")
    bits = image.view("u4").astype("u8")
    short = (bits >> 31) << 23 | (((bits >> 23) & 0xFF) - 64) << 16 | (bits & 0x7FFFFF) >> 7
    octets = short.astype(">u4" if big else "<u4").view("u1").reshape(-1, 4)[:, slice(1, 4) if big else slice(0, 3)]
    tags = custom_tiff.image_tags(
        30, 20, t258=(custom_tiff.SHORT, [24]), t339=(custom_tiff.SHORT, [3]), t279=octets.size
    )
    data = custom_tiff.tiff(tags, data=octets.tobytes(), order=">" if big else "<")
    return tiffs.Case(name=name, data=data, arrays={"0/data": image})


def makers() -> Iterator[tuple[str, Callable[[str], Case]]]:
    """The cases of this file, by name."""
    for order in ("le", "be"):
        for size in ("classic", "big"):
            for tree in ("chain", "sub"):
                yield (
                    f"{order}-{size}-pages-{tree}",
                    partial(pages, big=order == "be", bigtiff=size == "big", tree=tree),
                )
    yield "overviews", partial(overviewed, compress="deflate", predictor=2)
    yield "overviews-big-endian", partial(overviewed, compress="deflate", predictor=2, endianness="BIG", bigtiff="YES")
    yield "overviews-mask", partial(overviewed, mask=True, compress="lzw", bands=3, dtype="u1")
    yield "cog", partial(overviewed, cog=True)
    yield "cog-mask", partial(overviewed, cog=True, mask=True, bands=3, dtype="u1")
    yield "sparse", sparse
    yield "sparse-uncompressed", partial(sparse, compress="none")
    yield "complex-int16", complex_integers
    yield "float24", half_more
    yield "float24-big-endian", partial(half_more, big=True)
    yield "geo-utm", partial(georeferenced, **UTM)
    yield (
        "geo-rotated",
        partial(georeferenced, crs="EPSG:3035", transform=(10.0, 2.0, 4e6, 3.0, -9.0, 3e6, 0.0, 0.0, 1.0)),
    )
    yield (
        "geo-degrees",
        partial(
            georeferenced,
            crs="EPSG:4326",
            transform=(0.1, 0.0, -20.0, 0.0, -0.1, 60.0, 0.0, 0.0, 1.0),
            tags={"AREA_OR_POINT": "Point"},
        ),
    )
    yield (
        "geo-attributes",
        partial(
            georeferenced,
            **UTM,
            bands=2,
            dtype="u2",
            nodata=65535,
            scales=(0.5, 0.25),
            offsets=(1.0, 2.0),
            units=("K", "K"),
            descriptions=("red", "near infrared"),
            tags={"TIFFTAG_DATETIME": "2021:03:04 05:06:07", "TIFFTAG_SOFTWARE": "periplus tests", "sensor": "none"},
        ),
    )
    yield "geo-nan", partial(georeferenced, **UTM, dtype="f4", nodata=float("nan"))
    yield (
        "palette",
        partial(
            georeferenced,
            **UTM,
            dtype="u1",
            photometric="palette",
            colormap={0: (1, 2, 3, 255), 200: (250, 128, 0, 255)},
        ),
    )
