"""`periplus index` killed, interrupted, or out of disk: the previous index or none, and the next run completes it."""

import fcntl
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import periplus
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.custom_tiff import LONG, image_tags, tiff
from periplus.testing.processes import ForkedProgram

INDEX = """
import sys
from periplus.cli.app import run
sys.exit(run(["index", *sys.argv[1:]]))
"""
FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))
sys.dont_write_bytecode = True
"""
FORMS = ("index.parquet", "index", "index.duckdb")
FEW, ALL = 10, 50
PATTERN = "{time:%Y%j}"
ROUNDS = int(os.environ.get("PERIPLUS_FUZZ", "1"))
SEED = os.environ.get("PERIPLUS_FUZZ_SEED", "0")
WAIT = 300
"""Seconds after which a command counts as hanging."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """Small scenes of 50 days, each of one value."""
    folder = tmp_path_factory.mktemp("archive") / "scenes"
    folder.mkdir()
    for day in range(1, ALL + 1):
        (folder / f"2021{day:03}.tif").write_bytes(tiffs.written(np.full((1, 40, 50), day, "u2"), compression="zstd"))
    return folder


@pytest.fixture(scope="module")
def start(archive, tmp_path_factory):
    """Starts `periplus index` to a target; an interrupt while Python itself starts is not ours to answer."""

    def started(target: Path, code: str = INDEX) -> ForkedProgram:
        given = [f"{archive}/*.tif", "-o", str(target), "--pattern", PATTERN]
        return ForkedProgram(code, *given, folder=tmp_path_factory.mktemp("output"))

    return started


def first_days(archive: Path, target: Path, count: int):
    """An index of the first days, made in this process."""
    scenes = [archive / f"2021{day:03}.tif" for day in range(1, count + 1)]
    with periplus.index(scenes, to=target, pattern=PATTERN, arrange="stack") as index:
        return index.summary


def days(target: Path, archive: Path) -> int | None:
    """How many scenes the index has, all of which are right; None where there is no index."""
    try:
        index = periplus.open(target, allow=[archive], trust=True)
    except periplus.MissingError:
        return None
    with index:
        values = index["0/data"][:, 0, 0, 0]
        np.testing.assert_array_equal(values, np.arange(1, len(values) + 1))
        assert (index["0/data"][-1] == len(values)).all()
        return len(values)


def left(folder: Path) -> set[str]:
    """Names in a folder, apart from those of an index."""
    names = {path.name for path in folder.iterdir()} - set(FORMS)
    dataset = folder / "index"
    if dataset.is_dir():
        for kind, known in pq_parts(dataset).items():
            assert len(list((dataset / kind).iterdir())) == known
        names |= {path.name for path in dataset.iterdir()} - {"files.parquet", "chunks", "placements", ".lock"}
    return names


def pq_parts(dataset: Path) -> dict[str, int]:
    import pyarrow.parquet as pq

    keys = pq.read_metadata(dataset / "files.parquet").metadata
    document = json.loads(keys[b"array_references"])
    return {kind: len(document[kind]) for kind in ("chunks", "placements")}


@pytest.fixture(scope="module")
def durations(start, tmp_path_factory) -> dict[str, float]:
    """Seconds that the command takes for each form when nothing interrupts it."""
    found = {}
    for form in FORMS:
        process, began = start(tmp_path_factory.mktemp("whole") / form), time.monotonic()
        code, _, errors = process.end(WAIT)
        assert code == 0, errors
        found[form] = time.monotonic() - began
    return found


@pytest.mark.fuzz
@pytest.mark.timeout(2 * WAIT * ROUNDS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("form", FORMS)
def test_the_previous_index_or_none_and_the_next_run_completes_it(form, how, archive, start, durations, tmp_path):
    target, dice = tmp_path / form, random.Random(f"{form} {how} {SEED}")
    seen = set()
    for attempt in range(ROUNDS):
        before = None
        if attempt:
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        if (attempt + (how == signal.SIGKILL)) % 2:
            first_days(archive, target, FEW)
            before = FEW
        process = start(target)
        time.sleep(durations[form] * dice.uniform(0.0, 1.0))
        process.send_signal(how)
        code, _, errors = process.end(WAIT)
        assert days(target, archive) in ({before, ALL} if code else {ALL}), attempt
        seen.add(code)
        if how == signal.SIGINT and code == 130:
            # A line of Python's own may come with it, where the signal fell into a finaliser.
            assert "periplus: interrupted" in errors.splitlines(), errors
        first_days(archive, target, ALL)
        assert days(target, archive) == ALL
        assert left(tmp_path) == set()
    assert seen <= {0, 130, -how}


def test_what_dead_writers_left_is_swept_even_where_nothing_is_to_be_written(archive, tmp_path):
    for form in FORMS:
        target = tmp_path / form
        first_days(archive, target, FEW)
        before = sorted(tmp_path.rglob("*"))
        (tmp_path / f".{form}.periplus-0123456789abcdef").write_bytes(b"half a file")
        spool = tmp_path / f".{form}.spool-abcdefgh"
        spool.mkdir()
        (spool / "lock").touch()
        held = None
        if target.is_dir():
            (target / "chunks" / "part-0123456789abcdef.parquet").write_bytes(b"never committed")
            (target / "chunks" / ".part-0123456789abcdef.parquet.periplus-0").write_bytes(b"half a part")
            (target / ".files.parquet.periplus-0123456789abcdef").write_bytes(b"half a table")
            held = (target / "chunks" / "part-fedcba9876543210.parquet").open("wb")
            fcntl.flock(held, fcntl.LOCK_EX)  # as a writer does that is about to commit it
        assert first_days(archive, target, FEW).reused == FEW
        if held is not None:
            assert Path(held.name).exists()
            held.close()
            first_days(archive, target, FEW)
        assert sorted(tmp_path.rglob("*")) == before
        assert days(target, archive) == FEW


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_is_one_line_and_leaves_the_previous_index(form, archive, start, tmp_path):
    target = tmp_path / form
    first_days(archive, target, FEW)
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    code, _, errors = start(target, FULL + INDEX).end(WAIT)
    assert code == 2, errors
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1, errors
    assert "large" in lines[0] or "space" in lines[0], errors
    assert days(target, archive) == FEW
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    first_days(archive, target, ALL)
    assert days(target, archive) == ALL


STARVED = """
import resource, sys
import periplus
index = periplus.index(sys.argv[1])
index["0/data"][0, 0, 0]
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 64 * 2**20, size + 64 * 2**20))
try:
    index["0/data"][...]
except periplus.LimitError as error:
    print("limit", error)
print(index["0/data"][0, 4, 4], index["0/data"][:, :64, :64].shape)
"""


def test_a_lack_of_memory_is_a_limit_error_and_smaller_reads_go_on(tmp_path):
    width = 16_384
    tiles = (width // 256) ** 2
    tags = image_tags(width, width, t273=None, t278=None, t279=None, t322=256, t323=256, t324=(LONG, [0] * tiles),
                      t325=(LONG, [0] * tiles))  # fmt: skip
    (tmp_path / "a.tif").write_bytes(tiff(tags, data=bytes(16)))
    code, out, errors = ForkedProgram(STARVED, str(tmp_path / "a.tif"), folder=tmp_path).end(WAIT)
    assert code == 0, errors
    refusal, small = out.splitlines()
    assert refusal.startswith("limit the selection of 0/data takes 268435456 bytes")
    assert small == "0 (1, 64, 64)"
