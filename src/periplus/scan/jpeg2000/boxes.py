"""The boxes of a JP2, JPX or JPH file: offsets of its codestreams, palette, channels, colours, georeferencing."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from periplus.errors import FormatError
from periplus.limits import MIB, Limits
from periplus.model import Step
from periplus.parse.jpeg2000.boxes import LONG_BYTES, SHORT_BYTES, Box, boxes, has_long_header, parse_box
from periplus.scan.buffer import FileBuffer

SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"
GEOTIFF = bytes.fromhex("b14bf8bd083d4b43a5ae8cd7d5a6ce03")
"""The uuid of a degenerate GeoTIFF (GeoJP2)."""
WANTED = {b"uuid": MIB, b"asoc": 4 * MIB, b"jp2h": MIB, b"xml ": MIB}
"""Boxes whose content is read, and how large it may be."""
AHEAD_BYTES = 4_096


@dataclass(slots=True)
class Jp2Boxes:
    """What a file's boxes hold."""

    codestreams: list[tuple[int, int | None]] = field(default_factory=list)
    """Offset and length of every codestream; None where it runs to the end of a file of unknown size."""
    geotiff: bytes | None = None
    labels: list[tuple[str, bytes]] = field(default_factory=list)
    """XML of association boxes by label, as GMLJP2 keeps it."""
    palette: tuple[tuple[int, ...], ...] | None = None
    """Red, green, blue and perhaps alpha of every value of a single component, 0 to 255."""
    channels: tuple[tuple[int, int, int], ...] = ()
    """Number, kind and colour of channels, if declared (cdef)."""
    colours: int | None = None
    """The number of the colour space, where it has one."""
    fragments: bool = False
    """Whether a codestream is stored in fragments, possibly in other files."""
    indexed: bool = False
    """Whether values are indices into a palette, even one that is not supported."""
    unread: list[str] = field(default_factory=list)
    """Boxes that could not be read, in sentences."""


def read_boxes(file: FileBuffer, limits: Limits) -> Generator[Step, Any, Jp2Boxes]:
    """Read every top-level box; codestreams are skipped."""
    found = Jp2Boxes()
    position, count = 0, 0
    while file.size is None or position + 8 <= file.size:
        count += 1
        limits.check("the number of boxes", count, limits.tags, offset=position)
        if file.size is None and found.codestreams:
            # Whether the file continues is known only after a request.
            try:
                yield from file.require("a box", position, SHORT_BYTES, ahead=AHEAD_BYTES)
            except FormatError:
                break
        try:
            kind, start, stop = yield from read_box(file, position, file.size)
            if stop is not None and file.size is not None and stop > file.size:
                if kind != b"jp2c":
                    raise FormatError("a box ends past the end of the file", offset=position)
                # The lengths inside the codestream decide whether anything is missing.
                stop = file.size
        except FormatError:
            if not found.codestreams or file.take(position + 4, 4) in WANTED:
                raise
            # The pixels are complete, and this box would not be read.
            break
        if kind == b"jp2c":
            found.codestreams.append((start, None if stop is None else stop - start))
        elif kind in WANTED and stop is not None and stop - start <= WANTED[kind]:
            content = yield from file.read("a box", start, stop - start)
            file.count_parsed("a box", start, stop - start)
            if kind == b"uuid" and content[:16] == GEOTIFF and found.geotiff is None:
                found.geotiff = content[16:]
            elif kind == b"asoc":
                found.labels += _association(content)
            elif kind == b"jp2h":
                _add_header(found, content)
        elif kind == b"asoc" and stop is not None:
            found.unread.append(f"a box of {stop - start} bytes that may hold georeferencing is too large")
        found.fragments |= kind == b"ftbl"
        if stop is None:
            break
        position = stop
    return found


def _add_header(found: Jp2Boxes, content: bytes) -> None:
    """Palette, channels and colours of the JP2 header box."""
    inside = _inner(content)
    first = dict(reversed(inside))
    found.indexed, found.palette = b"pclr" in first, _palette(first.get(b"pclr", b""))
    found.channels = _channels(first.get(b"cdef", b""))
    spaces = [inner[3:7] for kind, inner in inside if kind == b"colr" and inner[:1] == b"\x01"]
    found.colours = int.from_bytes(spaces[0], "big") if spaces else None
    if found.indexed and found.palette is None:
        found.unread.append("the palette is damaged, or not of three or four columns of 8 bits")
    if not found.channels and b"cdef" in first:
        found.unread.append("the channel definitions are damaged")
    if sum(8 + len(inner) for _, inner in inside) < len(content):
        found.unread.append("the JP2 header is damaged")


def read_box(file: FileBuffer, position: int, end: int | None) -> Generator[Step, Any, Box]:
    """The box at a position; one without a length extends to `end`."""
    head = yield from file.read("a box", position, SHORT_BYTES, ahead=AHEAD_BYTES)
    if has_long_header(head):
        head = yield from file.read("a box", position, LONG_BYTES)
    return parse_box(head, position, end)


def _inner(content: bytes) -> list[tuple[bytes, bytes]]:
    """(kind, content) of the boxes inside a box, up to the first damaged one."""
    found = boxes(content)
    return [(kind, content[start:stop]) for kind, start, stop in found if stop <= len(content)]


def _palette(content: bytes) -> tuple[tuple[int, ...], ...] | None:
    """Colours of eight bits, with alpha or without; other kinds of palettes are ignored."""
    entries, columns = int.from_bytes(content[:2], "big"), content[2] if len(content) > 2 else 0
    depths, values = content[3 : 3 + columns], content[3 + columns :]
    if columns not in (3, 4) or set(depths) != {7} or not 0 < entries <= 1024 or len(values) < columns * entries:
        return None
    return tuple(tuple(values[n : n + columns]) for n in range(0, columns * entries, columns))


def _channels(content: bytes) -> tuple[tuple[int, int, int], ...]:
    """Number, kind (0 colour, 1 opacity, 2 opacity that colours were multiplied by) and colour of every channel."""
    count = int.from_bytes(content[:2], "big")
    if len(content) != 2 + 6 * count:
        return ()
    numbers = [int.from_bytes(content[n : n + 2], "big") for n in range(2, len(content), 2)]
    return tuple((numbers[n], numbers[n + 1], numbers[n + 2]) for n in range(0, len(numbers), 3))


def _association(content: bytes, depth: int = 0) -> list[tuple[str, bytes]]:
    """Labelled XML, also of nested associations."""
    found: list[tuple[str, bytes]] = []
    label = ""
    for kind, inner in _inner(content):
        if kind == b"lbl ":
            label = inner.decode("utf-8", "replace").strip("\0")
        elif kind == b"xml ":
            found.append((label, inner))
        elif kind == b"asoc" and depth < 4:
            found += _association(inner, depth + 1)
    return found
