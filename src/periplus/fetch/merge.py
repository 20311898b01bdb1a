"""Byte ranges -> fewer, longer spans: neighbours are fetched together where the gap costs less than a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from periplus.errors import FormatError
from periplus.model import Source


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """What to fetch, and where each row's bytes are in it: span `row_span[i]`, from `row_start[i]`, its length on."""

    sources: Sequence[Source] | Mapping[int, Source] = field(default_factory=tuple)
    """Looked up by the values of `file` only."""
    file: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    row_span: NDArray[np.int64]
    """-1 for a row of length zero, which has no span."""
    row_start: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.start.shape[0])


def merge(
    file: ArrayLike,
    offset: ArrayLike,
    length: ArrayLike,
    *,
    gap: int,
    largest: int,
    least: int | None = None,
    sources: Sequence[Source] | Mapping[int, Source] = (),
) -> Spans:
    """Spans that cover every row; rows of one file no more than `gap` bytes apart share one, up to `largest` bytes.

    With `least`, gaps longer than that are read over only where they are no longer than the rows next to them are on
    average, so that small rows far apart, as those of a lower resolution, do not fetch what is between them.

    A row longer than `largest` is a span of its own. `sources` are kept with the spans.
    """
    lengths = np.asarray(length, np.int64)
    offsets = np.asarray(offset, np.int64)
    files = np.broadcast_to(np.asarray(file, np.int64), lengths.shape)
    if lengths.size and (lengths.min() < 0 or offsets.min() < 0 or (offsets > np.iinfo(np.int64).max - lengths).any()):
        raise FormatError("a byte range has a negative offset or length, or ends past 2^63")
    rows = np.flatnonzero(lengths)
    rows = rows[np.lexsort((lengths[rows], offsets[rows], files[rows]))]
    source, begin = files[rows], offsets[rows]
    end = begin + lengths[rows]
    first = _first_rows(source, begin, end, gap=gap, least=gap if least is None else least, largest=largest)

    row_span = np.full(lengths.shape, -1, np.int64)
    row_start = np.zeros(lengths.shape, np.int64)
    number = np.zeros(rows.shape, np.int64)
    number[first[1:]] = 1
    number = np.cumsum(number)
    row_span[rows] = number
    row_start[rows] = begin - begin[first][number] if rows.size else 0
    stop = np.maximum.reduceat(end, first) if rows.size else end
    return Spans(
        sources=sources, file=source[first], start=begin[first], stop=stop, row_span=row_span, row_start=row_start
    )


def _first_rows(
    file: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64], *, gap: int, least: int, largest: int
) -> NDArray[np.int64]:
    """Row numbers, of rows sorted by file and offset, at which a new span begins."""
    if not begin.size:
        return np.zeros(0, np.int64)
    new_file = np.empty(begin.shape, np.bool_)
    new_file[0] = True
    new_file[1:] = file[1:] != file[:-1]
    reach = _running_end(end, new_file)
    breaks = new_file.copy()
    between = begin[1:] - reach[:-1]
    breaks[1:] |= between > gap
    if least < gap:
        length = end - begin
        breaks[1:] |= (between > least) & (2 * between > length[1:] + length[:-1])
    first = np.flatnonzero(breaks)
    last = np.append(first[1:], begin.size) - 1
    too_long = reach[last] - begin[first] > largest
    if not too_long.any():
        return first
    cuts = [first]
    for low, high in zip(first[too_long], last[too_long] + 1, strict=True):
        at, more = int(low), []
        while at < high:
            # The same range twice is never fetched twice, however long it is.
            limit = max(int(begin[at]) + largest, int(reach[at]))
            at += max(int(np.searchsorted(reach[at:high], limit, side="right")), 1)
            more.append(at)
        cuts.append(np.asarray(more[:-1], np.int64))
    return np.sort(np.concatenate(cuts))


def _running_end(end: NDArray[np.int64], new_file: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The furthest end so far within each file."""
    starts = np.flatnonzero(new_file)
    if starts.size == 1:
        return np.maximum.accumulate(end)
    reach = end.copy()
    # A range that reaches past its successor is rare; only then is there something to carry on.
    behind = np.flatnonzero((end[1:] < end[:-1]) & ~new_file[1:])
    for group in np.unique(np.searchsorted(starts, behind, side="right") - 1):
        low = starts[group]
        high = starts[group + 1] if group + 1 < starts.size else end.size
        reach[low:high] = np.maximum.accumulate(end[low:high])
    return reach
