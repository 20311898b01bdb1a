"""Place: decode a chunk and copy its selected elements into the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.decode import prepare
from periplus.decode.scratch import scratch_array
from periplus.errors import FormatError, LimitError, PeriplusError
from periplus.fetch.checksum import check_crc32c
from periplus.limits import Limits
from periplus.model import Array, Shape, Source
from periplus.read.overlays import decodable, overlay_decoders
from periplus.read.plan import AxisSplit, ChunkWork, Selection

if TYPE_CHECKING:
    from periplus.decode import Decoder
    from periplus.read.overlays import OverlayDecoder


MANY_ELEMENTS = 1 << 14
"""From this many elements on, interleaved samples are copied as words."""
SCRATCH_SLOT = -2
"""Number of the scratch buffer of each thread for pixels."""


class Placer:
    """Decodes chunks into the output; thread-safe, because chunks do not overlap there."""

    def __init__(
        self,
        splits: Sequence[AxisSplit],
        work: ChunkWork,
        decoders: Decoder | Sequence[Decoder | OverlayDecoder],
        *,
        target: NDArray[Any],
        sources: Mapping[int, Source],
    ) -> None:
        self._target = target
        self._work = work
        self._sources = sources
        self._positions: list[list[int]] = work.positions.T.tolist()
        self._valid = [c.valid for c in splits]
        self._cuts = None if all(c.single for c in splits) else splits
        self._into = [[p[0][0] for p in c.copies] for c in splits]
        self._source = [[p[0][1] for p in c.copies] for c in splits]
        self._each = decoders if isinstance(decoders, Sequence) else None
        self._common = None if isinstance(decoders, Sequence) else decoders
        self._partial = self._common is not None and self._common.partial and self._cuts is None
        self._has_checksums = work.refs.crc32c is not None

    def __call__(self, chunk: int, data: bytes | memoryview) -> None:
        """Decode the bytes of that chunk and copy its selected elements."""
        if self._has_checksums:
            self._check(chunk, data)
        position = self._positions[chunk]
        want = tuple([s[k] for s, k in zip(self._source, position)])
        valid = tuple([v[k] for v, k in zip(self._valid, position)])
        try:
            if self._common is None:
                values = self._each[chunk](data, valid=valid)  # type: ignore[index]
            else:
                values = self._common(data, valid=valid, want=want if self._partial else None)
        except PeriplusError as error:
            url, offset = self.where(chunk)
            raise error.at(url=url, offset=offset) from None
        if self._cuts is None:
            into = tuple([s[k] for s, k in zip(self._into, position)])
            copy(self._target[into or ...], values[want or ...])  # Ellipsis keeps an array without dimensions an array
            return
        for copies in product(*(c.copies[k] for c, k in zip(self._cuts, position))):
            self._target[tuple([p[0] for p in copies])] = values[tuple([p[1] for p in copies])]

    def _check(self, chunk: int, data: bytes | memoryview) -> None:
        """DecodeError where a byte range of the chunk differs from its checksum."""
        refs, view, end = self._work.refs, memoryview(data), 0
        assert refs.crc32c is not None
        for row in range(int(self._work.first[chunk]), int(self._work.first[chunk + 1])):
            start, end = end, end + int(refs.length[row])
            file = 0 if refs.file is None else int(refs.file[row])
            url = self._sources[file].url if file >= 0 else None
            check_crc32c(view[start:end], int(refs.crc32c[row]), url=url, offset=int(refs.offset[row]))

    def where(self, chunk: int) -> tuple[str | None, int | None]:
        """URL and offset of the chunk's first byte; None where all its bytes are inline."""
        refs = self._work.refs
        for row in range(int(self._work.first[chunk]), int(self._work.first[chunk + 1])):
            file = 0 if refs.file is None else int(refs.file[row])
            if file >= 0:
                return self._sources[file].url, int(refs.offset[row])
        return None, None


def copy(target: NDArray[Any], values: NDArray[Any]) -> None:
    """Copy (…, bands, y, x) values of one shape; whole pixels at a time where their samples are interleaved.

    NumPy copies one element per cycle whatever its size, but casts many words at once to their lowest bytes (measured:
    half the time for 2 x 1 byte, two thirds for 4 x 1 and 2 x 2). Three bands are no word; for them one assignment is
    the fastest: copying by band, by blocks of rows or by words of several pixels is not faster.
    """
    words = _words(values) if target.dtype == values.dtype else None
    if words is None:
        target[...] = values
        return
    low, shifted = f"u{values.itemsize}", scratch_array(SCRATCH_SLOT, words.shape, words.dtype)
    for band in range(values.shape[-3]):
        if band:
            words = np.right_shift(words, 8 * values.itemsize, out=shifted)
        np.copyto(target[..., band, :, :].view(low), words, casting="unsafe")


