"""From files to a table: arrangements, failures, targets; references are compared with tifffile's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tifffile

from periplus.errors import ConflictError, FetchError, FormatError, MissingError
from periplus.fetch import Fetch
from periplus.harvest import harvest, index_into
from periplus.limits import Limits
from periplus.table import Table, open_table


def places(path: Path, level: int = 0) -> list[tuple[int, int]]:
    """(offset, length) of every tile, by an independent reader."""
    with tifffile.TiffFile(path) as file:
        page = file.series[0].levels[level].pages[0]
        return list(zip(page.dataoffsets, page.databytecounts, strict=True))


def held(table: Table, name: str, step: int | None = None) -> list[tuple[int, int]]:
    refs = table.refs(name)
    rows = slice(None) if step is None else refs.chunk[0] == step
    return list(zip(refs.offset[rows].tolist(), refs.length[rows].tolist(), strict=True))


@pytest.fixture
def archive(tmp_path: Path, tiff: SimpleNamespace) -> Path:
    folder = tmp_path / "archive"
    for k, day in enumerate(("20210103", "20210101", "20210102")):
        tiff.write(folder / f"x_{day}.tif", k)
    return folder


def test_one_file_in_memory(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch) -> None:
    path = tmp_path / "a.tif"
    tiff.write(path, cog=True, size=128)
    table, summary = index_into(path, fetch=fetch)
    assert list(table.catalog.arrays)[:2] == ["0/data", "1/data"]
    assert held(table, "0/data") == places(path)
    assert held(table, "1/data") == places(path, 1)
    assert table.files.path == [str(path)]
    assert (summary.files, summary.ok, summary.failed, summary.arrangement) == (1, 1, 0, "collect")
    assert summary.bytes == path.stat().st_size
    assert summary.rows == table.rows


def test_many_files_are_collected(archive: Path, fetch: Fetch) -> None:
    table, _ = index_into(str(archive / "*.tif"), fetch=fetch, arrange="collect")
    assert list(table.catalog.arrays) == [f"x_2021010{k}/0/data" for k in (1, 2, 3)]
    for k in (1, 2, 3):
        assert held(table, f"x_2021010{k}/0/data") == places(archive / f"x_2021010{k}.tif")


@pytest.mark.parametrize("target", [None, "out.parquet", "out"])
def test_a_stack_in_every_form(archive: Path, tmp_path: Path, fetch: Fetch, target: str | None) -> None:
    urls = [str(archive / f"x_2021010{k}.tif") for k in (3, 1, 2)]
    to = None if target is None else tmp_path / target
    table, summary = index_into(urls, fetch=fetch, to=to, arrange="stack", pattern=r"(?P<time>\d{8})")
    if to is not None:
        table = open_table(str(to), fetch=fetch, limits=Limits(), allow=[str(archive)])
    assert table.catalog.arrays["0/data"].shape == (3, 1, 96, 96)
    days = table.catalog.coordinates["time"].values
    assert days.tolist() == [np.datetime64(f"2021-01-0{k}", "us").item() for k in (1, 2, 3)]
    for k in range(3):
        assert held(table, "0/data", k) == places(archive / f"x_2021010{k + 1}.tif")
    assert summary.arrangement == "stack"
    assert table.files.datetime.tolist() == days[[2, 0, 1]].tolist()  # in the order they were given
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted({"archive"} | ({target} if target else set()))


def test_auto_stacks_by_the_files_own_datetime(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch) -> None:
    for k in (2, 1):
        tiff.write(tmp_path / f"{3 - k}.tif", k, moment=f"2021:01:0{k} 12:00:00")
    table, summary = index_into(str(tmp_path) + "/", fetch=fetch)
    assert summary.arrangement == "stack"
    assert [Path(p).name for p in table.files.path] == ["1.tif", "2.tif"]
    assert held(table, "0/data", 0) == places(tmp_path / "2.tif")


def test_bad_files_are_rows_and_the_rest_goes_on(archive: Path, fetch: Fetch) -> None:
    (archive / "bad.tif").write_bytes(b"II*\0\x08\0\0\0\xff\xff")
    (archive / "text.tif").write_text("hello")
    calls: list[tuple[int, int | None, int]] = []
    table, summary = index_into(
        [str(archive / "*.tif"), str(archive / "gone.tif")], fetch=fetch, progress=lambda *a: calls.append(a)
    )
    assert (summary.files, summary.ok, summary.failed) == (6, 3, 3)
    rows = dict(zip([Path(p).name for p in table.files.path], table.files.error, strict=True))
    assert rows["x_20210101.tif"] is None
    assert (rows["bad.tif"] or "").startswith(("format: ", "limit: "))
    assert rows["text.tif"] == "format: unsupported format"
    assert (rows["gone.tif"] or "").startswith("missing: ")
    assert "3 failed" in str(summary)
    assert "text.tif: format: unsupported format" in str(summary)
    assert calls[-1] == (6, 6, 3)


def test_a_folder_passes_over_what_it_does_not_know(archive: Path, fetch: Fetch) -> None:
    (archive / "readme.md").write_text("hello")
    (archive / "bad.tif").write_bytes(b"II*\0\x08\0\0\0\xff\xff")
    _, summary = index_into(f"{archive}/", fetch=fetch)
    assert (summary.files, summary.failed, summary.skipped) == (4, 1, 1)


def test_what_was_asked_for_alone_raises_its_own_error(tmp_path: Path, fetch: Fetch) -> None:
    (tmp_path / "a.tif").write_text("hello")
    with pytest.raises(FormatError, match="unsupported format"):
        index_into(tmp_path / "a.tif", fetch=fetch)
    with pytest.raises(MissingError):
        index_into(tmp_path / "b.tif", fetch=fetch)
    with pytest.raises(MissingError, match="nothing to index"):
        index_into(str(tmp_path / "*.jp2"), fetch=fetch, to=tmp_path / "x.parquet")
    with pytest.raises(MissingError, match="1 files of unsupported formats"):
        index_into(f"{tmp_path}/", fetch=fetch)
    with pytest.raises(MissingError):
        index_into([], fetch=fetch)
    (tmp_path / "b.tif").write_text("hello")
    with pytest.raises(FormatError, match="none of 2 files could be read"):
        index_into(str(tmp_path / "*.tif"), fetch=fetch)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tif", "b.tif"]


def test_several_files_that_cannot_be_read_raise_the_kind_of_their_errors(tmp_path: Path, fetch: Fetch) -> None:
    (tmp_path / "a.tif").write_text("hello")
    with pytest.raises(FetchError, match=r"none of 2 files could be read: .*fetch: ") as caught:
        index_into(["http://127.0.0.1:9/a.tif", "http://127.0.0.1:9/b.tif"], fetch=fetch)
    assert caught.value.kind == "fetch"
    with pytest.raises(MissingError, match="none of 3 files could be read"):
        index_into([str(tmp_path / name) for name in ("a.tif", "b.tif", "c.tif")], fetch=fetch)


def test_misfits_name_the_first_and_how(archive: Path, tiff: SimpleNamespace, tmp_path: Path, fetch: Fetch) -> None:
    tiff.write(archive / "x_20210104.tif", size=64)
    options: dict[str, Any] = {"fetch": fetch, "arrange": "stack", "pattern": r"(?P<time>\d{8})"}
    with pytest.raises(
        ConflictError,
        match=r"x_20210104.tif differs from x_20210101.tif: 0/data has shape \(1, 64, 64\), not \(1, 96, 96\)",
    ):
        index_into(str(archive / "*.tif"), to=tmp_path / "out.parquet", **options)
    assert not (tmp_path / "out.parquet").exists()
    table, summary = index_into(str(archive / "*.tif"), to=tmp_path / "out.parquet", skip_misfits=True, **options)
    assert summary.failed == 1
    assert summary.errors[0][1].startswith("conflict: x_20210104.tif differs")
    assert table.catalog.arrays["0/data"].shape[0] == 3


def test_the_same_file_twice_is_one_row(archive: Path, fetch: Fetch) -> None:
    one = str(archive / "x_20210101.tif")
    table, _ = index_into([one, str(archive / "*.tif"), f"file://{one}"], fetch=fetch)
    assert len(table.files) == 3


def test_urls_no_index_may_hold_are_failures_without_a_row(archive: Path, tmp_path: Path, fetch: Fetch) -> None:
    urls = [str(archive / "*.tif"), "https://example.invalid/a.tif?sig=SECRET", "ftp://example.invalid/a.tif"]
    table, summary = index_into(urls, fetch=fetch, to=tmp_path / "out.parquet")
    assert (len(table.files), summary.failed) == (3, 2)
    assert "SECRET" not in str(summary)
    assert b"SECRET" not in (tmp_path / "out.parquet").read_bytes()


def test_odd_names_are_indexed_and_impossible_ones_are_failures(
    tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch
) -> None:
    folder = tmp_path / "in"
    for k, name in enumerate(("ä b#1", "x%20y", "q?m", "[z]", " lead")):
        tiff.write(folder / f"{name}.tif", k)
    (folder / "x%20y.tif").rename(os.fsdecode(os.fsencode(folder) + b"/\xff.tif"))
    tiff.write(folder / "back\\slash.tif", 5)
    tiff.write(folder / "new\nline.tif", 6)
    for _ in range(2):
        table, summary = index_into(str(folder / "*.tif"), fetch=fetch, to=tmp_path / "out.parquet")
        assert (summary.ok, summary.failed) == (4, 3)
        for name, path in zip((" lead", "[z]", "q_m", "ä b#1"), table.files.path, strict=True):
            assert held(table, f"{name}/0/data") == places(Path(path))
    assert summary.reused == 4
    assert "not UTF-8" in str(summary)
    assert "backslash or control character" in str(summary)


def test_stac_items_of_two_bands_are_two_stacks(tmp_path: Path, tiff: SimpleNamespace, fetch: Fetch) -> None:
    features = []
    for day in (2, 1):
        hrefs = {}
        for band, block in (("red", 32), ("nir", 48)):
            tiff.write(tmp_path / "data" / f"{band}{day}.tif", day, block=block, nodata=0)
            hrefs[band] = {"href": f"./data/{band}{day}.tif", "type": "image/tiff", "roles": ["data"]}
        features.append(
            {
                "type": "Feature",
                "id": f"s{day}",
                "properties": {"datetime": f"2021-01-0{day}T00:00:00Z"},
                "assets": hrefs,
            }
        )
    (tmp_path / "items.json").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    table, summary = index_into(tmp_path / "items.json", fetch=fetch, assets=["red", "nir"])
    assert summary.arrangement == "stack"
    assert table.catalog.arrays["red/0/data"].chunks == (1, 1, 32, 32)
    assert table.catalog.arrays["nir/0/data"].chunks == (1, 1, 48, 48)
    assert held(table, "nir/0/data", 1) == places(tmp_path / "data" / "nir2.tif")
    collected, _ = index_into(tmp_path / "items.json", fetch=fetch, assets="red", arrange="collect")
    assert list(collected.catalog.arrays) == ["s2/0/data", "s1/0/data"]


@pytest.mark.parametrize(
    "options",
    [
        {"arrange": "heap"},
        {"arrange": ""},
        {"refresh": "x"},
        {"duplicates": "first"},
        {"coordinate": "x"},
        {"pattern": "(?P<"},
    ],
)
def test_wrong_options_are_said_before_anything_is_read(tmp_path: Path, fetch: Fetch, options: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        index_into(tmp_path / "absent.tif", fetch=fetch, **options)  # type: ignore[arg-type]


def test_harvest_streams_what_is_in_each_file(archive: Path, fetch: Fetch) -> None:
    found = sorted(harvest([str(archive / "*.tif")], fetch), key=lambda file: file.number)
    assert [Path(file.source.url).name for file in found] == [f"x_2021010{k}.tif" for k in (1, 2, 3)]
    for file in found:
        refs = file.founds[0].refs
        assert list(zip(refs.offset, refs.length, strict=True)) == places(Path(file.source.url))
    marked = harvest([str(archive / "*.tif")], fetch, known={f.source.url: f.source for f in found}.get)
    assert all(file.reused and not file.founds for file in marked)
