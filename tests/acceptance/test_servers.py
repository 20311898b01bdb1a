"""Servers that fail, and servers that need secrets: the pixels are correct, and secrets are not shown or stored."""

import logging
import threading
import traceback

import numpy as np
import pytest
import xarray as xr

import periplus
from periplus.cli.app import run
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import Fault

SCENES = {f"scene{n}.tif": tiffs.picture(f"scene {n}", "u2", (2, 300, 400)) for n in range(8)}


@pytest.fixture
def archive(server):
    for name, values in SCENES.items():
        server.files[name] = tiffs.written(values, tile=(64, 64), compression="zstd")
    return server


FLAKY = [
    Fault(kind="status-503", chance=0.3, retry_after="0"),
    Fault(kind="status-429", chance=0.3, retry_after="0"),
    Fault(kind="reset", chance=0.3),
    Fault(kind="reset-body", chance=0.3),
    Fault(kind="truncate", chance=0.3),
    Fault(kind="status-500", chance=0.3),
]


def test_a_third_of_all_requests_failing_harms_neither_indexing_nor_reading(archive, tmp_path):
    archive.faults["*"] = FLAKY
    urls = [f"{archive.url}/{name}" for name in SCENES]
    with periplus.index(urls, to=tmp_path / "index", arrange="collect") as index:
        assert index.summary.failed == 0
        for name, values in SCENES.items():
            array = index[f"{name.removesuffix('.tif')}/0/data"]
            np.testing.assert_array_equal(array[...], values)
            for row in range(0, 300, 75):
                np.testing.assert_array_equal(array[:, row], values[:, row])
    assert sum(request.status in (429, 500, 503) for request in archive.log) > 2
    with xr.open_dataset(tmp_path / "index", engine="periplus", group="scene3", allow=[archive.url + "/"]) as dataset:
        np.testing.assert_array_equal(dataset["data"].values, SCENES["scene3.tif"])


def test_a_server_that_is_down_is_a_fetch_error_in_time(archive, tmp_path, bounded):
    url = f"{archive.url}/scene0.tif"
    with periplus.index(url) as index:
        archive.faults["*"] = [Fault(kind="status-503", times=-1, retry_after="1000")]
        with bounded(), pytest.raises(periplus.FetchError):
            index["0/data"][...]
        with bounded(), pytest.raises(periplus.FetchError):
            periplus.index(url)


def test_what_fails_leaves_no_thread_and_no_connection(archive, tmp_path):
    (tmp_path / "no.tif").write_bytes(b"no TIFF")
    before = threading.active_count()
    failures = []
    for url in (f"{archive.url}/absent.tif", str(tmp_path / "no.tif"), str(tmp_path / "no.parquet")) * 5:
        for use in (periplus.index, periplus.open):
            with pytest.raises(periplus.PeriplusError) as caught:
                use(url)
            failures.append(caught)  # whoever keeps an error keeps no connection with it
    assert threading.active_count() <= before
    assert archive.open_connections == 0
    assert len(failures) == 30


# --- secrets -------------------------------------------------------------------------------------------------------

SECRET = "hunter2SECRET"
SIGNED = [
    f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={SECRET}&X-Amz-Signature={SECRET}",
    f"X-Goog-Signature={SECRET}",
    f"sv=2024-01-01&sp=r&sig={SECRET}",
    f"token={SECRET}",
    f"access_token={SECRET}",
    f"apikey={SECRET}",
    f"Key-Pair-Id=x&Signature={SECRET}&Policy=y",
    f"jwt={SECRET}",
]
FORMS = ("index.parquet", "index", "index.duckdb")


def everything_written(folder) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def quiet(caplog, capfd):
    """Whatever is logged or printed while the test runs must not hold the secret either."""
    caplog.set_level(logging.DEBUG)
    yield
    out, err = capfd.readouterr()
    assert SECRET not in caplog.text + out + err


def shown(urls, target) -> str:
    """All text of an indexing run, after success or failure."""
    try:
        with periplus.index(urls, to=target) as index:
            return repr(index) + str(index.summary) + "".join(index.files.path)
    except periplus.PeriplusError as error:
        return "".join(traceback.format_exception(error)) + repr(error) + str(error.url)


