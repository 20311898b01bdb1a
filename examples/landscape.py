"""A made-up valley, and the satellite scenes of one year over it: an archive of Cloud Optimized GeoTIFFs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import rasterio
from numpy.typing import NDArray
from rasterio.io import MemoryFile
from rasterio.shutil import copy

Grid = NDArray[np.float32]

SIZE = 1280
PIXEL = 10.0
WEST, NORTH = 442_000.0, 5_252_800.0
CRS = "EPSG:32633"
NODATA = 0
SCALE = 0.0001
BANDS = ("red", "green", "blue", "nir")
DATES = tuple(date(2023, 1, 8) + timedelta(days=15 * n) for n in range(24))


@dataclass(frozen=True)
class Valley:
    """What does not change over the year."""

    height: Grid
    """0 in the deepest valley, 1 on the highest summit."""
    light: Grid
    """How much sun a slope gets, around 1."""
    water: NDArray[np.bool_]
    forest: Grid
    field: NDArray[np.int64]
    """Number of the field a pixel belongs to."""
    fertile: Grid
    broadleaf: Grid
    """How much of a forest changes colour in autumn."""
    texture: Grid


def noise(rng: np.random.Generator, power: float, *, longest: float = 1.0) -> Grid:
    """Fractal noise with mean 0 and deviation 1; `longest` is the longest wave, as a share of the whole."""
    frequency = np.hypot(np.fft.fftfreq(SIZE)[:, None], np.fft.rfftfreq(SIZE)[None]) * SIZE
    amplitude = np.where(frequency > 0, np.maximum(frequency, 1 / longest) ** (-power / 2 - 0.5), 0)
    field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((SIZE, SIZE))) * amplitude, s=(SIZE, SIZE))
    return ((field - field.mean()) / field.std()).astype(np.float32)


def smooth(low: float, high: float, values: Grid) -> Grid:
    """0 below `low`, 1 above `high`, and a soft step between."""
    t = np.clip((values - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def valley(seed: int = 7) -> Valley:
    """The landscape of a seed."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) / SIZE
    bends = noise(rng, 3.4, longest=0.7)
    # Mountains rise with the distance from a river that winds from the lower left to the upper right.
    river = np.abs(y + 0.55 * x - 0.82 - 0.035 * np.sin(9 * x + 1) - 0.03 * bends)
    crests = sum((1 - np.abs(noise(rng, 4.2, longest=length))).clip(-1) * length for length in (0.32, 0.16, 0.08))
    rise = smooth(0.10, 0.62, river + 0.05 * noise(rng, 3, longest=0.3))
    height = rise * (0.62 + 0.75 * crests) + 0.004 * noise(rng, 2.4, longest=0.05) * rise
    height = (height - height.min()) / (height.max() - height.min())
    south, east = np.gradient(height * SIZE * 0.30)
    light = (1 + 0.85 * east + 0.85 * south) / np.sqrt(1 + east**2 + south**2)
    shore = 1 + 0.30 * noise(rng, 3.2, longest=0.12)
    lake = ((x - 0.30) / 0.080) ** 2 + ((y + 0.4 * x - 0.765) / 0.036) ** 2 < shore
    water = (river < 0.0042 + 0.001 * bends) | lake
    fertile = (1 - smooth(0.05, 0.16, height)) * (1 - water)
    wood = smooth(-0.15, 0.15, noise(rng, 2.6, longest=0.12) + 3.2 * smooth(0.06, 0.22, height) - 0.9)
    forest = wood * (1 - smooth(0.52, 0.62, height + 0.03 * noise(rng, 2, longest=0.05))) * (1 - water)
    return Valley(
        height=height,
        light=np.clip(light, 0.25, 1.9),
        water=water,
        forest=forest.astype(np.float32),
        field=fields(x, y, noise(rng, 3.2, longest=0.4)),
        fertile=fertile.astype(np.float32),
        broadleaf=smooth(-0.6, 1.0, noise(rng, 2.4, longest=0.08) - 2 * height),
        texture=noise(rng, 1.2, longest=0.03),
    )


def fields(x: Grid, y: Grid, bends: Grid) -> NDArray[np.int64]:
    """A patchwork: strips that follow the valley, each cut crosswise at places of its own."""
    along = (x * 0.88 - y * 0.48 + 0.006 * bends) * 30
    across = (x * 0.48 + y * 0.88 + 0.006 * bends) * 46
    strip = np.floor(across).astype(np.int64)
    cut = np.floor(along * (0.6 + 0.8 * hashed(strip, 1)) + 9 * hashed(strip, 2)).astype(np.int64)
    return strip * 1009 + cut


def hashed(number: NDArray[np.int64], salt: int) -> Grid:
    """A number between 0 and 1 that depends on nothing else, the same for the same number."""
    mixed = (number * 2_654_435_761 + salt * 40_503) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2_246_822_519) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 13)) & 0xFFFFF).astype(np.float32) / 0xFFFFF