def _words(values: NDArray[Any]) -> NDArray[Any] | None:
    """Pixels of interleaved samples as words, the first sample lowest; None where that is impossible or not faster."""
    if values.ndim < 3 or values.size < MANY_ELEMENTS or not np.little_endian:
        return None
    bands, size = values.shape[-3], values.itemsize
    if bands == 1 or bands * size not in (2, 4) or values.strides[-3::2] != (size, bands * size):
        return None
    pixels = np.moveaxis(values, -3, -1).view(f"u{bands * size}")[..., 0]
    return pixels if pixels.flags.aligned else None


def prepare_decoders(
    array: Array,
    splits: Sequence[AxisSplit],
    work: ChunkWork,
    limits: Limits,
    *,
    sources: Mapping[int, Source],
    region_rows: NDArray[np.int64] | None,
) -> Decoder | Sequence[Decoder | OverlayDecoder]:
    """The decoder of all chunks, or a list of one for each where they differ; unknown codecs fail here, before any I/O.

    `region_rows` are the first rows of regions, where chunks consist of regions of stored chunks.
    """
    encoding = work.refs.encoding
    codes = np.zeros(len(work), np.int64) if encoding is None else encoding[work.first[:-1]].astype(np.int64)
    if len(codes) and int(codes.max()) >= len(array.encodings):
        raise FormatError(f"a row of {array.name} has encoding {int(codes.max())} of {len(array.encodings)}")
    known: dict[tuple[int, Shape], Decoder] = {}

    def decoder(code: int, chunks: Shape) -> Decoder:
        if (code, chunks) not in known:
            with decodable(array):
                known[code, chunks] = prepare(array.encodings[code], chunks=chunks, dtype=array.dtype, limits=limits)
        return known[code, chunks]

    if not len(work):
        return []
    if array.edges is None and not codes.any() and region_rows is None:
        return decoder(0, array.chunks)
    irregular = [array.edges is not None and array.edges[d] is not None for d in range(array.ndim)]
    shapes = [array.chunks] * len(work)
    if any(irregular):
        shapes = [
            tuple(c.valid[k] if free else n for c, k, free, n in zip(splits, position, irregular, array.chunks))
            for position in work.positions.T.tolist()
        ]
    if region_rows is not None:
        with decodable(array):
            return overlay_decoders(
                array, work, region_rows, shapes, fill=fill_of(array), limits=limits, sources=sources
            )
    return [decoder(code, shape) for code, shape in zip(codes.tolist(), shapes)]


def allocate_output(
    array: Array,
    selection: Selection,
    splits: Sequence[AxisSplit],
    missing: NDArray[np.int64],
    given: NDArray[Any] | None,
) -> NDArray[Any]:
    """The output, given or new, with the fill value where a chunk is missing and undefined values elsewhere."""
    if not missing.shape[1]:
        return _memory(np.empty, array, selection) if given is None else given
    fill = fill_of(array)
    if given is None and not fill.tobytes().strip(b"\0"):  # zeroed pages are free
        return _memory(np.zeros, array, selection)
    out = _memory(np.empty, array, selection) if given is None else given
    if 2 * missing.shape[1] > math.prod(len(c.chunks) for c in splits):
        out[...] = fill
        return out
    target = selection.oriented(out)
    for position in missing.T.tolist():
        for copies in product(*(c.copies[k] for c, k in zip(splits, position))):
            target[tuple([p[0] for p in copies])] = fill
    return out


def _memory(make: Callable[..., NDArray[Any]], array: Array, selection: Selection) -> NDArray[Any]:
    try:
        return make(selection.shape, array.dtype)
    except MemoryError as error:
        size = math.prod(selection.shape) * array.dtype.itemsize
        advice = "read less at a time, or a coarser level"
        raise LimitError(
            f"the selection of {array.name} takes {size} bytes, more memory than available; {advice}"
        ) from error


def fill_of(array: Array) -> NDArray[Any]:
    """The fill value as a scalar array of the array's dtype."""
    if array.fill is None:
        return np.array("NaT", array.dtype) if array.dtype.kind in "mM" else np.zeros((), array.dtype)
    try:
        if isinstance(array.fill, str | bytes) and len(array.fill) > array.dtype.itemsize:
            raise ValueError("too long")
        return np.array(array.fill, array.dtype)
    except (OverflowError, ValueError, TypeError):
        raise FormatError(f"the fill value {array.fill!r} of {array.name} does not fit dtype {array.dtype}") from None
