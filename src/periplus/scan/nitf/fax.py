"""Bi-level NITF images: the fax codec of a block, and the starts of blocks without a mask."""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Need, Pipeline, Step
from periplus.scan.nitf.blocks import BlockLayout
from periplus.scan.nitf.streams import MOST_STREAMED, StartFinder, tiff_tile

GROUP3, TWO_DIMENSIONS, FILLED = 3, 1, 4
"""The number of the compression in TIFF, and its options; zeros may precede the end of any line."""
WINDOW = 1 << 20
"""Bytes searched at a time; as single bits they take eight times as many."""
OVERLAP = 16
"""More than six end-of-line codes and the one that starts the next block."""
ZEROS = 11
"""Zero bits of an end-of-line code."""
LINES = 6
"""End-of-line codes that end a picture."""
BEGUN = re.compile(rb"\0[\0-\x1f]")
"""An end of line, or zeros before one, which every picture starts with."""


def fax_pipeline(image: BlockLayout, rate: str) -> Pipeline:
    """The codec of a bi-level block: Group 3 fax, of one dimension or two, as TIFF has it too."""
    dimensions = _dimensions(rate)
    if image.bits != 1 or image.bands != 1 or dimensions is None:
        raise FormatError(f"fax of {image.bands} bands of {image.bits} bits, at rate {rate!r}, is not supported")
    return tiff_tile(image, compression=GROUP3, bits=1, photometric=0, t4_options=dimensions | FILLED)


def fax_starts(rate: str) -> StartFinder:
    """How the starts of blocks at that rate are found."""
    return partial(_starts, tagged=_dimensions(rate) == TWO_DIMENSIONS)


def _dimensions(rate: str) -> int | None:
    """The option of one dimension or of two."""
    return {"1": 0, "2": TWO_DIMENSIONS}.get(rate[:1])


def _starts(
    start: int, end: int, wanted: int, limits: Limits, *, tagged: bool
) -> Generator[Step, Any, NDArray[np.int64]]:
    """Offsets of the pictures of blocks from the start of the data, found by searching all of it.

    Each ends with six end-of-line codes, at a whole byte, in all bi-level files of the JITC. Lines of two dimensions
    are `tagged` with a bit for the coding of the next one; at the end it should be one, but libtiff accepts both.
    """
    limits.check("the bytes of fax blocks without a mask", end - start, MOST_STREAMED, offset=start)
    lasts = [(b"\0" * ZEROS + b"\1" + tag) * LINES for tag in ((b"\1", b"\0") if tagged else (b"",))]
    ends: set[int] = set()
    tail = b""
    for at in range(start, end, WINDOW):
        data = tail + bytes((yield Need(at, min(WINDOW, end - at), sparse=True, passing=True)))
        first = at - start - len(tail)
        bits = np.unpackbits(np.frombuffer(data, np.uint8)).tobytes()
        for last in lasts:
            place = bits.find(last)
            while place >= 0:
                stop = -(-(place + len(last)) // 8)
                if BEGUN.match(data, stop):
                    ends.add(first + stop)
                elif first + stop + 2 > end - start:
                    ends.add(end - start)
                place = bits.find(last, place + len(last))
        if len(ends) > wanted:
            break
        tail = data[-OVERLAP:]
    if len(ends) != wanted or max(ends) != end - start:
        raise FormatError(f"the image has {wanted} blocks, but {len(ends)} fax pictures were found in it")
    return np.array([0, *sorted(ends)[:-1]], np.int64)