def scene(land: Valley, day: date, number: int) -> NDArray[np.uint16]:
    """Reflectance times 10,000 of (red, green, blue, nir) on one day; 0 where the satellite did not look."""
    rng = np.random.default_rng(1000 + number)
    turn = day.timetuple().tm_yday / 365
    warmth = -np.cos(2 * np.pi * (turn - 0.055))
    green_up = hashed(land.field, 3)
    # Every crop has its own months: it greens, ripens and leaves bare soil.
    peak = 0.36 + 0.26 * green_up
    crop = np.exp(-(((turn - peak) / (0.09 + 0.05 * hashed(land.field, 4))) ** 2))
    ripe = np.exp(-(((turn - peak - 0.13) / 0.06) ** 2)) * (hashed(land.field, 5) > 0.35)
    leaf = smooth(-0.5, 0.55, np.float32(warmth) - 0.9 * land.height)
    autumn = np.float32(np.exp(-(((turn - 0.81) / 0.05) ** 2))) * land.broadleaf
    winter_crop = np.where(hashed(land.field, 6) > 0.6, np.float32(0.5), np.float32(0.1))
    grass = 0.35 + 0.65 * leaf

    def blend(under: Grid, over: tuple[float, ...], share: Grid) -> Grid:
        return under + (np.array(over, np.float32)[:, None, None] - under) * share[None]

    colour = np.empty((4, SIZE, SIZE), np.float32)
    colour[:] = np.array([0.125, 0.098, 0.072, 0.18], np.float32)[:, None, None]  # bare soil
    colour *= 0.78 + 0.44 * hashed(land.field, 7)
    colour = blend(colour, (0.055, 0.085, 0.040, 0.36), grass * (1 - land.fertile))
    colour = blend(colour, (0.045, 0.090, 0.035, 0.45), np.maximum(crop, winter_crop) * land.fertile)
    colour = blend(colour, (0.235, 0.185, 0.095, 0.30), ripe * land.fertile * 0.9)
    colour = blend(colour, (0.150, 0.140, 0.128, 0.19), smooth(0.56, 0.72, land.height))  # rock
    colour = blend(colour, (0.024, 0.042, 0.026, 0.25), land.forest * 0.92)
    colour = blend(colour, (0.130, 0.075, 0.028, 0.27), land.forest * autumn * 0.7)
    colour *= (1 + 0.055 * land.texture) * (0.42 + 0.58 * land.light)
    line = 0.78 + 0.42 * np.float32(warmth) + 0.012 * land.texture + 0.06 * (land.light - 1)
    snow = smooth(-0.05, 0.05, land.height - line) * (1 - 0.55 * land.forest)
    white = np.array([0.74, 0.77, 0.81, 0.66], np.float32)[:, None, None] * (0.25 + 0.75 * land.light)
    colour += (white - colour) * snow
    colour = blend(colour, (0.018, 0.040, 0.055, 0.012), land.water.astype(np.float32))
    colour += 0.012 * np.array([0.6, 0.8, 1.0, 0.2], np.float32)[:, None, None]  # haze
    if number % 4 == 2:  # a fortnight with fair-weather clouds
        cloud = smooth(1.15, 2.1, noise(rng, 2.6, longest=0.16))
        shade = np.roll(cloud, (26, -18), axis=(0, 1))
        colour = blend(colour * (1 - 0.55 * shade[None]), (0.72, 0.73, 0.75, 0.70), cloud)
    # The sensor sees steps of 8 ten-thousandths, with a little noise.
    seen = np.round(colour / SCALE / 8 + rng.normal(0, 0.3, colour.shape)) * 8
    stored = np.clip(seen, 8, 65528).astype(np.uint16)
    if number % 3 == 1:  # the edge of the swath
        y, x = np.mgrid[0:SIZE, 0:SIZE]
        stored[:, x * 0.97 + y * 0.22 > SIZE * (1.02 + 0.04 * np.sin(number))] = NODATA
    return stored


def write_archive(folder: Path, seed: int = 7) -> Iterator[Path]:
    """Write the scenes as COGs, one at a time, and yield their paths. What is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    land = None
    for number, day in enumerate(DATES):
        path = folder / f"scene_{day:%Y%m%d}.tif"
        if not path.exists():
            land = land or valley(seed)
            write_cog(path, scene(land, day, number), day)
        yield path


def write_cog(path: Path, stored: NDArray[np.uint16], day: date) -> None:
    """One scene: tiles of 256 x 256, deflate with a horizontal predictor, overviews, nodata, scale and band names."""
    profile = {"driver": "GTiff", "width": SIZE, "height": SIZE, "count": len(BANDS), "dtype": "uint16"}
    place = {"crs": CRS, "transform": rasterio.Affine(PIXEL, 0, WEST, 0, -PIXEL, NORTH), "nodata": NODATA}
    options = {"BLOCKSIZE": 256, "COMPRESS": "DEFLATE", "PREDICTOR": 2, "LEVEL": 2, "OVERVIEW_RESAMPLING": "AVERAGE"}
    temporary = path.with_suffix(".part")
    with MemoryFile() as memory:
        with memory.open(**profile, **place) as image:
            image.write(stored)
            image.descriptions = BANDS
            image.scales = (SCALE,) * len(BANDS)
            image.update_tags(TIFFTAG_DATETIME=f"{day:%Y:%m:%d} 10:00:00")
        with memory.open() as image:
            copy(image, temporary, driver="COG", **options)
    temporary.rename(path)
