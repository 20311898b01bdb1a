"""Writes kerchunk references as a Parquet directory: dense records in C order, the metadata last."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import ConflictError, FormatError, MissingError
from periplus.fetch.errors import mapped
from periplus.fetch.local.folders import replace_folder, restore_folder
from periplus.model import Array, Inline, Refs
from periplus.parse.zarr.documents import ZMETADATA
from periplus.policy import is_local
from periplus.table.parquet.sinks import spool_folder
from periplus.zarr.description.slabs import Slab, slabs
from periplus.zarr.kerchunk.extension import FILES, KEY, declare, pack_files
from periplus.zarr.kerchunk.records import MOST_ROWS, Record, write_record
from periplus.zarr.kerchunk.rows import RECORD

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table.table import Table
    from periplus.zarr.kerchunk.write import KerchunkDescription

Put: TypeAlias = Callable[[str, bytes], None]
"""Writes a file of the directory, by its name there."""
UNFINISHED = re.compile(r"\..+\.periplus-[0-9a-f]{16}")
"""Names of files that writers of earlier versions did not finish."""


def write_parquet(
    url: str,
    table: Table,
    description: KerchunkDescription,
    urls: Sequence[str],
    *,
    folder: str | None,
    fetch: Fetch,
    record_size: int,
) -> None:
    """Write the directory; `folder` is what `{{base}}` stands for.

    On a disk an existing index is replaced atomically once the new one is complete. An object store cannot replace a
    folder atomically: there an existing index is an error.
    """
    if not 0 < record_size <= MOST_ROWS:
        raise FormatError(f"record_size is {record_size}, outside 1..{MOST_ROWS}")
    write = secrets.token_hex(8)
    records: dict[str, list[int]] = {}
    with _local(url, fetch) if is_local(url) else _remote(url, fetch) as put:

        def put_record(path: str, number: int, record: Record) -> None:
            put(f"{path}/refs.{number}.parq", write_record(record, write))
            records[path].append(number)

        for path, chunks in description.labels.items():
            records[path] = []
            grid = [max(place[d] for place in chunks) + 1 for d in range(len(next(iter(chunks))))] if chunks else []
            for number, record in _inline(chunks, grid, record_size).items():
                put_record(path, number, record)
        for path, array in description.arrays.items():
            records[path] = []
            writer = _Records(array, urls, record_size)
            for slab in slabs(table, array):
                for number, record in writer.add(slab):
                    put_record(path, number, record)
            for number, record in writer.end():
                put_record(path, number, record)
        put(FILES, pack_files(table.files, urls, folder=folder, write=write))
        documents = {key: document for key, document in description.documents.items() if key != ZMETADATA}
        root: dict[str, Any] = {"zarr_consolidated_format": 1, "metadata": documents, "record_size": record_size}
        root[KEY] = declare(write, records)
        put(ZMETADATA, json.dumps(root, allow_nan=False).encode())


@contextmanager
def _local(url: str, fetch: Fetch) -> Iterator[Put]:
    """Files of a folder that takes the place of the target when the block ends well."""
    fetch.policy.check(url)
    with mapped(url):
        target = os.path.realpath(url)
        restore_folder(target)
        foreign = _foreign(target)
    if foreign is not None:
        raise FormatError(
            f"the target contains {foreign!r}, which does not belong to a kerchunk index; nothing was written", url=url
        )
    with spool_folder(target) as spool:
        new = spool / "new"
        new.mkdir()

        def put(key: str, data: bytes) -> None:
            with mapped(url):
                path = new / key
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())

        yield put
        replace_folder(str(new), target)


def _foreign(target: str) -> str | None:
    """The name of a file at the target that is not part of a kerchunk index, and would be removed with the folder."""
    if os.path.lexists(target) and not os.path.isdir(target):
        return os.path.basename(target)
    for place, _, names in os.walk(target):
        for name in names:
            if not (RECORD.fullmatch(name) or name in (ZMETADATA, FILES) or UNFINISHED.fullmatch(name)):
                return os.path.relpath(os.path.join(place, name), target)
    return None


@contextmanager
def _remote(url: str, fetch: Fetch) -> Iterator[Put]:
    """Files of a folder that becomes an index when its `.zmetadata` is written, which is last."""
    folder = url if url.endswith("/") else url + "/"
    left = _left(folder, fetch)

    def put(key: str, data: bytes) -> None:
        last = key == ZMETADATA
        for other in left if last else ():
            fetch.run(fetch.delete(other))
        fetch.run(fetch.write(folder + key, data, create=last))
        left.discard(folder + key)

    yield put


def _left(folder: str, fetch: Fetch) -> set[str]:
    """Files of a write that did not end; ConflictError where there is an index, FormatError where something else is."""

    async def names() -> list[str]:
        return [source.url async for source in fetch.find(folder)]

    try:
        found = set(fetch.run(names()))
    except MissingError:
        return set()
    if folder + ZMETADATA in found:
        raise ConflictError(
            "a store cannot replace an index of many files at once: write to another name, or delete this one first",
            url=folder,
        )
    if not all(RECORD.fullmatch(name := url.rpartition("/")[2]) or name == FILES for url in found):
        raise FormatError("the folder contains something other than a kerchunk index; nothing was written", url=folder)
    return found


def _inline(chunks: Mapping[tuple[int, ...], bytes], grid: Sequence[int], record_size: int) -> dict[int, Record]:
    rows: dict[int, list[bytes | None]] = {}
    for place, data in chunks.items():
        number = int(np.ravel_multi_index(place, grid)) if place else 0
        held = rows.setdefault(number // record_size, [])
        held += [None] * (number % record_size + 1 - len(held))
        held[number % record_size] = data
    return {number: _nothing(len(held), raw=held) for number, held in rows.items()}


def _nothing(size: int, raw: Sequence[bytes | None] = ()) -> Record:
    return Record(
        paths=[],
        path=np.full(size, -1, np.int32),
        offset=np.zeros(size, np.int64),
        size=np.array([len(item or b"") for item in raw], np.int64) if raw else np.zeros(size, np.int64),
        raw=Inline.of(raw) if raw else None,
    )


class _Records:
    """Gathers the chunks of one array until a record is full."""

    def __init__(self, array: Array, urls: Sequence[str], record_size: int) -> None:
        self._array, self._urls, self._size = array, urls, record_size
        self._total = math.prod(array.grid)
        self._waiting: list[Slab] = []

    def add(self, slab: Slab) -> list[tuple[int, Record]]:
        """Records that are complete."""
        if not len(slab):
            return []
        self._waiting.append(slab)
        return self._ready(int(slab.place[-1]) // self._size)

    def end(self) -> list[tuple[int, Record]]:
        """What is left."""
        return self._ready(None)

    def _ready(self, stop: int | None) -> list[tuple[int, Record]]:
        """Records with numbers below `stop`; the rest waits."""
        if not self._waiting:
            return []
        slab = _together(self._waiting, self._array)
        numbers = slab.place // self._size
        done = []
        for number in np.unique(numbers).tolist():
            if stop is not None and number >= stop:
                continue
            low, high = (int(n) for n in np.searchsorted(numbers, [number, number + 1]))
            done.append((number, self._record(number, _cut(slab, low, high))))
        rest = len(slab) if stop is None else int(np.searchsorted(numbers, stop))
        self._waiting = [_cut(slab, rest, len(slab))] if rest < len(slab) else []
        return done

    def _record(self, number: int, slab: Slab) -> Record:
        refs, first = slab.refs, slab.first[:-1]
        rows = slab.place - number * self._size
        size = min(self._size, self._total - number * self._size)
        counts = slab.counts
        file = np.zeros(len(slab), np.int32) if refs.file is None else refs.file[first]
        used, local = np.unique(file, return_inverse=True)
        known = used[used >= 0]
        record = _nothing(size)
        record.path[rows] = local.astype(np.int32) - np.int32(len(used) - len(known))
        single = counts == 1
        record.offset[rows[single]] = refs.offset[first[single]]
        record.size[rows[single]] = refs.length[first[single]]
        self._check(slab, single & (file >= 0))
        raw = None
        if refs.inline is not None:
            raw = Inline(np.full(size, -1, np.int64), refs.inline.buffer)
            raw.at[rows] = refs.inline.at[first]
        several = ~single
        ranges = np.zeros(size, np.int64)
        ranges[rows[several]] = counts[several]
        parts = np.repeat(several, counts)
        return Record(
            paths=[self._urls[number] for number in known.tolist()],
            path=record.path,
            offset=record.offset,
            size=record.size,
            raw=raw,
            counts=ranges if several.any() else None,
            offsets=refs.offset[parts],
            sizes=refs.length[parts],
        )

    def _check(self, slab: Slab, single: NDArray[np.bool_]) -> None:
        first = slab.first[:-1][single]
        empty = (slab.refs.offset[first] == 0) & (slab.refs.length[first] == 0)
        if empty.any():
            place = tuple(int(n) for n in slab.refs.chunk[:, first[int(np.flatnonzero(empty)[0])]])
            raise FormatError(
                f"array {self._array.name!r}: chunk {place} has no bytes, which in kerchunk's Parquet means a "
                "whole file"
            )


def _cut(slab: Slab, low: int, high: int) -> Slab:
    start, stop = int(slab.first[low]), int(slab.first[high])
    return Slab(slab.refs.take(slice(start, stop)), slab.first[low : high + 1] - start, slab.place[low:high])


def _together(waiting: Sequence[Slab], array: Array) -> Slab:
    if len(waiting) == 1:
        return waiting[0]
    shifts = np.cumsum([0, *(len(slab.refs) for slab in waiting)])
    first = np.concatenate([*(slab.first[:-1] + shift for slab, shift in zip(waiting, shifts)), shifts[-1:]])
    refs = Refs.joined([slab.refs for slab in waiting], array.ndim)
    return Slab(refs, first, np.concatenate([slab.place for slab in waiting]))
