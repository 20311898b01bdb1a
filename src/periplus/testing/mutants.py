"""Seeded mutants: damaged copies of bytes, image files and JSON values, the same for the same seed."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

BOUNDARY_VALUES = (
    *(0, 1, 2, 3, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF),
    *(2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1),
)
"""Values at which sizes overflow, wrap around or have a special meaning."""
MOST_FIELDS = 4096
UNEXPECTED: tuple[Any, ...] = (
    *(None, True, False, -1, *BOUNDARY_VALUES, -(2**63), 2**200, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf")),
    *("", "0", "nan", "\0", "\ud800", "a/b", "../x", "/", "x" * 70_000, "\u202e", "__class__", "'; drop table x; --"),
    *([], {}, [[]], [None], [0], [-1], [2**63], ["x"], [1] * 70_000, {"": None}, {"name": "bytes"}, [{"name": "zstd"}]),
)
"""Values that no reader expects inside a JSON document."""


def byte_mutants(data: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """`count` copies with one to four damages each; in a TIFF most of them are in the numbers of its directories."""
    rng = random.Random(seed)  # noqa: S311 - repeatable damage, not secrets
    fields = tiff_fields(data)
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            if fields and rng.random() < 0.6:
                _overwrite(mutant, rng, fields, data[:2] == b"MM")
            else:
                rng.choice(DAMAGES)(mutant, rng)
        yield bytes(mutant)


def json_mutants(document: Any, *, seed: int, count: int) -> Iterator[Any]:
    """`count` copies of a JSON value with one to three members replaced, removed, exchanged or repeated."""
    rng = random.Random(seed)  # noqa: S311 - repeatable damage, not secrets
    for _ in range(count):
        mutant = deepcopy(document)
        for _ in range(rng.choice((1, 1, 2, 3))):
            places = list(_members(mutant))
            if not places:
                break
            holder, key = rng.choice(places)
            way = rng.random()
            if way < 0.7:
                holder[key] = deepcopy(rng.choice(UNEXPECTED))
            elif way < 0.8:
                del holder[key]
            elif way < 0.9:
                other, name = rng.choice(places)
                holder[key] = deepcopy(other[name])
            elif isinstance(holder, list):
                holder.insert(key, deepcopy(holder[key]))
            else:
                holder[rng.choice(("", "x", "version", "shape", "../x", "\0"))] = deepcopy(holder[key])
        yield mutant


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of everything inside a JSON value."""
    for key in range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ():
        yield value, key
        yield from _members(value[key])


