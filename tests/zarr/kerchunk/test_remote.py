"""Kerchunk indexes where there is no file system: in an object store, and over HTTP, which lists nothing."""

import json
import os
import random
from contextlib import suppress

import numpy as np
import pytest

import periplus
from periplus.errors import PeriplusError
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem

FORMS = {
    "json": ("refs.json", {}),
    "parquet": ("refs.parq", {"form": "kerchunk", "record_size": 3}),
}


@pytest.fixture
def scene(tmp_path):
    """A file of several byte ranges a chunk, and one of single ones."""
    (tmp_path / "parts.j2k").write_bytes(j2ks.interleaved(j2ks.layout("parts-rpcl")))
    image = tiffs.picture("plain", np.uint16, (1, 150, 130))
    (tmp_path / "plain.tif").write_bytes(tiffs.written(image, compression="zlib"))
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["parts.j2k", "plain.tif"])
def test_an_index_over_http_reads_what_lies_beside_it(scene, server, name, form):
    target, options = FORMS[form]
    truth = periplus.index(scene / name)["0/data"][:]
    server.files[f"in/{name}"] = (scene / name).read_bytes()
    index = periplus.index(f"{server.url}/in/{name}")
    index.write(scene / target, **options)
    for path in (scene / target).rglob("*") if (scene / target).is_dir() else [scene / target]:
        if path.is_file():
            server.files[f"in/{path.relative_to(scene)}"] = path.read_bytes()
    with periplus.open(f"{server.url}/in/{target}") as remote:
        assert np.array_equal(remote["0/data"][:], truth)
        assert remote.table.rows == index.table.rows or form != "json"


@pytest.mark.parametrize("form", FORMS)
def test_an_index_over_http_opens_no_file_of_this_machine(scene, server, form):
    target, options = FORMS[form]
    periplus.index(scene / "plain.tif").write(scene / target, **options)
    for path in (scene / target).rglob("*") if (scene / target).is_dir() else [scene / target]:
        if path.is_file():
            server.files[f"in/{path.relative_to(scene)}"] = path.read_bytes()
    with periplus.open(f"{server.url}/in/{target}") as remote, pytest.raises(periplus.DeniedError):
        remote["0/data"][:]


@pytest.mark.parametrize("form", FORMS)
def test_an_index_is_written_to_an_object_store(scene, form):
    target, options = FORMS[form]
    index = periplus.index(scene / "plain.tif")
    truth = index["0/data"][:]
    index.write(f"memory://bucket/{form}/{target}", **options)
    if form == "json":
        index.write(f"memory://bucket/{form}/{target}", **options)  # over the first
    else:
        with pytest.raises(periplus.ConflictError, match="write to another name, or delete"):
            index.write(f"memory://bucket/{form}/{target}", **options)
    with periplus.open(f"memory://bucket/{form}/{target}", allow=[str(scene)]) as remote:
        assert np.array_equal(remote["0/data"][:], truth)
    with pytest.raises(periplus.MissingError):
        periplus.open(f"memory://bucket/{form}/nothing-here")


def test_a_store_keeps_nothing_of_a_write_that_did_not_end(scene):
    from periplus.fetch import Fetch

    async def names(fetch):
        return {source.url.rpartition("halfway/")[2] async for source in fetch.find("memory://bucket/halfway/")}

    index, target = periplus.index(scene / "plain.tif"), "memory://bucket/halfway"
    fetch = Fetch()
    for left in ("0/data/refs.77.parq", "0/data/refs.0.parq", "files.periplus.parquet"):
        fetch.run(fetch.write(f"{target}/{left}", b"half"))
    index.write(target, form="kerchunk")
    assert fetch.run(names(fetch)) == {
        ".zmetadata",
        "files.periplus.parquet",
        "0/bands/refs.0.parq",
        "0/data/refs.0.parq",
    }
    with periplus.open(target, allow=[str(scene)]) as remote:
        assert np.array_equal(remote["0/data"][:], index["0/data"][:])


def test_of_two_first_writers_one_is_told(scene, monkeypatch):
    """Where both began before either had ended: the other's files are noticed too."""
    from periplus.zarr.kerchunk import parquet as kerchunkparquet

    index, target = periplus.index(scene / "plain.tif"), "memory://bucket/both"
    index.write(target, form="kerchunk")
    monkeypatch.setattr(kerchunkparquet, "_left", lambda *_: set())
    with pytest.raises(periplus.ConflictError):
        index.write(target, form="kerchunk")
    with pytest.raises(periplus.StaleError, match="of different writes"):
        periplus.open(target, allow=[str(scene)])["0/data"][:]


