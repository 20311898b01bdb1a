"""Compose: chunks made of regions of several stored ones, each overlaid on those before it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode import overlay, prepare, prepare_stored, region_of
from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Region, Shape, Source
from periplus.read.plan import Cut, Work

if TYPE_CHECKING:
    from periplus.decode import Decoder

MOST_OVER = 64
"""Later pieces that are looked at for one that hides a piece: what more would find is not worth the time."""
Key: TypeAlias = tuple[int, int, int]
"""File, offset and codecs of a stored chunk."""

SHARE = 8
"""Part of the memory budget in which stored chunks wait for the other chunks that show them."""


def needed(array: Array, cuts: Sequence[Cut], work: Work) -> tuple[Work, NDArray[np.int64] | None]:
    """The work without pieces of which nothing is wanted or nothing can be seen, and the first row of each piece.

    A piece is a run of rows of one chunk and one encoding. None instead of rows where chunks are not made of pieces.
    """
    refs = work.refs
    if not len(work) or not array.encodings:
        return work, None
    if refs.encoding is None and _pieces(array, [0])[0] is None:
        return work, None
    codes = np.zeros(len(refs), np.uint16) if refs.encoding is None else refs.encoding
    known = _pieces(array, np.unique(codes).tolist())
    chunk = np.repeat(np.arange(len(work)), np.diff(work.first))
    several = codes != codes[work.first[:-1]][chunk]
    if several.any():
        mixed = np.logical_or.reduceat(several, work.first[:-1])[chunk]
        if any(known[code] is None for code in np.unique(codes[mixed]).tolist()):
            raise FormatError("the parts of one chunk have different encodings")
    if not any(known.values()):
        return work, None
    begins = np.ones(len(refs), bool)
    begins[1:] = (codes[1:] != codes[:-1]) | (chunk[1:] != chunk[:-1])
    starts = np.flatnonzero(begins)
    run = np.cumsum(begins) - 1
    keep = _visible(array, cuts, known, codes[starts], chunk[starts], work.cells[:, chunk[starts]])
    if keep.all():
        return work, starts
    rows = keep[run]
    left = np.bincount(chunk[rows], minlength=len(work))
    there = left > 0
    lean = Work(
        refs.take(rows),
        np.concatenate([[0], np.cumsum(left[there])]),
        work.cells[:, there],
        np.concatenate([work.missing, work.cells[:, ~there]], axis=1),
    )
    return lean, np.flatnonzero(np.diff(run[rows], prepend=-1))


def _visible(
    array: Array,
    cuts: Sequence[Cut],
    known: Mapping[int, Region | None],
    codes: NDArray[np.uint16],
    chunk: NDArray[np.int64],
    cells: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which pieces show something of what is wanted: it lies in them, and under no later one that hides it all."""
    whole = Region(begin=(0,) * array.ndim, at=(0,) * array.ndim, size=array.chunks)
    pieces = [known[code] or whole for code in sorted(known)]
    which = np.searchsorted(sorted(known), codes)
    opaque = np.array([piece.transparent is None for piece in pieces])[which]
    begin = np.array([piece.at for piece in pieces], np.int64).T[:, which]
    end = begin + np.array([piece.size for piece in pieces], np.int64).T[:, which]
    for d, each in enumerate(cuts):
        low = np.array([min(source.start for _, source in wanted) for wanted in each.pieces], np.int64)
        high = np.array([max(source.stop for _, source in wanted) for wanted in each.pieces], np.int64)
        begin[d] = np.maximum(begin[d], low[cells[d]])
        end[d] = np.minimum(end[d], high[cells[d]])
    seen: NDArray[np.bool_] = np.logical_and.reduce(begin < end, axis=0)
    for lag in range(1, min(len(chunk), MOST_OVER + 1)):
        same = chunk[lag:] == chunk[:-lag]
        if not same.any():
            break
        inside = (begin[:, :-lag] >= begin[:, lag:]).all(axis=0) & (end[:, :-lag] <= end[:, lag:]).all(axis=0)
        seen[:-lag] &= ~(same & inside & opaque[lag:])
    return seen


def _pieces(array: Array, codes: Sequence[int]) -> dict[int, Region | None]:
    """The region of each of the encodings in use."""
    found = {}
    for code in codes:
        if code >= len(array.encodings):
            raise FormatError(f"a row of {array.name} has encoding {code} of {len(array.encodings)}")
        try:
            # Where chunks are uneven, `chunks` is the largest; a piece too large for its own chunk is found when laid.
            found[code] = region_of(array.encodings[code], array.chunks)
        except FormatError as error:
            raise FormatError(f"array {array.name!r} cannot be decoded: {error.message}") from None
    return found


