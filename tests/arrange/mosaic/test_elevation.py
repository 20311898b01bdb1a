"""Cells laid side by side read as the stitched whole, each shared post once; what does not fit is named."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import periplus
from periplus.errors import ConflictError
from periplus.testing.formats import dted as dteds
from periplus.testing.formats.pictures import png

POSTS = 13
SPACING = 36_000 // (POSTS - 1)
"""Tenths of seconds between posts of a cell of one degree."""


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every index that a test makes is closed after it, so that no thread of it is left."""
    with contextlib.ExitStack() as stack:
        made = periplus.index
        monkeypatch.setattr(periplus, "index", lambda *given, **more: stack.enter_context(made(*given, **more)))
        yield


def cells(
    folder: Path, whole: NDArray[Any], *, lines: int = POSTS, south: int = 10, west: int = 20, without: Any = ()
) -> list[Path]:
    """The whole cut into cells of one degree that share their edges."""
    folder.mkdir(exist_ok=True)
    rows, columns = (whole.shape[1] - 1) // (POSTS - 1), (whole.shape[2] - 1) // (lines - 1)
    paths = []
    for row in range(rows):
        for column in range(columns):
            if (row, column) in without:
                continue
            y, x = row * (POSTS - 1), column * (lines - 1)
            part = whole[:, y : y + POSTS, x : x + lines]
            at = {"south": south + rows - 1 - row, "west": west + column}
            path = folder / f"e{at['west']}n{at['south']}.dt0"
            path.write_bytes(dteds.cell(part, interval=(36_000 // (lines - 1), SPACING), **at))
            paths.append(path)
    return paths


def stitched(rows: int, columns: int, lines: int = POSTS) -> NDArray[Any]:
    return dteds.heights("whole", rows * (POSTS - 1) + 1, columns * (lines - 1) + 1)


def test_cells_read_as_the_stitched_whole(tmp_path: Path) -> None:
    whole = stitched(3, 2)
    index = periplus.index(cells(tmp_path / "cells", whole), arrange="mosaic")
    array = index["0/data"]
    assert array.shape == whole.shape
    np.testing.assert_array_equal(array[...], whole)
    np.testing.assert_array_equal(array[0, 10:27, 5:20], whole[0, 10:27, 5:20])
    half = 1 / (POSTS - 1) / 2
    assert array.georeference is not None
    step = 1 / (POSTS - 1)
    np.testing.assert_allclose(array.georeference.transform, (step, 0, 20 - half, 0, -step, 13 + half))
    assert array.georeference.registration == "point"
    assert array.attrs["dted"]["vertical_datum"] == "MSL"


@pytest.mark.parametrize("target", ["mosaic.parquet", "mosaic"])
def test_a_mosaic_is_kept_and_made_anew(tmp_path: Path, target: str) -> None:
    whole = stitched(2, 2)
    paths = cells(tmp_path / "cells", whole)
    for _ in range(2):
        periplus.index(paths, to=tmp_path / target, arrange="mosaic")
        with periplus.open(tmp_path / target, allow=[str(tmp_path)]) as index:
            np.testing.assert_array_equal(index["0/data"][...], whole)


def test_a_mosaic_does_not_lose_cells_when_more_are_added(tmp_path: Path) -> None:
    whole = stitched(1, 3)
    paths = cells(tmp_path / "cells", whole)
    for path in (paths[1], paths[0], paths[2]):
        periplus.index(path, to=tmp_path / "mosaic", arrange="mosaic", append=True).close()
    with periplus.open(tmp_path / "mosaic", allow=[str(tmp_path)]) as index:
        np.testing.assert_array_equal(index["0/data"][...], whole)


@pytest.mark.parametrize(
    "without",
    [{(1, 1)}, {(0, 2)}, {(2, 0)}, {(2, 2)}, {(0, 0)}, {(0, 1), (1, 1)}, {(1, 1), (1, 2)}, {(1, 0), (2, 1), (0, 2)}],
    ids=str,
)
def test_edges_of_a_missing_cell_come_from_the_neighbours_that_repeat_them(tmp_path: Path, without: Any) -> None:
    whole = stitched(3, 3)
    expected = np.full_like(whole, dteds.NULL)
    for row, column in np.ndindex(3, 3):
        if (row, column) not in without:
            place = np.s_[:, row * 12 : row * 12 + POSTS, column * 12 : column * 12 + POSTS]
            expected[place] = whole[place]
    index = periplus.index(cells(tmp_path / "cells", whole, without=without), arrange="mosaic")
    array = index["0/data"]
    np.testing.assert_array_equal(array[...], expected)
    for y, x in np.ndindex(3, 3):
        for key in (np.s_[:, 12 * y + 12, :], np.s_[:, :, 12 * x + 12], np.s_[:, 12 * y : 12 * y + 2, 11:14]):
            np.testing.assert_array_equal(array[key], expected[key])


def told(found: dict[tuple[int, int], NDArray[Any]], grid: tuple[int, int], *, valid: bool) -> NDArray[Any]:
    """Every post by itself: what its own cell says, else (or where that is null) what another that has it says."""
    step = POSTS - 1
    whole = np.full((1, grid[0] * step + 1, grid[1] * step + 1), dteds.NULL, np.int16)
    for y, x in np.ndindex(*whole.shape[1:]):
        row, column = max(-(-y // step) - 1, 0), min(x // step, grid[1] - 1)
        for north, east in ((0, 0), (0, -1), (1, 0), (1, -1)):
            cell = found.get((row + north, column + east))
            at = y - (row + north) * step, x - (column + east) * step
            if cell is not None and 0 <= at[0] < POSTS and 0 <= at[1] < POSTS:
                whole[0, y, x] = cell[0, at[0], at[1]]
                if (north, east) == (0, 0) and not valid:
                    break
                if whole[0, y, x] != dteds.NULL:
                    break
    return whole


@pytest.mark.parametrize("rule", ["error", "first-valid"])
def test_cells_that_disagree_on_their_edges_keep_their_own_south_and_west(tmp_path: Path, rule: str) -> None:
    found, paths = {}, []
    rng = np.random.default_rng(9)
    for row, column in np.ndindex(3, 4):
        if (row, column) in {(1, 1), (0, 3)}:
            continue
        values = dteds.heights(f"{row}{column}", POSTS, POSTS)
        values[rng.random(values.shape) < 0.3] = dteds.NULL
        found[row, column] = values
        path = tmp_path / f"{row}{column}.dt0"
        path.write_bytes(dteds.cell(values, interval=(SPACING, SPACING), west=20 + column, south=10 - row))
        paths.append(path)
    with periplus.index(paths, arrange="mosaic", duplicates=rule) as index:
        np.testing.assert_array_equal(index["0/data"][...], told(found, (3, 4), valid=rule != "error"))


def test_each_spacing_is_an_array_of_its_own(tmp_path: Path) -> None:
    south, north = stitched(1, 2), stitched(1, 2, lines=7)
    paths = cells(tmp_path / "a", south, south=49) + cells(tmp_path / "b", north, south=50, lines=7)
    index = periplus.index(paths, arrange="mosaic")
    assert sorted(index.arrays) == ["300x300/0/data", "300x600/0/data"]
    np.testing.assert_array_equal(index["300x300/0/data"][...], south)
    np.testing.assert_array_equal(index["300x600/0/data"][...], north)


def test_one_cell_is_a_mosaic_too(tmp_path: Path) -> None:
    whole = stitched(1, 1)
    index = periplus.index(cells(tmp_path / "cells", whole), arrange="mosaic")
    np.testing.assert_array_equal(index["0/data"][...], whole)


def test_a_cell_given_twice_is_refused_or_replaced(tmp_path: Path) -> None:
    whole = np.maximum(stitched(1, 2), 0)
    paths = cells(tmp_path / "a", whole) + cells(tmp_path / "b", whole + 1)[:1]
    with pytest.raises(ConflictError, match="same cell and differ in 'a' and 'b': duplicates='first' or 'last'"):
        periplus.index(paths, arrange="mosaic")
    other = paths[0].with_suffix(".avg")
    other.write_bytes(paths[0].read_bytes())
    with pytest.raises(ConflictError, match="index the files of each separately") as caught:
        periplus.index([*paths[:1], other], arrange="mosaic")
    assert "duplicates" not in caught.value.message
    index = periplus.index(paths, arrange="mosaic", duplicates="last")
    np.testing.assert_array_equal(index["0/data"][0, :, :12], whole[0, :, :12] + 1)
    np.testing.assert_array_equal(index["0/data"][0, :, 12:], whole[0, :, 12:])
    with pytest.raises(ValueError, match="duplicates= of a mosaic"):
        periplus.index(paths, arrange="mosaic", duplicates="keep")


def test_what_is_no_cell_or_off_the_grid_is_named(tmp_path: Path) -> None:
    whole = stitched(1, 2)
    paths = cells(tmp_path / "cells", whole)
    data = paths[1].read_bytes()
    odd = tmp_path / "odd.dt0"
    odd.write_bytes(data[:4] + b"0250007E" + data[12:])
    with pytest.raises(ConflictError, match="off the grid of the other cells"):
        periplus.index([*paths, odd], arrange="mosaic")
    index = periplus.index([*paths, odd], arrange="mosaic", skip_misfits=True)
    np.testing.assert_array_equal(index["0/data"][...], whole)
    picture = tmp_path / "picture.png"
    picture.write_bytes(png(np.zeros((1, 4, 4), np.uint8), bits=8, colour=0))
    with pytest.raises(ConflictError, match="one of DTED cells"):
        periplus.index([*paths, picture], arrange="mosaic")
    odd.write_bytes(data[:20] + b"NA  NA  " + data[28:])
    with pytest.raises(ConflictError, match="has no georeference"):
        periplus.index([*paths, odd], arrange="mosaic")
