"""Read an array: plan the selection, check it against the limits, then fetch, decode and place its chunks."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import Decoder
from periplus.errors import FetchError, MissingError
from periplus.forks import process
from periplus.limits import Limits, enough_memory
from periplus.model import Array, Files, Refs, Source
from periplus.policy import is_local
from periplus.read.local import FEW_CHUNKS, read_local
from periplus.read.overlays import visible_regions
from periplus.read.place import Placer, allocate_output, fill_of, prepare_decoders
from periplus.read.plan import (
    ChunkWork,
    Progress,
    Selection,
    chunk_bounds,
    count_chunks,
    match_rows,
    select,
    split_axes,
)
from periplus.read.remote import read_remote

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table

PLAN_BYTES = 128
"""Memory that planning takes for a chunk, at least: its position, row and slices."""
HEAVY_CHUNK_BYTES = 1 << 20
"""Decoded bytes of a chunk that takes much longer to decode than a thread takes to start."""
SMALL_READ_BYTES = 1 << 19
"""Decoded bytes of a read that is faster in one thread than in several."""


def read_array(
    table: Table,
    fetch: Fetch,
    array: Array,
    key: Any = ...,
    *,
    limits: Limits,
    progress: Progress | None = None,
    workers: int | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The selected elements as stored (a NumPy scalar where every dimension has an integer, as in NumPy).

    `key` is a basic NumPy index or a `Selection`. A wrong key raises IndexError as in NumPy; all other failures are
    PeriplusErrors, raised before memory is allocated or bytes are fetched where possible.
    `workers` is the number of decoding threads, by default one for each core. The result is in C order; pass `out`,
    an array of its shape and dtype, for another order or to reuse memory.
    """
    selection = key if isinstance(key, Selection) else select(key, array.shape)
    shape = selection.shape
    limits.check(
        f"the selection of {array.name}, in bytes,", math.prod(shape) * array.dtype.itemsize, limits.read_bytes
    )
    given = None if out is None else selection.restored(out, array.dtype)
    if 0 in shape:
        return selection.result(np.empty(shape, array.dtype)) if out is None else out
    limits.check(
        f"the number of chunks in the selection of {array.name}",
        count_chunks(array, selection),
        limits.memory_bytes // PLAN_BYTES,
    )
    with enough_memory(f"the chunks of {array.name} in a selection of shape {shape}"):
        splits = split_axes(array, selection)
        refs, objects = table.objects(array, table.refs(array.name, [c.window for c in splits]))
        work, region_rows = visible_regions(array, splits, match_rows(splits, refs))
        sources = _sources(table.files, work.refs, objects)
        _check_sizes(work, limits)
        decoders = prepare_decoders(array, splits, work, limits, sources=sources, region_rows=region_rows)
        output = allocate_output(array, selection, splits, work.missing, given)
        place = Placer(splits, work, decoders, target=selection.oriented(output), sources=sources)
        if len(work):
            count = _workers(array, work, limits, workers, slow=isinstance(decoders, Decoder) and decoders.slow)
            _run(work, place, fetch, sources, count, limits, progress and _in_one_process(progress))
    return selection.result(output) if out is None else out


def read_chunk(
    table: Table, fetch: Fetch, array: Array, position: Sequence[int], *, limits: Limits, workers: int | None = 1
) -> NDArray[Any]:
    """One complete chunk, with the fill value where it is missing and beyond the edge of the array."""
    if len(position) != array.ndim or any(not 0 <= p < n for p, n in zip(position, array.grid)):
        raise MissingError(f"{array.name} has no chunk {tuple(position)}: its grid is {array.grid}")
    ends = [chunk_bounds(array, d, np.array([p], np.int64)) for d, p in enumerate(position)]
    key = tuple(slice(int(low[0]), int(high[0])) for low, high in ends)
    values = read_array(table, fetch, array, key, limits=limits, workers=workers)
    irregular = (None,) * array.ndim if array.edges is None else array.edges
    shape = tuple(n if e is None else e[p] for n, e, p in zip(array.chunks, irregular, position))
    if np.shape(values) == shape:
        return np.asarray(values)
    out = np.full(shape, fill_of(array), array.dtype)
    out[tuple(slice(0, n) for n in values.shape)] = values
    return out


def _in_one_process(progress: Progress) -> Progress:
    """End a read in a child process that the callback forked: it does not have the threads of the read."""
    here = process()

    def report(done: int, total: int) -> None:
        progress(done, total)
        if process() is not here:
            raise FetchError("a read cannot continue in a process that was forked during it; read again there")

    return report


def _run(
    work: ChunkWork,
    place: Placer,
    fetch: Fetch,
    sources: dict[int, Source],
    workers: int,
    limits: Limits,
    progress: Progress | None,
) -> None:
    if all(is_local(source.url) for source in sources.values()):
        read_local(work, place, fetch=fetch, sources=sources, workers=workers, progress=progress)
    else:
        memory = limits.memory_bytes
        read_remote(work, place, fetch=fetch, sources=sources, workers=workers, memory_bytes=memory, progress=progress)


def _sources(files: Files, refs: Refs, objects: Mapping[int, Source]) -> dict[int, Source]:
    """The source of every file of the rows; the table has checked that the index may access them."""
    # np.bincount, because np.unique imports NumPy's masked arrays, which takes longer than a small read.
    numbers = [0][: len(refs)] if refs.file is None else np.flatnonzero(np.bincount(refs.file + 1)[1:]).tolist()
    return {number: objects[number] if number in objects else files.source(number) for number in numbers}


def _check_sizes(work: ChunkWork, limits: Limits) -> None:
    if len(work):
        stored = np.add.reduceat(work.refs.length, work.first[:-1])
        limits.check("the stored size of a chunk", int(stored.max()), limits.chunk_bytes)


def _workers(array: Array, work: ChunkWork, limits: Limits, requested: int | None, *, slow: bool) -> int:
    """Decoding threads: as many as requested, or one for each core, if their buffers fit a quarter of the memory."""
    chunk = math.prod(array.chunks) * array.dtype.itemsize
    small = (len(work) <= FEW_CHUNKS and chunk < HEAVY_CHUNK_BYTES) or (
        requested is None and len(work) * chunk < SMALL_READ_BYTES
    )
    if len(work) == 1 or (small and not slow):
        return 1
    return max(1, min(requested or _cores(), len(work), limits.memory_bytes // 4 // max(2 * chunk, 1)))


def _cores() -> int:
    """Cores that this process may use; in a container these are fewer than those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
