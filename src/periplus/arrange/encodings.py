"""Encodings of a global array: the list of them, and how those of files change when an array gains a dimension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from periplus.arrange.packing import packing_of, unpack_codec
from periplus.errors import ConflictError, LimitError
from periplus.model import Array, Codec, Encoding, Pipeline, Shape
from periplus.model.codecnames import UNPACK

MOST_ENCODINGS = 1 << 16
"""The encoding of a row of the table is a 16-bit number."""


@dataclass(slots=True, eq=False)
class EncodingList:
    """The different encodings of an array, each with a number."""

    name: str
    """Name of the array."""
    advice: str = ""
    """End of the error message if there are too many."""
    encodings: list[Encoding] = field(default_factory=list)
    _numbers: dict[Encoding, int] = field(default_factory=dict)

    def number(self, encoding: Encoding) -> int:
        """The number of an encoding; a new one is added."""
        found = self._numbers.get(encoding)
        if found is None:
            found = len(self.encodings)
            if found >= MOST_ENCODINGS:
                raise LimitError(f"{self.name} would have more than {MOST_ENCODINGS} encodings{self.advice}")
            self._numbers[encoding] = found
            self.encodings.append(encoding)
        return found


def mosaic_encodings(name: str) -> EncodingList:
    """An empty list for an array of a mosaic."""
    return EncodingList(name, ": its files begin at too many different positions within chunks; use fewer of them")


def unpacked(encoding: Encoding, array: Array) -> Encoding:
    """The encoding of an array, followed by the conversion of its values to physical ones.

    ConflictError if bands have values of their own and chunks do not hold all bands: the codec does not know the bands
    of a chunk.
    """
    packing = packing_of(array)
    stored = encoding.extent or array.chunks
    for noun, value in zip(("nodata values", "scales", "offsets"), packing, strict=True):
        if isinstance(value, list | tuple) and (len(stored) < 3 or stored[-3] != len(value)):
            raise ConflictError(
                f"files differ in nodata, scale or offset, and {array.name} has {len(value)} {noun}, one for each "
                "band, but a chunk does not hold all bands (files with interleave=pixel do): use arrange='collect'"
            )
    return replace(encoding, codecs=(unpack_codec(array.dtype, packing), *encoding.codecs))


def split_unpack(encoding: Encoding) -> tuple[Codec | None, Encoding]:
    """The codec that `unpacked` added, if any, and the encoding without it."""
    codecs = encoding.codecs
    if codecs and codecs[0]["name"] == UNPACK:
        return codecs[0], replace(encoding, codecs=codecs[1:])
    return None, encoding


def add_leading_dimension(encoding: Encoding) -> Encoding:
    """The encoding for an array with one more leading dimension, of chunk size 1."""
    codecs = _change_orders(encoding.codecs, lambda order: [0, *(axis + 1 for axis in order)])
    return _change_shapes(encoding, codecs, lambda shape, first: (first, *shape))


def remove_leading_dimension(encoding: Encoding) -> Encoding:
    """The inverse of `add_leading_dimension`."""
    codecs = _change_orders(encoding.codecs, lambda order: [axis - 1 for axis in order[1:]])
    return _change_shapes(encoding, codecs, lambda shape, _: shape[1:])


def _change_shapes(encoding: Encoding, codecs: Pipeline, change: Callable[[Shape, int], Shape]) -> Encoding:
    extent, region = encoding.extent, encoding.region
    if extent is not None:
        extent = change(extent, 1)
    if region is not None:
        begin, at, size = change(region.begin, 0), change(region.at, 0), change(region.size, 1)
        region = replace(region, begin=begin, at=at, size=size)
    return replace(encoding, codecs=codecs, extent=extent, region=region)


def _change_orders(codecs: Pipeline, change: Callable[[list[int]], list[int]]) -> Pipeline:
    """Codecs with the order of each transpose changed."""
    return tuple(
        {**codec, "configuration": {**codec["configuration"], "order": change(list(codec["configuration"]["order"]))}}
        if codec["name"] == "transpose"
        else codec
        for codec in codecs
    )
