"""TIFF, BigTIFF and COG: walks the directories of a file, strictly, and says which arrays they hold and where."""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Found, Need, Source, Steps
from periplus.scan.blocks import Blocks
from periplus.scan.cursor import Cursor
from periplus.scan.tifftags import (
    CODES,
    DESCRIPTIVE,
    INTEGERS,
    NDPI_FORMAT,
    SIZES,
    STRILES,
    STRIP_COUNTS,
    STRIP_OFFSETS,
    SUB_IFDS,
    TILE_COUNTS,
    TILE_OFFSETS,
    WANTED,
    Field,
)

NAME = "tiff"
HEAD_BYTES = 16_384
"""The first request: holds every directory of a usual COG."""
AHEAD_BYTES = 8_192
"""Read after the start of a directory that lies elsewhere, so that its values come along."""
MAGIC = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
ENDIAN: dict[str, Literal["little", "big"]] = {"<": "little", ">": "big"}
ENTRIES = {(order, big): struct.Struct(order + ("HHQ8s" if big else "HHI4s")) for order, big in MAGIC.values()}
GAP_BYTES = 4_096
"""Values this close together are asked for together."""
Integers = NDArray[np.int64]
Remote = tuple[int, int, int, int, int]
"""(tag, type, count, offset, length) of a value that lies outside its directory."""


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """One directory as the walk saw it."""

    offset: int
    order: str
    fields: tuple[Field, ...]
    """The tags we read, without where the strips and tiles lie."""
    weight: int
    """Bytes of the values that lie outside the directory itself."""
    offsets: Integers | None
    counts: Integers | None
    parent: int
    """Number of the directory whose SubIFD this is; -1 in the main chain."""


