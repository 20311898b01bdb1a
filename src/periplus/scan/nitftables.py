"""JPEG streams in NITF that have no tables of their own, but name those of MIL-STD-188-198A by a quality."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any

from periplus.errors import FormatError
from periplus.model import Need
from periplus.scan.blocks import Blocks
from periplus.scan.nitfmask import held

NAMED = re.compile(r"(\d\d)\.([1-5])", re.ASCII)
"""A compression rate that names a kind of image and a quality; 00.0 means tables of the stream's own."""
HEAD_BYTES = 4_096
"""Enough to hold the markers before the first scan of a stream."""
TABLES, SCAN = 0xDB, 0xDA


def check_tables(blocks: Blocks, start: int, end: int, rate: str) -> Generator[Need, Any, None]:
    """Refuse streams such as the one at `start` where they have no tables of their own.

    The standard's tables are known to us only through other readers, which take its numbers row by row, where the
    numbers themselves look like a list in zigzag order: whichever is right, the other gives wrong pixels. A rate that
    names no quality is one of streams that have tables, so nothing is read.
    """
    if NAMED.fullmatch(rate) is None:
        return
    length = min(HEAD_BYTES, end - start)
    yield from blocks.hold("the JPEG stream", start, length)
    if not _has_tables(held(blocks, start, length)):
        raise FormatError(f"the JPEG streams have no tables, and it is not certain which are meant by rate {rate}")


def _has_tables(head: bytes) -> bool:
    """Whether a table comes before the first scan, as far as one can see."""
    found = [marker for marker, _ in markers(head)]
    # Only a scan that is reached tells that there is none.
    return TABLES in found or SCAN not in found


def markers(head: bytes) -> Iterator[tuple[int, int]]:
    """The markers of a JPEG stream up to its first scan, and where they are, as far as its first bytes go."""
    at = 2
    while at + 4 <= len(head) and head[at] == 0xFF:
        yield head[at + 1], at
        if head[at + 1] == SCAN:
            return
        at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
