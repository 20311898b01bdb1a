"""Read an array: plan the whole selection, check it against the budgets, then fetch, decode and place."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import Decoder
from periplus.errors import FetchError, MissingError
from periplus.forks import process
from periplus.limits import Limits, enough_memory
from periplus.model import Array, Files, Refs, Source
from periplus.policy import is_local
from periplus.read.compose import needed
from periplus.read.local import FEW, read_local
from periplus.read.place import Placer, allocate, fill_of, prepare_all
from periplus.read.plan import Selection, Work, cut, extent, match, select, touched
from periplus.read.remote import read_remote

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table

PLAN_BYTES = 128
"""What planning takes for a chunk, at least: its cell, its row and its slices."""
HEAVY = 1 << 20
"""Decoded bytes of a chunk that takes far longer to decode than a thread to start."""
LIGHT = 1 << 19
"""Decoded bytes of all chunks that are read in less time than it takes to share them out."""
Progress = Callable[[int, int], None]
"""Called in the caller's thread with the chunks done so far and their total."""


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
    """The selected elements, raw as stored (a NumPy scalar where every dimension has an integer, as NumPy gives).

    `key` is a basic NumPy index or a ready `Selection`. A wrong key raises IndexError as NumPy does; everything else
    that can fail raises one of our errors, before memory is taken or a byte is fetched where that can be known.
    `workers` is the number of decoding threads; by default as many as the machine has cores. The result is in C order;
    give `out`, of the result's shape and dtype, for another one or to use memory again.
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
        touched(array, selection),
        limits.memory_bytes // PLAN_BYTES,
    )
    with enough_memory(f"the chunks of {array.name} in a selection of shape {shape}"):
        cuts = cut(array, selection)
        refs, objects = table.objects(array, table.refs(array.name, [c.window for c in cuts]))
        work, pieces = needed(array, cuts, match(cuts, refs))
        sources = _sources(table.files, work.refs, objects)
        _check_sizes(work, limits)
        decoders = prepare_all(array, cuts, work, limits, sources=sources, pieces=pieces)
        whole = allocate(array, selection, cuts, work.missing, given)
        place = Placer(cuts, work, decoders, target=selection.oriented(whole), sources=sources)
        if len(work):
            count = _workers(array, work, limits, workers, slow=isinstance(decoders, Decoder) and decoders.slow)
            _run(work, place, fetch, sources, count, limits, progress and _in_one_process(progress))
    return selection.result(whole) if out is None else out


def read_chunk(
    table: Table, fetch: Fetch, array: Array, position: Sequence[int], *, limits: Limits, workers: int | None = 1
) -> NDArray[Any]:
    """One whole chunk, with the fill value where it is missing and where it reaches past the edge of the array."""
    if len(position) != array.ndim or any(not 0 <= p < n for p, n in zip(position, array.grid)):
        raise MissingError(f"{array.name} has no chunk {tuple(position)}: its grid is {array.grid}")
    ends = [extent(array, d, np.array([p], np.int64)) for d, p in enumerate(position)]
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
    """Ends a read in a child that was forked by the callback: the threads that do the rest are not there."""
    here = process()

    def told(done: int, total: int) -> None:
        progress(done, total)
        if process() is not here:
            raise FetchError("a read cannot go on in a process that was forked while it ran; read again there")

    return told


def _run(
    work: Work,
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
    """What is known of every file the rows name; the table has checked that the index may reach them."""
    # By counting: np.unique loads NumPy's masked arrays, which takes longer than a small read.
    numbers = [0][: len(refs)] if refs.file is None else np.flatnonzero(np.bincount(refs.file + 1)[1:]).tolist()
    return {number: objects[number] if number in objects else files.source(number) for number in numbers}


def _check_sizes(work: Work, limits: Limits) -> None:
    if len(work):
        stored = np.add.reduceat(work.refs.length, work.first[:-1])
        limits.check("the stored size of a chunk", int(stored.max()), limits.chunk_bytes)


def _workers(array: Array, work: Work, limits: Limits, asked: int | None, *, slow: bool) -> int:
    """Threads that decode: as many as asked for or as there are cores, if their buffers fit a quarter of the budget."""
    chunk = math.prod(array.chunks) * array.dtype.itemsize
    little = (len(work) <= FEW and chunk < HEAVY) or (asked is None and len(work) * chunk < LIGHT)
    if len(work) == 1 or (little and not slow):
        return 1
    return max(1, min(asked or _cores(), len(work), limits.memory_bytes // 4 // max(2 * chunk, 1)))


def _cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
