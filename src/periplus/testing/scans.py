"""Run a scanner on bytes: the arrays and requests of a scan, checks of their consistency, and decoded values."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import prepare
from periplus.limits import Limits
from periplus.model import About, Found, Need, Source
from periplus.scan.drive import MemoryFolder, scan_bytes


def watch_scan(
    scanner: ModuleType, data: bytes, limits: Limits, *, sized: bool = True
) -> tuple[list[Found], list[int]]:
    """The arrays of a scan, and the lengths of its requests; without `sized` it does not know the size of the file."""
    found: list[Found] = []
    asked: list[int] = []
    steps = scanner.scan(Source(url="memory:", size=len(data) if sized else None), limits)
    memory = MemoryFolder(data, url="memory:", limits=limits)
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
    """The byte ranges that a step of a scan requests."""
    return (step,) if isinstance(step, Need) else tuple(step) if isinstance(step, tuple | list) else ()


def check_consistent(found: Found, size: int, limits: Limits) -> None:
    """AssertionError where an array or its references contradict each other, the file size or the limits."""
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


def only_array(data: bytes, limits: Limits | None = None) -> Found:
    """The one array of a file."""
    (found,) = (step for step in scan_bytes(data, limits=limits) if isinstance(step, Found))
    return found


def decoded_values(data: bytes, limits: Limits | None = None) -> NDArray[Any]:
    """The decoded values of a file whose one array is one chunk."""
    found = only_array(data, limits)
    array, start = found.array, int(found.refs.offset[0])
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=limits or Limits())
    return decode(data[start : start + int(found.refs.length[0])], valid=array.shape).copy()
