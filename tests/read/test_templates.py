"""Path templates: one row of the files table for many objects, read, checked, written and exported as any other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype

import periplus
from periplus.errors import DeniedError, FormatError, MissingError
from periplus.fetch import Fetch
from periplus.limits import Limits
from periplus.model import Array, Catalog, Encoding, Files, Refs, Region, chunk_positions
from periplus.read import read_array
from periplus.table.memory import memory_table
from periplus.table.target import check_output
from periplus.table.templates import COLUMN, Template, expanded
from periplus.table.write import copy_table, write_table
from periplus.testing.indexes import RAW, files_of
from periplus.testing.servers.http import RangeServer, S3Server
from periplus.zarr.store.store import IndexStore

GRID = (3, 2, 4)
ARRAY = Array(
    name="data",
    dims=("time", "y", "x"),
    shape=(3, 10, 30),
    chunks=(1, 5, 8),
    dtype=np.dtype("<i2"),
    fill=-1,
    encodings=(Encoding(codecs=RAW),),
)
VALUES = np.random.default_rng(0).integers(0, 9999, (3, 10, 32)).astype("<i2")
"""As stored: the last chunks reach past the edge of the array."""
HOLE = (1, 0, 2)
SHAPES = {"chunks": "store/c/{time}/{y}.{x}", "shards": "store/t{time}.bin"}


def objects_of(shape: str) -> dict[str, bytes]:
    """The objects: one for every chunk, or one for every step with chunks one after the other."""
    chunks = {(t, y, x): VALUES[t, 5 * y : 5 * y + 5, 8 * x : 8 * x + 8].tobytes() for t, y, x in np.ndindex(GRID)}
    if shape == "chunks":
        return {f"store/c/{t}/{y}.{x}": data for (t, y, x), data in chunks.items() if (t, y, x) != HOLE}
    return {f"store/t{t}.bin": b"".join(chunks[t, y, x] for y, x in np.ndindex(GRID[1:])) for t in range(3)}


def index_of(path: str, shape: str) -> tuple[Catalog, dict[str, Refs], Files]:
    """A plain file that nothing is in, and the template."""
    chunk = chunk_positions(GRID)
    chunk = chunk[:, ~(chunk == np.array(HOLE)[:, None]).all(axis=0)]
    count, size = chunk.shape[1], 80
    offset = np.zeros(count, np.int64) if shape == "chunks" else (chunk[1] * 4 + chunk[2]).astype(np.int64) * size
    refs = Refs(chunk=chunk, offset=offset, length=np.full(count, size), file=np.ones(count, np.int32))
    files = files_of([path.rpartition("store")[0] + "plain.bin", path])
    files = replace(
        files,
        size=np.array([7, -1]),
        etag=['"1"', None],
        last_modified=np.array(["2021-01-01", "NaT"], "datetime64[us]"),
        columns={COLUMN: np.array([False, True])},
    )
    return Catalog(arrays={"data": ARRAY}), {"data": refs}, files


def expected() -> np.ndarray:
    values = VALUES[:, :, :30].copy()
    values[1, :5, 16:24] = -1
    return values


def put(folder: Path, objects: Mapping[str, bytes]) -> None:
    for name, data in objects.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def written(folder: Path, shape: str, name: str, fetch: Fetch, base: str = "") -> str:
    """An index beside the objects."""
    catalog, refs, files = index_of(f"{base or folder}/{SHAPES[shape]}", shape)
    target = str(folder / name)
    write_table(target, catalog, refs.items(), files, fetch=fetch).close()
    return target


@pytest.fixture
def fetch() -> Any:
    with Fetch() as made:
        yield made


@pytest.mark.parametrize("name", ["i.parquet", "i/", "i.duckdb"])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_read_from_the_object_their_position_names(
    tmp_path: Path, fetch: Fetch, shape: str, name: str
) -> None:
    put(tmp_path, objects_of(shape))
    target = written(tmp_path, shape, name, fetch)
    with periplus.open(target, trust=True) as index:
        assert index.files.path[1] == f"{tmp_path}/{SHAPES[shape]}"
        assert index.table.stored_files.path[1] == SHAPES[shape], "relative to the index, placeholders as they are"
        np.testing.assert_array_equal(index["data"][...], expected())
        np.testing.assert_array_equal(index["data"][1:, 3:9, 20], expected()[1:, 3:9, 20])
        assert set(index.select(array="data")["path"].to_pylist()) == {f"{tmp_path}/{SHAPES[shape]}"}
        (row,) = index.sql("SELECT url, template FROM files WHERE template").to_pylist()
        assert row == {"url": f"{tmp_path}/{SHAPES[shape]}", "template": True}
        report = index.check()
        assert report.asked == 1, "many objects are not asked"


def test_objects_of_a_template_are_not_replaced(tmp_path: Path, fetch: Fetch) -> None:
    put(tmp_path, objects_of("chunks"))
    with periplus.open(written(tmp_path, "chunks", "i.parquet", fetch)) as index:
        (tmp_path / "link").symlink_to(tmp_path / "store/c/0/1.2")
        for name in ("store/c/0/1.2", "link"):
            with pytest.raises(FormatError, match="the target is a source of the index"):
                index.write(tmp_path / name, form="flat")
            with pytest.raises(FormatError, match="the target is a source of the index"):
                check_output(str(tmp_path / name), str(tmp_path / "i.parquet"), index.table)
        for name in ("store/c/0/1.2.txt", "store/c/0/1"):
            (tmp_path / name).write_bytes(b"")
            check_output(str(tmp_path / name), str(tmp_path / "i.parquet"), index.table)


@pytest.mark.parametrize("shape", SHAPES)
def test_objects_of_a_server(server: RangeServer, tmp_path: Path, fetch: Fetch, shape: str) -> None:
    server.files.update({f"a b/{name}": data for name, data in objects_of(shape).items()})
    target = written(tmp_path, shape, "i.parquet", fetch, base=f"{server.url}/a b")
    server.files["a b/i.parquet"] = Path(target).read_bytes()
    with periplus.open(target, allow=f"{server.url}/") as index:
        np.testing.assert_array_equal(index["data"][...], expected())
        server.log.clear()
        np.testing.assert_array_equal(index["data"][0, :5, :8], expected()[0, :5, :8])
        assert len(server.log) == 1
    target = written(tmp_path, shape, "j.parquet", fetch, base=str(tmp_path))
    server.files["a b/j.parquet"] = Path(target).read_bytes()
    with periplus.open(f"{server.url}/a b/j.parquet") as index:
        np.testing.assert_array_equal(index["data"][...], expected())
        (row,) = index.sql("SELECT path, url FROM files WHERE template").to_pylist()
        assert row == {"path": SHAPES[shape], "url": f"{server.url}/a%20b/{SHAPES[shape]}"}


@pytest.mark.s3
def test_objects_of_a_store(s3: S3Server, fetch: Fetch) -> None:
    with Fetch(storage_options=s3.storage_options) as remote:
        for name, data in objects_of("chunks").items():
            remote.run(remote.write(f"{s3.url}/templates/{name}", data))
        catalog, refs, files = index_of(f"{s3.url}/templates/{SHAPES['chunks']}", "chunks")
        target = f"{s3.url}/templates/i.parquet"
        write_table(target, catalog, refs.items(), files, fetch=remote)
    with periplus.open(target, storage_options=s3.storage_options) as index:
        np.testing.assert_array_equal(index["data"][...], expected())


def test_an_object_that_is_not_there_is_an_error_and_never_fill(tmp_path: Path, fetch: Fetch) -> None:
    objects = objects_of("chunks")
    put(tmp_path, {name: data for name, data in objects.items() if name != "store/c/2/1.3"})
    target = written(tmp_path, "chunks", "i.parquet", fetch)
    with periplus.open(target) as index:
        np.testing.assert_array_equal(index["data"][:2], expected()[:2])
        with pytest.raises(MissingError, match=r"2/1\.3"):
            index["data"][...]
        with pytest.raises(MissingError):
            zarr.open_array(index.store(), path="data", mode="r")[...]


def test_the_expanded_path_is_checked_by_policy(tmp_path: Path, fetch: Fetch) -> None:
    put(tmp_path, objects_of("chunks"))
    (tmp_path / "out").write_bytes(bytes(80))
    (tmp_path / "store/c/2/1.3").unlink()
    (tmp_path / "store/c/2/1.3").symlink_to(tmp_path / "out")
    (tmp_path / "store/in").mkdir()
    catalog, refs, files = index_of(f"{tmp_path}/{SHAPES['chunks']}", "chunks")
    write_table(str(tmp_path / "store/i.parquet"), catalog, refs.items(), files, fetch=fetch)
    with periplus.open(tmp_path / "store/i.parquet") as index:
        np.testing.assert_array_equal(index["data"][:2], expected()[:2])
        with pytest.raises(DeniedError):
            index["data"][2]
    write_table(str(tmp_path / "store/in/i.parquet"), catalog, refs.items(), files, fetch=fetch)
    with periplus.open(tmp_path / "store/in/i.parquet") as index, pytest.raises(DeniedError):
        index["data"][0]


@pytest.mark.parametrize(
    "path",
    [
        "c/{z}/{y}",
        "c/{time.__class__}",
        "c/{0!r}",
        "c/{}",
        "c/{time:>99999999}",
        "c/{{time}}",
        "c/{time",
        "c/time}",
        "c/{ti{me}",
        "c/plain",
        "{time}://host/x",
        "http://{time}.example.com/x",
        "periplus-place-0-/{time}",
    ],
)
def test_hostile_templates_are_refused(path: str, fetch: Fetch, tmp_path: Path) -> None:
    catalog, refs, files = index_of(path, "chunks")
    table = memory_table(catalog, refs, replace(files, path=["/a/plain.bin", path]))
    with pytest.raises(FormatError):
        table.objects(ARRAY, table.refs("data"))
    target = written(tmp_path, "chunks", "i/", fetch)
    stored = pq.read_table(f"{target}/files.parquet")
    paths = pa.array(["plain.bin", path])
    forged = stored.set_column(stored.schema.get_field_index("path"), "path", paths)
    keys = pq.read_metadata(f"{target}/files.parquet").metadata
    pq.write_table(forged.replace_schema_metadata(keys), f"{target}/files.parquet")
    with periplus.open(target, allow=["http://", f"{tmp_path}/"]) as index, pytest.raises((FormatError, DeniedError)):
        index["data"][...]


def test_dots_cannot_be_made_from_placeholders(tmp_path: Path, fetch: Fetch) -> None:
    catalog, refs, files = index_of(f"{tmp_path}/x/../{{time}}/{{y}}.{{x}}", "chunks")
    target = tmp_path / "deep" / "i.parquet"
    target.parent.mkdir()
    write_table(str(target), catalog, refs.items(), files, fetch=fetch)
    with periplus.open(target) as index, pytest.raises(DeniedError):
        index["data"][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": {COLUMN: np.array(["no", "yes"], object)}},
        {"columns": {COLUMN: np.array([0, 1])}},
        {"size": np.array([7, 80])},
        {"etag": [None, '"tag"']},
    ],
)
def test_a_template_has_no_size_and_its_column_holds_flags(changes: dict[str, Any]) -> None:
    catalog, refs, files = index_of("/a/{time}/{y}.{x}", "chunks")
    table = memory_table(catalog, refs, replace(files, **changes))
    with pytest.raises(FormatError):
        table.objects(ARRAY, table.refs("data"))


def test_a_path_with_braces_is_no_template_by_itself(tmp_path: Path, fetch: Fetch) -> None:
    (tmp_path / "{y}.bin").write_bytes(bytes(range(80)))
    catalog, refs, files = index_of(f"{tmp_path}/{{y}}.bin", "chunks")
    for column in ({}, {COLUMN: np.array([None, None], object)}, {COLUMN: np.array([False, False])}):
        table = memory_table(catalog, refs, replace(files, columns=column))
        (found, objects) = table.objects(ARRAY, table.refs("data"))
        assert not objects
        assert found.file is not None


def test_a_template_names_objects_by_its_dimensions() -> None:
    template = Template.parse("a/{y}{x}-{y}.z")
    assert template.dims == ("y", "x", "y")
    assert template.fill(np.array([[1, 2], [30, 4], [1, 2]])) == ["a/130-1.z", "a/24-2.z"]


@pytest.mark.parametrize("shape", SHAPES)
def test_stock_readers_of_the_exits_find_the_objects(tmp_path: Path, fetch: Fetch, shape: str) -> None:
    put(tmp_path, objects_of(shape))
    target = written(tmp_path, shape, "i.parquet", fetch)
    with periplus.open(target) as index:
        store = zarr.open_array(index.store(), path="data", mode="r")
        np.testing.assert_array_equal(store[...], expected())
        index.write(tmp_path / "k.json")
        text = json.loads((tmp_path / "k.json").read_text())["refs"]
        first = json.loads(text["data/0.0.0"]) if isinstance(text["data/0.0.0"], str) else text["data/0.0.0"]
        assert first[0].endswith(SHAPES[shape].format(time=0, y=0, x=0))
        assert "data/1.0.2" not in text
        index.write(tmp_path / "k.parq", form="kerchunk")
        index.write(tmp_path / "r.icechunk")
        from periplus.zarr.virtualizarr import _array

        manifest = _array(index.store(), index.store().layout.leaves["data"]).manifest
        assert manifest.dict()["2.1.3"]["path"] == f"file://{tmp_path}/{SHAPES[shape].format(time=2, y=1, x=3)}"
    for name in ("k.json", "k.parq", "r.icechunk"):
        with periplus.open(tmp_path / name, allow=f"{tmp_path}/") as index:
            np.testing.assert_array_equal(index["data"][...], expected())
            assert COLUMN not in index.files.columns


def test_an_expanded_index_has_a_row_for_every_object(tmp_path: Path) -> None:
    catalog, refs, files = index_of(f"{tmp_path}/{SHAPES['shards']}", "shards")
    table = expanded(memory_table(catalog, refs, files))
    assert table.files.path == [f"{tmp_path}/plain.bin", *(f"{tmp_path}/store/t{t}.bin" for t in range(3))]
    assert set(table.refs("data").file.tolist()) == {1, 2, 3}  # type: ignore[union-attr]
    plain = memory_table(catalog, refs, replace(files, columns={}))
    assert expanded(plain) is plain
    small = memory_table(catalog, refs, files, limits=Limits(memory_bytes=500))
    with pytest.raises(periplus.LimitError):
        expanded(small)


@pytest.mark.parametrize("name", ["c.parquet", "c/", "c.duckdb"])
def test_templates_are_copied_from_form_to_form(tmp_path: Path, fetch: Fetch, name: str) -> None:
    put(tmp_path, objects_of("chunks"))
    target = written(tmp_path, "chunks", "i.parquet", fetch)
    with periplus.open(target) as index:
        copied = copy_table(index.table, str(tmp_path / "copies" / name), fetch=fetch)
    assert copied.files.path[1] == f"{tmp_path}/{SHAPES['chunks']}"
    np.testing.assert_array_equal(read_array(copied, fetch, ARRAY, limits=Limits()), expected())
    copied.close()


@pytest.mark.parametrize("kind", ["edges", "region"])
def test_chunks_that_a_store_decodes_itself_are_found_too(tmp_path: Path, fetch: Fetch, kind: str) -> None:
    put(tmp_path, objects_of("chunks"))
    _, refs, files = index_of(f"{tmp_path}/{SHAPES['chunks']}", "chunks")
    array, values = ARRAY, expected()
    if kind == "edges":
        array = replace(ARRAY, shape=(3, 10, 32), edges=(None, None, (8, 8, 8, 8)))
        values = VALUES.copy()
        values[1, :5, 16:24] = -1
    elif kind == "region":
        region = Region(begin=(0, 0, 0), at=(0, 1, 0), size=(1, 4, 8))
        array = replace(ARRAY, encodings=(Encoding(codecs=RAW, extent=(1, 5, 8), region=region),))
        values = np.full((3, 10, 32), -1, "<i2")
        for y in (0, 5):
            values[:, y + 1 : y + 5] = VALUES[:, y : y + 4]
        values[1, :5, 16:24] = -1
        values = values[:, :, :30]
    table = memory_table(Catalog(arrays={"data": array}), refs, files)
    store = IndexStore(table, fetch, codecs="standard")
    np.testing.assert_array_equal(read_array(table, fetch, array, limits=Limits()), values)
    np.testing.assert_array_equal(zarr.open_array(store, path="data", mode="r")[...], values)


def test_a_part_of_a_chunk_is_read_from_its_object(tmp_path: Path, fetch: Fetch) -> None:
    put(tmp_path, objects_of("chunks"))
    catalog, refs, files = index_of(f"{tmp_path}/{SHAPES['chunks']}", "chunks")
    store = IndexStore(memory_table(catalog, refs, files), fetch)
    some = asyncio.run(store.get("data/c/2/1/3", default_buffer_prototype(), RangeByteRequest(16, 32)))
    assert some is not None
    assert some.to_bytes() == objects_of("chunks")["store/c/2/1.3"][16:32]
    (tmp_path / "store/c/2/1.3").write_bytes(b"short")
    with pytest.raises(periplus.StaleError, match=r"2/1\.3"):
        asyncio.run(store.get("data/c/2/1/3", default_buffer_prototype()))
