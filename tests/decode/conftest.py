from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from periplus.decode import Decoder, prepare
from periplus.limits import Limits
from periplus.model import Array, Found, Pipeline, Refs, Shape
from periplus.scan.drive import scan_bytes


@pytest.fixture
def decoder() -> Callable[..., Decoder]:
    def make(codecs: Any, chunks: Shape, dtype: Any, limits: Limits | None = None) -> Decoder:
        pipeline: Pipeline = tuple(codecs) if isinstance(codecs, list | tuple) else (codecs,)
        return prepare(pipeline, chunks=chunks, dtype=np.dtype(dtype), limits=limits or Limits())

    return make


@pytest.fixture
def read_all() -> Callable[[bytes], dict[str, NDArray[Any]]]:
    """Every array of a file by our scanner and decoder, put together chunk by chunk."""

    def read(data: bytes) -> dict[str, NDArray[Any]]:
        found = [step for step in scan_bytes(data) if isinstance(step, Found)]
        return {each.array.name: assemble(data, each.array, each.refs) for each in found}

    return read


def assemble(data: bytes, array: Array, refs: Refs) -> NDArray[Any]:
    out = np.full(array.shape, array.fill or 0, array.dtype)
    assert refs.part is None
    for row, cell in enumerate(refs.chunk.T.tolist()):
        encoding = 0 if refs.encoding is None else int(refs.encoding[row])
        decode = prepare(array.encodings[encoding], chunks=array.chunks, dtype=array.dtype, limits=Limits())
        start, length = int(refs.offset[row]), int(refs.length[row])
        origin = [n * size for n, size in zip(cell, array.chunks)]
        valid = tuple(min(size, n - at) for size, n, at in zip(array.chunks, array.shape, origin))
        values = decode(memoryview(data)[start : start + length], valid=valid)
        assert values.dtype == array.dtype
        assert values.dtype.isnative
        assert all(have >= need for have, need in zip(values.shape, valid))
        inside = values[tuple(slice(n) for n in valid)]
        out[tuple(slice(at, at + n) for at, n in zip(origin, valid))] = inside
    return out
