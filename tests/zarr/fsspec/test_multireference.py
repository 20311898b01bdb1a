"""MultiReferenceFileSystem: the four forms from JSON and Parquet, sync and async, within policy."""

import asyncio
import json
import pickle

import fsspec
import numpy as np
import pytest
from fsspec.asyn import sync
from fsspec.implementations.http import HTTPFileSystem
from fsspec.implementations.reference import ReferenceFileSystem, ReferenceNotReachable

import periplus
from periplus.model import Inline
from periplus.zarr.fsspec.filesystem import MultiReferenceFileSystem
from periplus.zarr.kerchunk.records import Record, write_record

DATA = bytes(range(256)) * 4
CHUNKS = {
    "a/0": b"inline bytes",
    "a/1": DATA,
    "a/2": DATA[10:110],
    "a/3": DATA[500:540] + DATA[0:7] + DATA[40:140],
}
"""What each key of the small index holds."""
ZARRAY = {"shape": [5], "chunks": [1], "dtype": "|u1", "compressor": None, "filters": None, "zarr_format": 2}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.bin").write_bytes(DATA)
    return tmp_path


def refs_of(url):
    return {
        ".zgroup": '{"zarr_format": 2}',
        "a/.zarray": json.dumps(ZARRAY),
        "a/0": "base64:aW5saW5lIGJ5dGVz",
        "a/1": [url],
        "a/2": [url, 10, 100],
        "a/3": [url, [[500, 40], [0, 7], [40, 100]]],
    }


@pytest.fixture(params=["json", "parquet"])
def index(request, folder):
    """A small index of all four forms."""
    url = str(folder / "data.bin")
    if request.param == "json":
        (folder / "refs.json").write_text(json.dumps({"version": 1, "refs": refs_of(url)}))
        return str(folder / "refs.json")
    (folder / "refs.parq/a").mkdir(parents=True)
    documents = {".zgroup": {"zarr_format": 2}, "a/.zarray": ZARRAY}
    (folder / "refs.parq/.zmetadata").write_text(json.dumps({"metadata": documents, "record_size": 10}))
    record = Record(
        paths=[url],
        path=np.array([-1, 0, 0, 0, -1], np.int32),
        offset=np.array([0, 0, 10, 0, 0]),
        size=np.array([len(CHUNKS["a/0"]), 0, 100, 0, 0]),
        raw=Inline.of([CHUNKS["a/0"], None, None, None, None]),
        counts=np.array([0, 0, 0, 3, 0]),
        offsets=np.array([500, 0, 40]),
        sizes=np.array([40, 7, 100]),
    )
    (folder / "refs.parq/a/refs.0.parq").write_bytes(write_record(record))
    return str(folder / "refs.parq")


def test_every_form_is_read_in_every_way(index):
    fs = MultiReferenceFileSystem(index)
    assert fs.cat(list(CHUNKS)) == CHUNKS
    for key, data in CHUNKS.items():
        assert fs.cat(key) == fs.cat_file(key) == fs.cat_file("/" + key) == data
        assert fs.open(key).read() == data
        assert fs.info(key) == {"name": key, "type": "file", "size": len(data)}
        assert fs.size(key) == len(data)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 5), (3, None), (None, 9), (-6, None), (-9, -2), (35, 60), (45, 48), (2, 2), (90, 10_000)]
)
def test_a_part_of_a_key_is_that_slice_of_it(index, start, end):
    fs = MultiReferenceFileSystem(index)
    for key in ("a/0", "a/2", "a/3"):
        assert fs.cat_file(key, start=start, end=end) == CHUNKS[key][start:end], key
    assert fs.cat_file("a/1", start=3, end=9) == DATA[3:9]


def test_ranges_of_many_keys_come_in_their_order(index):
    fs = MultiReferenceFileSystem(index)
    found = fs.cat_ranges(["a/3", "a/2", "a/3"], [38, 1, 0], [50, 4, 2])
    assert found == [CHUNKS["a/3"][38:50], CHUNKS["a/2"][1:4], CHUNKS["a/3"][:2]]


def test_an_event_loop_reads_all_ranges_at_once(index, monkeypatch):
    async def read():
        fs = MultiReferenceFileSystem(index, asynchronous=True)
        target = fs.fss[None]
        plain, running, most = target._cat_file, 0, 0

        async def watched(*args, **kwargs):
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(3):  # let the others begin
                await asyncio.sleep(0)
            data = await plain(*args, **kwargs)
            running -= 1
            return data

        monkeypatch.setattr(target, "_cat_file", watched)
        data = await fs._cat_file("a/3")
        return data, most, await fs._cat_file("a/3", start=41, end=44), await fs._info("a/1")

    data, most, part, about = asyncio.run(read())
    assert data == CHUNKS["a/3"]
    assert most == 3
    assert part == CHUNKS["a/3"][41:44]
    assert about["size"] == len(DATA)


