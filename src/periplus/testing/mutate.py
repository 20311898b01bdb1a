"""Seeded mutants: of bytes by flips, cuts, splices and integers where a TIFF keeps its own; of JSON by odd values."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

LANDMARKS = (
    0,
    1,
    2,
    3,
    7,
    8,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 2,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
"""Values at which sizes overflow, wrap or mean something special."""
MOST_FIELDS = 4096
ODD: tuple[Any, ...] = (
    *(None, True, False, -1, *LANDMARKS, -(2**63), 2**200, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf")),
    *("", "0", "nan", "\0", "\ud800", "a/b", "../x", "/", "x" * 70_000, "\u202e", "__class__", "'; drop table x; --"),
    *([], {}, [[]], [None], [0], [-1], [2**63], ["x"], [1] * 70_000, {"": None}, {"name": "bytes"}, [{"name": "zstd"}]),
)
"""Values that no reader expects where they stand."""


def mutants(data: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """`count` damaged copies, the same for the same seed; each has one to four wounds."""
    rng = random.Random(seed)  # noqa: S311 - repeatable damage, not secrets
    fields = tiff_fields(data)
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            if fields and rng.random() < 0.6:
                _overwrite(mutant, rng, fields, data[:2] == b"MM")
            else:
                rng.choice(WOUNDS)(mutant, rng)
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
            wound = rng.random()
            if wound < 0.7:
                holder[key] = deepcopy(rng.choice(ODD))
            elif wound < 0.8:
                del holder[key]
            elif wound < 0.9:
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
    # Half landmarks, half values near what is there or that occur elsewhere: offsets of other directories make loops.
    near = int.from_bytes(data[position : position + size], "big" if big_endian else "little")
    value = rng.choice((rng.choice(LANDMARKS), near + rng.choice((-1, 1)), rng.choice(fields)[0], len(data), near * 2))
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
        value = rng.choice(LANDMARKS) % (1 << 8 * size)
        data[start : start + size] = value.to_bytes(size, rng.choice(("little", "big")))


WOUNDS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _flip,
    _truncate,
    _remove,
    _insert,
    _splice,
    _number,
)
