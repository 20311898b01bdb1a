"""Fax: CCITT run lengths, Group 3 and Group 4, of one-bit images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.images import Picture
from periplus.decode.native import native
from periplus.decode.scratch import Buffer, scratch_array
from periplus.decode.tile import Tile
from periplus.errors import DecodeError, FormatError

PADS = (b"\x26\xa0\xd6\x4e\x1b" * 8, b"\xb5\x35\x12\xe9\x07\x44" * 8)
"""Two different continuations, full of codes for short runs."""
NAMES = {2: "ccittrle_decode", 3: "ccittfax3_decode", 4: "ccittfax4_decode"}


def fax(tile: Tile, slot: int) -> Picture:
    """Zeros and ones as the stream has them; white is 0, whatever the photometric tag says."""
    if (tile.bits, tile.samples) != (1, 1):
        raise FormatError("CCITT compression of anything but single bits does not exist")
    decode = native(NAMES[tile.compression])
    reverse = native("bitorder_decode") if tile.reversed_bits else None
    options = {"t4options": tile.t4_options} if tile.compression == 3 else {}

    def run(data: Buffer, rows: int, columns: int) -> NDArray[Any]:  # noqa: ARG001 - rows are coded whole
        stream = bytes(data) if reverse is None else bytes(reverse(bytes(data)))
        out = scratch_array(slot, (rows, tile.width), tile.dtype)
        values = np.asarray(decode(stream, rows, tile.width, out=out, **options))
        # Missing rows come out white without a word; they would be read from bytes that follow, so a strip is whole if
        # and only if what follows makes no difference. One that ends early by its own end code is white below, as
        # libtiff has it.
        for pad in PADS:
            if not np.array_equal(decode(stream + pad, rows, tile.width, **options), values):
                raise DecodeError("the fax strip is cut off")
        return values[:, :, None]

    return run
