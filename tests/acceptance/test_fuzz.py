"""Mutants of images of every format and of indexes: our errors or values, soon, in little memory, never a crash."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from periplus.limits import MIB

HERE = Path(__file__).parent
TIMES = int(os.environ.get("PERIPLUS_FUZZ", "1"))
SEED = int(os.environ.get("PERIPLUS_FUZZ_SEED", "0"))
TIFF_SHARES, TIFFS_EACH = 4, 12
PICTURE_SHARES, PICTURES_EACH = 3, 40
INDEX_SHARES, INDEXES_EACH = 2, 30


def run(program: str, folder: Path, share: int, shares: int, each: int, seconds: float = 1.0, which: str = "") -> dict:
    """The report of a program that tries mutants; AssertionError where it was killed, by what and at which mutant."""
    part = f"{which}{share}/{shares}"
    command = [sys.executable, str(HERE / program), str(folder), part, str(each * TIMES), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    at = (folder / "at").read_text() if (folder / "at").exists() else "the unharmed files"
    assert done.returncode == 0, f"killed by {-done.returncode} at (place, number, name, seed) {at}:\n{done.stderr}"
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["findings"] == []
    assert report["slowest"][0] < seconds, report["slowest"]
    assert report["grown"] < 256 * MIB
    return report["kinds"]


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("share", range(TIFF_SHARES))
def test_mutants_of_tiffs_give_our_errors_or_values(share: int, tmp_path: Path) -> None:
    kinds = run("mutants.py", tmp_path, share, TIFF_SHARES, TIFFS_EACH)
    assert set(kinds) <= {"read", "format", "decode", "limit"}
    assert min(kinds["read"], kinds["format"], kinds["decode"], kinds["limit"]) > 0  # the damage goes deep and wide


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("share", range(PICTURE_SHARES))
def test_mutants_of_pictures_give_our_errors_or_values(share: int, tmp_path: Path) -> None:
    kinds = run("mutants.py", tmp_path, share, PICTURE_SHARES, PICTURES_EACH, 2.0, "pictures:")
    assert set(kinds) <= {"read", "format", "decode", "limit"}
    assert min(kinds["read"], kinds["format"], kinds["decode"]) > 0


@pytest.mark.timeout(120 * TIMES)
@pytest.mark.parametrize("share", range(INDEX_SHARES))
def test_mutants_of_indexes_give_our_errors_or_values(share: int, tmp_path: Path) -> None:
    kinds = run("documents.py", tmp_path, share, INDEX_SHARES, INDEXES_EACH, 4.0)  # seven uses of each array
    assert set(kinds) <= {"read", "format", "limit", "missing", "stale", "denied", "decode"}
    assert kinds["format"] > 0
