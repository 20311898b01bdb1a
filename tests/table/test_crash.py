"""A writer that is killed or whose disk is full leaves the index that was there, or none; never half of one."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from periplus.errors import MissingError, PeriplusError
from periplus.fetch import Fetch
from periplus.table import append_table, open_table, write_table
from periplus.testing.indexes import files_of, stacked

WRITER = """
import os, sys
import duckdb, pyarrow.parquet
from periplus.fetch import Fetch
from periplus.table import write_table
from periplus.testing.indexes import stacked
catalog, refs, files = stacked(steps=200, seed=9)
def blocks():
    for start in range(0, len(refs["0/data"]), 500):
        yield "0/data", refs["0/data"].take(slice(start, start + 500))
for target in sys.stdin:
    child = os.fork()
    if child == 0:
        with Fetch() as fetch:
            print(os.getpid(), flush=True)
            while True:
                write_table(target.rstrip("\\n"), catalog, blocks(), files, fetch=fetch)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def killed_writer():
    """Writes an index again and again until it is killed; forks of one process, which imports what they need."""
    with subprocess.Popen([sys.executable, "-c", WRITER], stdin=-1, stdout=-1, text=True, bufsize=1) as process:

        def write(target, seconds):
            process.stdin.write(target + "\n")
            child = int(process.stdout.readline())
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
            assert int(process.stdout.readline()) == -signal.SIGKILL

        yield write


@pytest.mark.parametrize("name", ["index.parquet", "index", "index.duckdb"])
def test_a_killed_writer_leaves_a_whole_index_or_none(name, killed_writer, tmp_path):
    target = str(tmp_path / name)
    dice = random.Random(7)
    seen = set()
    for attempt in range(3):
        killed_writer(target, dice.uniform(0, 0.3))
        with Fetch() as fetch:
            try:
                table = open_table(target, fetch=fetch, allow=["s3://"], trust=True)
                seen.add(len(table.refs("0/data")))
            except MissingError:
                seen.add(None)
        assert seen <= {None, 200 * 24}, attempt
    with Fetch() as fetch:  # the next writer completes it, and nothing of the dead is left
        catalog, refs, files = stacked(steps=2)
        write_table(target, catalog, refs.items(), files, fetch=fetch)
        assert len(open_table(target, fetch=fetch, allow=["s3://"], trust=True).refs("0/data")) == 48
    left = [path.name for path in tmp_path.rglob("*")]
    expected = {"index.parquet": 1, "index.duckdb": 1, "index": 5}[name]  # files.parquet, .lock, chunks/ and one part
    assert len(left) == expected, left


FULL = """
import resource, sys
from periplus.errors import PeriplusError
from periplus.fetch import Fetch
from periplus.table import append_table, write_table
from periplus.testing.indexes import files_of, stacked
import pyarrow.parquet, duckdb
other, *targets = sys.argv[1:]
with Fetch() as fetch:
    fetch.run(fetch.head(other))
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for steps, space in ((400, 20_000), (2, 500)):  # full amid the rows, and with the last bytes
        catalog, refs, files = stacked(steps=steps, seed=3)
        resource.setrlimit(resource.RLIMIT_FSIZE, (space, resource.RLIM_INFINITY))
        for target in targets:
            try:
                write_table(target, catalog, refs.items(), files, fetch=fetch)
            except PeriplusError as error:
                print("refused", error.kind)
            else:
                print("written")
"""


def test_a_full_disk_leaves_the_previous_index(tmp_path, fetch):
    targets = [str(tmp_path / name) for name in ("index.parquet", "index", "index.duckdb")]
    catalog, refs, files = stacked(steps=2)
    for target in targets:
        write_table(target, catalog, refs.items(), files, fetch=fetch)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    command = [sys.executable, "-c", FULL, __file__, *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["refused"] * 6, (done.stdout, done.stderr)
    for target in targets:
        assert len(open_table(target, fetch=fetch, allow=["s3://"], trust=True).refs("0/data")) == 48
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["index.parquet", "index"])
def test_an_error_among_the_blocks_leaves_the_previous_index(name, tmp_path, fetch):
    target = str(tmp_path / name)
    catalog, refs, files = stacked(steps=2)
    write_table(target, catalog, refs.items(), files, fetch=fetch)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}

    def blocks():
        yield "0/data", refs["0/data"]
        raise RuntimeError("the harvest broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        write_table(target, catalog, blocks(), files, fetch=fetch)
    if name == "index":
        with pytest.raises(RuntimeError, match="broke off"):
            append_table(target, stacked(steps=4)[0], blocks(), files_of(list(files.path)), fetch=fetch)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path, fetch):
    catalog, refs, files = stacked(steps=2)
    (tmp_path / "file").write_text("x")
    for name in ("file/index.parquet", "file/index", "file/index.duckdb"):
        with pytest.raises(PeriplusError):
            write_table(str(tmp_path / name), catalog, refs.items(), files, fetch=fetch)
    assert os.listdir(tmp_path) == ["file"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def test_an_interrupt_just_after_the_commit_keeps_what_was_committed(tmp_path, fetch, monkeypatch):
    from contextlib import contextmanager

    from periplus.table import write as module

    real = module.sink

    @contextmanager
    def interrupted(url, fetch, **conditions):
        with real(url, fetch, **conditions) as file:
            yield file
        if url.endswith("files.parquet"):
            raise KeyboardInterrupt

    target = str(tmp_path / "index")
    catalog, refs, files = stacked(steps=3)
    monkeypatch.setattr(module, "sink", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_table(target, catalog, refs.items(), files, fetch=fetch)
    table = open_table(target, fetch=fetch, allow=["s3://"])
    assert sum(len(found) for _, found in table.blocks()) == table.rows == sum(len(r) for r in refs.values())


def test_an_interrupt_just_before_the_commit_leaves_nothing(tmp_path, fetch, monkeypatch):
    from periplus.table import write as module

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    target = tmp_path / "index"
    catalog, refs, files = stacked(steps=3)
    monkeypatch.setattr(module, "files_parquet", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_table(str(target), catalog, refs.items(), files, fetch=fetch)
    assert not list((target / "chunks").iterdir())
    with pytest.raises(MissingError):
        open_table(str(target), fetch=fetch)
