"""TIFF, BigTIFF and COG: reads the directories of a file, strictly, for their arrays and byte ranges."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from periplus.errors import FormatError, LimitError, PeriplusError
from periplus.limits import Limits
from periplus.model import Found, Source, Step, Steps
from periplus.scan.buffer import FileBuffer
from periplus.scan.cursor import Cursor
from periplus.scan.tiff.entries import ENDIAN, ENTRY, DirectoryForm, Entries, Integers, Values, integers, parse
from periplus.scan.tiff.tags import (
    DESCRIPTIVE,
    NDPI_FORMAT,
    STRIP_COUNTS,
    STRIP_OFFSETS,
    SUB_IFDS,
    TILE_COUNTS,
    TILE_OFFSETS,
)

NAME = "tiff"
HEAD_BYTES = 16_384
"""The first request: holds every directory of a usual COG."""
AHEAD_BYTES = 8_192
"""Read after the start of a directory outside the first request, enough for its values."""
MAGIC = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
LEAST_BYTES = 8
"""No directory is shorter."""
GAP_BYTES = 4_096
"""Values this close together are asked for together."""


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """One directory as the walk saw it."""

    offset: int
    form: DirectoryForm
    structure: Values
    metadata: Values
    """Values stored outside the directory, in the order of the form."""
    weight: int
    """Bytes of these values."""
    offsets: Integers | None
    counts: Integers | None
    parent: int
    """Number of the directory whose SubIFD this is; -1 in the main chain."""


def sniff(head: bytes) -> bool:
    """Whether these are the first bytes of a TIFF file."""
    return bytes(head[:4]) in MAGIC


def scan(source: Source, limits: Limits) -> Steps:
    """Arrays of every image, overview and mask of a TIFF, and metadata of the file."""
    from periplus.scan.tiff.arrays import describe
    from periplus.scan.tiff.oldjpeg import strip_heads

    file = FileBuffer(source, limits)
    directories, unread = yield from _walk(file, limits)
    heads = yield from strip_heads(file, directories)
    about, found = describe(directories, limits, file.size, unread=unread, heads=heads)
    if about is not None:
        yield about
    for array, refs in found:
        yield Found(array, refs)


def _walk(file: FileBuffer, limits: Limits) -> Generator[Step, Any, tuple[list[Directory], tuple[str, ...]]]:
    """Every directory: the main chain in order, each followed by its SubIFDs; and why others cannot be read.

    The chain ends at a directory that cannot be read, or was read before.
    """
    yield from file.require("the header", 0, 8, ahead=HEAD_BYTES - 8)
    order, big, first = _header(file)
    directories: list[Directory] = []
    unread: list[str] = []
    seen: set[int] = set()
    pending = [(first, -1)]
    while pending:
        offset, parent = pending.pop()
        if offset in seen:
            unread.append(f"after image {len(directories) - 1}: the chain of directories runs in a loop")
            continue
        seen.add(offset)
        limits.check("the number of directories", len(seen), limits.images, offset=offset)
        try:
            directory, following, subs = yield from _directory(file, limits, order, big, offset, parent)
        except (FormatError, LimitError) as error:
            if not directories or file.exhausted:
                raise
            unread.append(f"after image {len(directories) - 1}: {error.message}")
            continue
        if following and parent < 0:
            pending.append((following, -1))
        # A stack: SubIFDs are pushed last, so they are read before the rest of the chain, in their own order.
        if subs:
            pending.extend((sub, len(directories)) for sub in reversed(subs))
            if len(subs) > 1:
                yield from _hold_starts(file, [sub for sub in subs if sub not in seen][: limits.images])
        directories.append(directory)
    return directories, tuple(unread)


def _hold_starts(file: FileBuffer, offsets: Sequence[int]) -> Generator[Step, Any, None]:
    """The starts of several directories in one round; those outside the file are refused when they are walked."""
    size = file.size
    inside = [("a directory", offset, LEAST_BYTES) for offset in offsets if size and offset + LEAST_BYTES <= size]
    yield from file.require_all(inside, gap=GAP_BYTES, ahead=AHEAD_BYTES)


def _header(file: FileBuffer) -> tuple[str, bool, int]:
    head = file.locate(0, 8)
    magic = head[0][:4] if head else b""
    if head is None or magic not in MAGIC:
        raise FormatError("not a TIFF: the magic number is missing", offset=0)
    order, big = MAGIC[magic]
    *sizes, first = Cursor(head[0][:16], order=order).at(4).unpack("HHQ" if big else "I")
    if big and sizes != [8, 0]:
        raise FormatError("a BigTIFF must have offsets of 8 bytes", offset=4)
    if first == 0:
        raise FormatError("the file has no directory", offset=0)
    return order, big, first


def _directory(
    file: FileBuffer, limits: Limits, order: str, big: bool, offset: int, parent: int
) -> Generator[Step, Any, tuple[Directory, int, list[int]]]:
    lead, pointer = (8, 8) if big else (2, 4)
    if file.locate(offset, lead) is None:
        yield from file.require("a directory", offset, lead, ahead=AHEAD_BYTES)
    block, start = _at(file, offset, lead)
    number = int.from_bytes(block[start : start + lead], ENDIAN[order])
    limits.check("the number of tags in a directory", number, limits.tags, offset=offset)
    if number == 0:
        raise FormatError("a directory has no tags", offset=offset)
    size = lead + number * ENTRY[order, big].size
    # A last directory may end with the file, without the pointer that would be zero.
    ends = file.size is not None and offset + size + pointer > file.size
    whole = size if ends else size + pointer
    if start + whole > len(block):
        yield from file.require("a directory", offset, whole)
        block, start = _at(file, offset, whole)
    try:
        entries = parse(block[start + lead : start + size], order, big)
        for _, _, count, _, _ in entries.far:
            limits.check("the number of tiles or strips", count, limits.chunks)
        first = offset - start
        if entries.stop and (entries.start < first or entries.stop > first + len(block)):
            structure, metadata, lists = yield from _elsewhere(file, entries)
        else:
            structure = tuple([block[at - first : at - first + length] for _, _, _, at, length in entries.structure])
            metadata = tuple([block[at - first : at - first + length] for _, _, _, at, length in entries.metadata])
            lists = {
                tag: integers(tag, block, where - first, kind, count, order)
                for tag, kind, count, where, _ in entries.far
            }
        for tag, kind, count, value in entries.near:
            lists[tag] = integers(tag, value, 0, kind, count, order)
    except PeriplusError as error:
        raise error.at(offset=offset) from None
    file.count_parsed("a directory", offset, size + entries.weight + sum([place[4] for place in entries.far]))
    if (file.size or 0) >= 1 << 32 and any(field[0] == NDPI_FORMAT for field in entries.form.inline):
        raise FormatError("an NDPI file over 4 GiB keeps the high half of its offsets elsewhere", offset=offset)
    directory = Directory(
        offset,
        entries.form,
        structure,
        metadata,
        entries.weight,
        lists.get(TILE_OFFSETS, lists.get(STRIP_OFFSETS)),
        lists.get(TILE_COUNTS, lists.get(STRIP_COUNTS)),
        parent,
    )
    children = [int(child) for child in lists[SUB_IFDS] if child] if SUB_IFDS in lists else []
    return directory, int.from_bytes(block[start + size : start + whole], ENDIAN[order]), children


def _elsewhere(file: FileBuffer, entries: Entries) -> Generator[Step, Any, tuple[Values, Values, dict[int, Integers]]]:
    """Values and lists stored elsewhere, requested if needed; descriptive ones may be outside the file."""
    outside = {
        place
        for place in entries.metadata
        if place[0] in DESCRIPTIVE and file.size is not None and place[3] + place[4] > file.size
    }
    inside = [place for place in (*entries.structure, *entries.metadata, *entries.far) if place not in outside]
    yield from file.require_all([(f"the value of tag {place[0]}", *place[3:]) for place in inside], gap=GAP_BYTES)
    lists = {
        tag: integers(tag, *_at(file, where, length), kind, count, entries.form.order)
        for tag, kind, count, where, length in entries.far
    }
    metadata = tuple([None if place in outside else file.take(*place[3:]) for place in entries.metadata])
    return tuple([file.take(*place[3:]) for place in entries.structure]), metadata, lists


def _at(file: FileBuffer, offset: int, length: int) -> tuple[bytes, int]:
    place = file.locate(offset, length)
    if place is None:
        raise FormatError("a directory ends past the end of the file", offset=offset)
    return place
