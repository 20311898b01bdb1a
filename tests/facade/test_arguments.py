"""Wrong arguments are refused by the builtin errors, with what they may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import periplus
from periplus.testing.scenes import tile

BOX = (0, 0, 1, 1)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> periplus.Index:
    folder = tmp_path_factory.mktemp("one")
    tile(folder / "a.tif", 0, 0)
    return periplus.index(folder / "a.tif", to=folder / "a.parquet")


def refused(error: type[Exception], match: str, call: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(error, match=match) as raised:
        call(*args, **kwargs)
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("argument", "error", "match"),
    [
        ({"array": 3}, TypeError, "name"),
        ({"bands": 1.5}, TypeError, "count from 1"),
        ({"bands": slice(1, 2)}, TypeError, "count from 1"),
        ({"max_size": 1.5}, TypeError, "whole number"),
        ({"max_size": 0}, ValueError, "above 0"),
        ({"resolution": "a"}, ValueError, "positive number"),
        ({"bbox": "x"}, ValueError, "xmin, ymin, xmax, ymax"),
        ({"bbox": 3}, ValueError, "xmin, ymin, xmax, ymax"),
        ({"bbox": (1, 2, 3), "crs": 4326}, ValueError, "xmin, ymin, xmax, ymax"),
        ({"bbox": BOX, "crs": "foo"}, ValueError, "EPSG:4326"),
        ({"bbox": BOX, "crs": 1.5}, TypeError, "EPSG number"),
        ({"crs": 4326}, ValueError, "no effect without bbox="),
    ],
)
def test_wrong_arguments_of_read(one: periplus.Index, argument: dict[str, Any], error: Any, match: str) -> None:
    refused(error, match, one.read, **argument)


@pytest.mark.parametrize(
    ("argument", "error", "match"),
    [
        ({"array": 3}, TypeError, "name"),
        ({"level": "a"}, TypeError, "number"),
        ({"level": -1}, ValueError, "the levels are 0"),
        ({"level": 9}, ValueError, "the levels are 0"),
        ({"bbox": "x"}, ValueError, "xmin, ymin, xmax, ymax"),
        ({"bbox": (1, 2), "crs": 4326}, ValueError, "xmin, ymin, xmax, ymax"),
        ({"bbox": BOX, "crs": "foo"}, ValueError, "EPSG:4326"),
        ({"bbox": (0, 2, 1, 1), "crs": 4326}, ValueError, "ymin"),
        ({"crs": 4326}, ValueError, "no effect without bbox="),
    ],
)
def test_wrong_arguments_of_select(one: periplus.Index, argument: dict[str, Any], error: Any, match: str) -> None:
    refused(error, match, one.select, **argument)


def test_a_level_that_is_there_is_selected(one: periplus.Index) -> None:
    assert one.select(level=np.int64(0)).num_rows == one.select().num_rows > 0


def test_a_query_is_text(one: periplus.Index) -> None:
    refused(TypeError, "SELECT", one.sql, 3)


@pytest.mark.parametrize("band", [0, 4, "foo"])
def test_a_band_that_is_not_there_is_missing(tmp_path: Path, band: int | str) -> None:
    tile(tmp_path / "b.tif", 0, 0)
    refused(periplus.MissingError, "no band", periplus.index(tmp_path / "b.tif").read, bands=band)


def test_limits_are_limits(one: periplus.Index) -> None:
    url = str(one.table.url)
    for wrong in ({"read_bytes": 1}, 3):
        refused(TypeError, "periplus.Limits", periplus.open, url, limits=wrong)
        refused(TypeError, "periplus.Limits", periplus.index, url, limits=wrong)
    refused(TypeError, "whole number", periplus.Limits, read_bytes="1")
    refused(TypeError, "whole number", periplus.Limits, read_bytes=1.5)
    refused(ValueError, "negative", periplus.Limits, read_bytes=-1)
    refused(ValueError, "negative", periplus.Limits, sql_seconds=float("nan"))
    assert periplus.Limits(read_bytes=np.int64(5), sql_seconds=0.5).read_bytes == 5


def test_what_is_opened_is_a_path_or_a_store(one: periplus.Index) -> None:
    refused(TypeError, "path or URL", periplus.index, None)
    refused(TypeError, "prefix", periplus.open, str(one.table.url), allow=3)
    refused(TypeError, "keep_query", periplus.open, str(one.table.url), keep_query=3)
    for wrong in (None, 3):
        refused(TypeError, "path or URL", periplus.validate, wrong)
        refused(TypeError, "Zarr group", periplus.write_conventions, wrong, crs=4326)
    refused(ValueError, "no effect without fix", periplus.validate, one, dry_run=True)


@pytest.mark.parametrize(
    ("name", "option", "match"),
    [
        ("k.parq", {"record_size": 0}, "from 1"),
        ("k.json", {"base": "s3://a/"}, "no effect without portable=True"),
    ],
)
def test_wrong_options_of_references(
    one: periplus.Index, tmp_path: Path, name: str, option: dict[str, Any], match: str
) -> None:
    refused(ValueError, match, one.write, tmp_path / name, form="kerchunk", **option)


@pytest.mark.parametrize("engine", ["periplus", "xgroup"])
def test_an_unknown_argument_of_an_engine_names_those_there_are(one: periplus.Index, engine: str) -> None:
    refused(
        TypeError,
        "no argument foo here; its arguments are .*level, .*coords, .*decode_times",
        xr.open_dataset,
        str(one.table.url),
        engine=engine,
        foo=1,
    )
    refused(
        TypeError,
        "no argument level here; its arguments are .*coords",
        xr.open_datatree,
        str(one.table.url),
        engine=engine,
        level=1,
    )


@pytest.mark.parametrize(
    ("argument", "match"),
    [
        ({"concurrency": "a"}, "number of headers"),
        ({"pattern": 3}, "pattern= is text"),
        ({"progress": 3}, "progress is a function"),
    ],
)
def test_wrong_arguments_of_index(tmp_path: Path, argument: dict[str, Any], match: str) -> None:
    refused(TypeError, match, periplus.index, tile(tmp_path / "a.tif", 0, 0), **argument)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("a.icechunk", {"append": "x"}), ("a.json", {"portable": "x"}), ("a.json", {"skip_unsupported": "data"})],
)
def test_switches_of_write_are_true_or_false(
    one: periplus.Index, tmp_path: Path, name: str, argument: dict[str, Any]
) -> None:
    refused(TypeError, "is True or False", one.write, tmp_path / name, **argument)
    assert not (tmp_path / name).exists()


def test_switches_of_conventions_are_true_or_false(tmp_path: Path) -> None:
    dataset = xr.Dataset({"a": (("y", "x"), np.zeros((2, 2)))})
    refused(TypeError, "labels= is True or False", periplus.write_conventions, dataset, labels="x")
    dataset.to_zarr(tmp_path / "a.zarr", consolidated=False)
    for argument in ({"strict": "x"}, {"dequantize": "x"}, {"cross_store": 3}):
        refused(TypeError, "= is True", xr.open_dataset, tmp_path / "a.zarr", engine="xgroup", **argument)


def test_conventions_are_not_written_to_a_file(one: periplus.Index) -> None:
    with pytest.raises(periplus.FormatError, match="this is a file"):
        periplus.write_conventions(one.table.url, crs=4326)


def test_an_unknown_option_of_the_parser_names_those_there_are() -> None:
    from periplus.virtualizarr import Parser

    refused(TypeError, "Parser has no option foo; those of periplus.index are ", Parser, foo=1)


@pytest.mark.parametrize("name", ["no/a.parquet", "no/a/", "no/a.duckdb", "no/a.json", "no/a.icechunk"])
def test_a_folder_to_write_to_must_exist(one: periplus.Index, tmp_path: Path, name: str) -> None:
    with pytest.raises(periplus.MissingError, match="the folder to write to does not exist; create it"):
        one.write(f"{tmp_path}/{name}")
    if not name.endswith((".json", ".icechunk")):
        with pytest.raises(periplus.MissingError, match="the folder to write to does not exist; create it"):
            periplus.index(tile(tmp_path / "a.tif", 0, 0), to=f"{tmp_path}/{name}")
    assert not (tmp_path / "no").exists()


def test_an_index_keeps_its_form_whatever_its_name(one: periplus.Index, tmp_path: Path) -> None:
    one.write(tmp_path / "d.json", form="dataset").close()
    periplus.index(tile(tmp_path / "a.tif", 0, 0), to=tmp_path / "d.json").close()
    assert (tmp_path / "d.json" / "files.parquet").exists()
    refused(ValueError, "z.fgb: an index is written to", one.write, tmp_path / "z.fgb")
