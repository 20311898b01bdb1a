"""The periplus.vq codec: vector quantisation of CADRG and CIB, code books first and then codes of 4 x 4 pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode.bits import packed
from periplus.decode.scratch import Buffer, octets, scratch_array
from periplus.decode.settings import Run
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Shape, codecnames

NAME = codecnames.VECTOR_QUANTISED
KERNEL = 4
"""Rows and columns of pixels that one code represents, with a code book for each row."""
CODE_BITS = 12
CODES = 1 << CODE_BITS
BOOK_BYTES = KERNEL * CODES * KERNEL


def vector_quantised(_configuration: Mapping[str, Any], chunks: Shape, dtype: np.dtype[Any], _limits: Limits) -> Run:
    """The decoder of one block; its bytes are four code books of 4096 times four pixels, then its codes, row by row."""
    bands, height, width = chunks
    if bands != 1 or height % KERNEL or width % KERNEL or dtype != np.uint8:
        raise FormatError(f"codec {NAME} cannot fill chunks of {chunks} of {dtype}")
    down, across = height // KERNEL, width // KERNEL
    need = BOOK_BYTES + -(-down * across * CODE_BITS // 8)
    unpack = packed(CODE_BITS, down * across, np.dtype(np.uint16), slot=1)

    def run(data: Buffer, valid: Shape) -> NDArray[Any]:  # noqa: ARG001 - blocks are coded whole
        found = octets(data)
        if len(found) < need:
            raise DecodeError(f"the block has {len(found)} of {need} bytes")
        books = found[:BOOK_BYTES].reshape(KERNEL, CODES, KERNEL)
        codes = unpack(found[BOOK_BYTES:need], 1).reshape(down, across)
        pixels = scratch_array(0, (down, KERNEL, across, KERNEL), dtype)
        for row in range(KERNEL):
            pixels[:, row] = books[row][codes]
        return pixels.reshape(chunks)

    return run
