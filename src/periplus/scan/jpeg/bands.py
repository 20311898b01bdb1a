"""Large JPEG pictures cut into row bands at restart markers, so that a window reads only part of the file.

The positions of the markers are known only after reading the scan, so only large pictures are cut: indexing them reads
the file once.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.limits import MIB, Limits
from periplus.model import Need, Refs, Step, chunk_positions
from periplus.parse.jpeg import END, FIRST_RESTART, SEQUENTIAL, JpegHeader
from periplus.scan.buffer import FileBuffer
from periplus.scan.jpeg.markers import JpegMarkers

LARGE = 64 * MIB
"""Decoded bytes of a picture for which it pays to read all of it while indexing."""
ROWS = 512
"""Rows of a band, about."""
SPREAD = 16
"""Rows of a band for each row that it shares with the next one; at least two, because only the first band begins
without a restart marker."""
READ = 4 * MIB
LARGEST_HEADER = 16_384
MOST_INTERVALS = 1 << 20
MOST_PASSED = 1 << 32
SCAN_MARKER = re.compile(rb"\xff[^\x00\xff]")
"""In the data of a scan only restarts do not end it; a stored 255 is followed by a zero."""


@dataclass(frozen=True, slots=True)
class JpegBands:
    """A picture cut into bands of `rows` rows, the codec settings they need, and their byte ranges."""

    rows: int
    settings: dict[str, Any]
    refs: Refs
    clipped: tuple[str, ...]
    """As in Encoding."""


def is_large(width: int, height: int, samples: int) -> bool:
    """Whether a picture is large enough to look for restart markers."""
    return width * height * samples >= LARGE


def find_bands(
    markers: JpegMarkers, file: FileBuffer, limits: Limits, end: int | None = None
) -> Generator[Step, Any, JpegBands | None]:
    """The picture in bands; None if its coding, its restart markers or its size require one chunk.

    The stream ends before `end`, or at the end of the file.
    """
    frame, header = markers.header, b"".join(markers.decoded)
    grid = _grid(frame)
    stop = file.size if end is None else end
    size = (frame.width, frame.height, frame.samples)
    if grid is None or stop is None or not is_large(*size) or len(header) > LARGEST_HEADER:
        return None
    across, down, step, rows, margin = grid
    intervals = -(-across * down // frame.restart_interval)
    # A picture that is too large for one chunk can only be read in bands, so reading more of it is acceptable.
    most = MOST_PASSED if math.prod(size) > limits.chunk_bytes else limits.header_bytes - file.requested
    if stop - frame.data_offset > most or intervals > MOST_INTERVALS:
        return None
    starts = yield from _interval_starts(frame.data_offset, stop, intervals)
    if starts is None:
        return None
    per_step = step // frame.unit[1] * across // frame.restart_interval
    first = np.arange(0, -(-frame.height // rows)) * (rows // step) * per_step
    last = np.minimum(first + (rows // step + margin // step) * per_step, intervals)
    begin = starts[np.maximum(first - margin // step * per_step, 0)]
    # Only the last band includes the end marker, by which a decoder recognises it.
    after = starts[last]
    after[-1] += 2
    settings: dict[str, Any] = {"header": base64.b64encode(header).decode("ascii")}
    if margin:
        settings["margin"] = margin
    refs = Refs(chunk=chunk_positions((1, len(begin), 1)), offset=begin, length=after - begin)
    return JpegBands(rows, settings, refs, ("y",) if frame.height % rows else ())


def _grid(frame: JpegHeader) -> tuple[int, int, int, int, int] | None:
    """Units across and down, rows between restarts at row ends, rows of a band, and rows it shares with neighbours."""
    if frame.kind not in SEQUENTIAL or not frame.restart_interval or not frame.single_scan:
        return None
    if not all(across and down for across, down in frame.factors):
        return None
    width, height = frame.unit
    across, down = -(-frame.width // width), -(-frame.height // height)
    step = math.lcm(frame.restart_interval, across) // across * height
    # Decoders smooth vertically subsampled colours over the rows of neighbouring units.
    margin = step if len({vertical for _, vertical in frame.factors}) > 1 else 0
    rows = -(-max(ROWS, SPREAD * margin) // step) * step
    return (across, down, step, rows, margin) if rows < frame.height else None


def _interval_starts(data: int, stop: int, intervals: int) -> Generator[Step, Any, NDArray[np.int64] | None]:
    """Where every restart interval begins, with its marker, and where the last ends; None for unexpected markers."""
    found = [data]
    position, carried = data, b""
    while position < stop:
        block = carried + bytes((yield Need(position, min(READ, stop - position), sparse=True, passing=True)))
        start = position - len(carried)
        if len(block) <= len(carried):
            return None
        for match in SCAN_MARKER.finditer(block):
            kind, offset = block[match.start() + 1], start + match.start()
            if kind == END:
                return np.array([*found, offset], np.int64) if len(found) == intervals else None
            if kind != FIRST_RESTART + (len(found) - 1) % 8 or len(found) >= intervals:
                return None
            found.append(offset)
        position = start + len(block)
        carried = block[-1:] if block.endswith(b"\xff") else b""
    return None
