"""A small archive made by rasterio, and a way to run the command line."""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pytest
import rasterio
from rasterio.enums import Resampling

from periplus.cli.app import run

WEST, NORTH, PIXEL = 500_000.0, 4_200_000.0, 10.0
DAYS = [date(2023, 1, 1) + timedelta(days=40 * n) for n in range(4)]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture
def periplus(capfd):
    """Run a command line; what it said, with its exit code."""

    def call(*arguments):
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return Result(code, said.out, said.err)

    return call


def write_scene(path, number, height=256, width=320):
    values = np.random.default_rng(number).integers(1, 4000, (3, height, width)).astype(np.uint16)
    values[:, :20, :30] = 0
    profile = {"driver": "GTiff", "width": width, "height": height, "count": 3, "dtype": "uint16", "nodata": 0}
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(PIXEL, 0, WEST, 0, -PIXEL, NORTH)}
    tiles = {"tiled": True, "blockxsize": 64, "blockysize": 64, "compress": "deflate", "predictor": 2}
    with rasterio.open(path, "w", **profile, **place, **tiles) as image:
        image.write(values)
        image.descriptions = ("red", "green", "blue")
        image.scales = (0.5, 0.5, 0.25)
    with rasterio.open(path, "r+") as image:
        image.build_overviews([2], Resampling.average)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for number, day in enumerate(DAYS):
        write_scene(folder / f"scene_{day:%Y%m%d}.tif", number)
    return folder


@pytest.fixture
def archive(made, tmp_path):
    """A folder with archive/*.tif in it."""
    folder = tmp_path / "archive"
    folder.mkdir()
    for path in made.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture
def index(archive, periplus):
    """The archive, stacked along time, beside it."""
    target = archive.parent / "archive.parquet"
    pattern = "scene_{time:%Y%m%d}"
    assert periplus("index", f"{archive}/*.tif", "-o", target, "--arrange", "stack", "--pattern", pattern).code == 0
    return target
