"""A kerchunk Parquet index that is written over: old or new at every moment, and never a mix of both."""

import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore

import periplus
from periplus.fetch import Fetch
from periplus.fetch.local import folders
from periplus.forms import open_index
from periplus.model import Array, Catalog, Encoding, Files, Refs, Source
from periplus.table import memory_table
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.kerchunk.write import write_kerchunk


def index_of(folder, number, chunks=4):
    """Chunks of one value of data.bin each, which is the number of the write."""
    files = Files.of([Source(url=f"{folder}/data.bin", size=2000)], format="raw")
    codecs = ({"name": "bytes", "configuration": {"endian": "little"}},)
    made = {"shape": (chunks,), "chunks": (1,), "dtype": np.dtype("<u2"), "encodings": (Encoding(codecs),)}
    arrays = {name: Array(name=name, dims=("x",), **made) for name in ("a", "g/b")}
    refs = Refs(
        chunk=np.arange(chunks, dtype=np.int32)[None],
        offset=np.full(chunks, number * 2),
        length=np.full(chunks, 2),
        file=np.zeros(chunks, np.int32),
    )
    return memory_table(Catalog(arrays=arrays), dict.fromkeys(arrays, refs), files)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.bin").write_bytes(np.arange(1000, dtype="<u2").tobytes())
    return tmp_path


def write(folder, number, name="refs", **options):
    write_kerchunk(index_of(folder, number), str(folder / name), fetch=Fetch(), record_size=2, **options)
    return folder / name


def values(index):
    return {int(value) for name in ("a", "g/b") for value in index[name][:]}


# --- readers notice -------------------------------------------------------------------------------------------------


def test_an_open_index_that_is_written_over_is_stale(folder):
    place = write(folder, 1)
    untouched, surveyed = periplus.open(place), periplus.open(place)
    assert int(surveyed["a"][:1][0]) == 1  # one record of two is read
    system = MultiReferenceFileSystem(str(place), asynchronous=True)
    group = zarr.open_group(FsspecStore(system, read_only=True, path=""), mode="r")
    assert int(group["a"][0]) == 1
    packed = pickle.dumps(surveyed.table)
    write(folder, 2)
    assert int(surveyed["a"][:1][0]) == 1  # the record that was read is still that of the old index
    for read in (lambda: untouched["a"][:1], lambda: surveyed["a"][2:], lambda: group["a"][2], lambda: group["g/b"][:]):
        with pytest.raises(periplus.StaleError, match="the index was replaced"):
            read()
    with pytest.raises(periplus.StaleError, match="the index was replaced"):
        pickle.loads(packed)
    assert values(periplus.open(place)) == {2}


def test_a_mix_of_two_writes_is_not_read(folder):
    one, two = write(folder, 1), write(folder, 2, "other")
    shutil.copy(two / "a/refs.1.parq", one / "a/refs.1.parq")
    with pytest.raises(periplus.StaleError, match=r"a/refs\.1\.parq"):
        periplus.open(one)["a"][:]
    with pytest.raises(periplus.StaleError, match=r"a/refs\.1\.parq"):
        MultiReferenceFileSystem(str(one)).cat_file("a/2")


def plain(place):
    """The directory as other programs write it: nothing of ours in it."""
    import pyarrow.parquet as pq

    document = json.loads((place / ".zmetadata").read_text())
    del document["periplus"]
    (place / ".zmetadata").write_text(json.dumps(document))
    for record in place.rglob("*.parq"):
        pq.write_table(pq.ParquetFile(record).read().replace_schema_metadata(None), record)
    (place / "files.periplus.parquet").unlink()
    return place


@pytest.mark.parametrize("surveyed", [True, False])
def test_an_open_index_of_another_writer_is_stale_too(folder, surveyed):
    place = plain(write(folder, 1))
    index, system = periplus.open(place), MultiReferenceFileSystem(str(place))
    if surveyed:
        assert int(index["a"][:1][0]) == 1
        assert system.cat_file("a/0") == b"\1\0"
    new = plain(write(folder, 2, "other"))
    for path in new.rglob("*"):
        if path.is_file():
            there = place / path.relative_to(new)
            later = there.stat().st_mtime_ns + 5_000_000
            there.write_bytes(path.read_bytes())
            os.utime(there, ns=(later, later))
    with pytest.raises(periplus.StaleError):
        index["a"][2:]
    with pytest.raises(periplus.StaleError):
        system.cat_file("a/2")
    assert values(periplus.open(place)) == {2}


