"""Regions: parts of stored chunks that are overlaid into a chunk of the array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import DecodeError, FormatError
from periplus.model import Encoding, Region, Shape


def region_of(encoding: Encoding, chunks: Shape) -> Region | None:
    """The region of an encoding, checked to be within the stored chunk and within chunks of that shape."""
    region = encoding.region
    if region is None:
        return None
    extent = encoding.extent
    if extent is None:
        raise FormatError("a region of chunks whose extent is not given")
    sides = (region.begin, region.at, region.size, extent, chunks)
    if any(len(side) != len(chunks) for side in sides):
        raise FormatError(f"a region of {len(region.size)} dimensions is not one of chunks of {len(chunks)}")
    if any(
        begin < 0 or at < 0 or size < 1 or begin + size > stored or at + size > chunk
        for begin, at, size, stored, chunk in zip(*sides, strict=True)
    ):
        raise FormatError(f"{region} of stored chunks of {extent} is not within chunks of shape {chunks}")
    return region


def overlay(region: Region, stored: NDArray[Any], into: NDArray[Any]) -> None:
    """Put the region of a decoded chunk over what is there."""
    if stored.ndim != len(region.size) or any(n < m for n, m in zip(stored.shape, region.end, strict=True)):
        raise DecodeError(f"the stored chunk has shape {stored.shape}, and a region of it extends to {region.end}")
    values = stored[tuple(slice(a, a + n) for a, n in zip(region.begin, region.size, strict=True))]
    place = into[tuple(slice(a, a + n) for a, n in zip(region.at, region.size, strict=True))]
    if region.transparent is None:
        place[...] = values
    else:
        np.copyto(place, values, where=~_equal(values, region.transparent))


def _equal(values: NDArray[Any], transparent: float) -> NDArray[np.bool_]:
    try:
        same: NDArray[np.bool_] = np.isnan(values) if math.isnan(transparent) else np.equal(values, transparent)
    except OverflowError:  # a number that no value of this type can be
        same = np.zeros(values.shape, bool)
    return same
