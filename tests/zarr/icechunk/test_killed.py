"""A write to Icechunk that is killed: what was there before is there after, and the next write succeeds."""

import shutil
import subprocess
import sys

import icechunk
import numpy as np
import pytest
import zarr

import periplus
from periplus.fetch import Fetch
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.icechunk import repository as icerepository
from periplus.zarr.icechunk.repository import BRANCH, INITIAL

OLD, NEW = 3, 7
ZYGOTE = """
import os, sys
import icechunk.store, imagecodecs, pyarrow.parquet
import periplus.facade, periplus.table.open, periplus.forms.registry
import periplus.zarr.codecs, periplus.zarr.icechunk.read, periplus.zarr.icechunk.write

periplus.zarr.codecs.register()  # imports what else a write needs, once for all
imagecodecs.zstd_decode(imagecodecs.zstd_encode(b""))

def counted(owner, name, left):
    plain = owner.__dict__[name]
    call = getattr(plain, "__func__", plain)
    def wrapped(*arguments, **options):
        left[0] -= 1
        if not left[0]:
            os._exit(9)
        return call(*arguments, **options)
    setattr(owner, name, type(plain)(wrapped) if call is not plain else wrapped)

def killed(index, target, step):
    if not os.fork():
        left = [step]
        for name in ("exists", "create", "fetch_config", "open", "save_config", "writable_session"):
            counted(icechunk.Repository, name, left)
        for name in ("sync_clear", "set", "set_virtual_refs"):
            counted(icechunk.store.IcechunkStore, name, left)
        counted(icechunk.Session, "commit", left)
        periplus.open(index).write(target)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])

index, *firsts = sys.argv[1:]
for first in firsts:
    step = 1
    while not (code := killed(index, f"{first}{step}.icechunk", step) - 9):
        step += 1
    print("steps", step, code + 9, flush=True)
"""


def index_of(folder, value):
    folder.mkdir(exist_ok=True)
    path = folder / f"{value}.tif"
    path.write_bytes(tiffs.written(np.full((1, 40, 50), value, "u2"), compression="zstd"))
    index = periplus.index(path)
    index.write(folder / f"{value}.parquet")
    return index


def value_of(target):
    values = periplus.open(target)["0/data"][...]
    assert values.shape == (1, 40, 50)
    assert np.ptp(values) == 0
    return int(values[0, 0, 0])


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Writes to `new1.icechunk`, `new2.icechunk` … and over `old1.icechunk` …, each killed one step later."""
    folder = tmp_path_factory.mktemp("killed")
    index_of(folder, OLD).write(folder / "old.icechunk")
    index = index_of(folder, NEW)
    for step in range(1, 30):
        shutil.copytree(folder / "old.icechunk", folder / f"old{step}.icechunk")
    command = [sys.executable, "-c", ZYGOTE, folder / f"{NEW}.parquet", folder / "new", folder / "old"]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=300)
    ends = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("steps")]
    assert [code for _, code in ends] == ["0", "0"], done.stderr
    return folder, index, int(ends[0][0]), int(ends[1][0])


def test_a_first_write_that_is_killed_leaves_nothing_that_opens_and_can_be_repeated(killed):
    folder, index, steps, _ = killed
    assert steps > 10
    for step in range(1, steps):
        target = folder / f"new{step}.icechunk"
        made = (target / BRANCH).exists()
        with pytest.raises(periplus.MissingError, match="has no index" if made else "no Icechunk repository"):
            periplus.open(target)
        index.write(target)
        assert value_of(target) == NEW
    assert value_of(folder / f"new{steps}.icechunk") == NEW


def test_a_second_write_that_is_killed_leaves_the_first(killed):
    folder, index, _, steps = killed
    assert steps > 8
    for step in range(1, steps):
        assert value_of(folder / f"old{step}.icechunk") == OLD
    assert value_of(folder / f"old{steps}.icechunk") == NEW
    index.write(folder / "old1.icechunk")
    assert value_of(folder / "old1.icechunk") == NEW


def test_an_empty_repository_of_others_holds_no_index_and_can_be_written_to(tmp_path):
    target = tmp_path / "r.icechunk"
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(target)))
    with pytest.raises(periplus.MissingError, match="has no index"):
        periplus.open(target)
    index_of(tmp_path, NEW).write(target)
    assert value_of(target) == NEW


@pytest.mark.parametrize("also", [(), ("config.yaml",), (f"{BRANCH}#1",), ("chunks/0", "manifests/0#1")])
def test_a_creation_that_was_interrupted_is_completed(also, tmp_path):
    target = tmp_path / "r.icechunk"
    icechunk.Repository.create(icechunk.local_filesystem_storage(str(target)))
    (target / BRANCH).unlink()
    for name in also:
        (target / name).parent.mkdir(exist_ok=True, parents=True)
        (target / name).write_bytes(b"")
    index_of(tmp_path, NEW).write(target)
    assert value_of(target) == NEW


def test_a_folder_of_others_is_not_taken_for_an_interrupted_creation(tmp_path):
    target = tmp_path / "r.icechunk"
    (target / "snapshots").mkdir(parents=True)
    (target / "snapshots" / INITIAL).write_bytes(b"x")
    (target / "notes.txt").write_bytes(b"mine")
    with pytest.raises(periplus.FormatError, match=r"contains 'notes\.txt', which does not belong"):
        index_of(tmp_path, NEW).write(target)
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == [INITIAL, "notes.txt"]


@pytest.mark.parametrize("step", range(5))
def test_a_removal_that_is_interrupted_can_be_written_to_again(step, tmp_path, monkeypatch):
    target = tmp_path / "r.icechunk"
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(target)))
    repository.save_config()
    for name in ("chunks/0", "manifests/0"):
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_bytes(b"")
    real, left = Fetch.delete, [step]

    async def delete(fetch, url):
        left[0] -= 1
        if left[0] < 0:
            raise periplus.FetchError("killed")
        await real(fetch, url)

    monkeypatch.setattr(Fetch, "delete", delete)
    with Fetch() as fetch, pytest.raises(periplus.FetchError, match="killed"):
        icerepository.remove_repository(repository, str(target), fetch)
    index_of(tmp_path, NEW).write(target)
    assert value_of(target) == NEW


def test_a_repository_without_arrays_is_not_empty(tmp_path):
    target = tmp_path / "r.icechunk"
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(target)))
    session = repository.writable_session("main")
    zarr.create_group(session.store, attributes={"title": "nothing yet"})
    session.commit("a group")
    assert list(periplus.open(target)) == []
