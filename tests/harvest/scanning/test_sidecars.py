"""Files beside a file: R-sets and world files are found, kept as rows, and asked for only where the format has them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import periplus
from periplus.errors import FetchError
from periplus.fetch import Fetch
from periplus.harvest import index_into
from periplus.policy import Policy
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures
from periplus.testing.formats.nitf import ImageSegment
from periplus.testing.servers.http import Fault, RangeServer, S3Server

VALUES = nitfs.values_of("u16", 2, (101, 203))
WORLD = b"2.0\n0.0\n0.0\n-2.0\n501.0\n999.0\n"


def file_of(step: int = 1, **options: Any) -> bytes:
    return nitfs.nitf(ImageSegment(values=VALUES[:, ::step, ::step], kind="u16", **options))


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {"a.ntf": file_of(), "a.ntf.r1": file_of(2, block=(32, 32)), "a.ntf.r2": file_of(4)}


@pytest.fixture
def folder(tmp_path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def asked(server: RangeServer) -> Counter[str]:
    return Counter(request.path.lstrip("/") for request in server.log)


def check_levels(index: periplus.Index) -> None:
    assert list(index.arrays) == ["0/data", "1/data", "2/data"]
    for level in range(3):
        np.testing.assert_array_equal(index[f"{level}/data"][...], VALUES[:, :: 2**level, :: 2**level])


def test_levels_are_read_from_the_files_beside(folder: Path, files: dict[str, bytes]) -> None:
    index = periplus.index(folder / "a.ntf")
    check_levels(index)
    assert [Path(path).name for path in index.files.path] == list(files)
    assert index.files.size.tolist() == [len(data) for data in files.values()]
    assert list(index.files.format) == ["nitf"] * 3
    assert {str(path) for path in index.select(array="1/data")["path"].to_pylist()} == {str(folder / "a.ntf.r1")}


@pytest.mark.parametrize("order", [("a.ntf", "a.ntf.r1", "a.ntf.r2"), ("a.ntf.r2", "a.ntf", "a.ntf.r1")])
@pytest.mark.parametrize("form", [None, "x.parquet", "x/"])
def test_r_sets_that_are_named_too_are_no_images_of_their_own(folder: Path, order: Any, form: str | None) -> None:
    (folder / "out").mkdir(exist_ok=True)
    index = periplus.index([folder / name for name in order], to=form and str(folder / "out" / form))
    check_levels(index)
    assert index.summary is not None
    assert (index.summary.ok, index.summary.files) == (3, 3)
    if form is not None:
        again = periplus.index([folder / name for name in order], to=str(folder / "out" / form))
        assert again.summary is not None
        assert again.summary.reused == 1
        check_levels(again)
        with periplus.open(str(folder / "out" / form), allow=str(folder) + "/") as opened:
            check_levels(opened)


def test_without_looking_beside_there_is_one_level(folder: Path) -> None:
    target = str(folder / "x.parquet")
    assert list(periplus.index(folder / "a.ntf", sidecars=False).arrays) == ["0/data"]
    assert list(periplus.index(folder / "a.ntf", to=target, sidecars=False).arrays) == ["0/data"]
    check_levels(periplus.index(folder / "a.ntf", to=target))
    assert list(periplus.index(folder / "a.ntf", to=target, sidecars=False).arrays) == ["0/data"]


def test_the_command_need_not_look_beside_either(folder: Path) -> None:
    from click.testing import CliRunner

    from periplus.cli.index import command

    target = str(folder / "x.parquet")
    assert CliRunner().invoke(command, [str(folder / "a.ntf"), "-o", target, "--no-sidecars", "-q"]).exit_code == 0
    with periplus.open(target) as index:
        assert list(index.arrays) == ["0/data"]


def test_a_changed_r_set_is_stale_and_read_anew(folder: Path) -> None:
    target = str(folder / "x.parquet")
    index = periplus.index(folder / "a.ntf", to=target)
    assert index.check().ok
    (folder / "a.ntf.r1").write_bytes(file_of(2))
    assert [finding.kind for finding in index.check().findings] == ["stale"]
    index = periplus.index(folder / "a.ntf", to=target)
    assert index.summary is not None
    assert index.summary.reused == 0
    assert index.check().ok
    check_levels(index)
    (folder / "a.ntf.r1").unlink()
    assert list(periplus.index(folder / "a.ntf", to=target).arrays) == ["0/data"]


@pytest.mark.parametrize("form", ["x.parquet", "x/"])
def test_an_index_with_r_sets_takes_more_files(folder: Path, form: str) -> None:
    for name in ("b.ntf", "c.ntf"):
        (folder / name).write_bytes(file_of())
    target = str(folder / form)
    periplus.index([folder / "a.ntf", folder / "b.ntf"], to=target, arrange="collect")
    index = periplus.index([folder / "c.ntf"], to=target, arrange="collect", append=True)
    assert list(index.arrays) == ["a/0/data", "a/1/data", "a/2/data", "b/0/data", "c/0/data"]
    for name, array in index.arrays.items():
        step = 2 ** int(name.split("/")[1])
        np.testing.assert_array_equal(array[...], VALUES[:, ::step, ::step])
    assert len(index.files) == 5


@pytest.mark.parametrize("arrange", ["collect", "stack"])
@pytest.mark.parametrize("form", ["x.parquet", "x/"])
def test_files_with_r_sets_are_not_read_again_when_others_are_added(
    server: RangeServer, files: dict[str, bytes], fetch: Fetch, tmp_path: Path, arrange: str, form: str
) -> None:
    for letter in "abc":
        server.files.update({name.replace("a", letter, 1): data for name, data in files.items()})
    a, b, c = (f"{server.url}/{letter}.ntf" for letter in "abc")
    target = str(tmp_path / form)
    options: dict[str, Any] = {"arrange": arrange, "fetch": fetch}
    options |= {"coordinate": "order"} if arrange == "stack" else {}
    index_into([a, b], to=target, **options)
    server.log.clear()
    table, summary = index_into([a, b, c], to=target, refresh="never", **options)
    assert summary.reused == 2
    assert set(asked(server)) == {"c.ntf", "c.ntf.r1", "c.ntf.r2", "c.ntf.r3"}
    fresh, _ = index_into([a, b, c], **options)
    assert [table.files.path, table.files.etag, table.files.format] == [
        fresh.files.path, fresh.files.etag, fresh.files.format
    ]  # fmt: skip
    assert table.catalog.arrangement["beside"] == fresh.catalog.arrangement["beside"]
    assert list(table.catalog.arrays) == list(fresh.catalog.arrays)
    for name in fresh.catalog.arrays:
        ours, theirs = table.refs(name), fresh.refs(name)
        for column in ("chunk", "offset", "length", "file"):
            np.testing.assert_array_equal(getattr(ours, column), getattr(theirs, column))


def test_files_that_share_an_r_set_stay_as_they_are(tmp_path: Path, fetch: Fetch) -> None:
    for name, step in {"x": 1, "x.r0": 1, "x.r1": 2, "y.ntf": 1}.items():
        (tmp_path / name).write_bytes(file_of(step))
    urls, target = [str(tmp_path / name) for name in ("x", "x.r0")], str(tmp_path / "i.parquet")
    index_into(urls, to=target, fetch=fetch, arrange="collect")
    table, summary = index_into([*urls, str(tmp_path / "y.ntf")], to=target, fetch=fetch, arrange="collect")
    assert summary.reused == 2
    fresh, _ = index_into([*urls, str(tmp_path / "y.ntf")], fetch=fetch, arrange="collect")
    assert table.files.path == fresh.files.path
    assert [table.refs(name).file.tolist() for name in table.catalog.arrays] == [
        fresh.refs(name).file.tolist() for name in fresh.catalog.arrays
    ]  # fmt: skip


def test_files_with_r_sets_are_stacked(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name.replace("a", "b")).write_bytes(data)
    index = periplus.index([folder / "b.ntf", folder / "a.ntf"], arrange="stack", coordinate="order")
    for level in range(3):
        found = index[f"{level}/data"][...]
        np.testing.assert_array_equal(found, np.stack([VALUES[:, :: 2**level, :: 2**level]] * 2))
    owners = index.select(array="1/data")["path"].to_pylist()
    assert {Path(path).name for path in owners} == {"a.ntf.r1", "b.ntf.r1"}


def test_an_interrupted_run_keeps_what_lies_beside(folder: Path, fetch: Fetch) -> None:
    for k in range(3):
        (folder / f"b{k}.ntf").write_bytes(file_of())
    urls = [str(folder / "a.ntf"), *(str(folder / f"b{k}.ntf") for k in range(3))]

    def stop(done: int, total: int | None, bad: int) -> None:
        raise KeyboardInterrupt

    target = str(folder / "x.parquet")
    with pytest.raises(KeyboardInterrupt):
        index_into(urls, to=target, fetch=fetch, arrange="collect", progress=stop)
    table, summary = index_into(urls, to=target, fetch=fetch, arrange="collect")
    assert summary.reused == 4
    assert len(table.files) == 6
    with periplus.open(target) as index:
        np.testing.assert_array_equal(index["a/1/data"][...], VALUES[:, ::2, ::2])


def test_one_request_is_for_the_first_r_set(server: RangeServer, files: dict[str, bytes], fetch: Fetch) -> None:
    server.files.update(files | {"b.ntf": file_of()})
    index_into([f"{server.url}/b.ntf"], fetch=fetch)
    assert asked(server) == {"b.ntf": 1, "b.ntf.r1": 1}
    server.log.clear()
    index_into([f"{server.url}/b.ntf"], fetch=fetch, sidecars=False)
    assert asked(server) == {"b.ntf": 1}
    server.log.clear()
    table, _ = index_into([f"{server.url}/a.ntf"], fetch=fetch)
    assert asked(server) == {**dict.fromkeys(files, 1), "a.ntf.r3": 1}
    assert list(table.files.etag) == [server.look(name)[2] for name in files]


def test_a_picture_asks_for_each_kind_of_world_file_once(server: RangeServer, fetch: Fetch) -> None:
    server.files["a.jpg"] = pictures.jpegs()["rgb"]()
    index_into([f"{server.url}/a.jpg"], fetch=fetch)
    assert asked(server) == dict.fromkeys(("a.jpg", "a.jpg.aux.xml", "a.jgw", "a.jpgw", "a.wld"), 1)
    server.files["a.wld"] = WORLD
    table, _ = index_into([f"{server.url}/a.jpg"], fetch=fetch)
    assert list(table.files.etag) == [server.look(name)[2] for name in ("a.jpg", "a.wld")]
    assert asked(server)["a.prj"] == 1


def test_tiff_asks_for_nothing_beside_it(
    server: RangeServer, tiff: SimpleNamespace, tmp_path: Path, fetch: Fetch
) -> None:
    tiff.write(tmp_path / "a.tif")
    server.files["a.tif"] = (tmp_path / "a.tif").read_bytes()
    index_into([f"{server.url}/a.tif"], fetch=fetch)
    assert asked(server) == {"a.tif": 1}


def test_a_query_is_not_shared_with_files_beside(server: RangeServer, files: dict[str, bytes], fetch: Fetch) -> None:
    server.files.update(files)
    table, _ = index_into([f"{server.url}/a.ntf?versionId=1"], fetch=fetch)
    assert list(table.catalog.arrays) == ["0/data"]


def test_a_store_that_refuses_to_say_is_as_good_as_none(server: RangeServer, fetch: Fetch) -> None:
    server.files["a.ntf"] = file_of()
    server.faults["/a.ntf.r1"] = [Fault(kind="status-403", times=-1)]
    table, summary = index_into([f"{server.url}/a.ntf"], fetch=fetch)
    assert summary.ok == 1
    assert table.catalog.attributes[""]["siblings_refused"] == ["a.ntf.r1"]


def test_a_store_that_fails_to_say_fails_the_file(server: RangeServer, files: dict[str, bytes]) -> None:
    server.files.update(files)
    server.faults["/a.ntf.r1"] = [Fault(kind="status-500", times=-1)]
    with Fetch(retries=0) as fetch, pytest.raises(FetchError):
        index_into([f"{server.url}/a.ntf"], fetch=fetch)


def test_policy_holds_for_files_beside(folder: Path) -> None:
    with Fetch(policy=Policy(prefixes=(str(folder / "a.ntf"),))) as fetch:
        table, _ = index_into([str(folder / "a.ntf")], fetch=fetch)
    assert list(table.catalog.arrays) == ["0/data"]
    assert table.catalog.attributes[""]["siblings_refused"] == ["a.ntf.r1"]


@pytest.mark.s3
def test_r_sets_on_an_object_store(s3: S3Server, files: dict[str, bytes]) -> None:
    with Fetch(storage_options=s3.storage_options) as fetch:
        for name, data in files.items():
            fetch.run(fetch.write(f"{s3.url}/rsets/{name}", data))
    index = periplus.index(f"{s3.url}/rsets/a.ntf", storage_options=s3.storage_options)
    check_levels(index)
    assert None not in index.files.etag


def test_a_world_file_is_a_row_and_its_change_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(pictures.jpegs()["rgb"]())
    (tmp_path / "a.jgw").write_bytes(WORLD)
    target = str(tmp_path / "x.parquet")
    index = periplus.index(tmp_path / "a.jpg", to=target)
    assert index["0/data"].georeference is not None
    assert index["0/data"].georeference.transform == (2, 0, 500, 0, -2, 1000)
    assert [Path(path).name for path in index.files.path] == ["a.jpg", "a.jgw"]
    assert list(index.files.format) == ["jpeg", "sidecar"]
    assert index["0/data"][...].any()
    assert periplus.index(tmp_path / "a.jpg", to=target).summary.reused == 1  # type: ignore[union-attr]
    (tmp_path / "a.jgw").write_bytes(WORLD.replace(b"2.0", b"20.0"))
    assert [finding.kind for finding in index.check().findings] == ["stale"]
    index = periplus.index(tmp_path / "a.jpg", to=target)
    assert index["0/data"].georeference.transform[0] == 20  # type: ignore[index, union-attr]


def test_two_pictures_share_a_world_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(pictures.jpegs()["rgb"]())
    (tmp_path / "a.jpeg").write_bytes(pictures.jpegs()["rgb"]())
    (tmp_path / "a.jgw").write_bytes(WORLD)
    index = periplus.index([tmp_path / "a.jpg", tmp_path / "a.jpeg"], arrange="collect")
    assert [Path(path).name for path in index.files.path] == ["a.jpg", "a.jpeg", "a.jgw"]
    assert len(index.arrays) == 2


def test_a_folder_passes_over_the_world_files_it_uses(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(pictures.jpegs()["rgb"]())
    (tmp_path / "a.jgw").write_bytes(WORLD)
    index = periplus.index(tmp_path)
    assert list(index.arrays) == ["0/data"]
    assert index["0/data"].bbox is not None


def test_pictures_placed_by_world_files_are_laid_into_a_mosaic(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 255, (1, 64, 128), dtype=np.uint8)
    paths = [tmp_path / f"{k}.png" for k in range(2)]
    for k, path in enumerate(paths):
        path.write_bytes(pictures.png(values[:, :, 64 * k : 64 * k + 64], bits=8, colour=0))
        path.with_suffix(".pgw").write_text(f"2 0 0 -2 {1001 + 128 * k} 4999")
    target = str(tmp_path / "x.parquet")
    for reused in (0, 2):
        index = periplus.index(paths, arrange="mosaic", to=target)
        np.testing.assert_array_equal(index["0/data"][...], values)
        assert index["0/data"].bbox == (1000, 4872, 1256, 5000)
        assert index.summary is not None
        assert index.summary.reused == reused
        assert len(index.files) == 4


def test_r_sets_are_levels_of_a_mosaic(tmp_path: Path) -> None:
    values = nitfs.values_of("u8", 1, (64, 128))
    paths = [tmp_path / f"{k}.ntf" for k in range(2)]
    for k, path in enumerate(paths):
        x = (20.005 + 0.64 * k, 20.635 + 0.64 * k)
        corners = [(39.995, x[0]), (39.995, x[1]), (39.365, x[1]), (39.365, x[0])]
        place = "".join(f"{y:+07.3f}{x:+08.3f}" for y, x in corners)
        part = values[:, :, 64 * k : 64 * k + 64]
        path.write_bytes(nitfs.nitf(ImageSegment(values=part, icords="D", igeolo=place, block=(32, 32))))
        (tmp_path / f"{k}.ntf.r1").write_bytes(nitfs.nitf(ImageSegment(values=part[:, ::2, ::2], block=(16, 16))))
    index = periplus.index(paths, arrange="mosaic")
    np.testing.assert_array_equal(index["0/data"][...], values)
    np.testing.assert_array_equal(index["1/data"][...], values[:, ::2, ::2])
