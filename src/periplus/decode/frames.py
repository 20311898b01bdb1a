"""Compressed files of undeclared size: unpacked into a buffer that grows up to a limit."""

from __future__ import annotations

from periplus.decode.native import native
from periplus.errors import DecodeError, LimitError

LEAST = 1 << 16


def unzstd(data: bytes | memoryview, *, most: int) -> bytes:
    """What a Zstandard frame holds; LimitError where that is more than `most` bytes."""
    decode = native("zstd_decode")
    size = min(max(LEAST, 8 * len(data)), most)
    while True:
        try:
            return bytes(decode(data, out=size))
        except RuntimeError as error:
            if "too small" not in str(error):
                raise DecodeError(f"a Zstandard frame is damaged: {error}") from None
        if size >= most:
            raise LimitError(f"a compressed file holds more than {most} bytes")
        size = min(8 * size, most)