def sniff(head: bytes) -> bool:
    """Whether a file that starts so is a TIFF."""
    return bytes(head[:4]) in MAGIC


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every image, overview and mask of a TIFF, and what the file says of itself."""
    from periplus.scan.tiffarray import describe

    blocks = Blocks(source, limits)
    try:
        directories = yield from _walk(blocks, limits)
        about, found = describe(directories, limits, blocks.size)
    except PeriplusError as error:
        raise error.at(url=source.url) from None
    if about is not None:
        yield about
    for array, refs in found:
        yield Found(array, refs)


def _walk(blocks: Blocks, limits: Limits) -> Generator[Need, Any, list[Directory]]:
    """Every directory: the main chain in order, each followed by its SubIFDs."""
    yield from blocks.hold("the header", 0, 8, ahead=HEAD_BYTES - 8)
    order, big, first = _header(blocks)
    directories: list[Directory] = []
    seen: set[int] = set()
    pending = [(first, -1)]
    while pending:
        offset, parent = pending.pop()
        if offset in seen:
            raise FormatError("the chain of directories runs in a loop", offset=offset)
        seen.add(offset)
        limits.check("the number of directories", len(seen), limits.images, offset=offset)
        directory, following, subs = yield from _directory(blocks, limits, order, big, offset, parent)
        if following and parent < 0:
            pending.append((following, -1))
        # A stack: SubIFDs go on last, so they are walked before the chain goes on, in their own order.
        pending.extend((sub, len(directories)) for sub in reversed(subs))
        directories.append(directory)
    return directories


def _header(blocks: Blocks) -> tuple[str, bool, int]:
    head = blocks.locate(0, 8)
    magic = head[0][:4] if head else b""
    if head is None or magic not in MAGIC:
        raise FormatError("not a TIFF: the magic number is missing", offset=0)
    order, big = MAGIC[magic]
    cursor = Cursor(head[0][:16], order=order, url=blocks.url).at(4)
    if not big:
        first = cursor.u32()
    elif (cursor.u16(), cursor.u16()) == (8, 0):
        first = cursor.u64()
    else:
        raise FormatError("a BigTIFF must have offsets of 8 bytes", offset=4)
    if first == 0:
        raise FormatError("the file has no directory", offset=0)
    return order, big, first


def _directory(
    blocks: Blocks, limits: Limits, order: str, big: bool, offset: int, parent: int
) -> Generator[Need, Any, tuple[Directory, int, list[int]]]:
    entry, endian = ENTRIES[order, big], ENDIAN[order]
    lead, pointer = (8, 8) if big else (2, 4)
    if blocks.locate(offset, lead) is None:
        yield from blocks.hold("a directory", offset, lead, ahead=AHEAD_BYTES)
    block, start = _at(blocks, offset, lead)
    number = int.from_bytes(block[start : start + lead], endian)
    limits.check("the number of tags in a directory", number, limits.tags, offset=offset)
    if number == 0:
        raise FormatError("a directory has no tags", offset=offset)
    size = lead + number * entry.size
    # A last directory may end with the file, without the pointer that would be zero.
    ends = blocks.size is not None and offset + size + pointer > blocks.size
    whole = size if ends else size + pointer
    if start + whole > len(block):
        yield from blocks.hold("a directory", offset, whole)
        block, start = _at(blocks, offset, whole)
    following = int.from_bytes(block[start + size : start + whole], endian)

    found: dict[int, Field] = {}
    striles: dict[int, Integers] = {}
    remote: list[Remote] = []
    weight, first, at_hand = 0, offset - start, len(block)
    for tag, kind, count, value in entry.iter_unpack(block[start + lead : start + size]):
        cap = WANTED.get(tag)
        if cap is None or tag in found:
            continue
        length = SIZES.get(kind, 0) * count
        if length <= pointer:
            if length:
                found[tag] = (tag, kind, count, value[:length])
            continue
        if length > cap:
            if tag in DESCRIPTIVE:
                continue
            _too_long(tag, length, cap, count, limits, offset)
        where = int.from_bytes(value, endian)
        place = where - first
        if place < 0 or place + length > at_hand:
            found[tag] = (tag, kind, count, b"")
            remote.append((tag, kind, count, where, length))
        elif tag in STRILES:
            striles[tag] = _integers(tag, block, place, kind, count, order)
        else:
            found[tag] = (tag, kind, count, block[place : place + length])
            weight += length
    if remote:
        weight += yield from _remote(blocks, remote, found, striles, order)
    for tag in STRILES & found.keys():
        _, kind, count, value = found.pop(tag)
        striles[tag] = _integers(tag, value, 0, kind, count, order)
    children: list[int] = []
    if SUB_IFDS in found:
        _, kind, count, value = found.pop(SUB_IFDS)
        children = [child for child in _integers(SUB_IFDS, value, 0, kind, count, order).tolist() if child]
    if NDPI_FORMAT in found and (blocks.size or 0) >= 1 << 32:
        raise FormatError("an NDPI file over 4 GiB keeps the high half of its offsets elsewhere", offset=offset)
    tiles, lengths = striles.get(TILE_OFFSETS), striles.get(TILE_COUNTS)
    directory = Directory(
        offset,
        order,
        tuple(found.values()),
        weight,
        striles.get(STRIP_OFFSETS) if tiles is None else tiles,
        striles.get(STRIP_COUNTS) if lengths is None else lengths,
        parent,
    )
    return directory, following, children


def _too_long(tag: int, length: int, cap: int, count: int, limits: Limits, offset: int) -> None:
    if tag not in STRILES:
        raise FormatError(f"tag {tag} takes {length} bytes; at most {cap} make sense", offset=offset)
    limits.check("the number of tiles or strips", count, limits.chunks, offset=offset)


def _remote(
    blocks: Blocks, remote: list[Remote], found: dict[int, Field], striles: dict[int, Integers], order: str
) -> Generator[Need, Any, int]:
    """Ask for values that lie elsewhere, and add them; descriptive ones outside the file are left alone."""
    missing = []
    for tag, _, _, where, length in remote:
        if blocks.locate(where, length) is None:
            if tag in DESCRIPTIVE and blocks.size is not None and where + length > blocks.size:
                continue
            missing.append((f"the value of tag {tag}", where, length))
    if missing:
        yield from blocks.hold_all(missing, gap=GAP_BYTES)
    weight = 0
    for tag, kind, count, where, length in remote:
        place = blocks.locate(where, length)
        if place is None or tag in STRILES:
            del found[tag]
        if place is not None and tag in STRILES:
            striles[tag] = _integers(tag, *place, kind, count, order)
        elif place is not None:
            found[tag] = (tag, kind, count, place[0][place[1] : place[1] + length])
            weight += length
    return weight


def _at(blocks: Blocks, offset: int, length: int) -> tuple[bytes, int]:
    place = blocks.locate(offset, length)
    if place is None:
        raise FormatError("a directory ends past the end of the file", offset=offset)
    return place


def _integers(tag: int, block: bytes, start: int, kind: int, count: int, order: str) -> Integers:
    """Integers as int64; FormatError where one is negative or over 2^63."""
    if kind not in INTEGERS:
        raise FormatError(f"tag {tag} has type {kind}, not an integer type")
    values = np.frombuffer(block, order + CODES[kind], count, start).astype(np.int64)
    if SIZES[kind] == 8 or kind in (6, 8, 9):
        smallest = int(values.min())
        if smallest < 0:
            raise FormatError(f"tag {tag} holds {smallest}, which is no offset or length")
    return values
