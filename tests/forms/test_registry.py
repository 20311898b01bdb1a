"""Every form of an index is recognised by its content, opened and written through one registry."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import periplus
from periplus.fetch import Fetch
from periplus.forms import FORMS, is_index, recognise
from periplus.testing.formats import tiff as tiffs

NAMES = {
    "flat": "index.parquet",
    "dataset": "index",
    "duckdb": "index.duckdb",
    "kerchunk-json": "index.json",
    "kerchunk-parquet": "index.parq",
    "icechunk": "index.icechunk",
}
MISLEADING = {
    "flat": "index.tif",
    "dataset": "index.json/",
    "duckdb": "index.parquet",
    "kerchunk-json": "index.parquet",
    "kerchunk-parquet": "index",
    "icechunk": "repository",
}


@pytest.fixture
def image(tmp_path):
    values = np.arange(40 * 50, dtype="u2").reshape(1, 40, 50)
    path = tmp_path / "image.tif"
    path.write_bytes(tiffs.written(values, compression="zlib"))
    return path


def test_the_registry_has_every_form():
    assert [form.name for form in FORMS] == [
        "dataset",
        "flat",
        "duckdb",
        "kerchunk-json",
        "kerchunk-parquet",
        "icechunk",
    ]


@pytest.mark.parametrize("names", [NAMES, MISLEADING], ids=["usual", "misleading"])
@pytest.mark.parametrize("form", NAMES)
def test_a_form_is_written_recognised_and_opened_whatever_its_name(form, names, image, tmp_path):
    target = f"{tmp_path}/{names[form]}"
    index = periplus.index(image)
    written = index.write(target, form=form)
    assert written.report.form == form
    assert written.report.url == target
    assert written.report.references == index.table.rows
    assert not written.report.skipped
    found = recognise(target)
    assert found is not None
    assert found.name == form
    assert is_index(target)
    with periplus.open(target, trust=True) as opened:
        np.testing.assert_array_equal(opened["0/data"][:], index["0/data"][:])
        np.testing.assert_array_equal(written["0/data"][:], index["0/data"][:])


def test_what_is_not_an_index_is_not_recognised(image, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    (tmp_path / "item.json").write_text('{"type": "Feature", "stac_version": "1.0.0"}')
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".zmetadata").write_text('{"metadata": {}, "zarr_consolidated_format": 1}')
    for path in ("other.parquet", "item.json", "store", "absent", "absent.duckdb", "", image.name):
        assert recognise(str(tmp_path / path)) is None


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("s3://b/2021.parquet", True),
        ("s3://b/2021.geoparquet", True),
        ("https://h/a.PQ?x=1", True),
        ("s3://b/2021.duckdb", True),
        ("s3://b/2021.icechunk", True),
        ("s3://b/2021.icechunk/", True),
        ("s3://b/index", None),
        ("s3://b/index.v1/", None),
        ("https://h/items.json", None),
        ("s3://b/a.tif", False),
    ],
)
def test_the_name_of_a_remote_index_is_judged_without_a_request(url, answer):
    assert is_index(url) is answer


def test_remote_json_is_recognised_by_its_content(server):
    server.files["refs.json"] = b'{"version": 1, "refs": {".zgroup": "{}"}}'
    server.files["item.json"] = b'{"type": "Feature"}'
    with Fetch() as fetch:
        assert is_index(f"{server.url}/refs.json", fetch) is True
        assert is_index(f"{server.url}/item.json", fetch) is False


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("flat", "portable= does not apply to writing a flat Parquet index; it has no options"),
        (
            "icechunk",
            "writing an Icechunk repository; its options are branch=, append=, message=, codecs=, skip_unsupported=",
        ),
        ("kerchunk-json", None),
    ],
)
def test_an_unknown_option_is_a_type_error_with_the_valid_ones(form, message, image, tmp_path):
    index = periplus.index(image)
    if message is None:
        index.write(tmp_path / NAMES[form], form=form, portable=True)
        return
    with pytest.raises(TypeError, match=message):
        index.write(tmp_path / NAMES[form], form=form, portable=True)


def test_options_of_opening_are_those_of_the_form_that_is_there(image, tmp_path):
    index = periplus.index(image)
    index.write(tmp_path / "plain", form="icechunk", branch="main")
    assert periplus.open(tmp_path / "plain", branch="main").table.rows == index.table.rows
    index.write(tmp_path / "flat.parquet")
    with pytest.raises(TypeError, match="branch= does not apply to opening a flat Parquet index; its options are docu"):
        periplus.open(tmp_path / "flat.parquet", branch="main")


def test_an_unknown_form_is_a_value_error(image, tmp_path):
    with pytest.raises(ValueError, match="form is one of dataset, flat, duckdb, icechunk, kerchunk, not 'zip'"):
        periplus.index(image).write(tmp_path / "a.zip", form="zip")


def test_opening_a_flat_index_does_not_import_zarr(image, tmp_path):
    periplus.index(image, to=tmp_path / "a.parquet").close()
    code = (
        "import sys, periplus; periplus.open(sys.argv[1]).close();"
        "print([m for m in sys.modules if m == 'zarr' or m.startswith(('zarr.', 'periplus.zarr', 'icechunk'))])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.parquet")], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_a_pipe_is_no_index_and_nobody_waits_for_it(tmp_path):
    names = [str(tmp_path / name) for name in ("pipe", "pipe.parquet", "pipe.json", "pipe.icechunk")]
    for name in names:
        os.mkfifo(name)
    code = """
import sys, periplus
for name in sys.argv[1:]:
    try:
        periplus.open(name)
    except periplus.PeriplusError:
        print(name)
"""
    done = subprocess.run([sys.executable, "-c", code, *names], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.split() == names


def test_a_name_like_that_of_a_database_asks_for_no_trust(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiffs.written(np.ones((1, 32, 32), "u1")))
    index = periplus.index(tmp_path / "a.tif")
    index.write(tmp_path / "folder").close()
    (tmp_path / "folder").rename(tmp_path / "folder.duckdb")
    index.write(tmp_path / "flat.parquet").close()
    (tmp_path / "flat.parquet").rename(tmp_path / "flat.duckdb")
    for name in ("folder.duckdb", "flat.duckdb"):
        assert periplus.open(tmp_path / name)["0/data"].shape == (1, 32, 32)
    (tmp_path / "a.tif").rename(tmp_path / "a.duckdb")
    with pytest.raises(periplus.FormatError, match="no DuckDB file"):
        periplus.open(tmp_path / "a.duckdb")


@pytest.mark.parametrize(
    "text", ['{"type": "FeatureCollection", "features": []}', '{"zarr_format": 3, "node_type": "group"}']
)
def test_json_without_references_is_named(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(periplus.FormatError, match="no kerchunk references"):
        periplus.open(tmp_path / "a.json")
