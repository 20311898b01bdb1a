"""Limits of time and memory for tests with hostile input."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import periplus
from periplus.limits import MIB
from periplus.testing.formats import tiff as tiffs


@contextmanager
def within(seconds: float = 5.0, memory: int = 256 * MIB) -> Iterator[None]:
    """Fail where the block takes more processor time, or lets the process grow by more memory.

    What is measured takes well under a second; a loop over a declared size takes minutes.
    """
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, start = resident("VmRSS"), time.process_time()
    yield
    spent, grown = time.process_time() - start, resident("VmHWM") - before
    assert spent < seconds, f"took {spent:.1f} s"
    assert grown < memory, f"took {grown / MIB:.0f} MiB"


def resident(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition(field + ":")[2].split()[0]) * 1024


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the libraries, so that only the work is measured."""
    folder = tmp_path_factory.mktemp("warm")
    for name in ("zstd-tiles", "geo-attributes", "jpeg-rgb-tiles", "lzma-tiles", "lerc-float32", "ccittfax4"):
        (folder / "warm.tif").write_bytes(tiffs.case(name).data)
        with periplus.index(folder / "warm.tif", to=folder / "warm.parquet") as index:
            index["0/data"][...]


@pytest.fixture
def bounded(warm: None):
    """`within`, after the libraries are loaded."""
    return within
