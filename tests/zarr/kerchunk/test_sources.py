"""Kerchunk references remember what their sources were: a source that changed is noticed, in every form."""

import base64
import io
import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from fsspec.implementations.reference import ReferenceFileSystem

import periplus
from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Files, Source
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.kerchunk.extension import pack_files, unpack_files
from periplus.zarr.osml import Parser, write_tile_index

FORMS = {
    "two.json": {},
    "three.json": {"zarr_format": 3},
    "refs": {"form": "kerchunk"},
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated"),
]


def image(seed):
    return tiffs.picture(seed, np.uint16, (1, 64, 64))


def put(path, seed, *, later=0):
    """An uncompressed image, so that any two have one size."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(tiffs.written(image(seed)))
    os.utime(path, ns=(10**18, 10**18 + later * 10**9))
    return path


@pytest.fixture
def source(tmp_path):
    return put(tmp_path / "in/a.tif", "first")


@pytest.mark.parametrize("form", FORMS)
def test_a_source_that_changed_is_stale(source, form, tmp_path):
    place = tmp_path / form
    written = periplus.index(source).write(place, **FORMS[form])
    opened = periplus.open(place)
    assert np.array_equal(opened["0/data"][:], image("first"))
    put(source, "second", later=1)  # of the same size
    for index in (written, opened, periplus.open(place)):
        with pytest.raises(periplus.StaleError):
            index["0/data"][:]
    assert len(periplus.open(place).check().findings) == 1


@pytest.mark.parametrize("form", FORMS)
def test_what_is_known_of_sources_comes_back(source, form, tmp_path):
    index = periplus.index(source)
    index.write(tmp_path / form, **FORMS[form])
    flat = periplus.open(tmp_path / form).write(tmp_path / "own.parquet")
    for files in (periplus.open(tmp_path / form).files, flat.files):
        for name in ("path", "etag", "format", "status", "error"):
            assert list(getattr(files, name)) == list(getattr(index.files, name)), name
        for name in ("size", "last_modified", "datetime"):
            assert np.array_equal(getattr(files, name), getattr(index.files, name), equal_nan=True), name


@pytest.mark.parametrize("form", FORMS)
def test_a_portable_index_compares_everything_where_it_was_indexed_and_sizes_elsewhere(source, form, tmp_path):
    place = tmp_path / form
    periplus.index(source).write(place, portable=True, **FORMS[form])
    put(tmp_path / "copy/a.tif", "first", later=5)

    def read(base):
        return periplus.open(place, template_overrides={"base": f"{base}/"}, allow=[f"{base}/"])["0/data"][:]

    assert "0/data" in periplus.open(place, template_overrides={"base": "/nowhere/"})
    for base in (source.parent, tmp_path / "copy"):
        assert np.array_equal(read(base), image("first"))
    put(source, "second", later=5)
    with pytest.raises(periplus.StaleError):
        read(source.parent)
    (tmp_path / "copy/a.tif").write_bytes(source.read_bytes() + b"more")
    with pytest.raises(periplus.StaleError, match="bytes when it was indexed"):
        read(tmp_path / "copy")


def test_a_portable_files_table_does_not_name_its_folder():
    error = ["no such file (/secret/a.tif)"]
    files = Files.of([Source(url="/secret/place/a.tif", size=7)], error=error)
    raw = pack_files(files, ["{{base}}a.tif"], folder="/secret/")
    table = pq.ParquetFile(io.BytesIO(raw))
    assert "secret" not in f"{table.read().to_pylist()} {table.metadata.metadata}"
    back = unpack_files(raw, lambda url, _: url.replace("{{base}}", "/b/"), url="/refs.json", limits=Limits())
    assert back.path == ["/b/a.tif"]


def test_a_portable_index_may_be_copied_with_its_files(source, tmp_path):
    periplus.index(source).write(source.parent / "refs.json", portable=True)
    shutil.copytree(source.parent, tmp_path / "copy")
    put(tmp_path / "copy/a.tif", "first", later=5)
    assert np.array_equal(periplus.open(tmp_path / "copy/refs.json")["0/data"][:], image("first"))
    put(source, "first", later=5)
    with pytest.raises(periplus.StaleError):
        periplus.open(source.parent / "refs.json")["0/data"][:]


def test_an_index_of_files_that_will_be_elsewhere_knows_their_size_only(source, tmp_path):
    other = put(tmp_path / "bucket/b.tif", "first", later=9)
    write_tile_index(Parser(local_paths=source)(url=str(other)), tmp_path / "a.json")
    write_tile_index(Parser()(source), tmp_path / "b.json", url_overrides={str(source): str(other)})
    for name in ("a.json", "b.json"):
        index = periplus.open(tmp_path / name)
        assert index.files.path == [str(other)]
        assert int(index.files.size[0]) == other.stat().st_size
        assert np.array_equal(index["0/data"][:], image("first"))


def test_virtualizarr_and_kerchunk_ignore_the_files_table(source, tmp_path):
    parsers = pytest.importorskip("virtualizarr.parsers")
    kerchunk = pytest.importorskip("kerchunk.df")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    periplus.index(source).write(tmp_path / "refs.json", codecs="standard")
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    store = parsers.KerchunkJSONParser(group="0", skip_variables=["bands"])(f"file://{tmp_path}/refs.json", registry)
    assert np.array_equal(zarr.open_group(store, mode="r")["data"][:], image("first"))
    (tmp_path / "theirs").mkdir()
    kerchunk.refs_to_dataframe(json.loads((tmp_path / "refs.json").read_text()), str(tmp_path / "theirs"))
    assert np.array_equal(periplus.open(tmp_path / "theirs")["0/data"][:], image("first"))


# --- the table is input like any other ------------------------------------------------------------------------------


def parquet(**columns):
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


@pytest.mark.parametrize(
    "table",
    [
        b"nothing",
        b"PAR1" + bytes(40) + b"PAR1",
        parquet(size=[1]),
        parquet(path=["a.tif", "a.tif"]),
        parquet(path=[None]),
        parquet(path=["a.tif"], size=["many"]),
        parquet(path=["a.tif"], size=[-7]),
        parquet(path=["{{7*7}}"]),
        parquet(path=["{{missing}}a.tif"]),
        7,
        "text",
        [7],
        ["?"],
    ],
)
def test_a_files_table_that_is_none_is_refused(source, table, tmp_path):
    index = periplus.index(source)
    index.write(tmp_path / "refs.json")
    document = json.loads((tmp_path / "refs.json").read_text())
    document["periplus"] = [base64.b64encode(table).decode()] if isinstance(table, bytes) else table
    (tmp_path / "refs.json").write_text(json.dumps(document))
    with pytest.raises(periplus.FormatError):
        periplus.open(tmp_path / "refs.json")
    if isinstance(table, bytes):
        index.write(tmp_path / "refs", form="kerchunk")
        (tmp_path / "refs/files.periplus.parquet").write_bytes(table)
        with pytest.raises((periplus.FormatError, periplus.StaleError)):
            periplus.open(tmp_path / "refs")["0/data"][:]


def test_a_files_table_beyond_the_limits_is_refused(source, tmp_path):
    periplus.index(source).write(tmp_path / "refs.json")
    document = json.loads((tmp_path / "refs.json").read_text())
    many = parquet(path=pa.array(["a"]).take(pa.array(np.zeros(200_000, np.int64))))
    document["periplus"] = [base64.b64encode(many).decode()]
    (tmp_path / "refs.json").write_text(json.dumps(document))
    with pytest.raises(periplus.LimitError, match="files table"):
        periplus.open(tmp_path / "refs.json", limits=Limits(memory_bytes=1 << 21))


def test_a_files_table_gives_no_access(source, tmp_path):
    periplus.index(source).write(tmp_path / "refs.json")
    document = json.loads((tmp_path / "refs.json").read_text())
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "refs.json", tmp_path / "elsewhere/refs.json")
    (tmp_path / "elsewhere/refs.json").write_text(json.dumps(document))
    with pytest.raises(periplus.DeniedError):
        periplus.open(tmp_path / "elsewhere/refs.json")["0/data"][:]


def test_the_table_of_many_files_is_small():
    count = 100_000
    stamps = np.datetime64("2024-01-01", "us") + np.arange(count) * 1_234_567
    files = Files(
        path=[f"s3://bucket/archive/2024/scene_{n:06d}.tif" for n in range(count)],
        size=np.random.default_rng(1).integers(10**6, 10**7, count),
        etag=[f'"{n:032x}"' for n in np.random.default_rng(2).integers(0, 1 << 62, count).tolist()],
        last_modified=stamps,
        datetime=stamps,
        format=["tiff"] * count,
        status=["ok"] * count,
        error=[None] * count,
    )
    raw = pack_files(files, files.path, folder=None)
    assert len(raw) < 40 * count
    back = unpack_files(raw, lambda url, _: url, url="s3://bucket/refs.json", limits=Limits())
    assert back.etag == files.etag


def test_urls_that_differ_in_credentials_only_are_listed_once():
    files = Files.of([Source(url="x", size=1), Source(url="y", size=2)])
    raw = pack_files(files, ["same", "same"], folder=None)
    back = unpack_files(raw, lambda url, _: url, url="/refs.json", limits=Limits())
    assert (back.path, back.size.tolist()) == (["same"], [1])


def test_a_portable_index_in_another_folder_does_not_read_files_of_the_same_names_there(tmp_path):
    for year in (2023, 2024):
        (tmp_path / str(year)).mkdir()
        (tmp_path / str(year) / "a.tif").write_bytes(tiffs.written(np.full((1, 32, 32), year, "u2")))
    target = tmp_path / "2024" / "index.json"
    written = periplus.index(tmp_path / "2023" / "a.tif").write(target, portable=True)
    assert written["0/data"][0, 0, 0] == 2023
    with pytest.raises(FormatError, match="no template 'base'"):
        periplus.open(target)
    with pytest.raises(RuntimeError):  # of fsspec: it cannot be reached
        ReferenceFileSystem(str(target)).cat("0/data/0.0.0")
    again = periplus.open(target, template_overrides={"base": f"{tmp_path}/2023/"})
    assert again["0/data"][0, 0, 0] == 2023
