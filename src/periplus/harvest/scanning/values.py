"""Read small arrays of scanned files while indexing (labels of a dimension, geolocation), limited and counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.arrange.encodings import EncodingList
from periplus.arrange.stack.arrays import StackBuilder
from periplus.errors import MissingError, PeriplusError
from periplus.harvest.scanning.drive import Harvested
from periplus.limits import Limits
from periplus.model import Catalog, Files, Found, Refs, Source

if TYPE_CHECKING:
    from periplus.fetch import Fetch

BATCH_BYTES = 64 << 20
"""Decoded bytes to read at once; a single array may be larger."""
NAME = "values"
_DIM = "file of this reading"
"""The dimension of files that are read together; no file has a dimension of that name."""


@dataclass(slots=True)
class ValueReader:
    """Reads arrays of files that were scanned and are not indexed yet, and counts them."""

    fetch: Fetch
    limits: Limits
    arrays: int = 0
    """Arrays read so far."""
    bytes: int = 0
    """Their decoded bytes."""
    _spent: dict[str, int] = field(default_factory=dict)

    def read(self, files: Sequence[Harvested], name: str) -> list[NDArray[Any] | PeriplusError]:
        """For each file the stored values of its array of that name, or why they could not be read.

        Arrays of the same shape are read together. `Limits.coordinate_bytes` limits one array, and
        `Limits.file_coordinate_bytes` all arrays of a file.
        """
        answers: list[NDArray[Any] | PeriplusError] = [_UNREAD] * len(files)
        by_shape: dict[Any, list[int]] = {}
        found: dict[int, tuple[Found, Source]] = {}
        for k, file in enumerate(files):
            try:
                found[k] = _find(file, name)
                self._allow(file, found[k][0])
            except PeriplusError as error:
                answers[k] = error.at(url=file.source.url)
                continue
            array = found[k][0].array
            kind = array.dims, array.shape, array.chunks, array.dtype.str, array.edges, repr(array.fill)
            by_shape.setdefault(kind, []).append(k)
        for numbers in by_shape.values():
            each = max(1, found[numbers[0]][0].array.nbytes)
            size = max(1, BATCH_BYTES // each)
            for start in range(0, len(numbers), size):
                batch = numbers[start : start + size]
                self._read_batch([found[k] for k in batch], batch, answers)
        for k in found:
            if isinstance(values := answers[k], np.ndarray):
                self.arrays += 1
                self.bytes += values.nbytes
        return answers

    def _allow(self, file: Harvested, found: Found) -> None:
        """LimitError if an array is too large, alone or together with others of its file."""
        array, limits, url = found.array, self.limits, file.source.url
        chunk = math.prod(array.chunks) * array.dtype.itemsize
        size = max(array.nbytes, chunk, int(found.refs.length.sum()))
        limits.check(f"the size of {array.name}, in bytes,", size, limits.coordinate_bytes, url=url)
        spent = self._spent.get(url, 0) + size
        what = "the size of all arrays read while indexing the file, in bytes,"
        limits.check(what, spent, limits.file_coordinate_bytes, url=url)
        self._spent[url] = spent

    def _read_batch(
        self, found: Sequence[tuple[Found, Source]], numbers: Sequence[int], answers: list[NDArray[Any] | PeriplusError]
    ) -> None:
        """Read arrays of one shape as one array; if that fails, halves of them, down to those that fail."""
        try:
            whole = _read(found, self.fetch, self.limits)
            values: Sequence[NDArray[Any] | PeriplusError] = [whole[k, ...] for k in range(len(found))]
        except PeriplusError as error:
            if len(found) > 1:
                middle = len(found) // 2
                self._read_batch(found[:middle], numbers[:middle], answers)
                self._read_batch(found[middle:], numbers[middle:], answers)
                return
            values = [error.at(url=found[0][1].url)]
        for k, value in zip(numbers, values, strict=True):
            answers[k] = value


_UNREAD = MissingError("not read")


def _find(file: Harvested, name: str) -> tuple[Found, Source]:
    """The array of that name and the file with its bytes."""
    if file.raised is not None:
        raise file.raised
    for k, found in enumerate(file.founds):
        if found.array.name == name:
            sidecar = file.stored_in[k] if file.stored_in else 0
            return found, file.sidecars[sidecar - 1] if sidecar else file.source
    raise MissingError(f"the file has no array {name!r}")


def _read(found: Sequence[tuple[Found, Source]], fetch: Fetch, limits: Limits) -> NDArray[Any]:
    """Arrays of one shape, stacked along a first dimension."""
    from periplus.read import read_array
    from periplus.table.memory import memory_table

    builder = StackBuilder(
        name=NAME, like=found[0][0].array, physical=False, attributes={}, encodings=EncodingList(NAME)
    )
    refs = Refs.joined(
        [_step(one.refs, builder.codes(one.array), k) for k, (one, _) in enumerate(found)], found[0][0].array.ndim + 1
    )
    array = builder.array(_DIM, len(found)).renamed(NAME, georeference=None, level=0)
    files = Files.of(source for _, source in found)
    table = memory_table(Catalog(arrays={NAME: array}), {NAME: refs}, files, limits=limits)
    return np.asarray(read_array(table, fetch, array, limits=limits))


def _step(refs: Refs, codes: NDArray[np.uint16], k: int) -> Refs:
    """The references of one file as step `k` of the stack."""
    count = len(refs)
    held = None if refs.inline is None else refs.inline.held
    file = np.full(count, k, np.int32)
    if held is not None:
        file[held] = -1
    encoding = None
    if len(codes):
        encoding = np.full(count, codes[0], np.uint16) if refs.encoding is None else codes[refs.encoding]
    # The order of a table: by chunk position, then part.
    part = np.zeros(count, np.uint16) if refs.part is None else refs.part
    order = np.lexsort((part, *refs.chunk[::-1]))
    chunk = np.vstack([np.full((1, count), k, np.int32), refs.chunk])
    return replace(refs, chunk=chunk, file=file, encoding=encoding).take(order)
