"""Indexes in programs that fork, and in programs with very many of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import periplus
from periplus.testing.formats import tiff as tiffs

FORMS = {"flat": "x.parquet", "dataset": "x", "duckdb": "x.duckdb", "kerchunk": "x.json"}
TILES = {"tiled": True, "blockxsize": 32, "blockysize": 32}


def run(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)], capture_output=True, timeout=100
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode().strip()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    for number in range(2):
        image = tiffs.picture("forks", "u1", (1, 160, 160)) // 2 + number
        (folder / f"{number}.tif").write_bytes(tiffs.gdal_written(image, compress="zstd", **TILES))
    with periplus.index(folder / "*.tif", arrange="stack", coordinate="order") as index:
        for name in FORMS.values():
            index.write(folder / name).close()
    return folder


READING = """
import os, signal, sys, threading, time, faulthandler
import numpy as np, periplus

def opened():
    return periplus.open(sys.argv[1], trust=True)

index = opened()
want = index["0/data"][...]
rows = index.sql("select count(*) as n from chunks").to_pylist()

def answers(index):
    return index.sql("select count(*) as n from chunks").to_pylist() == rows

def right(index):
    if hasattr(index.table._rows, "_kept") and hasattr(index.table._rows._kept, "_seen"):
        index.table._rows._kept.__init__(1)  # nothing is kept, so that threads are inside locks all the time
    return np.array_equal(index["0/data"][:, :, 10:150, 10:150], want[:, :, 10:150, 10:150])

stop, seen = False, []

def work(number):
    while not stop:
        seen.append(right(opened() if number == 0 else index) and (number or answers(index)))

threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(3)]
for thread in threads:
    thread.start()
codes = []
for number in range(5):
    time.sleep(0.01 + number * 0.003)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(15)
            code = 0 if right(index) and right(opened()) and (number % 4 or answers(index)) else 2
        finally:
            os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop = True
for thread in threads:
    thread.join(20)
    assert not thread.is_alive()
assert codes == [0] * 5, codes
assert len(seen) >= 3 and all(seen) and right(index)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("form", FORMS)
def test_a_child_forked_while_threads_read_reads_too(form, archive):
    run(READING, archive / FORMS[form])


POOLED = """
import multiprocessing, sys, threading
import numpy as np, periplus

index = periplus.open(sys.argv[1], trust=True)
want = index["0/data"][...]
stop = threading.Event()

def read(given):
    return np.array_equal(index["0/data"][...], want) and np.array_equal(given["0/data"][...], want)

def busy():
    while not stop.is_set():
        index["0/data"][...]

threading.Thread(target=busy, daemon=True).start()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(read, [index] * 6).get(60) == [True] * 6
stop.set()
assert read(index)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_pool_of_forked_workers_uses_the_index_it_inherits_and_those_it_is_sent(archive):
    run(POOLED, archive / "x.parquet")


CONTINUED = """
import os, signal, sys
import periplus

index = periplus.open(sys.argv[1])
child = None

def fork(done, total):
    global child
    child = os.fork() if child is None else child
    if child == 0:
        signal.alarm(15)

try:
    index.read(array="0/data", progress=fork)
except periplus.errors.FetchError as error:
    os._exit(7 if child == 0 and "forked" in str(error) else 1)
if child == 0:
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_read_does_not_go_on_in_a_child_that_lacks_its_threads(archive):
    run(CONTINUED, archive / "x.parquet")


MANY = """
import gc, os, resource, shutil, sys, time
import numpy as np, periplus

def used():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

source, count = sys.argv[1], int(sys.argv[2])
with periplus.open(source, trust=True) as first:
    want = first["0/data"][:, :, :32, :32]
del first
before = used()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
indexes = []
for number in range(count):
    copy = os.path.join(os.path.dirname(source), f"{number}-{os.path.basename(source)}")
    (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, copy)
    indexes.append(periplus.open(copy, trust=True))
for index in indexes:
    assert np.array_equal(index["0/data"][:, :, :32, :32], want)
files, threads = used()
assert files < 48, files
assert threads - before[1] <= 8 * 10 + 1, threads
del index
indexes.clear()
gc.collect()
until = time.monotonic() + 10  # the collector does not wait for the loop to end
while any(now > then for now, then in zip(used(), before)) and time.monotonic() < until:
    time.sleep(0.01)
print(*before, *used())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="this system does not list its threads")
@pytest.mark.parametrize(("form", "count"), [("flat", 80), ("dataset", 80), ("kerchunk", 80), ("duckdb", 12)])
def test_more_indexes_are_open_than_the_process_may_have_files(form, count, archive):
    files, threads, left_files, left_threads = map(int, run(MANY, archive / FORMS[form], count).split())
    assert left_files <= files
    assert left_threads <= threads
