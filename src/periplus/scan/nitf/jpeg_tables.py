"""JPEG streams in NITF that have no tables of their own, but name those of MIL-STD-188-198A by a quality."""

from __future__ import annotations

import base64
import re
from collections.abc import Generator, Iterator
from typing import Any

from periplus.errors import FormatError
from periplus.model import Step
from periplus.scan.blocks import Blocks
from periplus.scan.nitf.mask import held

NAMED = re.compile(r"(\d\d)\.([1-5])", re.ASCII)
"""A compression rate that names a kind of image and a quality; 00.0 means tables of the stream's own."""
HEAD_BYTES = 4_096
"""Enough to hold the markers before the first scan of a stream."""
TABLES, SCAN = 0xDB, 0xDA
GENERAL = {
    "1": "084848484848484848484e4a4c4a4e5951545451596a5d5e635e5d6a"
         "816f6c74746c6f81878088918880879ba0b1b1a09bc1d5e4d5c1ffffffffffffffffffff",
    "2": "0824242424242424242427252625272d292a2a292d352f2f322f2f35"
         "4138363b3b363841444045494540444e515959514e626c736c6282909082b2beb2f3f3ff",
    "3": "080a0a0a0a0a0a0a0a0a0b0a0b0a0b0d0b0c0c0b0d0f0d0d0e0d0d0f"
         "12100f10100f1012131213151312131617191917161b1e201e1b2428282432353244445b",
    "4": "0807070707070707070708070807080908080808090b09090a09090b"
         "0d0b0b0c0c0b0b0d0e0d0e0f0e0d0e10101212101014161716141a1d1d1a242624313141",
    "5": "04040404040404040404040404040405050505050506050506050506"
         "07060606060606070807080808070809090a0a09090b0c0d0c0b0e10100e1415141b1b24",
}  # fmt: skip
"""Steps of images of 8 bits of no special kind by quality, along the diagonals, as a stream has them.

GDAL (3.10) takes these lists row by row. The JITC's own streams decide: `i_3025b.ntf` has the first list in its table,
whose order is that of the diagonals, and after it the very bytes that `U_1125C.NTF` has without a table at rate 00.1;
`U_1122A.NTF`, at rate 00.3, has the third. All five are one list, made finer in steps.
"""


def shared_tables(
    blocks: Blocks, start: int, end: int, rate: str, *, bands: int, bits: int
) -> Generator[Step, Any, str | None]:
    """The tables that streams such as the one at `start` lack, as base64 of a stream of tables; None if they have them.

    A rate that names no quality is one of streams that have tables, so nothing is read. Those of other kinds of image,
    of colours and of 12 bits are not known to us.
    """
    named = NAMED.fullmatch(rate)
    if named is None:
        return None
    length = min(HEAD_BYTES, end - start)
    yield from blocks.hold("the JPEG stream", start, length)
    if _has_tables(held(blocks, start, length)):
        return None
    if named[1] != "00" or (bands, bits) != (1, 8):
        raise FormatError(
            f"the JPEG streams of {bands} bands of {bits} bits have no tables, and those meant by rate {rate} are not"
            " known"
        )
    table = b"\xff\xdb\x00\x43\x00" + bytes.fromhex(GENERAL[named[2]])
    return base64.b64encode(b"\xff\xd8" + table + b"\xff\xd9").decode()


def _has_tables(head: bytes) -> bool:
    """Whether a table comes before the first scan, as far as one can see."""
    found = [marker for marker, _ in markers(head)]
    # Only a scan that is reached tells that there is none.
    return TABLES in found or SCAN not in found


def markers(head: bytes) -> Iterator[tuple[int, int]]:
    """The markers of a JPEG stream up to its first scan, and where they are, as far as its first bytes go."""
    at = max(0, head.find(b"\xff\xd8")) + 2
    while at + 4 <= len(head) and head[at] == 0xFF:
        if head[at + 1] == 0xFF:  # any number of these may stand before a marker
            at += 1
            continue
        yield head[at + 1], at
        if head[at + 1] == SCAN:
            return
        at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
