"""Seeded mutants of pictures, piece by piece: markers, chunks, records, tile-parts repeated, lost, moved or lied in."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

from periplus.testing.mutate import LANDMARKS, WOUNDS

PNG, JPEG, CODESTREAM = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\xff\x4f\xff\x51"
DTED_PIECES = (80, 648, 2700)
MOST_PIECES = 512
FIELDS = 48
"""Bytes at the start of a piece in which its numbers are."""
MOST_BYTES = 1 << 20
Length: TypeAlias = Callable[[bytes, int], int]
"""(file, position) -> bytes of the piece there; 0 for all the rest."""


def picture_mutants(data: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """`count` damaged copies of an image file, the same for the same seed; each has one to four wounds."""
    rng = random.Random(seed)  # noqa: S311 - repeatable damage, not secrets
    for _ in range(count):
        mutant = data
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
            if rng.random() < 0.25:
                flesh = bytearray(mutant)
                rng.choice(WOUNDS)(flesh, rng)
                mutant = bytes(flesh)
            else:
                mutant = _wounded(mutant, rng)
        yield mutant[:MOST_BYTES]


def pieces(data: bytes) -> list[bytes]:
    """The parts a file consists of; joined, they are the file."""
    if data.startswith(PNG):
        return _cut(data, 8, _chunk)
    if data.startswith(b"UHL1"):
        return _cut(data, 0, _record)
    starts = [at for at in (data.find(CODESTREAM), data.find(JPEG)) if at >= 0]
    if not starts:
        return [data[at : at + FIELDS] for at in range(0, len(data), FIELDS)][:MOST_PIECES]
    start = min(starts)
    return [*([data[:start]] if start else []), *_cut(data[start:], 2, _marker)]


def _cut(data: bytes, start: int, length: Length) -> list[bytes]:
    found, at = [data[:start]] if start else [], start
    while at < len(data) and len(found) < MOST_PIECES:
        size = length(data, at)
        stop = at + size if size > 0 else len(data)
        found.append(data[at:stop])
        at = stop
    return [*found, data[at:]] if at < len(data) else found


def _chunk(data: bytes, at: int) -> int:
    return 12 + int.from_bytes(data[at : at + 4], "big")


def _record(data: bytes, at: int) -> int:
    for size in DTED_PIECES:
        if at < size:
            return size
        at -= size
    posts = data[51:55]
    return 12 + 2 * int(posts) if posts.isdigit() else 0


def _marker(data: bytes, at: int) -> int:
    """Bytes of a segment, of a whole tile-part, or 0 for what follows the last of them."""
    if at + 12 > len(data) or data[at] != 0xFF:
        return 0
    if data[at + 1] == 0x90:
        return int(struct.unpack_from(">I", data, at + 6)[0])
    length = 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0 if data[at + 1] in (0xD9, 0x93) else length


def _wounded(data: bytes, rng: random.Random) -> bytes:
    parts = pieces(data)
    if not parts:
        return data
    place, other = rng.randrange(len(parts)), rng.randrange(len(parts))
    wound = rng.random()
    if wound < 0.6:
        parts[place] = _lied(parts[place], rng)
    elif wound < 0.7:
        parts[place] *= rng.choice((2, 2, 3, 40))
    elif wound < 0.8:
        del parts[place]
    elif wound < 0.9:
        parts[place], parts[other] = parts[other], parts[place]
    else:
        parts[place] = parts[other]
    if data.startswith(PNG) and rng.random() < 0.8:
        parts = [parts[0], *map(_checked, parts[1:])]
    return b"".join(parts)


def _lied(piece: bytes, rng: random.Random) -> bytes:
    """The piece with another number somewhere at its start."""
    size = rng.choice((1, 1, 2, 4))
    if len(piece) < size:
        return piece
    at = rng.randrange(min(FIELDS, len(piece) - size + 1))
    near = int.from_bytes(piece[at : at + size], "big")
    if piece[at : at + size].isdigit() and rng.random() < 0.8:
        digits = str(rng.choice((0, 1, 10**size - 1, rng.randrange(10**size)))).zfill(size)
        return piece[:at] + digits.encode() + piece[at + size :]
    value = rng.choice((rng.choice(LANDMARKS), near + 1, near - 1, near * 2, near ^ 1 << rng.randrange(8 * size)))
    return piece[:at] + (value % (1 << 8 * size)).to_bytes(size, "big") + piece[at + size :]


def _checked(chunk: bytes) -> bytes:
    """A chunk of a PNG with the length and the check that its bytes have."""
    body = chunk[4:-4]
    return chunk if len(chunk) < 12 else struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
