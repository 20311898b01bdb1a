"""The configuration of the tiff-tile codec: one strip or tile, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from periplus.decode.settings import choice, encoded, number
from periplus.errors import FormatError

UINT, INT, FLOAT, VOID, COMPLEX_INT, COMPLEX = 1, 2, 3, 4, 5, 6
"""TIFF's sample formats."""
YCBCR = 6
LARGEST = 1 << 31
KEYS = frozenset({
    "compression", "bits_per_sample", "samples_per_pixel", "photometric", "planar_config", "predictor", "tile_width",
    "tile_height", "sample_format", "jpeg_tables", "byte_order", "fill_order", "ycbcr_subsampling",
    "ycbcr_coefficients", "reference_black_white", "t4_options", "t6_options", "lerc_parameters", "extra_samples",
    "last_rows",
})  # fmt: skip
"""Keys of osml-imagery-io, then ours, which are omitted if they have their default value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileEncoding:
    """Geometry and encoding; sizes in pixels, `samples` those stored together in one chunk."""

    width: int
    height: int
    samples: int
    bits: int
    sample_format: int
    compression: int
    predictor: int
    photometric: int
    planar: bool
    big: bool
    """Values of more than one byte are stored most significant byte first."""
    reversed_bits: bool
    """FillOrder 2: the bits of every stored byte run the other way."""
    jpeg_tables: bytes | None
    subsampling: tuple[int, int]
    coefficients: tuple[float, ...]
    reference: tuple[float, ...]
    t4_options: int
    lerc_compression: int
    extra_samples: tuple[int, ...]
    dtype: np.dtype[Any]
    """Of decoded values, native."""

    @property
    def run(self) -> int:
        """Values in a row."""
        return self.width * self.samples

    @property
    def row_bytes(self) -> int:
        """Bytes of an uncompressed row; rows start at whole bytes."""
        return -(-self.run * self.bits // 8)


def tile_of(configuration: Mapping[str, Any]) -> TileEncoding:
    """The tile of a tiff-tile codec's configuration, or FormatError."""

    def setting(key: str, low: int, high: int, default: int | None = None) -> int:
        return number("tiff-tile", configuration, key, low, high, default)

    samples, bits = setting("samples_per_pixel", 1, 1 << 16), setting("bits_per_sample", 1, 129)
    sample_format = setting("sample_format", 0, 7, UINT)
    return TileEncoding(
        width=setting("tile_width", 1, LARGEST),
        height=setting("tile_height", 1, LARGEST),
        samples=samples,
        bits=bits,
        sample_format=UINT if sample_format in (0, VOID) else sample_format,
        compression=setting("compression", 0, 1 << 16),
        predictor=setting("predictor", 0, 1 << 16, 1),
        photometric=setting("photometric", 0, 1 << 16, 1),
        planar=setting("planar_config", 1, 3, 1) == 2,
        big=choice("tiff-tile", configuration, "byte_order", ("little", "big")) == "big",
        reversed_bits=setting("fill_order", 1, 3, 1) == 2,
        jpeg_tables=encoded("tiff-tile", configuration, "jpeg_tables"),
        subsampling=_subsampling(configuration),
        coefficients=_floats(configuration, "ycbcr_coefficients", (0.299, 0.587, 0.114)),
        reference=_floats(configuration, "reference_black_white", (0.0, 255.0, 128.0, 255.0, 128.0, 255.0)),
        t4_options=setting("t4_options", 0, 1 << 32, 0),
        lerc_compression=_lerc_compression(configuration),
        extra_samples=tuple(_integers(configuration, "extra_samples")),
        dtype=_dtype(bits, UINT if sample_format in (0, VOID) else sample_format),
    )


def _dtype(bits: int, sample_format: int) -> np.dtype[Any]:
    """The next larger type for other bit depths, complex floats for complex integers."""
    name = None
    if sample_format in (UINT, INT) and bits <= 64:
        name = f"{'ui'[sample_format - 1]}{max(1, 2 ** math.ceil(math.log2(bits / 8)))}"
    elif sample_format == FLOAT:
        name = {16: "f2", 24: "f4", 32: "f4", 64: "f8"}.get(bits)
    elif sample_format == COMPLEX_INT:
        name = {16: "c8", 32: "c8", 64: "c16"}.get(bits)
    elif sample_format == COMPLEX:
        name = {32: "c8", 64: "c8", 128: "c16"}.get(bits)
    if name is None:
        raise FormatError(f"samples of {bits} bits in sample format {sample_format} have no NumPy type")
    return np.dtype(name)


def _integers(configuration: Mapping[str, Any], key: str) -> list[int]:
    values = configuration.get(key) or []
    if not isinstance(values, list) or not all(isinstance(v, int) for v in values):
        raise FormatError(f"tiff-tile codec: {key} is {values!r}")
    return values


def _floats(configuration: Mapping[str, Any], key: str, default: tuple[float, ...]) -> tuple[float, ...]:
    values = configuration.get(key)
    if values is None:
        return default
    if not isinstance(values, list) or len(values) != len(default):
        raise FormatError(f"tiff-tile codec: {key} is {values!r}")
    if not all(isinstance(v, int | float) and math.isfinite(v) and abs(v) < 1e6 for v in values):
        raise FormatError(f"tiff-tile codec: {key} is {values!r}")
    return tuple(float(v) for v in values)


def _subsampling(configuration: Mapping[str, Any]) -> tuple[int, int]:
    factors = _integers(configuration, "ycbcr_subsampling") or [1, 1]
    if len(factors) != 2 or not all(n in (1, 2, 4) for n in factors):
        raise FormatError(f"tiff-tile codec: chroma subsampling {factors} does not exist")
    return factors[0], factors[1]


def _lerc_compression(configuration: Mapping[str, Any]) -> int:
    parameters = _integers(configuration, "lerc_parameters")
    kind = parameters[1] if len(parameters) > 1 else 0
    if kind not in (0, 1, 2):
        raise FormatError(f"tiff-tile codec: LERC with inner compression {kind} is not known")
    return kind
