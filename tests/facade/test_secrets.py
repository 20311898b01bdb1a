"""No secret of a URL is stored, shown or logged, whatever its parameter is called."""

from __future__ import annotations

import logging
import pickle
import traceback

import numpy as np
import pytest
import xarray as xr

import periplus
from periplus.cli.app import run
from periplus.errors import DeniedError
from periplus.testing.formats import tiff as tiffs

SECRET = "hunter2Xyz9QQ"
SHAPES = [
    *(f"a.tif?{name}={SECRET}" for name in (
        "code", "session", "hash", "k", "st", "Policy", "verify", "__gda__", "__token__", "hdnts", "hdntl", "se", "sp",
        "sv", "skoid", "sig", "Expires", "Key-Pair-Id", "GoogleAccessId", "AWSAccessKeyId", "X-Amz-Signature",
        "X-Goog-Signature", "access_token", "id_token", "client_secret", "api_key", "_p", "key", "id", "ticket",
    )),
    f"a.tif?{SECRET}", f"a.tif?{SECRET}==", f"a.tif?file={SECRET}%3D%26x", f"a.tif?file=a.tif&x={SECRET}",
    f"a.tif?path=https://u:{SECRET}@h/a", f"a.tif;jsessionid={SECRET}", f"a.tif;jsessionid={SECRET}?file=a.tif",
    f"a.tif%3Bjsessionid%3D{SECRET}", f"hdnts={SECRET}/a.tif", f"a.tif;x={SECRET}",
]  # fmt: skip


@pytest.fixture(scope="module")
def scene():
    """An image, and a file of it."""
    image = tiffs.picture("secrets", "u1", (1, 64, 64))
    return image, tiffs.gdal_written(image, tiled=True, blockxsize=32, blockysize=32)


@pytest.fixture
def archive(server, scene):
    image, data = scene
    for shape in SHAPES:
        server.files[shape.partition("?")[0].replace("%3B", ";").replace("%3D", "=")] = data
    server.files["good.tif"] = data
    return image


def everything(folder) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def texts(error: BaseException) -> str:
    """What a log or terminal shows of an error; lines of this test's source do not count."""
    shown = "".join(traceback.format_exception(error)).replace(f'"{SECRET}"', "")
    return f"{shown} {error!r} {error}"


@pytest.mark.parametrize("form", ["flat", "dataset", "duckdb"])
def test_no_shape_of_url_leaves_a_secret_in_an_index(form, archive, server, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    target = tmp_path / {"flat": "x.parquet", "dataset": "x", "duckdb": "x.duckdb"}[form]
    urls = [f"{server.url}/{shape}" for shape in SHAPES]
    index = periplus.index([f"{server.url}/good.tif", *urls], to=target, arrange="collect")
    with index:
        assert index.summary.failed == len(SHAPES)
        shown = f"{index!r} {index.summary} {index.summary.errors} {list(index.files.path)} {list(index.files.error)}"
        assert SECRET not in shown
        assert SECRET.encode() not in pickle.dumps(index)
    assert SECRET.encode() not in everything(tmp_path)
    assert SECRET not in caplog.text


def test_the_message_of_an_error_has_no_secret_and_names_the_option_to_use(archive, server):
    for shape in SHAPES:
        with pytest.raises(DeniedError, match="storage_options") as caught:
            periplus.index(f"{server.url}/{shape}")
        assert SECRET not in texts(caught.value), shape


@pytest.mark.parametrize("target", ["y.parquet", "y", "y.duckdb", "y.json", "y.kerchunk", "y.icechunk"])
def test_an_index_of_another_tool_is_not_copied_with_what_may_be_a_secret(target, archive, server, tmp_path):
    url = f"{server.url}/good.tif?code={SECRET}"
    with periplus.index(url, keep_query=["code"]) as index:
        index.write(tmp_path / "x.parquet").close()
    (tmp_path / "out").mkdir()
    with periplus.open(tmp_path / "x.parquet", allow=server.url + "/") as index:
        np.testing.assert_array_equal(index["0/data"][...], archive)  # an index that has it is read without a question
        assert SECRET not in f"{index!r} {index.files!r} {index.files.source(0)!r}"
        options = {"form": "kerchunk"} if target.endswith((".json", ".kerchunk")) else {}
        with pytest.raises(DeniedError, match="keep_query") as caught:
            index.write(tmp_path / "out" / target, **options)
    assert SECRET not in texts(caught.value)
    assert SECRET.encode() not in everything(tmp_path / "out")


def test_names_of_files_are_kept_by_default_and_others_when_asked(archive, server, tmp_path):
    for query, keep in (("file=good.tif&versionId=3", ()), ("id=5", ["id"]), ("id=5", "id")):
        url = f"{server.url}/good.tif?{query}"
        with periplus.index(url, to=tmp_path / "x.parquet", keep_query=keep) as index:
            assert list(index.files.path) == [url]
            np.testing.assert_array_equal(index["0/data"][...], archive)
    with pytest.raises(ValueError, match="storage_options"):
        periplus.index(f"{server.url}/good.tif", keep_query=["access_token"])


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_line_shows_and_stores_no_secret(options, archive, server, tmp_path, capfd):
    shapes = [f"good.tif?code={SECRET}", f"good.tif;jsessionid={SECRET}", f"good.tif?{SECRET}"]
    for number, shape in enumerate(shapes):
        server.files[shape.partition("?")[0]] = server.files["good.tif"]
        urls = [f"{server.url}/good.tif", f"{server.url}/{shape}"]
        assert run(["index", *urls, "-o", str(tmp_path / f"{number}.parquet"), *options]) == 1
        shown = "".join(capfd.readouterr())
        assert "storage" in shown
        assert SECRET not in shown, shape
    assert SECRET.encode() not in everything(tmp_path)


def test_a_pickle_holds_the_name_of_a_variable_where_that_was_given(archive, server, tmp_path, monkeypatch):
    monkeypatch.setenv("OUR_TOKEN", f"Bearer {SECRET}")
    options = {"headers": {"Authorization": "env:OUR_TOKEN"}}
    with periplus.index(f"{server.url}/good.tif", storage_options=options) as index:
        for thing in (index, index.table, index.store(), index.fetch):
            assert SECRET.encode() not in pickle.dumps(thing)
        with pickle.loads(pickle.dumps(index)) as again:
            np.testing.assert_array_equal(again["0/data"][...], archive)
        assert server.log[-1].headers["authorization"] == f"Bearer {SECRET}"
        monkeypatch.delenv("OUR_TOKEN")
        with pickle.loads(pickle.dumps(index)) as again, pytest.raises(periplus.FormatError, match="OUR_TOKEN"):
            again["0/data"][...]


def test_what_other_libraries_raise_is_not_shown(server):
    """Their errors may contain URLs with secrets."""
    secret_host = server.url.replace("://", f"://user:{SECRET}@")
    options = {"key": "k", "secret": SECRET, "endpoint": secret_host, "allow_http": "true"}
    with pytest.raises(periplus.PeriplusError) as caught:
        periplus.index("s3://b/none.tif", storage_options=options)
    assert SECRET not in "".join(traceback.format_exception(caught.value)).replace(f'"{SECRET}"', "")
    for url in (f"{server.url}/x.zarr?token={SECRET}", f"{secret_host}/x.zarr"):
        with pytest.raises(FileNotFoundError, match="no Zarr group") as absent:
            xr.open_dataset(url, engine="xgroup")
        assert SECRET not in "".join(traceback.format_exception(absent.value))
