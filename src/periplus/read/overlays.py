"""Overlays: decode chunks that consist of regions of several stored chunks, each overlaid on those before it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.decode import overlay, prepare, prepare_stored, region_of
from periplus.errors import FormatError, PeriplusError
from periplus.limits import Limits
from periplus.model import Array, Region, Shape, Source
from periplus.read.plan import AxisSplit, ChunkWork

if TYPE_CHECKING:
    from periplus.decode import Decoder

MOST_LATER_REGIONS = 64
"""Later regions of a chunk that are compared with a region to find whether one hides it: more is not worth the time."""
Key: TypeAlias = tuple[int, int, int]
"""File, offset and codecs of a stored chunk."""

SHARE = 8
"""Divisor of the memory budget: the share for stored chunks that several chunks use."""


def visible_regions(
    array: Array, splits: Sequence[AxisSplit], work: ChunkWork
) -> tuple[ChunkWork, NDArray[np.int64] | None]:
    """The work without regions that are not selected or are hidden, and the first row of each region.

    A region is a run of rows of one chunk and one encoding. None instead of rows where no chunk has regions.
    """
    refs = work.refs
    if not len(work) or not array.encodings:
        return work, None
    if refs.encoding is None and _regions(array, [0])[0] is None:
        return work, None
    codes = np.zeros(len(refs), np.uint16) if refs.encoding is None else refs.encoding
    known = _regions(array, np.unique(codes).tolist())
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
    keep = _visible(array, splits, known, codes[starts], chunk[starts], work.positions[:, chunk[starts]])
    if keep.all():
        return work, starts
    rows = keep[run]
    counts = np.bincount(chunk[rows], minlength=len(work))
    kept = counts > 0
    reduced = ChunkWork(
        refs.take(rows),
        np.concatenate([[0], np.cumsum(counts[kept])]),
        work.positions[:, kept],
        np.concatenate([work.missing, work.positions[:, ~kept]], axis=1),
    )
    return reduced, np.flatnonzero(np.diff(run[rows], prepend=-1))


def _visible(
    array: Array,
    splits: Sequence[AxisSplit],
    known: Mapping[int, Region | None],
    codes: NDArray[np.uint16],
    chunk: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which regions contain selected elements that no later region hides."""
    whole = Region(begin=(0,) * array.ndim, at=(0,) * array.ndim, size=array.chunks)
    regions = [known[code] or whole for code in sorted(known)]
    which = np.searchsorted(sorted(known), codes)
    opaque = np.array([region.transparent is None for region in regions])[which]
    begin = np.array([region.at for region in regions], np.int64).T[:, which]
    end = begin + np.array([region.size for region in regions], np.int64).T[:, which]
    for d, each in enumerate(splits):
        low = np.array([min(source.start for _, source in wanted) for wanted in each.copies], np.int64)
        high = np.array([max(source.stop for _, source in wanted) for wanted in each.copies], np.int64)
        begin[d] = np.maximum(begin[d], low[positions[d]])
        end[d] = np.minimum(end[d], high[positions[d]])
    visible: NDArray[np.bool_] = np.logical_and.reduce(begin < end, axis=0)
    for lag in range(1, min(len(chunk), MOST_LATER_REGIONS + 1)):
        same = chunk[lag:] == chunk[:-lag]
        if not same.any():
            break
        inside = (begin[:, :-lag] >= begin[:, lag:]).all(axis=0) & (end[:, :-lag] <= end[:, lag:]).all(axis=0)
        visible[:-lag] &= ~(same & inside & opaque[lag:])
    return visible


def _regions(array: Array, codes: Sequence[int]) -> dict[int, Region | None]:
    """The region of each of the encodings in use."""
    found = {}
    for code in codes:
        if code >= len(array.encodings):
            raise FormatError(f"a row of {array.name} has encoding {code} of {len(array.encodings)}")
        with decodable(array):
            # `chunks` is the largest of irregular chunks; a region too large for its own chunk is found by `overlay`.
            found[code] = region_of(array.encodings[code], array.chunks)
    return found


@contextmanager
def decodable(array: Array) -> Iterator[None]:
    """Name the array in errors of its encodings."""
    try:
        yield
    except FormatError as error:
        raise FormatError(f"array {array.name!r} cannot be decoded: {error.message}") from error


