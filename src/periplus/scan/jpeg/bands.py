"""JPEG in bands: pictures whose restart markers stand at row ends are cut there, so that a window reads part of a file.

Where the markers are is known only by reading the scan, so only large pictures are cut: one window of those pays for
reading them once when they are indexed.
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
from periplus.scan.blocks import Blocks

LARGE = 64 * MIB
"""Decoded bytes of a picture that is worth reading whole to cut it."""
ROWS = 512
"""Rows of a band, about."""
SPREAD = 16
"""Rows of a band for each row that it shares with the next one; two at least, for only the first band begins without a
restart marker."""
READ = 4 * MIB
LARGEST_HEADER = 16_384
MOST_INTERVALS = 1 << 20
MOST_PASSED = 1 << 32
SEQUENTIAL = frozenset({0xC0, 0xC1})
MARKER = re.compile(rb"\xff[^\x00\xff]")
"""In a scan all but restarts end it; 255 in the data is followed by a zero."""
RESTART, END = 0xD0, 0xD9


@dataclass(frozen=True, slots=True)
class Frame:
    """What the markers say that decides whether and where a picture can be cut."""

    marker: int
    width: int
    height: int
    sampling: bytes
    """Horizontal and vertical factors of every component, four bits each."""
    restart: int
    """Units between restart markers; 0 where there are none."""
    header: bytes
    """The markers a decoder needs, up to the data of the scan."""
    data: int
    """Where the data of the scan begin."""
    scanned: int
    """Components in the first scan."""


@dataclass(frozen=True, slots=True)
class Bands:
    """A picture cut into bands of `rows` rows; what the codec must be told of them; where they lie."""

    rows: int
    settings: dict[str, Any]
    refs: Refs
    clipped: tuple[str, ...]
    """As in Encoding."""


def large(width: int, height: int, samples: int) -> bool:
    """Whether a picture is worth looking for places to cut it."""
    return width * height * samples >= LARGE


def banded(frame: Frame, blocks: Blocks, limits: Limits, end: int | None = None) -> Generator[Step, Any, Bands | None]:
    """The picture in bands; None where its coding, its markers or its size make it one chunk.

    The stream lies before `end`, or the file's end.
    """
    grid = _grid(frame)
    stop = blocks.size if end is None else end
    size = (frame.width, frame.height, len(frame.sampling))
    if grid is None or stop is None or not large(*size) or len(frame.header) > LARGEST_HEADER:
        return None
    across, down, step, rows, margin = grid
    intervals = -(-across * down // frame.restart)
    # What is too large for a chunk can be read in bands only, and may pass by at more expense.
    most = MOST_PASSED if math.prod(size) > limits.chunk_bytes else limits.header_bytes - blocks.asked
    if stop - frame.data > most or intervals > MOST_INTERVALS:
        return None
    marks = yield from _marks(frame.data, stop, intervals)
    if marks is None:
        return None
    unit = _height(frame.sampling)
    per_step = step // unit * across // frame.restart
    first = np.arange(0, -(-frame.height // rows)) * (rows // step) * per_step
    last = np.minimum(first + (rows // step + margin // step) * per_step, intervals)
    begin = marks[np.maximum(first - margin // step * per_step, 0)]
    # Only the last band ends with the mark of the end, by which a decoder knows it.
    after = marks[last]
    after[-1] += 2
    settings: dict[str, Any] = {"header": base64.b64encode(frame.header).decode("ascii")}
    if margin:
        settings["margin"] = margin
    refs = Refs(chunk=chunk_positions((1, len(begin), 1)), offset=begin, length=after - begin)
    return Bands(rows, settings, refs, ("y",) if frame.height % rows else ())


def _grid(frame: Frame) -> tuple[int, int, int, int, int] | None:
    """Units across and down, rows between restarts at row ends, rows of a band and rows it shares with each other."""
    if frame.marker not in SEQUENTIAL or not frame.restart or frame.scanned != len(frame.sampling):
        return None
    if any(not factor >> 4 or not factor & 15 for factor in frame.sampling):
        return None
    wide = 8 * (1 if len(frame.sampling) == 1 else max(factor >> 4 for factor in frame.sampling))
    unit = _height(frame.sampling)
    across, down = -(-frame.width // wide), -(-frame.height // unit)
    step = math.lcm(frame.restart, across) // across * unit
    # Colours that are coarser along y are smoothed over the rows of the neighbours.
    margin = step if len({factor & 15 for factor in frame.sampling}) > 1 else 0
    rows = -(-max(ROWS, SPREAD * margin) // step) * step
    return (across, down, step, rows, margin) if rows < frame.height else None


def _height(sampling: bytes) -> int:
    """Rows of a unit; that of a single component is one block, whatever its factors are."""
    return 8 * (1 if len(sampling) == 1 else max(factor & 15 for factor in sampling))


def _marks(data: int, stop: int, intervals: int) -> Generator[Step, Any, NDArray[np.int64] | None]:
    """Where every interval begins, with its marker, and where the last ends; None where markers are not as expected."""
    found = [data]
    position, carried = data, b""
    while position < stop:
        block = carried + bytes((yield Need(position, min(READ, stop - position), sparse=True, passing=True)))
        start = position - len(carried)
        if len(block) <= len(carried):
            return None
        for match in MARKER.finditer(block):
            kind, place = block[match.start() + 1], start + match.start()
            if kind == END:
                return np.array([*found, place], np.int64) if len(found) == intervals else None
            if kind != RESTART + (len(found) - 1) % 8 or len(found) >= intervals:
                return None
            found.append(place)
        position = start + len(block)
        carried = block[-1:] if block.endswith(b"\xff") else b""
    return None