def test_a_record_file_that_is_lost_is_no_fill(folder):
    place = write(folder, 1)
    opened, system = periplus.open(place), MultiReferenceFileSystem(str(place))
    (place / "a/refs.1.parq").unlink()
    for read in (lambda: opened["a"][2:], lambda: periplus.open(place)["a"][:], lambda: system.cat_file("a/2")):
        with pytest.raises(periplus.FormatError, match=r"a/refs\.1\.parq: the index is incomplete"):
            read()
    (place / "files.periplus.parquet").unlink()
    with pytest.raises(periplus.FormatError, match="incomplete"):
        periplus.open(place)["g/b"][:]


def test_an_array_that_is_not_listed_is_no_fill(folder):
    place = write(folder, 1)
    document = json.loads((place / ".zmetadata").read_text())
    del document["periplus"]["records"]["a"]
    (place / ".zmetadata").write_text(json.dumps(document))
    assert periplus.open(place)["a"][:].tolist() == [1, 1, 1, 1]
    (place / "a/refs.1.parq").unlink()
    with pytest.raises(periplus.FormatError, match="incomplete"):
        MultiReferenceFileSystem(str(place)).cat_file("a/2")


def test_records_that_never_were_are_missing_chunks(folder):
    table = index_of(folder, 3)
    few = {name: table.refs(name).take(slice(0, 1)) for name in table.catalog.arrays}
    write_kerchunk(memory_table(table.catalog, few, table.files), str(folder / "refs"), fetch=Fetch(), record_size=2)
    assert periplus.open(folder / "refs")["a"][:].tolist() == [3, 0, 0, 0]


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {},
        {"write": "x", "records": {}},
        {"write": "0" * 16, "records": []},
        {"write": "0" * 16, "records": {"a": 1}},
        {"write": "0" * 16, "records": {"a": [[2, 1]]}},
        {"write": "0" * 16, "records": {"a": [[-1, 1]]}},
        {"write": "0" * 16, "records": {"a": [[0, 1], [0, 1]]}},
        {"write": "0" * 16, "records": {"a": [[0, 1.5]]}},
        {"write": "0" * 16, "records": {"a": [[0, 1 << 60]]}},
    ],
)
def test_what_a_directory_declares_is_checked(folder, entry):
    place = write(folder, 1)
    document = json.loads((place / ".zmetadata").read_text())
    (place / ".zmetadata").write_text(json.dumps({**document, "periplus": entry}))
    for opened in (periplus.open, lambda path: MultiReferenceFileSystem(str(path))):
        with pytest.raises((periplus.FormatError, periplus.LimitError), match=r"\.zmetadata"):
            opened(place)


# --- writers replace at once ----------------------------------------------------------------------------------------


def test_an_index_that_was_set_aside_is_found(folder):
    place = write(folder, 1)
    for opened in (lambda: values(periplus.open(place)) == {1}, lambda: MultiReferenceFileSystem(str(place))):
        place.rename(folders._prefix(str(place)) + "0123456789abcdef")
        assert opened()
        assert sorted(os.listdir(folder)) == ["data.bin", "refs"]


@pytest.mark.parametrize("exchange", [True, False])
def test_an_index_is_written_over_in_its_own_place(folder, exchange, monkeypatch):
    if not exchange:
        monkeypatch.setattr(folders, "_exchange", lambda *_: False)
    place = write(folder, 1)
    place.chmod(0o750)
    index = periplus.open(place)
    index.write(place, form="kerchunk", record_size=3)
    assert values(periplus.open(place)) == {1}
    assert sorted(path.name for path in (place / "a").iterdir()) == ["refs.0.parq", "refs.1.parq"]
    assert place.stat().st_mode & 0o777 == 0o750
    assert sorted(os.listdir(folder)) == ["data.bin", "refs"]