@dataclass(slots=True, eq=False)
class _SharedChunks:
    """Stored chunks that several chunks use: decoded once, kept until the last use."""

    free_bytes: int
    """Bytes that may still be kept."""
    uses: dict[Key, int] = field(default_factory=dict)
    """How many more times each is used."""
    valid: dict[Key, Shape] = field(default_factory=dict)
    """The extent of each that is used."""
    _values: dict[Key, NDArray[Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expect(self, key: Key, valid: Shape) -> None:
        """Announce one more use, of this extent of the stored chunk."""
        self.uses[key] = self.uses.get(key, 0) + 1
        before = self.valid.get(key)
        self.valid[key] = valid if before is None else tuple(map(max, before, valid))

    def take(self, key: Key) -> NDArray[Any] | None:
        with self._lock:
            self.uses[key] -= 1
            if self.uses[key]:
                return self._values.get(key)
            found = self._values.pop(key, None)
            self.free_bytes += 0 if found is None else found.nbytes
            return found

    def put(self, key: Key, values: NDArray[Any]) -> None:
        with self._lock:
            if self.uses[key] and key not in self._values and values.nbytes <= self.free_bytes:
                self._values[key] = values.copy()  # its memory may be reused for the next chunk
                self.free_bytes -= values.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class OverlayDecoder:
    """Decodes one chunk from the joined bytes of its regions; called like a Decoder."""

    shape: Shape
    fill: NDArray[Any]
    layers: tuple[tuple[Region, Decoder, int, Key, Source | None], ...]
    """Region, decoder of the stored chunk, its length in bytes, its key, and its file."""
    shared: _SharedChunks

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


def overlay_decoders(
    array: Array,
    work: ChunkWork,
    starts: NDArray[np.int64],
    shapes: Sequence[Shape],
    *,
    fill: NDArray[Any],
    limits: Limits,
    sources: Mapping[int, Source],
) -> list[OverlayDecoder | Decoder]:
    """The decoder of each chunk of these shapes; `starts` are the first rows of the regions."""
    refs = work.refs
    codes = np.zeros(len(refs), np.uint16) if refs.encoding is None else refs.encoding
    lengths = np.add.reduceat(refs.length, starts).tolist()
    file = np.zeros(len(starts), np.int32) if refs.file is None else refs.file[starts]
    inner: dict[tuple[str, Shape | None], int] = {}
    # An index may declare two shapes for one stored chunk: these count as two.
    used = {code: array.encodings[code] for code in np.unique(codes).tolist()}
    numbers = {code: inner.setdefault((each.text, each.extent), len(inner)) for code, each in used.items()}
    keys = [
        # Inline bytes have no offset: each row gets its own key.
        (owner, offset, numbers[code]) if owner >= 0 else (-1 - row, 0, 0)
        for row, (owner, offset, code) in enumerate(
            zip(file.tolist(), refs.offset[starts].tolist(), codes[starts].tolist(), strict=True)
        )
    ]
    shared = _SharedChunks(limits.memory_bytes // SHARE)
    bounds = np.searchsorted(starts, work.first).tolist()
    known: dict[tuple[int, Shape], tuple[Region | None, Decoder]] = {}

    def prepared(code: int, shape: Shape) -> tuple[Region | None, Decoder]:
        if (code, shape) not in known:
            region = region_of(array.encodings[code], shape)
            make = prepare if region is None else prepare_stored
            known[code, shape] = region, make(array.encodings[code], chunks=shape, dtype=array.dtype, limits=limits)
        return known[code, shape]

    decoders: list[OverlayDecoder | Decoder] = []
    for chunk, shape in enumerate(shapes):
        layers = []
        for k in range(bounds[chunk], bounds[chunk + 1]):
            region, decode = prepared(int(codes[starts[k]]), shape)
            if region is None:
                decoders.append(decode)
                break
            layers.append((region, decode, lengths[k], keys[k], sources.get(keys[k][0])))
            shared.expect(keys[k], region.end)
        else:
            decoders.append(OverlayDecoder(shape, fill, tuple(layers), shared))
    return decoders