def tiff_fields(data: bytes) -> list[tuple[int, int]]:
    """(position, size) of every integer in the header and directories of a TIFF, those of its value lists too."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None or len(data) < 16:
        return []
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    width, lead, entry = (8, 8, 20) if big else (4, 2, 12)
    code = order + ("Q" if big else "I")
    fields = [(2, 2), (8 if big else 4, width)]
    pending, seen = [struct.unpack_from(code, data, 8 if big else 4)[0]], set[int]()
    while pending and len(fields) < MOST_FIELDS:
        offset = pending.pop()
        if offset in seen or not 0 < offset <= len(data) - lead:
            continue
        seen.add(offset)
        number = struct.unpack_from(order + ("Q" if big else "H"), data, offset)[0]
        fields.append((offset, lead))
        for n in range(number):
            at = offset + lead + n * entry
            if at + entry + width > len(data):
                break
            tag, kind, count = struct.unpack_from(order + ("HHQ" if big else "HHI"), data, at)
            fields += [(at, 2), (at + 2, 2), (at + 4, width), (at + 4 + width, width)]
            value = struct.unpack_from(code, data, at + 4 + width)[0]
            if tag == 330 and count == 1:
                pending.append(value)
            elif tag in (273, 279, 324, 325, 330, 34735) and value < len(data):
                size = 2 if kind == 3 else 8 if kind == 16 else 4
                fields += [(p, size) for p in range(value, min(value + count * size, len(data) - size), size)][:64]
        following = offset + lead + number * entry
        if following + width <= len(data):
            fields.append((following, width))
            pending.append(struct.unpack_from(code, data, following)[0])
    return fields


def _overwrite(data: bytearray, rng: random.Random, fields: list[tuple[int, int]], big_endian: bool) -> None:
    position, size = rng.choice(fields)
    if position + size > len(data):
        return
    # Boundary values, values near the stored one, and offsets of other fields, which make loops of directories.
    near = int.from_bytes(data[position : position + size], "big" if big_endian else "little")
    value = rng.choice(
        (rng.choice(BOUNDARY_VALUES), near + rng.choice((-1, 1)), rng.choice(fields)[0], len(data), near * 2)
    )
    data[position : position + size] = (value % (1 << 8 * size)).to_bytes(size, "big" if big_endian else "little")


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.choice((1, 2, 4, 12, 64))]


def _insert(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.randbytes(rng.choice((1, 2, 4, 12, 64)))


def _splice(data: bytearray, rng: random.Random) -> None:
    source, target, size = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1), rng.choice((4, 12, 48, 200))
    data[target : target + size] = data[source : source + size]


def _number(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    if len(data) >= size:
        start = rng.randrange(len(data) - size + 1)
        value = rng.choice(BOUNDARY_VALUES) % (1 << 8 * size)
        data[start : start + size] = value.to_bytes(size, rng.choice(("little", "big")))


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _flip,
    _truncate,
    _remove,
    _insert,
    _splice,
    _number,
)


# --- images --------------------------------------------------------------------------------------------------------

PNG, JPEG, CODESTREAM = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\xff\x4f\xff\x51"
DTED_HEADERS = (80, 648, 2700)
MOST_PARTS = 512
FIELDS = 48
"""Bytes at the start of a part that contain its numbers."""
MOST_BYTES = 1 << 20
Length: TypeAlias = Callable[[bytes, int], int]
"""(file, position) -> bytes of the part there; 0 for all the rest."""


def image_mutants(data: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """`count` copies of an image file (JPEG, PNG, JPEG 2000, DTED, NITF) with one to four damages each."""
    rng = random.Random(seed)  # noqa: S311 - repeatable damage, not secrets
    for _ in range(count):
        mutant = data
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
            if rng.random() < 0.25:
                changed = bytearray(mutant)
                rng.choice(DAMAGES)(changed, rng)
                mutant = bytes(changed)
            else:
                mutant = _damaged(mutant, rng)
        yield mutant[:MOST_BYTES]


def parts_of(data: bytes) -> list[bytes]:
    """The parts of a file (markers, chunks, records, tile-parts); joined, they are the file."""
    if data.startswith(PNG):
        return _cut(data, 8, _chunk)
    if data.startswith(b"UHL1"):
        return _cut(data, 0, _record)
    starts = [at for at in (data.find(CODESTREAM), data.find(JPEG)) if at >= 0]
    if not starts:
        return [data[at : at + FIELDS] for at in range(0, len(data), FIELDS)][:MOST_PARTS]
    start = min(starts)
    return [*([data[:start]] if start else []), *_cut(data[start:], 2, _marker)]


def _cut(data: bytes, start: int, length: Length) -> list[bytes]:
    found, at = [data[:start]] if start else [], start
    while at < len(data) and len(found) < MOST_PARTS:
        size = length(data, at)
        stop = at + size if size > 0 else len(data)
        found.append(data[at:stop])
        at = stop
    return [*found, data[at:]] if at < len(data) else found


def _chunk(data: bytes, at: int) -> int:
    return 12 + int.from_bytes(data[at : at + 4], "big")


def _record(data: bytes, at: int) -> int:
    for size in DTED_HEADERS:
        if at < size:
            return size
        at -= size
    posts = data[51:55]
    return 12 + 2 * int(posts) if posts.isdigit() else 0


def _marker(data: bytes, at: int) -> int:
    """Bytes of a segment or of a tile-part; 0 for the data after the last of them."""
    if at + 12 > len(data) or data[at] != 0xFF:
        return 0
    if data[at + 1] == 0x90:
        return int(struct.unpack_from(">I", data, at + 6)[0])
    length = 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0 if data[at + 1] in (0xD9, 0x93) else length


def _damaged(data: bytes, rng: random.Random) -> bytes:
    parts = parts_of(data)
    if not parts:
        return data
    place, other = rng.randrange(len(parts)), rng.randrange(len(parts))
    way = rng.random()
    if way < 0.6:
        parts[place] = _with_other_number(parts[place], rng)
    elif way < 0.7:
        parts[place] *= rng.choice((2, 2, 3, 40))
    elif way < 0.8:
        del parts[place]
    elif way < 0.9:
        parts[place], parts[other] = parts[other], parts[place]
    else:
        parts[place] = parts[other]
    if data.startswith(PNG) and rng.random() < 0.8:
        parts = [parts[0], *map(_with_checksum, parts[1:])]
    return b"".join(parts)


def _with_other_number(part: bytes, rng: random.Random) -> bytes:
    """The part with another number somewhere at its start."""
    size = rng.choice((1, 1, 2, 4))
    if len(part) < size:
        return part
    at = rng.randrange(min(FIELDS, len(part) - size + 1))
    near = int.from_bytes(part[at : at + size], "big")
    if part[at : at + size].isdigit() and rng.random() < 0.8:
        digits = str(rng.choice((0, 1, 10**size - 1, rng.randrange(10**size)))).zfill(size)
        return part[:at] + digits.encode() + part[at + size :]
    value = rng.choice((rng.choice(BOUNDARY_VALUES), near + 1, near - 1, near * 2, near ^ 1 << rng.randrange(8 * size)))
    return part[:at] + (value % (1 << 8 * size)).to_bytes(size, "big") + part[at + size :]


def _with_checksum(chunk: bytes) -> bytes:
    """A chunk of a PNG with the correct length and checksum."""
    body = chunk[4:-4]
    return chunk if len(chunk) < 12 else struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
