"""The main job from end to end: make an archive, index it, query the index, read from it, check the pixels, draw."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import rasterio
from landscape import DATES, NODATA, NORTH, PIXEL, SCALE, SIZE, WEST, write_archive
from numpy.typing import NDArray
from picture import Curve, compose, develop

import periplus

FOLDER = Path("demo-output")
DAY = DATES[12]
ROW, COLUMN, SIDE = 512, 560, 320
WINDOW = (WEST + COLUMN * PIXEL, NORTH - (ROW + SIDE) * PIXEL, WEST + (COLUMN + SIDE) * PIXEL, NORTH - ROW * PIXEL)
PLACES = {
    "wheat": ((544, 678), (214, 160, 30)),
    "maize": ((748, 725), (120, 170, 40)),
    "forest": ((710, 680), (24, 90, 70)),
    "summit": ((60, 150), (70, 120, 180)),
}
QUERY = """
    select level, count(*) as tiles, count(distinct path) as files, round(sum(length) / 1e6, 1) as megabytes
    from chunks group by level order by level
"""


@contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    print(f"\n{what}", flush=True)
    start = time.perf_counter()
    yield
    print(f"  {time.perf_counter() - start:.2f} s")


def main() -> None:
    archive = FOLDER / "archive"
    with step(f"Making {len(DATES)} Cloud Optimized GeoTIFFs of a made-up valley in {archive}/"):
        paths = list(write_archive(archive))
        print(f"  {len(paths)} files, {sum(path.stat().st_size for path in paths) / 1e6:.0f} MB")

    target = FOLDER / "archive.parquet"
    with step(f"Indexing them into {target}: headers are read, no pixel is copied"):
        index = periplus.index(f"{archive}/*.tif", to=target, arrange="stack", pattern="scene_{time:%Y%m%d}")
        print(f"  {index.table.rows:,} references, {target.stat().st_size / 1e3:.0f} kB")

    with step("Opening the index and asking it in SQL"):
        index = periplus.open(target)
        print("\n".join(f"  {line}" for line in repr(index).splitlines()))
        for row in index.sql(QUERY).to_pylist():
            print("  " + ", ".join(f"{name} {value}" for name, value in row.items()))

    with step(f"Which tiles does the window {tuple(round(edge) for edge in WINDOW)} need in July?"):
        tiles = index.select(array="0/data", bbox=WINDOW, time=("2023-07-01", "2023-07-31"))
        print(f"  {tiles.num_rows} tiles, {sum(tiles['length'].to_pylist()) / 1e3:.0f} kB")

    with step("Reading: the whole scene from an overview, the window in full resolution, four pixels over the year"):
        overview = index.read(time=str(DAY), max_size=SIZE // 2)
        window = index.read(bbox=WINDOW, time=str(DAY))
        series = {name: index["0/data"][:, :, row, column] for name, ((row, column), _) in PLACES.items()}
        strip = index.read(max_size=SIZE // 8)
        for read in (overview, window):
            print(f"  {read!r}")

    with step("Comparing every pixel with what rasterio reads from the files themselves"):
        print(f"  {compare(paths, overview.values[0], window.values[0], strip.values, series):,} values, all equal")

    picture = FOLDER / "demo.png"
    compose(
        title="24 scenes, one index, no copy",
        overview=develop(overview.values[0], nodata=NODATA, scale=SCALE),
        overview_words=f"{DAY.day} {DAY:%B %Y}: the whole scene from level {overview.level}, {pixels(overview.values)}",
        outline=(COLUMN / SIZE, ROW / SIZE, (COLUMN + SIDE) / SIZE, (ROW + SIDE) / SIZE),
        window=develop(window.values[0], nodata=NODATA, scale=SCALE),
        window_words=f"the outlined window from level {window.level}, {pixels(window.values)}",
        strip=[(DATES[n], develop(strip.values[n], nodata=NODATA, scale=SCALE)) for n in range(1, len(DATES), 2)],
        days=DATES,
        curves=[
            Curve(name, colour, vegetation(series[name]), (column / SIZE, row / SIZE))
            for name, ((row, column), colour) in PLACES.items()
        ],
        curve_words="Vegetation index (NDVI) of four pixels over the year, read across all files; clouds on 6 August",
        path=picture,
    )
    print(f"\nLook at {picture.resolve()}")
    print(f"And try: {os.path.relpath(sys.prefix)}/bin/periplus info {target}")


def compare(
    paths: list[Path],
    overview: NDArray[np.uint16],
    window: NDArray[np.uint16],
    strip: NDArray[np.uint16],
    series: dict[str, NDArray[np.uint16]],
) -> int:
    """The number of values compared; stops at the first that differs from rasterio's."""
    count = 0

    def same(ours: NDArray[np.uint16], theirs: NDArray[np.uint16]) -> None:
        nonlocal count
        if not np.array_equal(ours, theirs):
            raise SystemExit("pixels differ from rasterio's: please report this")
        count += ours.size

    for number, path in enumerate(paths):
        with rasterio.open(path) as image:
            whole = image.read()
        for name, ((row, column), _) in PLACES.items():
            same(series[name][number], whole[:, row, column])
        with rasterio.open(path, OVERVIEW_LEVEL=2) as image:
            same(strip[number], image.read())
        if number == DATES.index(DAY):
            same(window, whole[:, ROW : ROW + SIDE, COLUMN : COLUMN + SIDE])
            with rasterio.open(path, OVERVIEW_LEVEL=0) as image:
                same(overview, image.read())
    return count


def vegetation(bands: NDArray[np.uint16]) -> NDArray[np.float64]:
    """NDVI of (time, bands); NaN where there are no data."""
    red, nir = (np.where(bands[:, band] == NODATA, np.nan, bands[:, band]) for band in (0, 3))
    return (nir - red) / (nir + red)


def pixels(values: NDArray[np.uint16]) -> str:
    return f"{values.shape[-1]} x {values.shape[-2]} pixels"


if __name__ == "__main__":
    main()
