"""Fax: CCITT run lengths, Group 3 and Group 4, of one-bit images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array
from periplus.decode.tiff.images import StreamDecoder
from periplus.decode.tiff.tile import TileEncoding
from periplus.errors import DecodeError, FormatError

RUNS, GROUP3, GROUP4 = 2, 3, 4
NAMES = {RUNS: "ccittrle_decode", GROUP3: "ccittfax3_decode", GROUP4: "ccittfax4_decode"}
SHORT_RUNS = tuple(bytes.fromhex(code) * 16 for code in ("7df7df", "fbefbe", "492492", "924924", "249249"))
"""Codes of short runs of both colours, beginning at different bits."""
MIXED = bytes.fromhex("d4f43a2afffcd3c12ef890575575e826e2cbeaee82af2c7d696cf46b977c090a")
"""Bits in which horizontal, vertical and pass codes are found whichever bit one begins at."""
END_OF_LINE_ZEROS = 11
CODE_ZEROS = 3
"""Most zeros at the end of any other code."""
END_OF_LINE = "0" * END_OF_LINE_ZEROS + "1"
"""Several of these end a strip, perhaps before its last row; a row takes a bit at least."""
END_OF_BLOCK = 2 * END_OF_LINE
"""Ends a strip of Group 4, and is no part of any other code there."""
TAIL = 32
TOGETHER = 256
PIECE = 1 << 16
"""Bytes that are searched for an end-of-line code at once."""
FILL_BITS = 4
"""The T4 option for zeros before an end-of-line code. Some files have them without declaring it, and without the option
a decoder returns wrong rows; with it, streams without such zeros are decoded as well."""


def fax(tile: TileEncoding, slot: int) -> StreamDecoder:
    """Zeros and ones as the stream has them; white is 0, whatever the photometric tag is."""
    if (tile.bits, tile.samples) != (1, 1):
        raise FormatError("CCITT compression of anything but single bits does not exist")
    decode = native(NAMES[tile.compression])
    reverse = native("bitorder_decode") if tile.reversed_bits else None
    options = {"t4options": tile.t4_options | FILL_BITS} if tile.compression == GROUP3 else {}

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:  # noqa: ARG001 - rows are coded whole
        strip = bytes(data) if reverse is None else bytes(reverse(bytes(data)))
        if 8 * len(strip) < rows and END_OF_LINE not in _bits(strip[-TAIL:]):
            raise DecodeError(f"the fax strip is cut off: {len(strip)} bytes do not hold {rows} rows")
        out = scratch_array(slot, (rows, tile.width), tile.dtype)
        values = np.asarray(decode(strip, rows, tile.width, out=out, **options))
        # Missing rows come out white without a word; they would be read from bytes that follow, so a strip is whole if
        # what follows makes no difference. One that ends early by its own end code is white below, as libtiff has it.
        again = scratch_array(slot + 1, (rows, tile.width), tile.dtype)
        for longer in _continued(strip, tile.compression):
            decode(longer, rows, tile.width, out=again, **options)
            if not _same(again, values):
                raise DecodeError("the fax strip is cut off")
        return values[:, :, None]

    return run


def _same(some: NDArray[Any], others: NDArray[Any]) -> bool:
    """Whether rows are equal, a few at a time: comparing all at once would take as much memory as the rows."""
    return all(
        np.array_equal(some[first : first + TOGETHER], others[first : first + TOGETHER])
        for first in range(0, len(some), TOGETHER)
    )


def _has_lines(strip: bytes) -> bool:
    """Whether a strip has end-of-line codes; some writers of Group 3 leave them out."""
    return any(END_OF_LINE in _bits(strip[first : first + PIECE + 2]) for first in range(0, len(strip), PIECE))


def _continued(strip: bytes, compression: int) -> Iterator[bytes]:
    """The strip with bytes after it that would show in its rows if it were cut off anywhere."""
    if compression != GROUP3 or _has_lines(strip):
        yield from (strip + following for following in _continuations(strip, compression))
        return
    # A decoder that finds an end of line begins there, so what follows must not make one with the zeros at the end.
    bare = strip.rstrip(b"\0")
    if not bare:
        raise DecodeError("the fax strip has no code in it")
    padding = len(strip) - len(bare)
    kept = bare + b"\0" * min(padding, int(_trailing_zeros(bare[-1:]) < CODE_ZEROS))
    zeros = _trailing_zeros(kept[-2:])
    for following in (MIXED, *SHORT_RUNS):
        if zeros + 8 - following[0].bit_length() < END_OF_LINE_ZEROS:
            yield kept + following


def _continuations(strip: bytes, compression: int) -> Iterator[bytes]:
    """Bytes that would show in the rows of a strip cut off anywhere.

    Tried at every byte of strips of many kinds, all cuts are found out but a few within the last runs of the last row.
    """
    yield MIXED
    if compression == GROUP4 and _bits(strip[-TAIL:]).rstrip("0").endswith(END_OF_BLOCK):
        return  # nothing is cut off, so that only a decoder that has lost its way reads on
    yield from SHORT_RUNS[:2]
    if compression == GROUP4:
        return
    yield from SHORT_RUNS[2:]
    if compression == GROUP3:
        # A cut within an end-of-line code is found out only by completing it; some of the zeros at the end of the strip
        # may belong to the code before.
        found = _trailing_zeros(strip[-2:])
        for zeros in range(max(0, END_OF_LINE_ZEROS - found), END_OF_LINE_ZEROS + 4 - min(found, END_OF_LINE_ZEROS)):
            bits = "0" * zeros + "1" + "011111" * 60
            bits += "0" * (-len(bits) % 8)
            yield int(bits, 2).to_bytes(len(bits) // 8, "big")
        yield b"\x50" * 48


def _trailing_zeros(tail: bytes) -> int:
    text = _bits(tail)
    return len(text) - len(text.rstrip("0"))


def _bits(data: bytes) -> str:
    """Bits as digits, after a one."""
    return format(int.from_bytes(b"\x01" + data, "big"), "b")