def test_a_record_file_that_is_lost_is_an_error_over_http(scene, server):
    server.files["in/plain.tif"] = (scene / "plain.tif").read_bytes()
    periplus.index(f"{server.url}/in/plain.tif").write(scene / "refs", form="kerchunk", record_size=3)
    for path in (scene / "refs").rglob("*"):
        if path.is_file() and path.name != "refs.1.parq":
            server.files[f"in/{path.relative_to(scene)}"] = path.read_bytes()
    with periplus.open(f"{server.url}/in/refs") as remote, pytest.raises(periplus.FormatError, match="incomplete"):
        remote["0/data"][:]


def test_sources_that_changed_are_told_from_those_that_are_gone(scene):
    index = periplus.index(scene / "plain.tif")
    index.write(scene / "refs.json")
    (scene / "plain.tif").write_bytes(b"short")
    with pytest.raises(PeriplusError) as told:
        periplus.open(scene / "refs.json")["0/data"][:]
    assert told.value.kind == "stale"
    (scene / "plain.tif").unlink()
    with pytest.raises(periplus.MissingError):
        periplus.open(scene / "refs.json")["0/data"][:]


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(int(os.environ.get("PERIPLUS_FUZZ") or "1")))
def test_damaged_indexes_fail_with_our_errors_only(scene, seed):
    """Bytes changed at random, the same ones every time."""
    rng = random.Random(seed)
    index = periplus.index(scene / "parts.j2k")
    index.write(scene / "refs.json")
    index.write(scene / "refs.parq", form="kerchunk", record_size=4)
    files = [scene / "refs.json", scene / "refs.parq/.zmetadata", *(scene / "refs.parq").rglob("refs.*.parq")]
    sound = {path: path.read_bytes() for path in files}
    for _ in range(12):
        broken = rng.choice(files)
        data = bytearray(sound[broken])
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(data))
            data[place : place + rng.randint(0, 3)] = bytes(rng.randrange(32, 127) for _ in range(rng.randint(0, 3)))
        broken.write_bytes(data)
        for target in (scene / "refs.json", scene / "refs.parq"):
            with suppress(PeriplusError):
                opened = periplus.open(target)
                for array in opened.arrays.values():
                    if array.nbytes < 1 << 24:
                        array.read()
                MultiReferenceFileSystem(str(target)).find("")
        broken.write_bytes(sound[broken])


def test_a_large_index_is_written_in_records_without_an_object_for_each_chunk(tmp_path):
    """Half a million references: columns in, columns out."""
    from periplus.model import Array, Catalog, Encoding, Files, Refs, Source, chunk_positions
    from periplus.table import memory_table

    grid = (200, 50, 50)
    count = int(np.prod(grid))
    array = Array(
        name="sst",
        dims=("time", "y", "x"),
        shape=grid,
        chunks=(1, 1, 1),
        dtype=np.dtype("int16"),
        encodings=(Encoding(({"name": "bytes", "configuration": {"endian": "little"}},)),),
    )
    files = Files.of((Source(url=f"{tmp_path}/{n}.bin") for n in range(200)), format="raw")
    refs = Refs(
        chunk=chunk_positions(grid),
        offset=np.arange(count, dtype=np.int64) % 2500 * 2,
        length=np.full(count, 2, np.int64),
        file=np.repeat(np.arange(200, dtype=np.int32), 2500),
    )
    from periplus import Limits
    from periplus.facade import Index
    from periplus.fetch import Fetch

    index = Index(memory_table(Catalog(arrays={"sst": array}), {"sst": refs}, files), Fetch(), Limits())
    index.write(tmp_path / "refs", form="kerchunk")
    assert len(list((tmp_path / "refs/sst").glob("refs.*.parq"))) == 5
    (tmp_path / "77.bin").write_bytes(np.arange(2500, dtype="<i2").tobytes())
    back = periplus.open(tmp_path / "refs")
    assert back.table.rows == count
    assert np.array_equal(back["sst"][77], np.arange(2500).reshape(50, 50))
    found = back.table.refs("sst", [(77, 78), (3, 5), (0, 50)])
    assert found.offset.tolist() == list(range(300, 500, 2))
    document = json.loads((tmp_path / "refs/.zmetadata").read_text())
    assert document["record_size"] == 100_000
