"""Thousands of files: memory does not grow with them, and a slow disk is read by several hands."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tifffile

from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.harvest.scanning import stream as stream_module

RUN = r"""
import resource, sys
from periplus.arrange.stack import arrays as blocks
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.harvest.parts import gather
from periplus.table.parquet import row_groups
gather.PART_ROWS, gather.READ_ROWS, blocks.STEPS, row_groups.FLUSH_ROWS = 1 << 16, 1 << 17, 32, 1 << 16
with Fetch() as fetch:
    table, summary = index_into(sys.argv[1], fetch=fetch, to=sys.argv[2], pattern=r"(?P<n>\d{6})\.tif", arrange="stack")
print(summary.ok, summary.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def run(script: Path, glob: str, to: Path) -> tuple[int, int, int]:
    done = subprocess.run([sys.executable, script, glob, to], capture_output=True, text=True, check=True)
    files, rows, kib = map(int, done.stdout.split())
    return files, rows, kib << 10


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "one", np.zeros((32 * 16, 32 * 16), np.uint8), tile=(16, 16), compression="zlib")
    for count in (300, 2400):
        (tmp_path / str(count)).mkdir()
        for k in range(count):
            os.link(tmp_path / "one", tmp_path / str(count) / f"{k:06d}.tif")
    script = tmp_path / "run.py"
    script.write_text(RUN)
    few = run(script, str(tmp_path / "300" / "*.tif"), tmp_path / "few")
    many = run(script, str(tmp_path / "2400" / "*.tif"), tmp_path / "many")
    assert few[:2] == (300, 300 * 1024)
    assert many[:2] == (2400, 2400 * 1024)
    # Held in memory, the references alone would take 36 bytes each: 77 MB more.
    assert many[2] - few[2] < 48 << 20


def test_a_slow_disk_is_read_by_several_hands(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiff.plain(tmp_path / "0.tif")
    for k in range(1, 150):
        os.link(tmp_path / "0.tif", tmp_path / f"{k}.tif")
    real = stream_module.harvest_local

    hands = set()

    def slow(*args: Any, **more: Any) -> Any:
        time.sleep(0.02)
        hands.add(threading.get_ident())
        return real(*args, **more)

    monkeypatch.setattr(stream_module, "harvest_local", slow)
    _, summary = index_into(str(tmp_path / "*.tif"), fetch=fetch)
    assert summary.ok == 150
    assert len(hands) > 1
