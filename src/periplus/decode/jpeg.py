"""JPEG in TIFF: abbreviated streams with shared tables, and the colour space that the photometric tag asks for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import jpegheader
from periplus.decode.images import Picture, checked
from periplus.decode.jpegheader import JpegHeader
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.tile import YCBCR, Tile
from periplus.errors import DecodeError

END = re.compile(rb"\xff\xd9")
TAIL = 64
"""Bytes at the end of a stream where its end marker is looked for first."""
APP0, JFIF = b"\xff\xe0", b"JFIF\0"
GRAYS = (0, 1)
"""Photometric interpretations without colour."""
ZEROS, VALUES_A_ZERO = 12, 1 << 20
"""More zeros than arithmetic coding leaves out at the end of a picture, be it of a single colour."""
RESTART, FIRST_RESTART = re.compile(rb"\xff[\xd0-\xd7]"), 0xD0
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
        header = jpegheader.jpeg(view)
        shape = checked(header, tile, rows, columns)
        jpegheader.check_room(header, len(view), rows)
        jpegheader.check_restarts(header, view, rows)
        out = scratch_array(slot, shape, tile.dtype)
        # libtiff writes none of JFIF's headers; whoever does has YCbCr in the stream if the tag speaks of no colours.
        colours = "YCbCr" if plain and view[2:4] == APP0 and view[6:11] == JFIF else stored

        def once(encoded: Buffer, into: NDArray[Any]) -> NDArray[Any]:
            found = decode(encoded, tables=tables, colorspace=colours, outcolorspace=wanted, out=into)
            return np.asarray(found).reshape(*shape[:2], tile.samples)

        values = once(data, out)
        # Where blocks are missing libjpeg shows this gray, but for those in several scans, or in arithmetic coding.
        doubtful = header.several or header.kind >= jpegheader.ARITHMETIC
        doubtful = doubtful or bool(np.all(values[rows - 1, columns - 1] == 1 << header.bits - 1))
        if doubtful or not END.search(view[-TAIL:]):
            _complete(header, bytes(view), values[:rows], once, np.empty(shape, tile.dtype), doubtful=doubtful)
        return values

    return run


def _complete(
    header: JpegHeader, data: bytes, values: NDArray[Any], once: Any, again: NDArray[Any], *, doubtful: bool
) -> None:
    """DecodeError where a stream lacks pixels; an end that it has is believed only where nothing is `doubtful`.

    libjpeg invents what is missing and only warns, which does not reach us; but what is missing would be read from
    bytes that follow, so all scans are whole if what follows them makes no difference.
    """
    scans, end = jpegheader.jpeg_scans(data, header.frame)
    if end is not None and not doubtful:
        return
    arithmetic = header.kind >= jpegheader.ARITHMETIC
    several = len(scans) != 1 or header.kind in jpegheader.PROGRESSIVE
    if several and end is None:
        raise DecodeError("the JPEG stream has no end")
    if not _all_scanned(data, header, scans):
        raise DecodeError("the JPEG stream is cut off")
    lead = bytes(ZEROS + values.size // VALUES_A_ZERO) if arithmetic and end is not None else b""
    # Several scans take longer to decode, and one continuation of each tells enough.
    for pad in PADS[: 1 if several else None]:
        longer = _continued(data[:end], scans, lead + pad)
        if not np.array_equal(once(longer, again)[: len(values)], values):
            raise DecodeError(f"the JPEG stream {'has no end' if arithmetic and end is None else 'is cut off'}")


def _continued(data: bytes, scans: list[int], more: bytes) -> bytes:
    """A stream with more behind the data of every scan, and an end."""
    pieces, at = [], 0
    for scan in scans:
        begin = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
        following = jpegheader.MARKER.search(data, begin)
        stop = len(data) if following is None else following.start()
        # After a byte of ones a zero is stuffed; anything else would be a marker.
        stuffed = b"\0" if data.endswith(b"\xff", begin, stop) else b""
        # A scan that ends with a restart interval goes on only behind the next marker.
        restarts = RESTART.findall(data, begin, stop)
        mark = bytes([0xFF, FIRST_RESTART + (restarts[-1][1] + 1 if restarts else 0) % 8])
        pieces += [data[at:stop], stuffed, more, mark, more]
        at = stop
    return b"".join([*pieces, data[at:], b"\xff\xd9"])


def _all_scanned(data: bytes, header: JpegHeader, scans: list[int]) -> bool:
    """Whether every component of a frame is in some scan."""
    told = {
        part for scan in scans if scan + 4 < len(data) for part in data[scan + 5 : scan + 5 + 2 * data[scan + 4] : 2]
    }
    return told >= set(data[header.frame + 10 : header.frame + 10 + 3 * header.samples : 3])


def _colours(tile: Tile) -> tuple[str, str]:
    """(colour space of the stream, colour space wanted), in libjpeg's names."""
    if tile.samples == 1:
        return "GRAYSCALE", "GRAYSCALE"
    if tile.samples == 3:
        return ("YCbCr" if tile.photometric == YCBCR else "RGB"), "RGB"
    return "UNKNOWN", "UNKNOWN"
