"""A mosaic is laid again from its own index: only what is new or changed is read, and all is as in a new run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import periplus
from periplus.model import Array
from periplus.testing.formats import dted as dteds
from periplus.testing.formats.tiff import picture
from periplus.testing.scenes import NODATA, tile
from periplus.testing.servers.http import RangeServer


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer({}) as found:
        yield found


def run(server: RangeServer, names: list[str], target: Path, **options: Any) -> tuple[list[str], Any]:
    """Index files over HTTP; the files of which bytes were fetched, and the index."""
    before = len(server.log)
    with periplus.index([f"{server.url}/{name}" for name in names], to=target, arrange="mosaic", **options) as index:
        summary = index.summary
    read = {request.path.lstrip("/") for request in server.log[before:] if request.method == "GET"}
    return sorted(read), summary


def same_as_new(server: RangeServer, names: list[str], target: Path, **options: Any) -> None:
    """The index says and reads what one made from nothing does."""
    with (
        periplus.open(target, allow=[server.url]) as index,
        periplus.index([f"{server.url}/{name}" for name in names], arrange="mosaic", **options) as new,
    ):
        assert list(index.arrays) == list(new.arrays)
        for name, array in new.arrays.items():
            np.testing.assert_array_equal(index[name][...], array[...])
            ours, theirs = index[name].array, array.array
            assert (ours.shape, ours.chunks, ours.edges, ours.dtype) == (
                theirs.shape, theirs.chunks, theirs.edges, theirs.dtype,
            )  # fmt: skip
            assert ours.georeference == theirs.georeference
            assert told(ours) == told(theirs)
        assert list(index.files.status) == list(new.files.status)
        assert index.table.rows == new.table.rows


def told(array: Array) -> str:
    return json.dumps(dict(array.attributes), sort_keys=True)


def cell(values: NDArray[Any], column: int, row: int = 0) -> bytes:
    return dteds.cell(values, interval=(3000, 3000), west=20 + column, south=10 - row)


def test_one_more_cell_is_one_header_read(server: RangeServer, tmp_path: Path) -> None:
    names = [f"{n}.dt0" for n in range(9)]
    server.files |= {name: cell(dteds.heights(name, 13, 13), n % 3, n // 3) for n, name in enumerate(names)}
    target = tmp_path / "m.parquet"
    read, _ = run(server, names[:8], target)
    assert read == names[:8]
    read, summary = run(server, names, target)
    assert read == ["8.dt0"]
    assert (summary.reused, summary.ok) == (8, 9)
    same_as_new(server, names, target)
    read, summary = run(server, names, target)
    assert read == []
    assert summary.reused == 9


def test_changed_and_removed_cells_are_noticed(server: RangeServer, tmp_path: Path) -> None:
    names = [f"{n}.dt0" for n in range(6)]
    server.files |= {name: cell(dteds.heights(name, 13, 13), n % 3, n // 3) for n, name in enumerate(names)}
    target = tmp_path / "m"
    run(server, names, target)
    server.files["4.dt0"] = cell(dteds.heights("other", 13, 13), 1, 1)
    read, _ = run(server, names, target)
    assert read == ["4.dt0"]
    same_as_new(server, names, target)
    del server.files["5.dt0"]
    read, summary = run(server, names, target)
    assert read == ["5.dt0"]
    assert summary.failed == 1
    same_as_new(server, names, target)
    read, _ = run(server, names[:4], target)
    assert read == []
    same_as_new(server, names[:4], target)


def test_cells_of_two_spacings_are_laid_again(server: RangeServer, tmp_path: Path) -> None:
    for n in range(3):
        server.files[f"a{n}.dt0"] = cell(dteds.heights(f"a{n}", 13, 13), n)
        server.files[f"b{n}.dt0"] = dteds.cell(
            dteds.heights(f"b{n}", 13, 7), interval=(6000, 3000), west=20 + n, south=50
        )
    names = sorted(server.files)
    run(server, names[:-1], tmp_path / "m.parquet")
    assert run(server, names, tmp_path / "m.parquet")[0] == names[-1:]
    same_as_new(server, names, tmp_path / "m.parquet")


def scenes(server: RangeServer, folder: Path, spots: list[tuple[int, int]], **profile: Any) -> list[str]:
    names = []
    for n, (row, column) in enumerate(spots):
        path = tile(folder / f"s{n}.tif", row, column, (70, 66), **profile)
        server.files[path.name] = path.read_bytes()
        names.append(path.name)
    return names


@pytest.mark.parametrize("rule", ["first", "last-valid"])
@pytest.mark.parametrize(
    ("spots", "profile"),
    [
        ([(0, 0), (70, 0), (0, 66), (70, 66)], {}),
        ([(0, 0), (40, 11), (7, 50), (90, 33)], {"interleave": "band"}),
        ([(0, 0), (32, 0), (0, 32), (64, 64)], {"tiled": False, "blockysize": 16}),
        ([(0, 0), (40, 12), (8, 50), (90, 34)], {"levels": (2,)}),
    ],
    ids=["side by side", "across", "strips", "levels"],
)
def test_one_more_scene_is_one_header_read(
    server: RangeServer, tmp_path: Path, spots: list[tuple[int, int]], profile: dict[str, Any], rule: str
) -> None:
    names = scenes(server, tmp_path / "in", spots, **profile)
    target = tmp_path / "m.parquet"
    run(server, names[:3], target, duplicates=rule)
    read, _ = run(server, names, target, duplicates=rule)
    assert read == [names[3]]
    same_as_new(server, names, target, duplicates=rule)
    read, _ = run(server, names[1:], target, duplicates=rule)
    assert read == []
    same_as_new(server, names[1:], target, duplicates=rule)
    # Another order shows other pixels, and another rule too.
    read, _ = run(server, names[:0:-1], target, duplicates=rule)
    assert read == []
    same_as_new(server, names[:0:-1], target, duplicates=rule)
    read, _ = run(server, names[:0:-1], target, duplicates="last")
    assert read == []
    same_as_new(server, names[:0:-1], target, duplicates="last")


def test_levels_left_out_are_tried_again_when_files_go(server: RangeServer, tmp_path: Path) -> None:
    paths = [
        tile(tmp_path / "in" / f"{n}.tif", 0, c, (64, 64), levels=levels)
        for n, (c, levels) in enumerate([(0, (2,)), (64, (2,)), (128, ()), (192, (2,))])
    ]
    server.files |= {path.name: path.read_bytes() for path in paths}
    names = [path.name for path in paths]
    target = tmp_path / "m.parquet"
    run(server, names[:3], target)
    read, summary = run(server, names, target)
    assert read == [names[3]]
    assert summary.warnings == ("1/data is omitted: 2.tif has none",)
    fits = [names[0], names[1], names[3]]
    run(server, fits, target)
    same_as_new(server, fits, target)
    with periplus.open(target, allow=[server.url]) as index:
        assert list(index.arrays) == ["0/data", "1/data"]


def test_files_of_different_nodata_are_laid_again(server: RangeServer, tmp_path: Path) -> None:
    for n, nodata in enumerate([NODATA, 5, None]):
        path = tile(tmp_path / "in" / f"{n}.tif", 0, 50 * n, nodata=nodata)
        server.files[path.name] = path.read_bytes()
    names = sorted(server.files)
    options = {"duplicates": "first-valid"}
    run(server, names[:2], tmp_path / "m.parquet", **options)
    assert run(server, names, tmp_path / "m.parquet", **options)[0] == names[2:]
    same_as_new(server, names, tmp_path / "m.parquet", **options)
    assert run(server, names[:1], tmp_path / "m.parquet", **options)[0] == []
    same_as_new(server, names[:1], tmp_path / "m.parquet", **options)


@pytest.mark.parametrize("nodata", [None, -9999.0, float("nan")])
def test_floats_are_laid_beside_those_an_index_remembers(
    server: RangeServer, tmp_path: Path, nodata: float | None
) -> None:
    spots = [(0, 0), (70, 0), (0, 66)]
    names = scenes(server, tmp_path / "in", spots, dtype=np.float32, nodata=nodata)
    target = tmp_path / "m.parquet"
    run(server, names[:2], target, duplicates="first")
    assert run(server, names, target, duplicates="first")[0] == names[2:]
    same_as_new(server, names, target, duplicates="first")


def test_chunks_in_several_parts_come_back_whole(server: RangeServer, tmp_path: Path) -> None:
    import rasterio
    from affine import Affine

    from periplus.testing.scenes import NORTH, PIXEL, WEST

    for n in range(3):
        path = tmp_path / f"{n}.jp2"
        where = Affine(PIXEL, 0, WEST + 150 * n * PIXEL, 0, -PIXEL, NORTH - 9 * n * PIXEL)
        with rasterio.open(
            path, "w", driver="JP2OpenJPEG", width=160, height=128, count=1, dtype="uint8", crs="EPSG:32633",
            transform=where, QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64, RESOLUTIONS=2,
        ) as image:  # fmt: skip
            image.write(picture(path.stem, np.uint8, (1, 128, 160)))
        server.files[path.name] = path.read_bytes()
    names = sorted(server.files)
    options = {"duplicates": "first", "sidecars": False}
    run(server, names[:2], tmp_path / "m.parquet", **options)
    assert run(server, names, tmp_path / "m.parquet", **options)[0] == names[2:]
    same_as_new(server, names, tmp_path / "m.parquet", **options)
