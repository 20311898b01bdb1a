"""Mutants of files of every format and of indexes: our errors or values, in little time and memory, never a crash.

`make test` tries a small sample, `make fuzz` twenty times as many (PERIPLUS_FUZZ is the factor, PERIPLUS_FUZZ_SEED
chooses other mutants).
"""

import json
import os
from pathlib import Path

import pytest

from periplus.limits import MIB
from periplus.testing.processes import ForkedProgram

PROGRAM = Path(__file__).with_name("fuzz_program.py")
FACTOR = int(os.environ.get("PERIPLUS_FUZZ", "1"))
SEED = int(os.environ.get("PERIPLUS_FUZZ_SEED", "0"))
SECONDS = 10
"""Processor time for one mutant; they take a few milliseconds, and a loop over a declared size takes minutes."""
RUNS = {"tiffs": (2, 1), "images": (1, 4), "indexes": (1, 4)}
"""Processes over which the files of a kind are divided, and mutants of each file."""


@pytest.mark.fuzz
@pytest.mark.timeout(600 * FACTOR)
@pytest.mark.parametrize(
    ("kind", "share"), [(kind, share) for kind, (shares, _) in RUNS.items() for share in range(shares)]
)
def test_mutants_give_our_errors_or_values(kind: str, share: int, tmp_path: Path) -> None:
    shares, each = RUNS[kind]
    given = (tmp_path, kind, share, shares, each * FACTOR, SEED)
    program = ForkedProgram(PROGRAM.read_text(), *map(str, given), folder=tmp_path)
    code, out, errors = program.end(600 * FACTOR)
    current = tmp_path / "current"
    at = current.read_text().strip() if current.exists() else "the undamaged files"
    assert code == 0, f"exit code {code} at {at}:\n{errors}"
    assert errors == ""
    report = json.loads(out)
    assert report["findings"] == []
    assert report["slowest"][0] < SECONDS, report["slowest"]
    assert report["grown"] < 256 * MIB
    kinds = report["kinds"]
    # Some mutants are read and some are refused, at every depth: otherwise the damage would show nothing.
    if kind == "indexes":
        assert set(kinds) <= {"read", "format", "limit", "missing", "stale", "denied", "decode"}
        assert min(kinds.get("read", 0), kinds.get("format", 0)) > 0, kinds
    else:
        assert set(kinds) <= {"read", "format", "decode", "limit"}
        assert min(kinds.get("read", 0), kinds.get("format", 0), kinds.get("decode", 0)) > 0, kinds
        assert kind != "tiffs" or kinds.get("limit", 0) > 0, kinds