def test_folders_are_listed_with_and_without_a_slash(index):
    fs = MultiReferenceFileSystem(index)
    assert [name for name in fs.ls("", detail=False) if not name.startswith(".z")] == ["a"]
    assert sorted(fs.ls("a", detail=False)) == ["a/.zarray", *CHUNKS]
    assert sorted(fs.ls("/a", detail=False)) == ["/a/.zarray", *(f"/{key}" for key in CHUNKS)]
    assert {entry["name"]: entry["size"] for entry in fs.ls("a")}["a/3"] == 147
    assert sorted(name for name in fs.find("") if not name.startswith(".z")) == ["a/.zarray", *CHUNKS]
    assert fs.isdir("a")
    assert fs.isdir("")
    assert not fs.isdir("a/3")
    assert fs.isfile("a/3")
    assert fs.exists("/a/3")
    assert not fs.exists("a/4")
    with pytest.raises(FileNotFoundError):
        fs.ls("b")


def test_the_rest_of_fsspec_works_over_it(index, tmp_path):
    fs = MultiReferenceFileSystem(index)
    assert sorted(fs.glob("a/[0-9]")) == list(CHUNKS)
    assert [(root, sorted(files)) for root, _, files in fs.walk("a")] == [("a", [".zarray", "0", "1", "2", "3"])]
    fs.get("a", str(tmp_path / "copy"), recursive=True)
    assert (tmp_path / "copy/3").read_bytes() == CHUNKS["a/3"]
    mapper = fs.get_mapper("a")
    assert mapper["3"] == CHUNKS["a/3"]
    assert "4" not in mapper


def test_what_is_not_there_is_not_found(index):
    fs = MultiReferenceFileSystem(index)
    for key in ("a/4", "a/9", "a/x", "a/0.0", "b", "a/-1", "a/01"):
        with pytest.raises(FileNotFoundError):
            fs.cat_file(key)
    answers = fs.cat(["a/2", "a/4"], on_error="return")
    assert answers["a/2"] == CHUNKS["a/2"]
    assert isinstance(answers["a/4"], FileNotFoundError)
    assert list(fs.cat(["a/2", "a/4"], on_error="omit")) == ["a/2"]


def test_a_copy_in_another_process_is_the_same(index):
    fs = pickle.loads(pickle.dumps(MultiReferenceFileSystem(index)))
    assert fs.cat(list(CHUNKS)) == CHUNKS


def test_single_ranges_read_as_with_fsspec_itself(folder):
    refs = {key: value for key, value in refs_of(str(folder / "data.bin")).items() if key != "a/3"}
    ours, theirs = (cls({"version": 1, "refs": refs}) for cls in (MultiReferenceFileSystem, ReferenceFileSystem))
    keys = ["a/0", "a/1", "a/2"]
    assert ours.cat(keys) == theirs.cat(keys)
    for key in keys:
        for start, end in ((2, 5), (None, -3), (-4, None)):
            assert ours.cat_file(key, start, end) == theirs.cat_file(key, start, end)
    assert ours.isdir("a") == theirs.isdir("a")
    assert ours.find("a") == theirs.find("a")


def test_what_is_written_stays_in_memory(index):
    fs = MultiReferenceFileSystem(index)
    fs.pipe_file("b/0", b"new")
    assert fs.cat_file("b/0") == b"new"
    assert fs.isdir("b")
    fs.rm_file("b/0")
    assert not fs.exists("b/0")
    assert not MultiReferenceFileSystem(index).exists("b/0")


# --- policy ---------------------------------------------------------------------------------------------------------


