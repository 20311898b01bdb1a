"""Cells laid side by side read as the stitched whole, each shared post once; what does not fit is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import periplus
from periplus.errors import ConflictError, FormatError
from periplus.testing import dteds
from periplus.testing.pictures import png

POSTS = 13
SPACING = 36_000 // (POSTS - 1)
"""Tenths of seconds between posts of a cell of one degree."""


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
    assert array.attributes["dted"]["vertical_datum"] == "MSL"


@pytest.mark.parametrize("target", ["mosaic.parquet", "mosaic"])
def test_a_mosaic_is_kept_and_made_anew(tmp_path: Path, target: str) -> None:
    whole = stitched(2, 2)
    paths = cells(tmp_path / "cells", whole)
    for _ in range(2):
        periplus.index(paths, to=tmp_path / target, arrange="mosaic")
        with periplus.open(tmp_path / target, allow=[str(tmp_path)]) as index:
            np.testing.assert_array_equal(index["0/data"][...], whole)


def test_a_mosaic_does_not_lose_cells_when_more_are_added(tmp_path: Path) -> None:
    paths = cells(tmp_path / "cells", stitched(1, 2))
    periplus.index(paths[:1], to=tmp_path / "mosaic", arrange="mosaic")
    with pytest.raises(ConflictError, match="name all files"):
        periplus.index(paths[1:], to=tmp_path / "mosaic", arrange="mosaic", append=True)


def test_a_missing_cell_is_null_but_for_the_edges_its_neighbours_keep(tmp_path: Path) -> None:
    whole = stitched(3, 3)
    index = periplus.index(cells(tmp_path / "cells", whole, without={(1, 1)}), arrange="mosaic")
    expected = whole.copy()
    # A cell holds the posts of its southern and western edge, so these are missing with it.
    expected[:, POSTS : 2 * POSTS - 1, POSTS - 1 : 2 * POSTS - 2] = dteds.NULL
    np.testing.assert_array_equal(index["0/data"][...], expected)


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
    with pytest.raises(ConflictError, match="are the same cell"):
        periplus.index(paths, arrange="mosaic")
    index = periplus.index(paths, arrange="mosaic", duplicates="last")
    np.testing.assert_array_equal(index["0/data"][0, :, :12], whole[0, :, :12] + 1)
    np.testing.assert_array_equal(index["0/data"][0, :, 12:], whole[0, :, 12:])
    with pytest.raises(FormatError, match="duplicates of a mosaic"):
        periplus.index(paths, arrange="mosaic", duplicates="keep")


def test_what_is_no_cell_or_off_the_grid_is_named(tmp_path: Path) -> None:
    whole = stitched(1, 2)
    paths = cells(tmp_path / "cells", whole)
    data = paths[1].read_bytes()
    odd = tmp_path / "odd.dt0"
    odd.write_bytes(data[:4] + b"0250007E" + data[12:])
    with pytest.raises(ConflictError, match="not on the grid"):
        periplus.index([*paths, odd], arrange="mosaic")
    index = periplus.index([*paths, odd], arrange="mosaic", skip_misfits=True)
    np.testing.assert_array_equal(index["0/data"][...], whole)
    picture = tmp_path / "picture.png"
    picture.write_bytes(png(np.zeros((1, 4, 4), np.uint8), bits=8, colour=0))
    with pytest.raises(ConflictError, match="laid of DTED cells"):
        periplus.index([*paths, picture], arrange="mosaic")
    odd.write_bytes(data[:20] + b"NA  NA  " + data[28:])
    with pytest.raises(ConflictError, match="where it lies"):
        periplus.index([*paths, odd], arrange="mosaic")
