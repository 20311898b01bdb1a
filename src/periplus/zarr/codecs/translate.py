"""Lists of codecs as our decoders take them, and as filters and compressor of Zarr v2."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from periplus.decode import CODECS
from periplus.decode.jpeg2000.header import header_of
from periplus.decode.pipeline import EXTENTS, IMAGES, LIST, extent
from periplus.errors import FormatError, PeriplusError
from periplus.model import Codec, Pipeline, Shape
from periplus.model.codecnames import JBP_BLOCK, JPEG, JPEG2000, OURS, TIFF_TILE
from periplus.parse.zarr.codecs import SHUFFLES, bytes_codec

UNSAFE = ("pickle", "msgpack", "msgpack2", "json", "json2", "categorize", "vlen-utf8", "vlen-bytes", "vlen-array")
"""Codecs of Python objects; the first runs code when it is read."""


# --- in -------------------------------------------------------------------------------------------------------------


def decodable(codecs: Pipeline, dtype: np.dtype[Any]) -> Pipeline:
    """The codecs of Zarr metadata as our decoders take them; FormatError names one that they do not have.

    A codec of whole images stands alone, and values of several bytes have a byte order.
    """
    for codec in codecs:
        _check_known(codec["name"])
    images = [place for place, codec in enumerate(codecs) if is_image(codec["name"])]
    if images:
        # An image codec yields the values themselves, so that `bytes` before it has no effect.
        before = [codec for codec in codecs[: images[0]] if codec["name"] != "bytes"]
        if len(codecs) > images[0] + 1:
            raise FormatError(f"codec {codecs[images[0] + 1]['name']!r} follows one of whole images")
        return (*before, codecs[images[0]])
    little = bytes_codec(dtype.newbyteorder("<"))
    return tuple(
        little
        if codec["name"] == "bytes" and dtype.itemsize > 1 and dtype.kind != "S" and not codec.get("configuration")
        else codec
        for codec in codecs
    )


def _check_known(name: str) -> None:
    plain = name.removeprefix("numcodecs.")
    if plain in UNSAFE:
        why = "it runs code when it is read" if plain == "pickle" else "it holds Python objects"
        raise FormatError(f"codec {plain!r} is refused: {why}")
    if name not in CODECS:
        raise FormatError(f"codec {plain!r} is unknown")


def is_image(name: str) -> bool:
    """Whether a codec decodes whole blocks of an image, and so stands alone in a list of ours."""
    return name in IMAGES


# --- out ------------------------------------------------------------------------------------------------------------


class NotRepresentableError(FormatError):
    """An array cannot be represented in the format that is written."""


def v2_of(pipeline: Pipeline, *, chunks: Shape, dtype: np.dtype[Any]) -> dict[str, Any]:
    """`dtype`, `order`, `filters` and `compressor` of a pipeline, or NotRepresentableError."""
    if pipeline and is_image(pipeline[0]["name"]):
        name, settings = pipeline[0]["name"], pipeline[0].get("configuration") or {}
        if name in EXTENTS and name != LIST and extent(name, settings)[0] != tuple(chunks[-3:]):
            raise NotRepresentableError("its chunks are smaller than a tile, which its codec has no setting for")
        return _image(pipeline[0], dtype)
    order, rest = _order(pipeline, chunks)
    if order is None:
        tile = block(pipeline, chunks=chunks, dtype=dtype) or interleaved(pipeline, chunks=chunks, dtype=dtype)
        if tile is None:
            raise NotRepresentableError("its chunks are stored in an order that Zarr v2 does not have")
        fault = imagery_fault(tile)
        if fault is not None:
            raise NotRepresentableError(f"its values are stored pixel by pixel, and imagery tools {fault}")
        return _image(tile, dtype)
    filters: list[dict[str, Any]] = []
    stored = dtype
    for codec in rest:
        name, settings = codec["name"], dict(codec.get("configuration") or {})
        if name == "bytes":
            swapped = settings.get("endian") == "big"
            stored = dtype.newbyteorder(">" if swapped else "<")
            if swapped and any(one["id"] in ("delta", "fixedscaleoffset", "astype") for one in filters):
                raise NotRepresentableError("Zarr v2 cannot represent filters on big-endian values")
        else:
            filters.append(_identified(name, settings))
    compressor = None
    if filters and filters[-1]["id"] not in ("shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype"):
        compressor = filters.pop()
    return {"dtype": stored.str, "order": order, "filters": filters or None, "compressor": compressor}


def _image(codec: Codec, dtype: np.dtype[Any]) -> dict[str, Any]:
    """An image codec is a filter without a compressor, as in osml-imagery-io; it yields little-endian values."""
    if codec["name"].startswith(OURS):
        raise NotRepresentableError(f"codec {codec['name']!r} is known to periplus only")
    settings = dict(codec.get("configuration") or {})
    filters = [{"id": codec["name"], **settings}]
    return {"dtype": dtype.newbyteorder("<").str, "order": "C", "filters": filters, "compressor": None}


def _identified(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    if name.startswith(OURS):
        raise NotRepresentableError(f"codec {name!r} is known to periplus only")
    if name.removeprefix("numcodecs.") == "blosc":
        shuffle = settings.get("shuffle", "shuffle")
        number = next((n for n, word in SHUFFLES.items() if shuffle in (n, word)), 1)
        kept: dict[str, Any] = {key: settings[key] for key in ("cname", "clevel", "blocksize") if key in settings}
        return {"id": "blosc", **kept, "shuffle": number}
    if name == "zstd":
        settings.pop("checksum", None)  # a frame declares whether it has one
    return {"id": name.removeprefix("numcodecs."), **settings}


def _order(pipeline: Pipeline, chunks: Shape) -> tuple[str | None, Pipeline]:
    """Memory order of Zarr v2, None where it is neither C nor F, and the codecs after the transposes."""
    axes = list(range(len(chunks)))
    place = 0
    while place < len(pipeline) and pipeline[place]["name"] == "transpose":
        axes = [axes[axis] for axis in pipeline[place]["configuration"]["order"]]
        place += 1
    # The order of dimensions of one element does not matter.
    long = [axis for axis in axes if chunks[axis] > 1]
    order = "C" if long == sorted(long) else "F" if long == sorted(long, reverse=True) else None
    return order, pipeline[place:]


IMODES: dict[tuple[int, ...], str] = {(0, 1, 2): "B", (1, 2, 0): "P", (1, 0, 2): "R"}
PVTYPES = {"u": "INT", "i": "SI", "f": "R", "c": "C"}


def block(pipeline: Pipeline, *, chunks: Shape, dtype: np.dtype[Any]) -> Codec | None:
    """The codec of a NITF block, for plain big-endian values by pixel, row or band; None for other pipelines."""
    rank, names = len(chunks), [codec["name"] for codec in pipeline]
    if names not in (["bytes"], ["transpose", "bytes"]) or rank < 3 or any(n != 1 for n in chunks[:-3]):
        return None
    turns = list(range(rank)) if len(names) == 1 else pipeline[0]["configuration"]["order"]
    order = [axis - (rank - 3) for axis in turns]
    imode = IMODES.get(tuple(order[rank - 3 :]))
    big = (pipeline[-1].get("configuration") or {}).get("endian") == "big"
    if order[: rank - 3] != list(range(3 - rank, 0)) or imode is None or dtype.kind not in PVTYPES:
        return None
    if not (big or (dtype.itemsize == 1 and imode == "R")):
        return None
    settings = {
        "num_bands": chunks[-3],
        "block_height": chunks[-2],
        "block_width": chunks[-1],
        "nbpp": dtype.itemsize * 8,
        "imode": imode,
        "pvtype": PVTYPES[dtype.kind],
    }
    return {"name": JBP_BLOCK, "configuration": settings}


TIFF = {"": 1, "numcodecs.zlib": 8, "zlib": 8, "zstd": 50000, "numcodecs.zstd": 50000}
SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3, "c": 6}


def interleaved(pipeline: Pipeline, *, chunks: Shape, dtype: np.dtype[Any]) -> Codec | None:
    """The codec of a TIFF tile, for rows of one band or of pixels with all bands; None for other pipelines."""
    rank = len(chunks)
    turned = bool(pipeline) and pipeline[0]["name"] == "transpose"
    names = [codec["name"] for codec in pipeline[turned:]]
    packing = names[1] if len(names) > 1 else ""
    if rank < 3 or names[:1] != ["bytes"] or len(names) > 2 or packing not in TIFF or dtype.kind not in SAMPLE_FORMATS:
        return None
    if any(n != 1 for n in chunks[:-3]) or (chunks[-3] > 1 and not turned):
        return None
    if turned and list(pipeline[0]["configuration"]["order"]) != [*range(rank - 3), rank - 2, rank - 1, rank - 3]:
        return None
    settings: dict[str, Any] = {
        "compression": TIFF[packing],
        "bits_per_sample": dtype.itemsize * 8,
        "samples_per_pixel": chunks[-3],
        "photometric": 1,
        "planar_config": 1,
        "predictor": 1,
        "tile_width": chunks[-1],
        "tile_height": chunks[-2],
        "sample_format": SAMPLE_FORMATS[dtype.kind],
        "jpeg_tables": None,
    }
    if (pipeline[turned].get("configuration") or {}).get("endian") == "big":
        settings["byte_order"] = "big"
    return {"name": TIFF_TILE, "configuration": settings}


# --- imagery tools --------------------------------------------------------------------------------------------------

MISREAD = frozenset({
    "byte_order", "fill_order", "ycbcr_subsampling", "ycbcr_coefficients", "reference_black_white",
    "t4_options", "t6_options", "header", "margin", "num_records", "stretched_components",
})  # fmt: skip
"""Settings of ours that osml-imagery-io ignores without an error (measured for byte_order)."""
LERC = 34887
COMPRESSIONS = frozenset({1, 2, 3, 4, 5, 7, 8, 32773, 32946, LERC, 34925, 50000})
"""Compressions of TIFF that osml-imagery-io 0.2.2 decodes (measured, as all below)."""
ENDING = (2, 3, 4, 7)
"""Those of TIFF whose data may end early: fax and JPEG."""
SAMPLES = {1: (1, 2, 8, 16, 32), 2: (8, 16, 32), 3: (32, 64)}
"""Bits of samples that it decodes, by their format in TIFF."""
PIXELS = {"INT": (8, 16, 32), "SI": (8, 16, 32), "R": (32, 64)}
"""Bits of pixels that it decodes, by their type in NITF."""
COLOURS = ("MONO", "RGB", "YCbCr601")


def imagery_fault(codec: Codec) -> str | None:
    """What osml-imagery-io does with the chunks of an imagery codec instead of decoding them; None where it does."""
    name, settings = codec["name"], codec.get("configuration") or {}
    if not MISREAD.isdisjoint(settings) or (name == JPEG2000 and _anchored(settings)):
        return "would misread its values"
    if "last_rows" in settings and not (name == TIFF_TILE and settings.get("compression") in ENDING):
        return "cannot decode its last strips, which are shorter than others"
    if name == TIFF_TILE:
        compression, lerc = settings.get("compression"), settings.get("lerc_parameters") or ()
        if compression not in COMPRESSIONS or (compression == LERC and any(lerc[1:])):  # LERC within another one
            return "cannot decode its compression"
        kind, bits = settings.get("sample_format"), settings.get("bits_per_sample")
    elif name == JBP_BLOCK:
        kind, bits = settings.get("pvtype"), settings.get("nbpp")
    elif name == JPEG:
        if settings.get("color_space", "MONO") not in COLOURS:
            return "cannot convert its colours"
        kind, bits = "JPEG", settings.get("bits_per_pixel")
    else:
        return None
    known: dict[Any, tuple[int, ...]] = {**SAMPLES, **PIXELS, "JPEG": (8,)}
    return None if bits in known.get(kind, ()) else "cannot decode values of its type"


def _anchored(settings: Mapping[str, Any]) -> bool:
    """Whether a tile of JPEG 2000 decodes to other values where it is moved to the origin."""
    try:
        return not header_of(base64.b64decode(settings["main_header"]), 0).movable
    except (PeriplusError, KeyError, TypeError, ValueError):  # refused when it is prepared
        return False
