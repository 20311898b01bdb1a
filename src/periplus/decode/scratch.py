"""Scratch: buffers that each thread reuses, because fresh memory costs more than most decoders."""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.limits import MIB
from periplus.model import Shape

Octets: TypeAlias = NDArray[np.uint8]
Buffer: TypeAlias = bytes | bytearray | memoryview | Octets

KEPT_BYTES = 64 * MIB
"""Larger buffers are released after use, so that one huge chunk does not keep its size in every thread."""

_threads = threading.local()


def scratch(slot: int, size: int) -> Octets:
    """`size` bytes of unspecified content; the next request of this thread for the same slot overwrites them."""
    kept: dict[int, Octets] | None = getattr(_threads, "kept", None)
    if kept is None:
        kept = _threads.kept = {}
    buffer = kept.get(slot)
    if buffer is None or buffer.size < size:
        buffer = np.empty(size, np.uint8)
        if size <= KEPT_BYTES:
            kept[slot] = buffer
    return buffer[:size]


def scratch_array(slot: int, shape: Shape, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A C-ordered array in the scratch of that slot."""
    size = dtype.itemsize
    for n in shape:
        size *= n
    return scratch(slot, size).view(dtype).reshape(shape)


def octets(data: Buffer) -> Octets:
    """The bytes as an array, without a copy."""
    return data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)


def stream(data: Buffer) -> memoryview:
    """The bytes as a memoryview, without a copy."""
    return data.data if isinstance(data, np.ndarray) else memoryview(data)
