"""The budgets: how much a file, an index or a read may ask for before it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from periplus.errors import LimitError

MIB = 1 << 20
GIB = 1 << 30


def out_of_memory(what: str, *, url: str | None = None, offset: int | None = None) -> LimitError:
    """What a MemoryError becomes; `what` says what there was no room for."""
    advice = "read less at a time, or lower memory_bytes in periplus.Limits"
    return LimitError(f"not enough memory for {what}; {advice}", url=url, offset=offset)


@contextmanager
def enough_memory(what: str, *, url: str | None = None) -> Iterator[None]:
    """LimitError in place of MemoryError."""
    try:
        yield
    except MemoryError as error:
        raise out_of_memory(what, url=url) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Absolute sizes only; a declared size is compared with these before anything is allocated for it."""

    header_bytes: int = 64 * MIB
    """Bytes a scanner may ask of one file."""
    images: int = 65_536
    """Directories or images in one file."""
    tags: int = 4_096
    """Entries in one directory."""
    chunks: int = 1 << 26
    """Chunks in one array of one file."""
    dims: int = 8
    """Dimensions of an array."""
    chunk_bytes: int = GIB
    """Decoded bytes of one chunk."""
    read_bytes: int = 16 * GIB
    """Bytes of the array one read may return."""
    memory_bytes: int = GIB
    """Bytes in flight during one read: fetched but not yet decoded, and scratch."""
    index_rows: int = 1 << 33
    """Rows of one index, whatever its arrays declare."""

    def check(self, what: str, value: int, limit: int, *, url: str | None = None, offset: int | None = None) -> int:
        """`value`, or LimitError where it exceeds `limit`."""
        if value > limit:
            raise LimitError(f"{what} is {value}, over the limit of {limit}", url=url, offset=offset)
        return value
