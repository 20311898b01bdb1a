"""Byte ranges read together and apart again: neighbours by one request, the parts of a chunk in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from periplus.errors import StaleError

Piece: TypeAlias = tuple[str, int | None, int | None]
"""(url, start, stop); a whole file has neither."""
Member: TypeAlias = tuple[int, int | None, int | None]
"""Number of a piece, and its range in what was read; None for all of it."""


def together(pieces: Sequence[Piece], *, gap: int, largest: int) -> list[tuple[Piece, list[Member]]]:
    """Requests that cover all pieces, each with its members; ranges of a file no more than `gap` bytes apart share one.

    A negative gap joins nothing. Only ranges with a start and a stop are joined, and never to more than `largest`.
    """
    spans: list[tuple[Piece, list[Member]]] = []
    ranged: list[tuple[str, int, int, int]] = []
    for number, (url, start, stop) in enumerate(pieces):
        if start is None or stop is None or start < 0 or stop < 0:
            spans.append(((url, start, stop), [(number, None, None)]))
        else:
            ranged.append((url, start, stop, number))
    groups: list[tuple[str, int, int, list[Member]]] = []
    for url, start, stop, number in sorted(ranged):
        if groups:
            other, first, last, members = groups[-1]
            if other == url and start - last <= gap and max(stop, last) - first <= largest:
                members.append((number, start - first, stop - first))
                groups[-1] = url, first, max(stop, last), members
                continue
        groups.append((url, start, stop, [(number, 0, stop - start)]))
    return spans + [((url, start, stop), members) for url, start, stop, members in groups]


def joined(path: str, pieces: Sequence[Piece], parts: Sequence[bytes]) -> bytes:
    """The parts of a key in order; StaleError where one is shorter than it should be."""
    for (url, start, stop), part in zip(pieces, parts, strict=True):
        if start is not None and stop is not None and 0 <= start <= stop and len(part) != stop - start:
            raise StaleError(f"{path}: {len(part)} of {stop - start} bytes are there", url=url, offset=start)
    return parts[0] if len(parts) == 1 else b"".join(parts)