def test_an_index_reaches_its_own_folder_only(index, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret.bin"
    outside.write_bytes(DATA)
    home = index.rpartition("/")[0]
    for url in (str(outside), outside.as_uri(), "http://localhost:1/x", "s3://bucket/x", "github://a/b", "../x"):
        (fsspec.filesystem("file")).pipe_file(
            f"{home}/evil.json", json.dumps({"version": 1, "refs": {"k": [url]}}).encode()
        )
        with pytest.raises(periplus.DeniedError, match="k: "):
            MultiReferenceFileSystem(f"{home}/evil.json").cat_file("k")
        with pytest.raises(periplus.DeniedError):
            MultiReferenceFileSystem(f"{home}/evil.json").info("k")
    fs = MultiReferenceFileSystem(f"{home}/evil.json", allow=str(outside.parent))
    fs.references["k"] = [str(outside), 0, 3]
    assert fs.cat_file("k") == DATA[:3]


def test_a_remote_index_opens_no_local_file(folder):
    memory = fsspec.filesystem("memory")
    memory.pipe_file(
        "/remote/refs.json", json.dumps({"version": 1, "refs": refs_of(str(folder / "data.bin"))}).encode()
    )
    fs = MultiReferenceFileSystem("memory://remote/refs.json")
    assert fs.cat_file("a/0") == CHUNKS["a/0"]
    with pytest.raises(periplus.DeniedError):
        fs.cat_file("a/2")
    memory.pipe_file("/remote/data.bin", DATA)
    refs = refs_of("memory://remote/data.bin")
    memory.pipe_file("/remote/refs.json", json.dumps({"version": 1, "refs": refs}).encode())
    assert MultiReferenceFileSystem("memory://remote/refs.json").cat(list(CHUNKS)) == CHUNKS
    memory.rm("/remote", recursive=True)


def test_what_a_caller_names_by_hand_is_allowed(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "data.bin").write_bytes(DATA)
    refs = {"version": 1, "templates": {"base": "nowhere/"}, "refs": refs_of("{{base}}data.bin")}
    (folder / "refs.json").write_text(json.dumps(refs))
    fs = MultiReferenceFileSystem(str(folder / "refs.json"), template_overrides={"base": f"{elsewhere}/"})
    assert fs.cat(list(CHUNKS)) == CHUNKS
    assert MultiReferenceFileSystem(refs_of(str(elsewhere / "data.bin"))).cat(list(CHUNKS)) == CHUNKS
    with pytest.raises(periplus.DeniedError):
        MultiReferenceFileSystem(refs_of(str(elsewhere / "data.bin")), allow=[str(folder)]).cat_file("a/2")


def test_relative_urls_count_from_the_folder_of_the_index(folder, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))
    refs = {"version": 1, "templates": {"base": ""}, "refs": refs_of("{{base}}data.bin")}
    (folder / "refs.json").write_text(json.dumps(refs))
    assert MultiReferenceFileSystem(str(folder / "refs.json")).cat(list(CHUNKS)) == CHUNKS


# --- sources that are not what they were ----------------------------------------------------------------------------


def test_a_source_that_shrank_is_an_error(index, folder):
    (folder / "data.bin").write_bytes(DATA[:505])
    fs = MultiReferenceFileSystem(index)
    with pytest.raises(periplus.StaleError, match="a/3: 5 of 40 bytes"):
        fs.cat_file("a/3")
    with pytest.raises(periplus.StaleError, match="a/3"):
        fs.cat(["a/2", "a/3"])


def test_a_source_that_is_gone_is_an_error_and_never_fill(index, folder):
    (folder / "data.bin").unlink()
    fs = MultiReferenceFileSystem(index)
    with pytest.raises(ReferenceNotReachable):
        fs.cat_file("a/3")
    with pytest.raises(ReferenceNotReachable):
        asyncio.run(MultiReferenceFileSystem(index, asynchronous=True)._cat_file("a/2"))
    assert isinstance(fs.cat(["a/1"], on_error="return")["a/1"], ReferenceNotReachable)


@pytest.fixture
def http():
    """fsspec keeps its HTTP sessions for ever; here they end with the test."""
    yield
    for system in list(HTTPFileSystem._cache.values()):
        if system._session is not None:
            sync(system.loop, system._session.close)
    HTTPFileSystem.clear_instance_cache()


@pytest.mark.usefixtures("http")
def test_an_index_and_its_sources_are_read_over_http(index, folder, server):
    """fsspec's own HTTP file system fetches; relative URLs count from the folder of the index."""
    for path in folder.rglob("*"):
        if path.is_file():
            server.files[f"in/{path.relative_to(folder)}"] = path.read_bytes()
    name = index.removeprefix(f"{folder}/")
    if name.endswith(".json"):
        server.files[f"in/{name}"] = json.dumps({"version": 1, "refs": refs_of("data.bin")}).encode()
    fs = MultiReferenceFileSystem(f"{server.url}/in/{name}")
    if name.endswith(".json"):
        assert fs.cat(list(CHUNKS)) == CHUNKS
        assert fs.cat_file("a/3") == CHUNKS["a/3"]
        assert fs.cat_ranges(["a/3"], [30], [60]) == [CHUNKS["a/3"][30:60]]
    else:  # its references are to files of this machine
        assert fs.cat_file("a/0") == CHUNKS["a/0"]
        assert fs.cat_ranges(["a/0"], [1], [4]) == [CHUNKS["a/0"][1:4]]
        with pytest.raises(periplus.DeniedError):
            fs.cat_file("a/3")
