"""Remote indexes of every form: `open`, both engines, `validate` and the CLI find them, whatever their names."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
import xarray as xr
import zarr

import periplus
from periplus.cli.app import run
from periplus.fetch import Fetch
from periplus.testing.formats import tiff as tiffs
from periplus.testing.servers.http import RangeServer

NAMES = {
    "refs.json": {"portable": True},
    "refs3.json": {"portable": True, "zarr_format": 3},
    "refs": {"form": "kerchunk", "portable": True},
    "refs.kerchunk": {"form": "kerchunk", "portable": True},
    "refs.parquet": {"form": "kerchunk", "portable": True},
    "flat.parquet": {},
    "dataset": {},
    "dataset.v1": {"form": "dataset"},
    "repository.icechunk": {},
}


@pytest.fixture(scope="module")
def values():
    return tiffs.picture("remote", "u2", (1, 40, 50))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, values):
    """An image in one folder, and its indexes in another."""
    top = tmp_path_factory.mktemp("remote")
    for name in ("images", "indexes"):
        (top / name).mkdir()
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 5e6)}
    (top / "images/a.tif").write_bytes(tiffs.gdal_written(values, compress="deflate", blockysize=8, **place))
    with periplus.index(top / "images/a.tif") as index:
        for name, options in NAMES.items():
            index.write(top / "indexes" / name, **options).close()
    return top


@pytest.fixture(scope="module")
def web(folder):
    with RangeServer(folder) as server:
        yield server.url, {}


@pytest.fixture(scope="module")
def bucket(folder, s3):
    with Fetch(storage_options=s3.storage_options) as fetch:
        for file in folder.rglob("*"):
            if file.is_file():
                fetch.run(fetch.write(f"{s3.url}/forms/{file.relative_to(folder)}", file.read_bytes()))
    return f"{s3.url}/forms", {"storage_options": s3.storage_options}


STORES = ["web", pytest.param("bucket", marks=pytest.mark.s3)]
SPELLED = [
    name + slash for name in NAMES for slash in ("", "/") if "." not in name or name == "refs.kerchunk" or not slash
]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", SPELLED)
def test_an_index_is_found_whatever_its_name(store, name, values, request):
    top, options = request.getfixturevalue(store)
    url, portable = f"{top}/indexes/{name}", name.startswith("refs")
    if portable:
        options = {**options, "template_overrides": {"base": f"{top}/images/"}}
    with periplus.open(url, **options) as index:
        assert list(index) == ["0/data"]
        if portable:
            np.testing.assert_array_equal(index["0/data"][...], values)
    for engine in ("periplus", "xgroup"):
        with xr.open_datatree(url, engine=engine, **options) as tree:
            assert tree["0/data"].shape == values.shape
            if portable:
                np.testing.assert_array_equal(tree["0/data"].values, values)
    with xr.open_dataset(url, engine="periplus", **options) as dataset:
        assert dataset["data"].shape == values.shape
    report = periplus.validate(url, **options)
    assert (report.arrays >= 1, report.worst) == (True, None)


@pytest.mark.parametrize("name", ["dataset", "dataset.v1", "refs.kerchunk"])
def test_no_option_is_needed_to_see_what_is_in_an_index(name, web):
    url = f"{web[0]}/indexes/{name}"
    assert "0" in xr.open_datatree(url, engine="xgroup").children
    assert periplus.validate(url).arrays >= 1


@pytest.mark.parametrize("name", ["refs.json", "refs", "repository.icechunk"])
def test_info_and_validate_ask_for_no_access_to_the_sources(name, folder, capsys):
    base = ["--template", "base=/nowhere/"] if name.startswith("refs") else []
    for verb in ("info", "validate"):
        assert run([verb, str(folder / "indexes" / name), *base]) == 0, capsys.readouterr().err
    assert "no errors or warnings" in capsys.readouterr().out


def test_options_of_an_index_are_refused_for_what_is_none(folder):
    with pytest.raises(TypeError, match="template_overrides= does not apply to validating a Zarr store"):
        periplus.validate(folder, template_overrides={"base": "/"})
    with pytest.raises(TypeError, match="skip"):
        periplus.validate(folder / "indexes/flat.parquet", skip=True)


def test_what_is_neither_index_nor_store_is_missing(web):
    for url in (f"{web[0]}/indexes/none", f"{web[0]}/indexes/none.v1"):
        with pytest.raises(periplus.MissingError):
            periplus.validate(url)
        with pytest.raises(periplus.MissingError):
            xr.open_dataset(url, engine="periplus")
        with pytest.raises(FileNotFoundError, match="no Zarr group"):
            xr.open_datatree(url, engine="xgroup")


def test_a_template_for_a_zarr_store_is_a_usage_error(tmp_path, capsys):
    zarr.open_group(tmp_path / "a.zarr", mode="w")
    assert run(["validate", str(tmp_path / "a.zarr"), "--template", "base=x"]) == 2
    assert "usage: --template does not apply to validating a Zarr store" in capsys.readouterr().err


def test_a_template_lets_validate_access_the_sources(folder, tmp_path):
    with periplus.open(folder / "indexes/flat.parquet", allow=str(folder)) as index:
        index.write(tmp_path / "p.json", portable=True).close()
    report = periplus.validate(tmp_path / "p.json", template_overrides={"base": f"{folder}/images/"})
    assert report.ok
    with pytest.raises(TypeError, match="its options are template_overrides="):
        periplus.validate(tmp_path / "p.json", template="x")
