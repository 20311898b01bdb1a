"""Zarr arrays in memory whose chunks are the stored bytes of a file, with metadata that name their codec, v3 or v2."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from periplus.decode.pipeline import IMAGES
from periplus.model import Codec, Found, Shape
from periplus.scan.drive import scan_bytes

StoredChunks = Mapping[tuple[int, ...], bytes]
"""Stored bytes by position of the chunk."""


@contextmanager
def registered() -> Iterator[None]:
    """Register our codecs in zarr and numcodecs while the block runs."""
    import numcodecs
    import zarr

    from periplus.zarr.codecs import v3 as codecs

    before, known = dict(zarr.config.get("codecs")), dict(numcodecs.registry.codec_registry)
    codecs.register()
    try:
        yield
    finally:
        zarr.config.set({"codecs": before})
        numcodecs.registry.codec_registry.clear()
        numcodecs.registry.codec_registry.update(known)


def first_array(data: bytes) -> Found:
    """The first array of a file."""
    return next(step for step in scan_bytes(data) if isinstance(step, Found))


def stored_chunks(data: bytes, found: Found) -> StoredChunks:
    """The stored bytes of every chunk, with its byte ranges joined."""
    refs = found.refs
    chunks: dict[tuple[int, ...], bytes] = {}
    for row, position in enumerate(refs.chunk.T.tolist()):
        start, length = int(refs.offset[row]), int(refs.length[row])
        chunks[tuple(position)] = chunks.get(tuple(position), b"") + data[start : start + length]
    return chunks


def document(
    shape: Shape, chunks: Shape, dtype: Any, codecs: Sequence[Codec], version: int
) -> tuple[str, dict[str, Any]]:
    """Key and metadata of an array; in v3 `bytes` comes before the image codec of the list, in v2 there is only one."""
    kind: np.dtype[Any] = np.dtype(dtype)
    if version == 3:
        little = {"name": "bytes", "configuration": {"endian": "little"}} if kind.itemsize > 1 else {"name": "bytes"}
        at = next(n for n, codec in enumerate(codecs) if codec["name"] in IMAGES)
        return "zarr.json", {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": kind.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [*codecs[:at], little, *codecs[at:]],
        }
    (codec,) = codecs
    return ".zarray", {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": kind.newbyteorder("<").str,
        "fill_value": 0,
        "order": "C",
        "compressor": None,
        "filters": [{"id": codec["name"], **codec.get("configuration", {})}],
        "dimension_separator": "/",
    }


def memory_store(
    shape: Shape, chunks: Shape, dtype: Any, codecs: Sequence[Codec], stored: StoredChunks, version: int
) -> Any:
    """A Zarr store in memory with one array of these stored chunks."""
    from zarr.core.buffer.cpu import Buffer
    from zarr.storage import MemoryStore

    name, metadata = document(shape, chunks, dtype, codecs, version)
    prefix = "c/" if version == 3 else ""
    parts = {prefix + "/".join(map(str, position)): Buffer.from_bytes(data) for position, data in stored.items()}
    return MemoryStore({name: Buffer.from_bytes(json.dumps(metadata).encode()), **parts})


def open_first_array(data: bytes, version: Literal[2, 3], found: Found | None = None, **changes: Any) -> Any:
    """The first array of a file as a zarr-python array; `changes` are further settings of its codec."""
    import zarr

    from periplus.zarr.description.codecs import with_facts

    found = found or first_array(data)
    array = found.array
    (codec,) = with_facts(array.encodings[0], array)
    codec = {**codec, "configuration": {**codec["configuration"], **changes}}
    store = memory_store(array.shape, array.chunks, array.dtype, [codec], stored_chunks(data, found), version)
    return zarr.open_array(store, mode="r", zarr_format=version)
