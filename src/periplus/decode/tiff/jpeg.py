"""JPEG in TIFF: abbreviated streams with shared tables, and the colour space by the photometric tag."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.jpeg.checks import check_length, check_restarts, checked_header, find_scans
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array, stream
from periplus.decode.tiff.headers import StreamSize
from periplus.decode.tiff.images import StreamDecoder, checked
from periplus.decode.tiff.tile import YCBCR, TileEncoding
from periplus.errors import DecodeError
from periplus.parse.jpeg import ARITHMETIC, FIRST_RESTART, LOSSLESS, MARKER, PROGRESSIVE, RESTART, JpegHeader

END = re.compile(rb"\xff\xd9")
TAIL = 64
"""Bytes at the end of a stream where its end marker is looked for first."""
RGB, OLD_STYLE, YCCK = 2, 6, 2
"""TIFF's numbers of a photometric interpretation and of a compression, and Adobe's of a colour transform."""
ZEROS, VALUES_A_ZERO = 12, 1 << 20
"""More zeros than arithmetic coding leaves out at the end of a picture, be it of a single colour."""
PADS = (b"\x55\xaa\x5a" * 40, b"\xff\x00" * 60)
"""Two different continuations, free of markers."""


def jpeg(tile: TileEncoding, slot: int, *, ignore_photometric: bool = False) -> StreamDecoder:
    """Baseline, progressive, 12-bit and lossless JPEG; YCbCr becomes RGB, all else stays as it is stored.

    The colour space follows from the photometric tag and the markers of the stream, or from the markers alone.
    """
    decode = native("jpeg8_decode")
    tables = tile.jpeg_tables
    wanted = _wanted(tile)

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:
        view = stream(data)
        header = checked_header(view)
        size = StreamSize(header.width, header.height, header.samples, header.bits)
        shape = checked(size, tile, rows, columns)
        check_length(header, len(view), rows)
        check_restarts(header, view, rows)
        out = scratch_array(slot, shape, tile.dtype)
        colours, shown = (None, None) if ignore_photometric else (_stored(tile, header), wanted)
        if header.kind == LOSSLESS:
            colours = shown = wanted  # nothing is converted, whatever the markers declare

        def once(encoded: Buffer, into: NDArray[Any]) -> NDArray[Any]:
            found = decode(encoded, tables=tables, colorspace=colours, outcolorspace=shown, out=into)
            return np.asarray(found).reshape(*shape[:2], tile.samples)

        values = once(data, out)
        # Where blocks are missing libjpeg shows this gray, but for those in several scans, or in arithmetic coding.
        several_scans = header.kind in PROGRESSIVE or not header.single_scan
        doubtful = several_scans or header.kind >= ARITHMETIC
        doubtful = doubtful or bool(np.all(values[rows - 1, columns - 1] == 1 << header.bits - 1))
        if doubtful or not END.search(view[-TAIL:]):
            _complete(header, bytes(view), values[:rows], once, np.empty(shape, tile.dtype), doubtful=doubtful)
        return values

    return run


def _complete(
    header: JpegHeader, data: bytes, values: NDArray[Any], once: Any, again: NDArray[Any], *, doubtful: bool
) -> None:
    """DecodeError if a stream lacks pixels; its end marker proves that it does not, unless pixels are `doubtful`.

    libjpeg fills in missing data and only warns. With bytes appended it would decode these instead, so all scans are
    complete if appended bytes make no difference.
    """
    scans, end = find_scans(data, header.frame_offset)
    if end is not None and not doubtful:
        return
    arithmetic = header.kind >= ARITHMETIC
    several = len(scans) != 1 or header.kind in PROGRESSIVE
    if several and end is None:
        raise DecodeError("the JPEG stream has no end")
    if not _all_scanned(data, header, scans):
        raise DecodeError("the JPEG stream is cut off")
    lead = bytes(ZEROS + values.size // VALUES_A_ZERO) if arithmetic and end is not None else b""
    # Several scans take longer to decode, and one continuation of each is enough.
    for pad in PADS[: 1 if several else None]:
        longer = _continued(data[:end], scans, lead + pad)
        if not np.array_equal(once(longer, again)[: len(values)], values):
            raise DecodeError(f"the JPEG stream {'has no end' if arithmetic and end is None else 'is cut off'}")


def _continued(data: bytes, scans: list[int], more: bytes) -> bytes:
    """A stream with more behind the data of every scan, and an end."""
    pieces, at = [], 0
    for scan in scans:
        begin = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
        following = MARKER.search(data, begin)
        stop = len(data) if following is None else following.start()
        # After a byte of ones a zero is stuffed; anything else would be a marker.
        stuffed = b"\0" if data.endswith(b"\xff", begin, stop) else b""
        # A scan that ends with a restart interval continues only after the next marker.
        restarts = RESTART.findall(data, begin, stop)
        mark = bytes([0xFF, FIRST_RESTART + (restarts[-1][1] + 1 if restarts else 0) % 8])
        pieces += [data[at:stop], stuffed, more, mark, more]
        at = stop
    return b"".join([*pieces, data[at:], b"\xff\xd9"])


def _all_scanned(data: bytes, header: JpegHeader, scans: list[int]) -> bool:
    """Whether every component of a frame is in some scan."""
    scanned = {
        part for scan in scans if scan + 4 < len(data) for part in data[scan + 5 : scan + 5 + 2 * data[scan + 4] : 2]
    }
    return scanned >= set(header.components)


def _wanted(tile: TileEncoding) -> str:
    """The colour space of decoded values, in libjpeg's names."""
    return {1: "GRAYSCALE", 3: "RGB"}.get(tile.samples, "UNKNOWN")


def _stored(tile: TileEncoding, header: JpegHeader) -> str:
    """The colour space of a stream in TIFF, in libjpeg's names; DecodeError where readers differ on what it is.

    The photometric tag decides, or the markers where it names no colours. Where they contradict each other libtiff
    uses the tag and others the markers; all use the tag if it is RGB and only Adobe's marker is YCbCr, and none uses it
    for a JFIF stream with chroma subsampling. Streams of old-style JPEG are YCbCr unless they declare
    something else: a tag of RGB is mostly wrong, and libtiff ignores it too. Lossless streams are stored as they are
    meant to be seen.
    """
    declared, subsampled = header.declared_colors, len(set(header.factors)) > 1
    named = {RGB: "RGB", YCBCR: "YCbCr"}.get(tile.photometric)
    if tile.samples != 3:
        if tile.samples == 4 and header.adobe == YCCK:
            raise DecodeError("the JPEG stream is YCCK by its Adobe marker, which TIFF has no tag for")
        stored = "GRAYSCALE" if tile.samples == 1 else "UNKNOWN"
    elif header.kind == LOSSLESS:
        if named == "YCbCr":
            raise DecodeError("the lossless JPEG stream is YCbCr by the photometric tag, which is not converted to RGB")
        stored = "RGB"
    elif tile.compression == OLD_STYLE:
        stored = declared or "YCbCr"
    elif header.jfif and subsampled:
        stored = "YCbCr"
    elif named and declared and named != declared and (header.jfif or named == "YCbCr"):
        raise DecodeError(f"the JPEG stream is {declared} by its markers, but {named} by the photometric tag")
    else:
        stored = named or declared or "RGB"
    if stored != "YCbCr" and subsampled:
        raise DecodeError("the JPEG stream has components of different resolutions, which only YCbCr has")
    return stored
