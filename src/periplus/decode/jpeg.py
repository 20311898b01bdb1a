"""JPEG in TIFF: abbreviated streams with shared tables, and the colour space that the photometric tag asks for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import headers
from periplus.decode.images import Picture, checked
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.tile import YCBCR, Tile
from periplus.errors import DecodeError

END = re.compile(rb"\xff\xd9")
ARITHMETIC = 0xC9
"""The first of the frame headers of arithmetic coding, which are the last ones."""
TAIL = 64
"""Bytes at the end of a stream where its end marker is looked for first."""
APP0, JFIF = b"\xff\xe0", b"JFIF\0"
GRAYS = (0, 1)
"""Photometric interpretations without colour."""
PADS = (b"\x55\xaa\x5a" * 40, b"\xff\x00" * 60)
"""Two different continuations, free of markers."""


def jpeg(tile: Tile, slot: int, *, told: bool = False) -> Picture:
    """Baseline, progressive, 12-bit and lossless JPEG; YCbCr becomes RGB, all else stays as it is stored.

    Streams in TIFF take their colour space from the photometric tag; `told` ones say it in their own markers.
    """
    decode = native("jpeg8_decode")
    tables = tile.jpeg_tables
    stored, wanted = (None, None) if told else _colours(tile)
    plain = not told and tile.samples == 3 and tile.photometric in GRAYS

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:
        view = stream(data)
        header = headers.jpeg(view)
        shape = checked(header, tile, rows, columns)
        headers.jpeg_room(view, rows)
        out = scratch_array(slot, shape, tile.dtype)
        # libtiff writes none of JFIF's headers; whoever does has YCbCr in the stream if the tag speaks of no colours.
        colours = "YCbCr" if plain and view[2:4] == APP0 and view[6:11] == JFIF else stored

        def once(encoded: Buffer, into: NDArray[Any]) -> NDArray[Any]:
            found = decode(encoded, tables=tables, colorspace=colours, outcolorspace=wanted, out=into)
            return np.asarray(found).reshape(*shape[:2], tile.samples)

        values = once(data, out)
        if not END.search(view[-TAIL:]):
            _complete(bytes(view), values[:rows], once, np.empty(shape, tile.dtype))
        elif np.all(values[rows - 1, columns - 1] == 1 << header.bits - 1):
            # What libjpeg shows where blocks are missing; an end may have been put behind what was left.
            _complete(bytes(view), values[:rows], once, np.empty(shape, tile.dtype), ended=True)
        return values

    return run


def _complete(data: bytes, values: NDArray[Any], once: Any, again: NDArray[Any], *, ended: bool = False) -> None:
    """DecodeError where a stream without end marker, or one that is said to have `ended`, lacks pixels.

    libjpeg invents what is missing and only warns, which does not reach us; but what is missing would be read from
    bytes that follow, so a single scan of all samples is whole if what follows makes no difference.
    """
    frame = headers.jpeg_frame(memoryview(data))
    scans, end = headers.jpeg_scans(data, frame)
    if end is not None and not ended:
        return
    single = len(scans) == 1 and data[scans[0] + 4 : scans[0] + 5] == bytes(values.shape[2:])
    # Arithmetic coding leaves out zeros at its end, which whatever follows would take the place of.
    arithmetic = data[frame + 1] >= ARITHMETIC
    if not single or data[frame + 1] in headers.PROGRESSIVE or (ended and arithmetic):
        if ended:
            return
        raise DecodeError("the JPEG stream has no end")
    data = data[:end]
    # After a byte of ones a zero is stuffed; anything else would be a marker.
    stuffed = b"\0" if data.endswith(b"\xff") else b""
    for pad in PADS:
        if not np.array_equal(once(data + stuffed + pad + b"\xff\xd9", again)[: len(values)], values):
            raise DecodeError(f"the JPEG stream {'has no end' if arithmetic else 'is cut off'}")


def _colours(tile: Tile) -> tuple[str, str]:
    """(colour space of the stream, colour space wanted), in libjpeg's names."""
    if tile.samples == 1:
        return "GRAYSCALE", "GRAYSCALE"
    if tile.samples == 3:
        return ("YCbCr" if tile.photometric == YCBCR else "RGB"), "RGB"
    return "UNKNOWN", "UNKNOWN"
