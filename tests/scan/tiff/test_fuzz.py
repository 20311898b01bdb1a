"""Damaged TIFFs of every flavour give our errors or a valid answer: quickly, in little memory, with few requests."""

import os
import time
import tracemalloc

import pytest

from periplus.errors import FormatError, LimitError
from periplus.limits import MIB, Limits
from periplus.scan.tiff import scan as tiff
from periplus.testing.formats import tiff as tiffs
from periplus.testing.mutants import byte_mutants
from periplus.testing.scans import check_consistent, watch_scan

MUTANTS = 2000 * int(os.environ.get("PERIPLUS_FUZZ", "1"))
NAMES = tiffs.names()
GROUPS = 8
SMALL = Limits(chunk_bytes=256 * MIB)


@pytest.mark.fuzz
@pytest.mark.parametrize("group", range(GROUPS))
def test_mutants_give_only_our_errors(group: int) -> None:
    names = NAMES[group::GROUPS]
    each = max(1, MUTANTS // len(NAMES))
    refused = total = 0
    for name in names:
        for mutant in byte_mutants(tiffs.case(name).data, seed=NAMES.index(name), count=each):
            total += 1
            start = time.process_time()
            try:
                found, asked = watch_scan(tiff, mutant, SMALL, sized=total % 4 > 0)
            except (FormatError, LimitError):
                refused += 1
            else:
                for item in found if total % 4 else ():
                    check_consistent(item, len(mutant), SMALL)
                assert sum(asked) <= 8 * len(mutant) + MIB
            assert time.process_time() - start < 10, name
    assert 0 < refused < total


def test_mutants_take_little_memory() -> None:
    tracemalloc.start()
    try:
        for name in ("cog", "be-big-pages-sub", "le-classic-strips-planar-none-p1", "geo-attributes"):
            for mutant in byte_mutants(tiffs.case(name).data, seed=77, count=60):
                try:
                    watch_scan(tiff, mutant, SMALL)
                except (FormatError, LimitError):
                    continue
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
