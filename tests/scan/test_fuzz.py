"""Damaged TIFFs of every flavour give our errors or a sound answer: soon, in little memory, asking for little."""

import os
import time
import tracemalloc

import numpy as np
import pytest

from periplus.errors import FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.model import Found, Need, Source
from periplus.scan import tiff
from periplus.testing import tiffs
from periplus.testing.mutate import mutants

MUTANTS = int(os.environ.get("PERIPLUS_FUZZ", "6000"))
NAMES = tiffs.names()
GROUPS = 8
SMALL = Limits(chunk_bytes=256 * MIB)


def scanned(data: bytes, limits: Limits, *, sized: bool = True) -> tuple[list[Found], int]:
    """What a scan found, and how many bytes it asked for."""
    found, asked = [], 0
    steps = tiff.scan(Source(url="memory:", size=len(data) if sized else None), limits)
    step = next(steps, None)
    while step is not None:
        if isinstance(step, Need):
            assert step.offset >= 0
            assert step.length > 0
            asked += step.length
            try:
                step = steps.send(data[step.offset : step.offset + step.length])
            except StopIteration:
                break
        else:
            if isinstance(step, Found):
                found.append(step)
            step = next(steps, None)
    return found, asked


def check(found: Found, size: int) -> None:
    """Whatever a damaged file gives must hold together."""
    array, refs = found.array, found.refs
    assert all(n > 0 for n in array.shape)
    assert np.prod(array.chunks, dtype=object) * array.dtype.itemsize <= SMALL.chunk_bytes
    assert refs.chunk.shape == (3, len(refs))
    if len(refs):
        assert (refs.chunk >= 0).all()
        assert (refs.chunk.max(axis=1) < np.array(array.grid)).all()
        assert refs.offset.min() > 0
        assert refs.length.min() > 0
        assert (refs.offset + refs.length).max() <= size


@pytest.mark.parametrize("group", range(GROUPS))
def test_mutants_give_only_our_errors(group: int) -> None:
    names = NAMES[group::GROUPS]
    each = max(1, MUTANTS // len(NAMES))
    refused = total = 0
    for name in names:
        for mutant in mutants(tiffs.case(name).data, seed=NAMES.index(name), count=each):
            total += 1
            start = time.process_time()
            try:
                found, asked = scanned(mutant, SMALL, sized=total % 4 > 0)
            except (FormatError, LimitError):
                refused += 1
            else:
                for item in found if total % 4 else ():
                    check(item, len(mutant))
                assert asked <= 8 * len(mutant) + MIB
            assert time.process_time() - start < 10, name
    assert 0 < refused < total


def test_mutants_take_little_memory() -> None:
    tracemalloc.start()
    try:
        for name in ("cog", "be-big-pages-sub", "le-classic-strips-planar-none-p1", "geo-attributes"):
            for mutant in mutants(tiffs.case(name).data, seed=77, count=150):
                try:
                    scanned(mutant, SMALL)
                except (FormatError, LimitError):
                    continue
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
