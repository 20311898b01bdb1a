"""Old-style JPEG in pieces: the segments that make every strip a JPEG stream, from tags and tables in the file."""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from periplus.errors import FormatError
from periplus.model import Inline, Refs, Step
from periplus.parse.jpeg import (
    HUFFMAN_TABLES,
    INTERVAL,
    QUANTISATION,
    SCAN,
    SEQUENTIAL,
    START,
    parse_header,
    segments,
)
from periplus.scan.buffer import FileBuffer
from periplus.scan.tiff import tags as tag
from periplus.scan.tiff.image import OLD_JPEG, TiffImage, image
from periplus.scan.tiff.references import jpeg_stream

if TYPE_CHECKING:
    from periplus.scan.tiff.scan import Directory

LARGEST_HEAD = 16_384
"""Most bytes that are read of a stream, or of a strip, for its segments."""
QUANTISATION_BYTES, CODE_LENGTHS = 64, 16
FIRST_MARKER, STUFFED = 0xC0, b"\xff"

StripHead = tuple[bytes, int]
"""The segments before the data of a strip, and how many bytes of the first strip are segments."""


def strip_heads(file: FileBuffer, directories: Sequence[Directory]) -> Generator[Step, Any, dict[int, StripHead]]:
    """What the strips of old-style JPEG images need, by the number of the directory; without images that lack some."""
    found: dict[int, StripHead] = {}
    for number, directory in enumerate(directories):
        # Nearly all files have none, and this is on the way of every file.
        if not any(field[0] == tag.COMPRESSION and OLD_JPEG in field[3] for field in directory.form.inline):
            continue
        try:
            facts = image(directory.form, directory.structure)
            offsets, counts = directory.offsets, directory.counts
            if facts is None or facts.compression != OLD_JPEG or offsets is None or counts is None or facts.planar:
                continue
            if jpeg_stream(facts, offsets, counts) is None and len(offsets) == len(counts):
                found[number] = yield from _strip_head(file, facts, int(offsets[0]), int(counts[0]))
        except FormatError:
            continue  # the image is refused as one without a stream
    return found


def with_heads(facts: TiffImage, refs: Refs, head: StripHead) -> Refs:
    """The references of strips, each with its segments before it."""
    start, skipped = head
    size = len(refs.offset)
    heights = np.minimum(facts.chunk_height, facts.height - refs.chunk[1] * facts.chunk_height)
    heads = [_declare(start, facts.chunk_height if facts.tiled else int(rows)) for rows in heights]
    inline = Inline.of([piece for own in heads for piece in (own, None)])
    offset, length = (np.zeros(2 * size, np.int64) for _ in range(2))
    lead = np.where((refs.chunk == 0).all(axis=0), skipped, 0)
    offset[1::2], length[1::2], length[::2] = refs.offset + lead, refs.length - lead, len(start)
    part = np.tile(np.array([0, 1], np.uint16), size)
    return Refs(chunk=refs.chunk.repeat(2, axis=1), offset=offset, length=length, part=part, inline=inline)


def _declare(start: bytes, rows: int) -> bytes:
    at = parse_header(start).frame_offset + 5
    return start[:at] + struct.pack(">H", rows) + start[at + 2 :]


def _strip_head(file: FileBuffer, facts: TiffImage, offset: int, count: int) -> Generator[Step, Any, StripHead]:
    """From the stream that the image declares, the beginning of the first strip, and tags, in this order."""
    found: list[tuple[int, bytes]] = []
    start, length = facts.stream
    if start > 0 and length > 0:
        raw = yield from file.read("the JPEG tables", start, min(length, LARGEST_HEAD))
        found += [(marker, bytes(body)) for marker, _, body in segments(raw)]
    raw = yield from file.read("the first strip", offset, min(count, LARGEST_HEAD))
    skipped = 0
    if raw[:1] == STUFFED and raw[1:2] >= bytes([FIRST_MARKER]):
        lead = b"" if raw.startswith(START) else START
        for marker, at, body in segments(lead + raw):
            found.append((marker, bytes(body)))
            skipped = at + 4 + len(body) - len(lead)
        if not found or found[-1][0] != SCAN:
            raise FormatError("the first strip has segments but no scan")
    markers = {marker for marker, _ in found}
    if not markers & {QUANTISATION, HUFFMAN_TABLES}:
        found += yield from _tables(file, facts)
    if not markers & SEQUENTIAL:
        found.append((min(SEQUENTIAL), _frame(facts)))
    interval = facts.fields.number(tag.JPEG_RESTARTS, 0)
    if interval and INTERVAL not in markers:
        found.append((INTERVAL, struct.pack(">H", interval & 0xFFFF)))
    if SCAN not in markers:
        found.append((SCAN, _scan(facts.samples)))
    found.sort(key=lambda segment: segment[0] == SCAN)
    head = START + b"".join(struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in found)
    return _checked(head, facts), skipped


def _checked(head: bytes, facts: TiffImage) -> bytes:
    """The segments, or FormatError unless every strip can be decoded with them."""
    header = parse_header(head)
    factors = (facts.subsampling, *[(1, 1)] * (facts.samples - 1))
    size = (facts.chunk_width, facts.samples, facts.bits)
    if (header.width, header.samples, header.bits) != size or header.factors != factors or not header.single_scan:
        raise FormatError("the JPEG segments do not describe the strips of the image")
    if header.kind not in SEQUENTIAL or (facts.grid[1] > 1 and facts.chunk_height % header.unit[1]):
        raise FormatError("the strips of the image are not whole rows of JPEG blocks")
    return head


def _tables(file: FileBuffer, facts: TiffImage) -> Generator[Step, Any, list[tuple[int, bytes]]]:
    """Quantisation and Huffman tables that tags point to, one for each sample."""
    found: list[tuple[int, bytes]] = []
    for number, offset in enumerate(_offsets(facts, tag.JPEG_QUANTISATION)):
        table = yield from file.read("a JPEG table", offset, QUANTISATION_BYTES)
        found.append((QUANTISATION, bytes([number]) + table))
    for kind, where in ((0, tag.JPEG_DC_TABLES), (0x10, tag.JPEG_AC_TABLES)):
        for number, offset in enumerate(_offsets(facts, where)):
            lengths = yield from file.read("a JPEG table", offset, CODE_LENGTHS)
            table = yield from file.read("a JPEG table", offset, CODE_LENGTHS + min(sum(lengths), 256))
            found.append((HUFFMAN_TABLES, bytes([kind + number]) + table))
    return found


def _offsets(facts: TiffImage, where: int) -> tuple[int, ...]:
    offsets = facts.fields.integers(where)
    if len(offsets) != facts.samples or len(offsets) > 4:
        raise FormatError("an old-style JPEG image has no tables for some samples")
    return offsets


def _frame(facts: TiffImage) -> bytes:
    across, down = facts.subsampling
    names = _names(facts.samples)
    factors = [16 * across + down, *[0x11] * (facts.samples - 1)]
    parts = b"".join(bytes(part) for part in zip(names, factors, range(facts.samples), strict=True))
    return struct.pack(">BHHB", facts.bits, facts.chunk_height & 0xFFFF, facts.chunk_width & 0xFFFF, len(names)) + parts


def _scan(samples: int) -> bytes:
    parts = b"".join(bytes([name, 0x11 * number]) for number, name in enumerate(_names(samples)))
    return bytes([samples]) + parts + b"\0\x3f\0"


def _names(samples: int) -> Sequence[int]:
    return range(1, samples + 1)
