"""References by key to columns: chunk keys to positions, URLs to rows of a files table, parts in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.model import Files, Inline, Refs, Source
from periplus.zarr.kerchunk.arrays import ReferencedArray
from periplus.zarr.kerchunk.references import Reference, ranges

CHUNK = re.compile(r"(?:^|/)(?:c|(?:c[./])?[0-9]+(?:[./][0-9]+)*)$")
"""How the keys of chunks end."""


class Urls:
    """URLs in the order they came, each once; those of a files table first."""

    def __init__(self, known: Files | None = None) -> None:
        self._known = known
        self.rows: dict[str, int] = {} if known is None else {path: row for row, path in enumerate(known.path)}

    def row(self, url: str) -> int:
        return self.rows.setdefault(url, len(self.rows))

    def files(self, sizes: Mapping[str, int] | None = None) -> Files:
        """The files table: the given one, then the other files with the sizes that are known."""
        first = 0 if self._known is None else len(self._known)
        others = (Source(url=url, size=(sizes or {}).get(url)) for url in list(self.rows)[first:])
        files = Files.of(others, format="kerchunk")
        return files if self._known is None else Files.joined(self._known, files)


def by_array(
    keys: Iterable[str], arrays: Mapping[str, ReferencedArray], skipped: Collection[str] = ()
) -> dict[str, list[tuple[str, str]]]:
    """(key, its part after the path) of every chunk key, by the path of its array.

    FormatError for the key of a chunk that is in no array, whose data would be missing from what is read. Other keys,
    and those below the paths of `skipped` arrays, are ignored.
    """
    dotted = {path for path, one in arrays.items() if one.keys.separator == "."}
    slashed = {path for path, one in arrays.items() if one.keys.separator == "/"}
    found: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        head, _, leaf = key.rpartition("/")
        if head in dotted:
            found.setdefault(head, []).append((key, leaf))
        elif slashed and (path := _owner(key, slashed)) is not None:
            found.setdefault(path, []).append((key, key[len(path) + 1 if path else 0 :]))
        elif (path := _owner(key, dotted)) is not None:
            raise FormatError(f"{key}: not a chunk of {arrays[path].array.name!r}, whose keys have dots, not slashes")
        elif CHUNK.search(key) and _owner(key, skipped) is None:
            raise FormatError(f"{key}: this is the key of a chunk, but there is no array with such chunks")
    return found


def _owner(key: str, paths: Collection[str]) -> str | None:
    """The one of the paths that a key is below."""
    head = key
    while head:
        head = head.rpartition("/")[0]
        if head in paths:
            return head
    return None


def positions(one: ReferencedArray, keys: Sequence[tuple[str, str]]) -> NDArray[np.int32]:
    """(ndim, n) chunk positions; FormatError names a key that is not a chunk of the array."""
    array, rank = one.array, one.array.ndim
    match = one.keys.pattern(rank).fullmatch
    nothing = "" if rank else "0"  # the key of the one chunk of a scalar may be empty, as in VirtualiZarr
    numbers: list[int] = []
    for key, spelled in keys:
        found = match(spelled or nothing)
        if found is None:
            raise FormatError(f"{key}: not a chunk of {array.name!r}, which has {rank} dimensions")
        numbers += map(int, found.groups())
    if not rank and len(keys) > 1:
        raise FormatError(f"{keys[1][0]}: {array.name!r} has only one chunk, which is not this one")
    places = np.array(numbers, np.int64).reshape(len(keys), rank)
    outside = np.flatnonzero((places >= np.array(array.grid, np.int64)).any(axis=1))
    if outside.size:
        raise FormatError(f"{keys[int(outside[0])][0]}: the grid of {array.name!r} has {array.grid} chunks")
    return np.ascontiguousarray(places.T.astype(np.int32))


def columns(
    one: ReferencedArray,
    keys: Sequence[tuple[str, str]],
    references: Mapping[str, Reference],
    urls: Urls,
    size_of: Callable[[str], int],
) -> Refs:
    """The references of one array; `size_of` gives the size of a file that is referenced as a whole."""
    chunk = positions(one, keys)
    held = [references[key] for key, _ in keys]
    if held and all(type(reference) is list and len(reference) == 3 for reference in held):
        targets, offsets, lengths = zip(*held)  # only single ranges
        return Refs(
            chunk=chunk,
            offset=np.array(offsets, np.int64),
            length=np.array(lengths, np.int64),
            file=np.array([urls.row(target) for target in targets], np.int32),
        )
    file: list[int] = []
    spans: list[tuple[int, int]] = []
    data: list[bytes | None] = []
    counts = np.ones(len(keys), np.int64)
    for row, reference in enumerate(held):
        if isinstance(reference, bytes):
            file.append(-1)
            spans.append((0, len(reference)))
            data.append(reference)
            continue
        number = urls.row(reference[0])
        parts = [(0, size_of(reference[0]))] if len(reference) == 1 else list(ranges(reference))
        counts[row] = len(parts)
        file += [number] * len(parts)
        spans += parts
        data += [None] * len(parts)
    several = bool((counts != 1).any())
    numbers = np.array(spans, np.int64).reshape(len(spans), 2)
    return Refs(
        chunk=np.repeat(chunk, counts, axis=1) if several else chunk,
        offset=np.ascontiguousarray(numbers[:, 0]),
        length=np.ascontiguousarray(numbers[:, 1]),
        file=np.array(file, np.int32),
        part=part_numbers(counts) if several else None,
        inline=Inline.of(data),
    )


def part_numbers(counts: NDArray[np.int64]) -> NDArray[np.uint16]:
    """0, 1, 2 … for every chunk of so many parts."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return (np.arange(total) - np.repeat(ends - counts, counts)).astype(np.uint16)
