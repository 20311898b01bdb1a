"""The boxes of a JP2, JPX or JPH file: where its codestreams lie, and what else it says of its image."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from periplus.errors import FormatError
from periplus.limits import MIB, Limits
from periplus.model import Step
from periplus.scan.blocks import Blocks
from periplus.scan.cursor import Cursor

SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"
GEOTIFF = bytes.fromhex("b14bf8bd083d4b43a5ae8cd7d5a6ce03")
"""The uuid of a degenerate GeoTIFF (GeoJP2)."""
WANTED = {b"uuid": MIB, b"asoc": 4 * MIB, b"jp2h": MIB, b"xml ": MIB}
"""Boxes whose content is read, and how large it may be."""
AHEAD_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Boxes:
    """What a file's boxes hold."""

    codestreams: tuple[tuple[int, int | None], ...]
    """Offset and length of every codestream; None where it runs to the end of a file of unknown size."""
    geotiff: bytes | None
    labels: tuple[tuple[str, bytes], ...]
    """XML of association boxes by label, as GMLJP2 keeps it."""
    palette: tuple[tuple[int, ...], ...] | None = None
    """Red, green, blue and perhaps alpha of every value of a single component, 0 to 255."""
    channels: tuple[tuple[int, int, int], ...] = ()
    """Number, kind and colour of channels, where the file says (cdef)."""
    colours: int | None = None
    """The number of the colour space, where it has one."""
    fragments: bool = False
    """A codestream lies in pieces, perhaps of other files."""
    indexed: bool = False
    """Whether values are indices of a palette, be it one that is read or not."""
    unread: tuple[str, ...] = ()
    """Boxes that could not be read, in sentences."""


def walk(blocks: Blocks, limits: Limits) -> Generator[Step, Any, Boxes]:
    """Every top-level box; codestreams are stepped over."""
    codestreams: list[tuple[int, int | None]] = []
    geotiff: bytes | None = None
    labels: list[tuple[str, bytes]] = []
    palette: tuple[tuple[int, ...], ...] | None = None
    channels: tuple[tuple[int, int, int], ...] = ()
    colours: int | None = None
    fragments = indexed = False
    unread: list[str] = []
    position, count = 0, 0
    while blocks.size is None or position + 8 <= blocks.size:
        count += 1
        limits.check("the number of boxes", count, limits.tags, offset=position)
        if blocks.size is None and codestreams:
            # Whether the file goes on is known only by asking.
            try:
                yield from blocks.hold("a box", position, 8, ahead=AHEAD_BYTES)
            except FormatError:
                break
        yield from blocks.hold("a box", position, 8, ahead=AHEAD_BYTES)
        try:
            kind, start, stop = yield from _box(blocks, position)
        except FormatError:
            if not codestreams or _bytes(blocks, position + 4, 4) in WANTED:
                raise
            # What follows the pixels is broken, and nothing that would be read.
            break
        if kind == b"jp2c":
            codestreams.append((start, None if stop is None else stop - start))
        elif kind in WANTED and stop is not None and stop - start <= WANTED[kind]:
            yield from blocks.hold("a box", start, stop - start)
            blocks.look("a box", start, stop - start)
            content = _bytes(blocks, start, stop - start)
            if kind == b"uuid" and content[:16] == GEOTIFF and geotiff is None:
                geotiff = content[16:]
            elif kind == b"asoc":
                labels += _association(content)
            elif kind == b"jp2h":
                inside = _inner(content)
                palette = next((_palette(inner) for kind, inner in inside if kind == b"pclr"), None)
                channels = next((_channels(inner) for kind, inner in inside if kind == b"cdef"), ())
                spaces = [inner[3:7] for kind, inner in inside if kind == b"colr" and inner[:1] == b"\x01"]
                indexed = any(kind == b"pclr" for kind, _ in inside)
                if indexed and palette is None:
                    unread.append("the palette is damaged, or not of three or four columns of 8 bits")
                if not channels and any(kind == b"cdef" for kind, _ in inside):
                    unread.append("the channel definitions are damaged")
                if sum(8 + len(inner) for _, inner in inside) < len(content):
                    unread.append("the JP2 header is damaged")
                colours = int.from_bytes(spaces[0], "big") if spaces else None
        elif kind == b"asoc" and stop is not None:
            unread.append(f"a box of {stop - start} bytes that may hold georeferencing is too large")
        fragments |= kind == b"ftbl"
        if stop is None:
            break
        position = stop
    return Boxes(
        tuple(codestreams), geotiff, tuple(labels), palette, channels, colours, fragments, indexed, tuple(unread)
    )


def _box(blocks: Blocks, position: int) -> Generator[Step, Any, tuple[bytes, int, int | None]]:
    """Kind of a box, and where its content starts and stops."""
    raw = _bytes(blocks, position, 8)
    length, kind, head = int.from_bytes(raw[:4], "big"), raw[4:], 8
    if length == 1:
        yield from blocks.hold("a box", position, 16)
        length, head = int.from_bytes(_bytes(blocks, position + 8, 8), "big"), 16
    elif length == 0:
        return kind, position + 8, blocks.size
    if length < head:
        raise FormatError(f"a box of {length} bytes cannot be", offset=position)
    stop = position + length
    if blocks.size is not None and stop > blocks.size:
        if kind != b"jp2c":
            raise FormatError("a box runs past the end of the file", offset=position)
        # The codestream's own lengths say whether anything is missing.
        stop = blocks.size
    return kind, position + head, stop


def _bytes(blocks: Blocks, offset: int, length: int) -> bytes:
    place = blocks.locate(offset, length)
    if place is None:
        raise FormatError("a box ends early", offset=offset)
    return place[0][place[1] : place[1] + length]


def _inner(content: bytes) -> list[tuple[bytes, bytes]]:
    """(kind, content) of the boxes inside a box; what follows a broken one is left."""
    found: list[tuple[bytes, bytes]] = []
    cursor = Cursor(content, order=">")
    while len(content) - cursor.position >= 8 and len(found) < 1024:
        length, kind = cursor.u32(), cursor.take(4)
        rest = len(content) - cursor.position
        if length == 0:
            length = rest + 8
        if not 8 <= length <= rest + 8:
            break
        found.append((kind, cursor.take(length - 8)))
    return found


def _palette(content: bytes) -> tuple[tuple[int, ...], ...] | None:
    """Colours of eight bits, with alpha or without; palettes of other kinds are left to whoever reads the file."""
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
    """Labelled XML, in associations of associations too."""
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
