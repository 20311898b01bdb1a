"""Writes kerchunk references as a Parquet directory: dense records in C order, the metadata last."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import ConflictError, FormatError, MissingError
from periplus.fetch.errors import mapped
from periplus.fetch.local.folders import replace_folder, restore_folder
from periplus.model import Inline
from periplus.parse.json import INT64
from periplus.parse.zarr.documents import ZMETADATA
from periplus.policy import is_local
from periplus.table.parquet.sinks import spool_folder
from periplus.table.target import is_folder
from periplus.zarr.description.slabs import Slab
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
        raise ValueError(f"record_size is a number of rows from 1 to {MOST_ROWS}, not {record_size!r}")
    is_folder(url, "a kerchunk Parquet directory", fetch=fetch)
    write = secrets.token_hex(8)
    records: dict[str, list[int]] = {}
    with _local(url, fetch) if is_local(url) else _remote(url, fetch) as put:
        for path, grid, rows in description.rows(table):
            records[path] = []
            for number, slab in _by_record(rows, record_size):
                _check(slab, path)
                size = min(record_size, math.prod(grid) - number * record_size)
                record = _record(slab, slab.place - number * record_size, urls, size)
                put(f"{path}/refs.{number}.parq", write_record(record, write))
                records[path].append(number)
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


def _by_record(rows: Iterable[Slab], record_size: int) -> Iterator[tuple[int, Slab]]:
    """(number of a record file, its chunks), as soon as all chunks of a record are there."""

    def cut(slab: Slab, stop: int) -> Iterator[tuple[int, Slab]]:
        numbers = slab.place // record_size
        for number in np.unique(numbers[numbers < stop]).tolist():
            low, high = np.searchsorted(numbers, [number, number + 1]).tolist()
            yield number, slab.part(low, high)

    waiting: Slab | None = None
    for slab in rows:
        waiting = slab if waiting is None else waiting.joined(slab)
        if len(waiting):
            last = int(waiting.place[-1]) // record_size
            yield from cut(waiting, last)
            waiting = waiting.part(int(np.searchsorted(waiting.place, last * record_size)), len(waiting))
    if waiting is not None:
        yield from cut(waiting, INT64)


def _record(slab: Slab, rows: NDArray[np.int64], urls: Sequence[str], size: int) -> Record:
    """A record of so many rows with the chunks of a slab, each in its row."""
    refs, first, counts = slab.refs, slab.first[:-1], slab.counts
    file = np.zeros(len(slab), np.int32) if refs.file is None else refs.file[first]
    used, local = np.unique(file, return_inverse=True)
    known = used[used >= 0]
    several = counts > 1
    single = ~several

    def column(dtype: Any, fill: int, where: Any, values: NDArray[Any]) -> NDArray[Any]:
        found = np.full(size, fill, dtype)
        found[where] = values
        return found

    parts = np.repeat(several, counts)
    return Record(
        paths=[urls[number] for number in known.tolist()],
        path=column(np.int32, -1, rows, local - (len(used) - len(known))),
        offset=column(np.int64, 0, rows[single], refs.offset[first[single]]),
        size=column(np.int64, 0, rows[single], refs.length[first[single]]),
        raw=refs.inline and Inline(column(np.int64, -1, rows, refs.inline.at[first]), refs.inline.buffer),
        counts=column(np.int64, 0, rows[several], counts[several]) if several.any() else None,
        offsets=refs.offset[parts],
        sizes=refs.length[parts],
    )


def _check(slab: Slab, path: str) -> None:
    """FormatError for a chunk of a file that has no bytes."""
    refs, first = slab.refs, slab.first[:-1]
    empty = (slab.counts == 1) & (refs.offset[first] == 0) & (refs.length[first] == 0)
    if refs.file is not None:
        empty &= refs.file[first] >= 0
    if empty.any():
        place = tuple(int(n) for n in refs.chunk[:, first[int(np.flatnonzero(empty)[0])]])
        raise FormatError(f"array {path!r}: chunk {place} has no bytes, which in kerchunk's Parquet means a whole file")
