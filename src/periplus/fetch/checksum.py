"""CRC-32C, by which the bytes of a chunk are compared with those that were indexed."""

from __future__ import annotations

import numpy as np

from periplus.errors import DecodeError


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of some bytes."""
    from google_crc32c import value

    return int(value(np.frombuffer(data, np.uint8))) if len(data) else 0


def check_crc32c(data: bytes | memoryview, expected: int, *, url: str | None = None, offset: int | None = None) -> None:
    """DecodeError where bytes do not have the checksum of the index; -1 is an unknown one."""
    if expected >= 0 and crc32c(data) != expected:
        raise DecodeError(
            "the bytes of a chunk differ from the checksum in the index: the file is damaged, or was replaced",
            url=url,
            offset=offset,
        )