@pytest.mark.parametrize("query", SIGNED)
def test_a_signed_url_is_refused_or_read_but_never_kept_or_shown(query, archive, tmp_path, quiet):
    url = f"{archive.url}/scene0.tif?{query}"
    for form in FORMS:
        for given in (url, [url, f"{archive.url}/scene1.tif"]):
            assert SECRET not in shown(given, tmp_path / form)
    assert run(["index", url, "-o", str(tmp_path / "cli.parquet")]) in (1, 2)
    assert SECRET.encode() not in everything_written(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_a_name_and_password_in_a_url_are_used_but_never_kept_or_shown(form, archive, tmp_path, quiet):
    host = archive.url.removeprefix("http://")
    url = f"http://me:{SECRET}@{host}/scene0.tif"
    with periplus.index(url, to=tmp_path / form) as index:
        np.testing.assert_array_equal(index["0/data"][...], SCENES["scene0.tif"])
        assert any("authorization" in request.headers for request in archive.log)
        assert SECRET not in repr(index) + repr(index.fetch) + str(index.summary) + "".join(index.files.path)
        assert SECRET not in index.sql("select * from files").to_pandas().to_string()
        archive.files["scene0.tif"] += b"changed"
        with pytest.raises(periplus.StaleError) as caught:
            index["0/data"][...]
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    del archive.files["scene0.tif"]
    for use in (lambda: periplus.index(url), lambda: periplus.index(url, to=tmp_path / "other.parquet")):
        with pytest.raises(periplus.PeriplusError) as caught:
            use()
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert run(["index", url, "-o", str(tmp_path / "cli.parquet")]) in (1, 2)
    assert run(["info", url]) == 2
    assert SECRET.encode() not in everything_written(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_secrets_in_storage_options_are_used_but_never_kept_or_shown(form, archive, tmp_path, quiet):
    options = {"headers": {"Authorization": f"Bearer {SECRET}"}, "query": f"sig={SECRET}"}
    url = f"{archive.url}/scene0.tif"
    with periplus.index(url, to=tmp_path / form, storage_options=options) as index:
        np.testing.assert_array_equal(index["0/data"][...], SCENES["scene0.tif"])
        sent = archive.log[-1]
        assert SECRET in sent.headers["authorization"]
        assert SECRET in sent.path
        assert SECRET not in repr(index) + repr(index.fetch) + repr(index.table)
        archive.faults["*"] = [Fault(kind="status-403", times=-1)]
        with pytest.raises(periplus.PeriplusError) as caught:
            index["0/data"][...]
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    setting = f"headers.Authorization=Bearer {SECRET}"
    assert run(["index", url, "-o", str(tmp_path / "cli.parquet"), "--storage-option", setting]) in (1, 2)
    assert SECRET.encode() not in everything_written(tmp_path)


@pytest.mark.s3
def test_keys_of_a_bucket_are_never_kept_or_shown(s3, tmp_path, caplog):
    from periplus.fetch import Fetch

    caplog.set_level(logging.DEBUG)
    url = f"{s3.url}/secrets/{tmp_path.name}/scene.tif"
    with Fetch(storage_options=s3.storage_options) as fetch:
        fetch.run(fetch.write(url, tiffs.written(SCENES["scene0.tif"])))
    said = ""
    for form in FORMS:
        with periplus.index(url, to=tmp_path / form, storage_options=s3.storage_options) as index:
            np.testing.assert_array_equal(index["0/data"][0], SCENES["scene0.tif"][0])
            said += repr(index) + repr(index.fetch)
    wrong = {**s3.storage_options, "secret_access_key": SECRET, "access_key_id": SECRET}
    with pytest.raises(periplus.PeriplusError) as caught:
        periplus.index(url, storage_options=wrong)
    said += "".join(traceback.format_exception(caught.value)) + caplog.text
    for secret in (s3.secret_key, SECRET):
        assert secret not in said
        assert secret.encode() not in everything_written(tmp_path)
