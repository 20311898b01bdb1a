"""An index replaces nothing but an index of its own form, whatever form is written and whatever is at the target."""

from __future__ import annotations

import gc
import os
import shutil
import socket
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import periplus
from periplus.errors import ConflictError, FetchError, FormatError, PeriplusError
from periplus.fetch import Fetch
from periplus.forms import FORMS, recognise
from periplus.table.target import check_target
from periplus.testing.formats import tiff as tiffs

NAMES = [form.name for form in FORMS]
OWN = ("flat", "dataset", "duckdb")
FOREIGN = ("image", "text", "items", "database", "zarr", "images")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two images, and a folder with an index of every form and what else may be at a target."""
    folder = tmp_path_factory.mktemp("made")
    for name, shape in (("a.tif", (1, 40, 50)), ("b.tif", (2, 30, 20))):
        values = np.arange(np.prod(shape), dtype="u2").reshape(shape)
        (folder / name).write_bytes(tiffs.written(values, compression="zlib"))
    at = folder / "targets"
    at.mkdir()
    index = periplus.index(folder / "a.tif")
    for form in NAMES:
        index.write(at / form, form=form)
    shutil.copy(folder / "a.tif", at / "image")
    (at / "text").write_text("some text\n")
    pq.write_table(pa.table({"id": ["a"]}), at / "items")
    with duckdb.connect(str(at / "database")) as connection:
        connection.execute("create table mine as select 1 as a")
    for place in ("zarr", "images"):
        (at / place).mkdir()
    (at / "zarr/zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    shutil.copy(folder / "a.tif", at / "images/a.tif")
    return folder


def content(path: Path) -> dict[str, bytes]:
    """Every file at a path, hidden ones too."""
    found = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path.parent)): each.read_bytes() for each in found}


def placed(made: Path, kind: str, folder: Path) -> Path:
    target = folder / "target"
    origin = made / "targets" / kind
    if origin.is_dir():
        shutil.copytree(origin, target)
    else:
        shutil.copy(origin, target)
    return target


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("kind", [*NAMES, *FOREIGN])
def test_only_an_index_of_the_same_form_is_replaced(made, kind, form, tmp_path):
    target = placed(made, kind, tmp_path)
    before = content(tmp_path)
    index = periplus.index(made / "b.tif")
    if kind == form:
        assert index.write(target, form=form)["0/data"].shape == (2, 30, 20)
        with periplus.open(target, trust=True, allow=str(made)) as opened:
            assert opened["0/data"].shape == (2, 30, 20)
        return
    with pytest.raises(FormatError, match=r"the target (is|contains) .*nothing was written"):
        index.write(target, form=form)
    assert content(tmp_path) == before


@pytest.mark.parametrize("refresh", ["check", "always"])
@pytest.mark.parametrize("form", OWN)
@pytest.mark.parametrize("kind", [*NAMES, *FOREIGN])
def test_indexing_replaces_only_an_index_of_the_same_form(made, kind, form, refresh, tmp_path):
    target = placed(made, kind, tmp_path)
    before = content(tmp_path)
    if kind == form:
        periplus.index(made / "b.tif", to=target, form=form, refresh=refresh).close()
        with periplus.open(target, trust=True, allow=str(made)) as opened:
            assert opened["0/data"].shape == (2, 30, 20)
        return
    with pytest.raises(FormatError, match=r"the target (is|contains) .*nothing was written"):
        periplus.index(made / "b.tif", to=target, form=form, refresh=refresh)
    assert content(tmp_path) == before


@pytest.mark.parametrize("form", NAMES)
def test_every_form_is_written_where_nothing_is(made, form, tmp_path):
    index = periplus.index(made / "b.tif")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    free = "folder" if (made / "targets" / form).is_dir() else "file"
    assert index.write(tmp_path / free, form=form).report.form == form


@pytest.mark.parametrize("form", OWN)
def test_an_index_keeps_its_form_when_it_is_made_again(made, form, tmp_path):
    target = placed(made, form, tmp_path)
    if form == "duckdb":
        target = target.rename(tmp_path / "index.duckdb")
    for append in (True, False):
        periplus.index([made / "a.tif", made / "b.tif"], to=target, append=append, arrange="collect").close()
        found = recognise(str(target))
        assert found is not None
        assert found.name == form


def test_a_damaged_index_is_replaced(made, tmp_path):
    index = periplus.index(made / "b.tif")
    for form, name in (("flat", "target"), ("dataset", "target/files.parquet")):
        target = placed(made, form, tmp_path)
        whole = (tmp_path / name).read_bytes()
        for damaged in (whole[:-20], b""):
            (tmp_path / name).write_bytes(damaged)
            assert index.write(target, form=form)["0/data"].shape == (2, 30, 20)
        if form == "dataset":
            (tmp_path / name).unlink()  # as a writer that died before its commit leaves it
            assert index.write(target, form=form)["0/data"].shape == (2, 30, 20)
        else:
            target.unlink()


@pytest.mark.parametrize("form", ["flat", "duckdb", "kerchunk-json"])
def test_a_source_of_the_index_is_not_replaced(made, form, tmp_path):
    image = Path(shutil.copy(made / "a.tif", tmp_path / "image"))
    index = periplus.index(image, to=tmp_path / "index.parquet")
    (tmp_path / "link").symlink_to(image)
    before = image.read_bytes()
    named_by_link = periplus.index(tmp_path / "link")
    with pytest.raises(FormatError, match="the target is a source of the index; nothing was written"):
        named_by_link.write(image, form=form)
    for name in ("image", "link"):
        with pytest.raises(FormatError, match="the target is a source of the index; nothing was written"):
            index.write(tmp_path / name, form=form)
    assert image.read_bytes() == before
    image.unlink()
    with pytest.raises(FormatError, match="the target is a source of the index"):
        index.write(image, form=form)
    assert not image.exists()


@pytest.mark.parametrize("form", NAMES)
def test_pipes_sockets_and_devices_are_not_replaced(made, form, tmp_path):
    index = periplus.index(made / "b.tif")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for name in ("pipe", "device", "socket"):
            before = os.stat(tmp_path / name)
            with pytest.raises(FormatError, match=r"the target is a .* not .*nothing was written"):
                index.write(tmp_path / name, form=form)
            if form in OWN:
                with pytest.raises(FormatError, match=r"the target is a .* not .*nothing was written"):
                    periplus.index(made / "b.tif", to=tmp_path / name, form=form)
            assert os.path.samestat(os.stat(tmp_path / name), before)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("action", ["write", "index", "append"])
@pytest.mark.parametrize("name", ["chunks", "placements", "files.parquet"])
def test_nothing_is_deleted_or_written_outside_of_a_dataset(made, name, action, tmp_path):
    target = placed(made, "dataset", tmp_path)
    outside, inside = tmp_path / "outside", target / name
    if inside.exists():
        inside.rename(outside)
    else:
        outside.mkdir()
    if outside.is_dir():
        (outside / "part-0123456789abcdef.parquet").write_bytes(b"of another dataset")
    inside.symlink_to(outside)
    before = content(tmp_path)
    index = partial(periplus.index, made / "b.tif", to=target, append=action == "append", arrange="collect")
    act = partial(periplus.index(made / "b.tif").write, target, form="dataset") if action == "write" else index
    with pytest.raises(FormatError, match=f"contains '{name}', a link to another place.*nothing was written"):
        act()
    assert content(tmp_path) == before
    with periplus.open(target, allow=str(made)) as opened:  # it can be read
        assert opened["0/data"].shape == (1, 40, 50)


def test_links_inside_of_a_dataset_and_to_it_are_followed(made, tmp_path):
    target = placed(made, "dataset", tmp_path)
    (target / "chunks").rename(target / "elsewhere")
    (target / "chunks").symlink_to("elsewhere")
    (tmp_path / "link").symlink_to(target)
    assert periplus.index(made / "b.tif").write(tmp_path / "link", form="dataset")["0/data"].shape == (2, 30, 20)
    assert len(list((target / "elsewhere").iterdir())) == 1


def test_a_repository_that_cannot_be_completed_deletes_nothing_outside(made, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").write_bytes(b"1")
    target = tmp_path / "new.icechunk"
    target.mkdir()
    (target / "chunks").symlink_to(tmp_path / "outside")
    with pytest.raises(FormatError, match="contains 'chunks', a link to another place"):
        periplus.index(made / "b.tif").write(target)
    assert (tmp_path / "outside/precious").exists()


@pytest.mark.parametrize("form", NAMES)
def test_a_target_that_cannot_be_made_is_an_error_of_ours(made, form, tmp_path):
    index = periplus.index(made / "b.tif")
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "no/where")
    for target, error in (
        (tmp_path / "file/below", "file is not a folder"),
        (tmp_path / "file/far/below", "file is not a folder"),
        (Path("/proc/below"), "no such file"),
        (tmp_path / ("n" * 300), "too long"),
    ):
        with pytest.raises(PeriplusError, match=error):
            index.write(target, form=form)
    if form == "icechunk":
        with pytest.raises(FormatError, match="dangling is a link to nothing"):
            index.write(tmp_path / "dangling", form=form)
    assert sorted(os.listdir(tmp_path)) == ["dangling", "file"]


def test_a_panic_of_icechunk_is_an_error_of_ours(made, tmp_path, monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(*_):
        raise PanicException("inside")

    monkeypatch.setattr("periplus.zarr.icechunk.write.open_repository", panic)
    with pytest.raises(FetchError, match="failed inside"):
        periplus.index(made / "b.tif").write(tmp_path / "new.icechunk")


def objects(path: Path) -> set[tuple[str, str]]:
    """Names and definitions in a DuckDB file, those of the index left out."""
    with duckdb.connect(str(path)) as connection:
        found = connection.execute(
            "select table_name, sql from duckdb_tables() union all select view_name, sql from duckdb_views() where "
            "not internal union all select function_name, macro_definition from duckdb_functions() where not internal "
            "union all select sequence_name, sql from duckdb_sequences()"
        ).fetchall()
        assert connection.execute("from my_view").fetchall()
        assert connection.execute("select b from other.numbers where a = 1").fetchall() == [("precious",)]
    own = {"chunks", "files", "arrays", "grid", "document", "placements", "footprint"}
    return {one for one in found if one[0] not in own}


@pytest.mark.parametrize("action", ["write", "index", "append"])
def test_tables_of_users_in_a_duckdb_index_are_kept(made, action, tmp_path):
    target = tmp_path / "index.duckdb"
    periplus.index(made / "a.tif", to=target, arrange="collect").close()
    with duckdb.connect(str(target)) as connection:
        connection.execute(
            "create schema other; create table other.numbers(a integer primary key, b varchar default 'x');"
            "insert into other.numbers values (1, 'precious'); create view my_view as select count(*) as n from chunks;"
            "create macro twice(a) as 2 * a; create sequence counter"
        )
    before = objects(target)
    for _ in range(2):
        if action == "write":
            periplus.index(made / "b.tif", arrange="collect").write(target).close()
        else:
            periplus.index(made / "b.tif", to=target, append=action == "append", arrange="collect").close()
        assert objects(target) == before
    assert len(before) == 4
    with periplus.open(target, trust=True, allow=str(made)) as opened:
        assert [array.shape for array in opened.arrays.values()] == [(1, 40, 50), (2, 30, 20)][action != "append" :]
        assert opened.check_index().ok


def test_a_duckdb_index_that_another_has_open_is_not_replaced(made, tmp_path):
    target = tmp_path / "index.duckdb"
    index = periplus.index(made / "a.tif")
    index.write(target).close()
    with duckdb.connect(str(target)) as connection:
        with pytest.raises(ConflictError, match="is open in another"):
            index.write(target)
        connection.execute("create table mine as select 1 as a")
        with pytest.raises(ConflictError, match="close the program"):
            index.write(target)
    index.write(target).close()
    with duckdb.connect(str(target)) as connection:
        assert connection.execute("from mine").fetchall() == [(1,)]


def test_a_damaged_database_is_not_replaced(made, tmp_path):
    target = tmp_path / "index.duckdb"
    index = periplus.index(made / "a.tif", to=target)
    index.close()
    whole = target.read_bytes()
    target.write_bytes(whole[: len(whole) // 2] + b"array_references")
    before = target.read_bytes()
    with pytest.raises(FormatError, match="cannot be opened, so that tables of others in it would be lost"):
        periplus.index(made / "b.tif").write(target)
    assert target.read_bytes() == before


@pytest.mark.parametrize("append", [False, True])
def test_a_database_is_released_with_the_index(made, append, tmp_path):
    target = tmp_path / "index.duckdb"
    periplus.index(made / "a.tif", to=target, arrange="collect").close()
    gc.collect()
    gc.disable()  # a reference cycle must not keep it open until the next collection
    try:
        periplus.index(made / "b.tif", to=target, append=append, arrange="collect").close()
        duckdb.connect(str(target)).close()
    finally:
        gc.enable()


def test_the_files_table_of_a_dataset_is_not_replaced_by_a_flat_index(made, tmp_path):
    target = placed(made, "dataset", tmp_path)
    with pytest.raises(FormatError, match="the target is not a flat Parquet index"):
        periplus.index(made / "b.tif").write(target / "files.parquet")
    periplus.index(made / "b.tif", to=target / "files.parquet").close()
    with periplus.open(target, allow=str(made)) as opened:
        assert opened["0/data"].shape == (2, 30, 20)


def test_a_dataset_inside_a_repository_is_not_written_again(made, tmp_path):
    target = placed(made, "icechunk", tmp_path).rename(tmp_path / "mixed.icechunk")
    shutil.copytree(made / "targets/dataset", target, dirs_exist_ok=True)
    before = content(tmp_path)
    with pytest.raises(FormatError, match="the target is an Icechunk repository; nothing was written"):
        periplus.index(made / "b.tif").write(target, form="dataset")
    assert content(tmp_path) == before


@pytest.mark.parametrize("to", [False, True], ids=["write", "index"])
def test_a_duckdb_index_has_any_name(made, to, tmp_path):
    target = tmp_path / "neutral"
    if to:
        periplus.index(made / "a.tif", to=target, form="duckdb", arrange="collect").close()
        more = periplus.index(made / "b.tif", to=target, append=True)
        assert len(more.files) == 2
    else:
        written = periplus.index(made / "a.tif").write(target, form="duckdb")
        assert written["0/data"].shape == (1, 40, 50)
    found = recognise(str(target))
    assert found is not None
    assert found.name == "duckdb"
    with periplus.open(target, trust=True, allow=str(made)) as opened:
        assert opened.check_index().ok
    with pytest.raises(FormatError, match=r"only the name of a DuckDB index ends in \.duckdb or \.ddb"):
        periplus.index(made / "a.tif").write(tmp_path / "a.duckdb", form="flat")


def test_objects_of_a_store_are_not_replaced_either(made):
    with Fetch() as fetch:

        def put(url: str, data: bytes) -> None:
            fetch.run(fetch.write(url, data))

        put("memory://repository/refs/branch.main/ref.json", b'{"snapshot":"1"}')
        put("memory://image", (made / "a.tif").read_bytes())
        put("memory://flat", (made / "targets/flat").read_bytes())
        put("memory://dataset/files.parquet", (made / "targets/dataset/files.parquet").read_bytes())
        put("memory://begun/chunks/part-0123456789abcdef.parquet", b"x")
        put("memory://empty", b"")
        allowed = {
            "flat": {"memory://flat", "memory://empty", "memory://none"},
            "dataset": {"memory://dataset", "memory://dataset/", "memory://begun", "memory://none", "memory://none/"},
        }
        for form, urls in allowed.items():
            for url in urls:
                check_target(url, form, fetch=fetch)
            for url in ({"memory://repository", "memory://image", *allowed["flat"], *allowed["dataset"]}) - urls:
                if url.rstrip("/") in ("memory://none", "memory://empty"):
                    continue
                with pytest.raises(FormatError, match="nothing was written"):
                    check_target(url, form, fetch=fetch)