def test_a_write_that_fails_leaves_the_old_index(folder):
    place = write(folder, 1)
    with pytest.raises(ValueError, match="record_size"):
        write_kerchunk(index_of(folder, 2), str(place), fetch=Fetch(), record_size=0)
    table = index_of(folder, 2)
    empty = {"a": table.refs("a"), "g/b": Refs(**{**vars_of(table.refs("g/b")), "length": np.zeros(4, int)})}
    empty["g/b"].offset[:] = 0
    with pytest.raises(periplus.FormatError, match="has no bytes"):
        write_kerchunk(memory_table(table.catalog, empty, table.files), str(place), fetch=Fetch())
    assert values(periplus.open(place)) == {1}
    assert sorted(os.listdir(folder)) == ["data.bin", "refs"]


def vars_of(refs):
    return {name: getattr(refs, name) for name in ("chunk", "offset", "length", "file")}


def test_links_and_empty_folders_are_written_through(folder):
    (folder / "elsewhere").mkdir()
    (folder / "refs").symlink_to(folder / "elsewhere")
    for number in (1, 2):
        assert values(periplus.open(write(folder, number))) == {number}
    assert (folder / "refs").is_symlink()
    assert (folder / "elsewhere/.zmetadata").is_file()


def test_hidden_files_of_others_are_not_removed(folder):
    place = write(folder, 1)
    (place / "a/.notes").write_text("mine")
    with pytest.raises(periplus.FormatError, match=r"contains 'a/\.notes'"):
        write(folder, 2)
    assert values(periplus.open(place)) == {1}


KILLED = f"""
import os, sys
import numpy as np
from periplus.fetch import Fetch
from periplus.fetch.local import folders
from periplus.model import Array, Catalog, Encoding, Files, Refs, Source
from periplus.table import memory_table
from periplus.zarr.kerchunk.write import write_kerchunk
{inspect.getsource(index_of)}
folder = sys.argv[1]
write_kerchunk(index_of(folder, 0), folder + "/warm", fetch=Fetch(), record_size=1)  # whatever that imports
for line in sys.stdin:
    way, step = line.split()[0], int(line.split()[1])
    child = os.fork()
    if child == 0:
        if way == "renames":
            folders._exchange = lambda *_: False
        count = 0
        def hook(event, arguments):
            global count
            known = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod")
            if known or (event == "open" and folder in str(arguments[0])):
                count += 1
                if count == step:
                    os._exit(9)
        sys.addaudithook(hook)
        write_kerchunk(index_of(folder, step, chunks=1), folder + "/refs", fetch=Fetch(), record_size=1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Writes the index again and again, in a process that is killed at a given step of its work on files."""


def test_a_writer_killed_at_any_step_leaves_the_old_index_or_the_new_one(folder):
    fetch, first = Fetch(), 1
    write(folder, 0)
    arguments = [sys.executable, "-c", KILLED, str(folder)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        for way in ("exchange", "renames"):
            held, seen = 0, []
            for step in range(first, 1000):
                print(way, step, file=writer.stdin, flush=True)
                code = int(writer.stdout.readline())
                table = open_index(str(folder / "refs"), fetch=fetch)
                (found,) = {int(n) // 2 for name in ("a", "g/b") for n in table.refs(name).offset}
                assert found in (held, step)
                held = found
                seen.append(held)
                if code == 0:
                    assert held == step
                    break
                assert code == 9
            assert {0, seen[-2], seen[-1]} <= set(seen)
            assert seen[-2] != 0  # the last steps come after the switch
            if way == "exchange":
                assert len(seen) > 20
                first = seen.count(0) // 2  # until the switch both ways are the same
                write(folder, 0)
    write(folder, 999)
    assert sorted(os.listdir(folder)) == ["data.bin", "refs", "warm"]
    assert {path.name for path in (folder / "refs").iterdir()} == {".zmetadata", "a", "g", "files.periplus.parquet"}
