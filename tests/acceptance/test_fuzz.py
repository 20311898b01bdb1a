"""Mutants of every flavour of TIFF, indexed and read: our errors or values, soon, in little memory, never a crash."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from periplus.limits import MIB

PROGRAM = Path(__file__).with_name("mutants.py")
SHARES = 4
EACH = 16 * int(os.environ.get("PERIPLUS_FUZZ", "1"))
"""Mutants of each of the two hundred and more flavours."""
SEED = int(os.environ.get("PERIPLUS_FUZZ_SEED", "0"))


@pytest.mark.timeout(120 * EACH // 16)
@pytest.mark.parametrize("share", range(SHARES))
def test_mutants_give_our_errors_or_values(share: int, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path), f"{share}/{SHARES}", str(EACH), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    at = (tmp_path / "at").read_text() if (tmp_path / "at").exists() else "the unharmed files"
    assert done.returncode == 0, f"killed by {-done.returncode} at (place, number, name, seed) {at}:\n{done.stderr}"
    report = json.loads(done.stdout)
    assert report["findings"] == []
    assert report["slowest"][0] < 1.0, report["slowest"]
    assert report["grown"] < 256 * MIB
    kinds = report["kinds"]
    assert set(kinds) <= {"read", "format", "decode", "limit"}
    assert min(kinds["read"], kinds["format"], kinds["decode"], kinds["limit"]) > 0  # the damage goes deep and wide
