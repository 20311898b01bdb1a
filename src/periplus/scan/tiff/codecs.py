"""The encoding of a TIFF image: standard Zarr codecs if they express it exactly, else the tiff-tile codec."""

from __future__ import annotations

import base64
from typing import Any

from periplus.model import Codec, Encoding, Pipeline
from periplus.model.codecnames import TIFF_TILE
from periplus.scan.tiff import tags as tag
from periplus.scan.tiff.image import JPEG, NONE, OLD_JPEG, YCBCR, TiffImage

KNOWN = frozenset({
    1, 2, 3, 4, 5, 6, 7, 8, 32766, 32771, 32773, 32809, 32946, 33003, 33004, 33005, 33007, 34676, 34677, 34712, 34887,
    34892, 34925, 34926, 34927, 34933, 34934, 50000, 50001, 50002, 52546,
})  # fmt: skip
"""TIFF compression numbers with a name; the decoder decides whether it supports them."""
DEFLATE, ZSTD = (8, 32946), (34926, 50000)
ZLIB_CODEC: Codec = {"name": "numcodecs.zlib", "configuration": {"level": 6}}
ZSTD_CODEC: Codec = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}
CODERS = {**dict.fromkeys(DEFLATE, ZLIB_CODEC), **dict.fromkeys(ZSTD, ZSTD_CODEC)}
WHOLE = {1: (8, 16, 32, 64), 2: (8, 16, 32, 64), 3: (16, 32, 64), 6: (64, 128)}
"""Bits of each sample format that NumPy's types store exactly."""


def encoding(image: TiffImage, rows: int, *, in_pieces: bool = False) -> Encoding:
    """The encoding of chunks of `rows` rows; an old-style JPEG image may be stored in pieces."""
    # The last strip holds only the rows that exist, and the codecs of Zarr itself support full chunks only.
    if not image.tiled and image.height % rows:
        return Encoding((_tiff_tile(image, rows, in_pieces),), clipped=("y",))
    return Encoding(_standard(image) or (_tiff_tile(image, rows, in_pieces),))


def _standard(image: TiffImage) -> Pipeline | None:
    """(transpose), bytes, (compressor), or None if that would not give the values."""
    if (
        image.bits not in WHOLE.get(image.sample_format, ())
        or image.predictor != 1
        or image.fill_order != 1
        or (image.photometric == YCBCR and not image.planar)
        or not (image.compression == NONE or image.compression in CODERS)
    ):
        return None
    codecs: list[Codec] = []
    if image.stored > 1:
        codecs.append({"name": "transpose", "configuration": {"order": [1, 2, 0]}})
    endian = {"configuration": {"endian": "little" if image.fields.order == "<" else "big"}}
    codecs.append({"name": "bytes", **(endian if image.dtype.itemsize > 1 else {})})
    if image.compression != NONE:
        codecs.append(CODERS[image.compression])
    return tuple(codecs)


def _tiff_tile(image: TiffImage, rows: int, in_pieces: bool) -> Codec:
    """The codec of one tile or strip, with all settings it needs."""
    # An old-style JPEG image in one stream is a JPEG stream, but another photometric tag than YCbCr is unreliable.
    whole = image.compression == OLD_JPEG and image.photometric == YCBCR and not in_pieces
    compression = JPEG if whole else image.compression
    tables = image.fields.raw(tag.JPEG_TABLES)
    configuration: dict[str, Any] = {
        "compression": compression,
        "bits_per_sample": image.bits,
        "samples_per_pixel": image.stored,
        # Where the tag is missing libtiff takes fax for min-is-white and everything else for min-is-black.
        "photometric": image.photometric if image.photometric is not None else int(image.compression not in (2, 3, 4)),
        "planar_config": 2 if image.planar else 1,
        "predictor": image.predictor,
        "tile_width": image.chunk_width,
        "tile_height": rows,
        "sample_format": image.sample_format,
        "jpeg_tables": base64.b64encode(tables).decode() if tables else None,
    }
    return {"name": TIFF_TILE, "configuration": configuration | _unusual(image, compression)}


def _unusual(image: TiffImage, compression: int) -> dict[str, Any]:
    """Our own keys, only where they differ from the usual."""
    fields = image.fields
    found: dict[str, Any] = {}
    if fields.order == ">":
        found["byte_order"] = "big"
    if image.fill_order == 2:
        found["fill_order"] = 2
    if image.photometric == YCBCR and not image.planar and compression != JPEG:
        found["ycbcr_subsampling"] = list(image.subsampling)
        floats = {
            "ycbcr_coefficients": fields.numbers(tag.YCBCR_COEFFICIENTS),
            "reference_black_white": fields.numbers(tag.REFERENCE_BLACK_WHITE),
        }
        found |= {name: [float(value) for value in values] for name, values in floats.items() if values}
    options = {"t4_options": fields.number(tag.T4_OPTIONS, 0), "t6_options": fields.number(tag.T6_OPTIONS, 0)}
    found |= {name: option for name, option in options.items() if option}
    lists = {
        "lerc_parameters": fields.numbers(tag.LERC_PARAMETERS),
        "extra_samples": fields.numbers(tag.EXTRA_SAMPLES),
    }
    return found | {name: [int(value) for value in values] for name, values in lists.items() if values}