@dataclass(slots=True, eq=False)
class _Shared:
    """Stored chunks that several chunks show: decoded once, kept until the last of them has been laid."""

    room: int
    """Bytes that may still be kept."""
    uses: dict[Key, int] = field(default_factory=dict)
    """How many pieces are still to be taken from each."""
    valid: dict[Key, Shape] = field(default_factory=dict)
    """How much of each some piece needs."""
    _values: dict[Key, NDArray[Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, key: Key, valid: Shape) -> None:
        """One more piece will be taken, and needs this much of the stored chunk."""
        self.uses[key] = self.uses.get(key, 0) + 1
        before = self.valid.get(key)
        self.valid[key] = valid if before is None else tuple(map(max, before, valid))

    def take(self, key: Key) -> NDArray[Any] | None:
        with self._lock:
            self.uses[key] -= 1
            if self.uses[key]:
                return self._values.get(key)
            found = self._values.pop(key, None)
            self.room += 0 if found is None else found.nbytes
            return found

    def put(self, key: Key, values: NDArray[Any]) -> None:
        with self._lock:
            if self.uses[key] and key not in self._values and values.nbytes <= self.room:
                self._values[key] = values.copy()  # it may lie in memory that the next chunk overwrites
                self.room -= values.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class Composer:
    """Decodes one chunk out of the joined bytes of its pieces; called as a Decoder is."""

    shape: Shape
    fill: NDArray[Any]
    layers: tuple[tuple[Region, Decoder, int, Key, Source | None], ...]
    """Region, decoder of the stored chunk, its length in bytes, its key, and the file it lies in."""
    shared: _Shared

    def __call__(self, data: bytes | memoryview, *, valid: Shape) -> NDArray[Any]:  # noqa: ARG002 - always whole
        out = np.full(self.shape, self.fill, self.fill.dtype)
        view, start = memoryview(data), 0
        for region, decode, length, key, source in self.layers:
            stored = self.shared.take(key)
            if stored is None:
                try:
                    stored = decode(view[start : start + length], valid=self.shared.valid[key])
                except PeriplusError as error:
                    raise error.at(url=None if source is None else source.url, offset=key[1]) from None
                self.shared.put(key, stored)
            overlay(region, stored, out)
            start += length
        return out


def composers(
    array: Array,
    work: Work,
    starts: NDArray[np.int64],
    shapes: Sequence[Shape],
    *,
    fill: NDArray[Any],
    limits: Limits,
    sources: Mapping[int, Source],
) -> list[Composer | Decoder]:
    """What decodes each chunk of the work, whose shapes are given; `starts` are the first rows of its pieces."""
    refs = work.refs
    codes = np.zeros(len(refs), np.uint16) if refs.encoding is None else refs.encoding
    lengths = np.add.reduceat(refs.length, starts).tolist()
    file = np.zeros(len(starts), np.int32) if refs.file is None else refs.file[starts]
    inner: dict[tuple[str, Shape | None], int] = {}
    # Whoever wrote the index may have given one stored chunk two shapes: then it is two.
    used = {code: array.encodings[code] for code in np.unique(codes).tolist()}
    numbers = {code: inner.setdefault((each.text, each.extent), len(inner)) for code, each in used.items()}
    keys = [
        # Inline bytes lie nowhere: each has a key of its own.
        (owner, offset, numbers[code]) if owner >= 0 else (-1 - row, 0, 0)
        for row, (owner, offset, code) in enumerate(
            zip(file.tolist(), refs.offset[starts].tolist(), codes[starts].tolist(), strict=True)
        )
    ]
    shared = _Shared(limits.memory_bytes // SHARE)
    bounds = np.searchsorted(starts, work.first).tolist()
    known: dict[tuple[int, Shape], tuple[Region | None, Decoder]] = {}

    def prepared(code: int, shape: Shape) -> tuple[Region | None, Decoder]:
        if (code, shape) not in known:
            region = region_of(array.encodings[code], shape)
            make = prepare if region is None else prepare_stored
            known[code, shape] = region, make(array.encodings[code], chunks=shape, dtype=array.dtype, limits=limits)
        return known[code, shape]

    answer: list[Composer | Decoder] = []
    for chunk, shape in enumerate(shapes):
        layers = []
        for k in range(bounds[chunk], bounds[chunk + 1]):
            region, decode = prepared(int(codes[starts[k]]), shape)
            if region is None:
                answer.append(decode)
                break
            layers.append((region, decode, lengths[k], keys[k], sources.get(keys[k][0])))
            shared.expect(keys[k], region.end)
        else:
            answer.append(Composer(shape, fill, tuple(layers), shared))
    return answer
