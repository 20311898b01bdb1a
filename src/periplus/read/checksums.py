"""Compute the checksums of byte ranges, and compare all data of an archive with those in its index."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError, MissingError, PeriplusError, redact
from periplus.fetch import LocalFile
from periplus.fetch.checksum import crc32c
from periplus.fetch.cost import gap, largest
from periplus.fetch.merge import merge
from periplus.model import Refs, Source
from periplus.parse.json import parse_json
from periplus.policy import is_local
from periplus.read.sources import SourceFinding, SourceReport, kind_of
from periplus.table.target import check_output

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.limits import Limits
    from periplus.read.plan import Progress
    from periplus.table import Table

BATCH_BYTES = 256 << 20
"""Bytes that are read together, after which a check can be resumed."""
BATCH_ROWS = 1 << 16
STATE_BYTES = 64 << 20


def range_checksums(
    file: NDArray[np.int32],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    sources: Sequence[Source] | Mapping[int, Source],
    fetch: Fetch,
    limits: Limits,
) -> NDArray[np.int64]:
    """The checksum of each byte range; `file` is a key of `sources`, which must be unchanged."""
    if not len(length):
        return np.empty(0, np.int64)
    limits.check("the stored size of a chunk", int(length.max()), limits.chunk_bytes)
    urls = [sources[number].url for number in np.unique(file).tolist()]
    spans = merge(file, offset, length, gap=min(map(gap, urls)), largest=min(map(largest, urls)), sources=sources)
    found = np.zeros(len(length), np.int64)  # that of no bytes
    order = np.argsort(spans.row_span, kind="stable")
    bounds = np.searchsorted(spans.row_span[order], np.arange(len(spans) + 1))
    for span, data in fetch.stream(spans, in_flight_bytes=limits.memory_bytes // 4):
        for row in order[bounds[span] : bounds[span + 1]].tolist():
            start = int(spans.row_start[row])
            found[row] = crc32c(data[start : start + int(length[row])])
    return found


def check_data(
    table: Table, fetch: Fetch, limits: Limits, *, resume: str | None = None, progress: Progress | None = None
) -> SourceReport:
    """Read all byte ranges that have a checksum in the index, and compare them; ValueError where none has one.

    With `resume`, the name of a local file, the state is kept there until all is checked: a check that was interrupted
    continues from it. FormatError where that is the index or one of its sources.
    """
    if resume is not None:
        check_output(resume, table.url, table)
        if not is_local(resume):
            raise ValueError("resume= is a local file, in which the state of the check is kept")
        resume = os.path.realpath(resume)  # what a link points to is written, and removed at the end
    state = _CheckState.load(table, resume)
    seen = 0
    for name, refs in table.blocks():
        for batch in _batches(refs):
            seen += len(batch)
            if seen <= state.rows:
                continue
            state.rows = seen
            _check_batch(table, fetch, limits, name, batch, state)
            state.save()
            if progress is not None:
                progress(seen, table.rows)
    if state.unchecked and not state.checked and not state.lost:
        state.remove()
        raise ValueError("this index has no checksums to compare with: index the files with checksums=True")
    state.remove()
    return state.report(table)


def _batches(refs: Refs) -> Iterator[Refs]:
    """The rows, some at a time, limited in number and in bytes."""
    ends = np.cumsum(refs.length)
    first = 0
    while first < len(refs):
        before = int(ends[first - 1]) if first else 0
        stop = max(int(np.searchsorted(ends, before + BATCH_BYTES, side="right")), first + 1)
        stop = min(stop, first + BATCH_ROWS)
        yield refs.take(slice(first, stop))
        first = stop


def _check_batch(table: Table, fetch: Fetch, limits: Limits, name: str, refs: Refs, state: _CheckState) -> None:
    refs, objects = table.objects(table.array(name), refs)
    file = np.zeros(len(refs), np.int32) if refs.file is None else refs.file
    known = np.zeros(len(refs), bool) if refs.crc32c is None else refs.crc32c >= 0
    state.unchecked += int((~known & (file >= 0)).sum())
    rows = np.flatnonzero(known & (file >= 0) & ~np.isin(file, list(state.lost)))
    if not len(rows) or refs.crc32c is None:
        return
    numbers = np.unique(file[rows]).tolist()
    sources = {n: objects[n] if n in objects else table.files.source(n) for n in numbers}
    # All files together; one by one where that fails, to find those that cannot be read.
    for group in (None, *numbers):
        chosen = rows if group is None else rows[file[rows] == group]
        try:
            found = range_checksums(file[chosen], refs.offset[chosen], refs.length[chosen], sources, fetch, limits)
        except PeriplusError as error:
            if group is not None:
                state.lost[group] = (kind_of(error), str(error))
            continue
        state.checked += len(chosen)
        state.bytes += int(refs.length[chosen].sum())
        for row in chosen[found != refs.crc32c[chosen]].tolist():
            count, first = state.damaged.get(int(file[row]), (0, int(refs.offset[row])))
            state.damaged[int(file[row])] = count + 1, min(first, int(refs.offset[row]))
        if group is None:
            return


@dataclass(slots=True, kw_only=True)
class _CheckState:
    """How far a check is, and what it has found."""

    path: str | None
    index: str
    """A digest of its files, which differs for other indexes and after a change."""
    rows: int = 0
    checked: int = 0
    unchecked: int = 0
    bytes: int = 0
    lost: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Files that cannot be read: kind and message."""
    damaged: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By file the number of damaged ranges, and the offset of the first."""

    @classmethod
    def load(cls, table: Table, path: str | None) -> _CheckState:
        digest = hashlib.sha256(f"{table.url} {table.rows} {table.file_count}".encode())
        files = table.files
        for row in range(len(files)):
            source = files.source(row)
            digest.update(repr((source.url, source.size, source.etag, source.last_modified)).encode())
        state = cls(path=path, index=digest.hexdigest())
        if path is None:
            return state
        try:
            data = LocalFile(path).read_until_end(0, STATE_BYTES)
        except MissingError:
            return state
        stored = parse_json(data, what="the state of a check")
        if not isinstance(stored, dict):
            raise FormatError("this is not the state of a check", url=path)
        if stored.get("index") != state.index:
            raise FormatError("this is the state of a check of another index, or of this one as it was", url=path)
        try:
            for name in ("rows", "checked", "unchecked", "bytes"):
                setattr(state, name, int(stored[name]))
            state.lost = {int(n): (str(kind), str(error)) for n, (kind, error) in stored["lost"].items()}
            state.damaged = {int(n): (int(count), int(first)) for n, (count, first) in stored["damaged"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise FormatError("this is not the state of a check", url=path) from None
        return state

    def save(self) -> None:
        from periplus.fetch.local.atomic import write_file

        if self.path is not None:
            fields = ("index", "rows", "checked", "unchecked", "bytes", "lost", "damaged")
            write_file(self.path, json.dumps({name: getattr(self, name) for name in fields}).encode())

    def remove(self) -> None:
        from periplus.fetch.local.atomic import delete_file

        if self.path is not None:
            try:
                delete_file(self.path)
            except MissingError:
                return

    def report(self, table: Table) -> SourceReport:
        found = {
            n: SourceFinding(kind=kind, url=redact(table.files.source(n).url), error=error)
            for n, (kind, error) in self.lost.items()
        }
        for n, (count, first) in self.damaged.items():
            url = redact(table.files.source(n).url)
            what = f"{count} byte range{'s' if count > 1 else ''} differ{'' if count > 1 else 's'} from the checksum"
            found[n] = SourceFinding(kind="damaged", url=url, error=f"{what} in the index ({url} @ {first})")
        asked = sum(status == "ok" for status in table.files.status)
        return SourceReport(
            asked=asked,
            findings=tuple(found[n] for n in sorted(found)),
            ranges=self.checked,
            unchecked=self.unchecked,
            bytes=self.bytes,
        )
