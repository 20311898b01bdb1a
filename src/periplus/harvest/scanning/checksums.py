"""Checksums of all byte ranges of scanned files: their data are read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from periplus.errors import PeriplusError
from periplus.fetch import Fetch
from periplus.harvest.scanning.drive import Harvested, failed
from periplus.limits import Limits
from periplus.model import Found, Source
from periplus.read.checksums import BATCH_BYTES, range_checksums


def with_checksums(batch: Sequence[Harvested], fetch: Fetch, limits: Limits) -> Iterator[list[Harvested]]:
    """The files with checksums, some at a time; one whose data cannot be read is a failed one."""
    group: list[Harvested] = []
    size = 0
    for file in batch:
        group.append(file)
        size += sum(int(found.refs.length.sum()) for found in file.founds)
        if size >= BATCH_BYTES:
            yield _together(group, fetch, limits)
            group, size = [], 0
    if group:
        yield _together(group, fetch, limits)


def _together(files: list[Harvested], fetch: Fetch, limits: Limits) -> list[Harvested]:
    try:
        return _checked(files, fetch, limits)
    except PeriplusError:
        return [_alone(file, fetch, limits) for file in files]


def _alone(file: Harvested, fetch: Fetch, limits: Limits) -> Harvested:
    try:
        return _checked([file], fetch, limits)[0]
    except PeriplusError as error:
        return failed(file.input, error.at(url=file.source.url), file.source, number=file.number)


def _checked(files: Sequence[Harvested], fetch: Fetch, limits: Limits) -> list[Harvested]:
    sources: list[Source] = []
    ranges: list[tuple[Found, int]] = []
    for file in files:
        first = len(sources)
        sources += [file.source, *file.sidecars]
        stored_in = file.stored_in or (0,) * len(file.founds)
        ranges += [(found, first + number) for found, number in zip(file.founds, stored_in, strict=True)]
    if not ranges:
        return list(files)
    counts = [len(found.refs) for found, _ in ranges]
    held = np.concatenate(
        [np.zeros(len(f.refs), bool) if f.refs.inline is None else f.refs.inline.held for f, _ in ranges]
    )
    length = np.concatenate([found.refs.length for found, _ in ranges])
    sums = range_checksums(
        np.repeat(np.array([number for _, number in ranges], np.int32), counts),
        np.concatenate([found.refs.offset for found, _ in ranges]),
        np.where(held, 0, length),
        sources,
        fetch,
        limits,
    )
    columns = iter(np.split(np.where(held, -1, sums), np.cumsum(counts)[:-1]))
    return [
        replace(
            file,
            founds=tuple(replace(one, refs=replace(one.refs, crc32c=next(columns))) for one in file.founds),
        )
        for file in files
    ]
