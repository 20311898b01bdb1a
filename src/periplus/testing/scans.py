"""Scans as tests look at them: what was found and asked for, whether it holds together, and its decoded values."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import prepare
from periplus.limits import Limits
from periplus.model import About, Found, Need, Source
from periplus.scan.drive import Memory, scan_bytes


def watched(scanner: ModuleType, data: bytes, limits: Limits, *, sized: bool = True) -> tuple[list[Found], list[int]]:
    """What a scan found, and the lengths it asked for; `sized` says whether it is told how long the file is."""
    found: list[Found] = []
    asked: list[int] = []
    steps = scanner.scan(Source(url="memory:", size=len(data) if sized else None), limits)
    memory = Memory(data, url="memory:", limits=limits)
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            return found, asked
        answer = None
        if isinstance(step, Found):
            found.append(step)
        elif not isinstance(step, About):
            for need in needs_of(step):
                assert need.offset >= 0
                assert need.length > 0
                asked.append(need.length)
            answer = memory.answer(step)


def needs_of(step: object) -> tuple[Need, ...]:
    """The ranges that a step of a scan asks for: one, those of a round, or none."""
    return (step,) if isinstance(step, Need) else tuple(step) if isinstance(step, tuple | list) else ()


def check_sound(found: Found, size: int, limits: Limits) -> None:
    """Whatever a damaged file of that size gives must hold together."""
    array, refs = found.array, found.refs
    assert all(n > 0 for n in array.shape)
    assert np.prod(array.chunks, dtype=object) * array.dtype.itemsize <= limits.chunk_bytes
    assert refs.chunk.shape == (array.ndim, len(refs))
    if len(refs):
        assert (refs.chunk >= 0).all()
        assert (refs.chunk.max(axis=1) < np.array(array.grid)).all()
        assert refs.offset.min() > 0
        assert refs.length.min() > 0
        assert (refs.offset + refs.length).max() <= size


def only(data: bytes, limits: Limits | None = None) -> Found:
    """The one array of a file."""
    (found,) = (step for step in scan_bytes(data, limits=limits) if isinstance(step, Found))
    return found


def values(data: bytes, limits: Limits | None = None) -> NDArray[Any]:
    """The decoded values of a file whose one array is one chunk."""
    found = only(data, limits)
    array, start = found.array, int(found.refs.offset[0])
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=limits or Limits())
    return decode(data[start : start + int(found.refs.length[0])], valid=array.shape).copy()
