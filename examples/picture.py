"""One picture of what was read: the overview, the window in full resolution, the year as a strip and as a curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Box = tuple[float, float, float, float]
PAPER, INK, FAINT, ACCENT = (250, 249, 246), (32, 38, 46), (128, 134, 142), (224, 74, 44)
WIDTH, MARGIN, GAP = 1640, 40, 24


@dataclass(frozen=True)
class Curve:
    """A time series with its name and colour."""

    name: str
    colour: tuple[int, int, int]
    values: NDArray[np.float64]
    """NaN where there is none."""
    at: tuple[float, float]
    """Where it was taken in the overview, as shares of its width and height."""


def develop(bands: NDArray[np.uint16], *, nodata: int, scale: float) -> Image.Image:
    """Red, green and blue reflectance to a picture: a film-like curve that keeps fields and snow apart."""
    reflectance = bands[:3].astype(np.float64) * scale
    tone = np.clip(1.03 * (1 - np.exp(-np.clip(reflectance - 0.010, 0, None) * 5.0)), 0, 1) ** 0.62
    image = (tone.transpose(1, 2, 0) * 255).astype(np.uint8)
    image[(bands == nodata).all(axis=0)] = (226, 224, 218)
    return Image.fromarray(image)


def text(draw: ImageDraw.ImageDraw, at: tuple[float, float], words: str, size: int = 17, **options: object) -> None:
    """Words in the one font that comes with Pillow."""
    draw.text(at, words, font=ImageFont.load_default(size), **{"fill": INK, **options})


def compose(
    *,
    title: str,
    overview: Image.Image,
    overview_words: str,
    outline: Box,
    window: Image.Image,
    window_words: str,
    strip: Sequence[tuple[date, Image.Image]],
    days: Sequence[date],
    curves: Sequence[Curve],
    curve_words: str,
    path: Path,
) -> None:
    """Lay everything out and write a PNG. `outline` is the window in the overview, as shares of its sides."""
    side = (WIDTH - 2 * MARGIN - GAP) // 2
    small = (WIDTH - 2 * MARGIN - GAP // 2 * (len(strip) - 1)) // len(strip)
    top, middle = 104, 104 + side + 74
    low = middle + small + 92
    page = Image.new("RGB", (WIDTH, low + 270), PAPER)
    draw = ImageDraw.Draw(page)
    text(draw, (MARGIN, 26), title, 32)

    right = MARGIN + side + GAP
    page.paste(overview.resize((side, side), Image.Resampling.LANCZOS), (MARGIN, top))
    page.paste(window.resize((side, side), Image.Resampling.NEAREST), (right, top))
    left_x, left_y = MARGIN + outline[0] * side, top + outline[1] * side
    right_x, right_y = MARGIN + outline[2] * side, top + outline[3] * side
    draw.line([(right_x, left_y), (right, top)], fill=ACCENT, width=2)
    draw.line([(right_x, right_y), (right, top + side)], fill=ACCENT, width=2)
    draw.rectangle([left_x, left_y, right_x, right_y], outline=ACCENT, width=3)
    draw.rectangle([right, top, right + side - 1, top + side - 1], outline=ACCENT, width=3)
    for curve in curves:
        x, y = curve.at
        dot(draw, MARGIN + x * side, top + y * side, curve.colour)
        x, y = ((x - outline[0]) / (outline[2] - outline[0]), (y - outline[1]) / (outline[3] - outline[1]))
        if 0 <= x <= 1 and 0 <= y <= 1:
            dot(draw, right + x * side, top + y * side, curve.colour, 9)
    text(draw, (MARGIN, top + side + 10), overview_words)
    text(draw, (right, top + side + 10), window_words)

    for number, (day, image) in enumerate(strip):
        x = MARGIN + number * (small + GAP // 2)
        page.paste(image.resize((small, small), Image.Resampling.LANCZOS), (x, middle))
        text(draw, (x, middle + small + 6), f"{day.day} {day:%b}", 15, fill=FAINT)
    text(draw, (MARGIN, low - 46), curve_words)
    chart(draw, (MARGIN, low - 10, WIDTH - MARGIN, low + 218), days, curves)
    page.save(path, optimize=True)


def dot(draw: ImageDraw.ImageDraw, x: float, y: float, colour: tuple[int, int, int], size: int = 5) -> None:
    """A filled circle with a light rim."""
    draw.ellipse([x - size, y - size, x + size, y + size], fill=colour, outline=PAPER, width=2)


def chart(draw: ImageDraw.ImageDraw, box: Box, days: Sequence[date], curves: Sequence[Curve]) -> None:
    """Curves over the days of a year, between 0 and 1."""
    left, top, right, bottom = box
    right -= 130

    def place(day: date, value: float) -> tuple[float, float]:
        along = (day.timetuple().tm_yday - 1) / 364
        return left + 34 + along * (right - left - 34), bottom - (value + 0.1) / 1.05 * (bottom - top)

    for tick in (0.0, 0.3, 0.6, 0.9):
        (x0, y), (x1, _) = place(date(2023, 1, 1), tick), place(date(2023, 12, 31), tick)
        draw.line([(x0, y), (x1, y)], fill=(226, 224, 218), width=1)
        text(draw, (left, y - 9), f"{tick:.1f}", 15, fill=FAINT)
    for month in range(1, 13):
        text(draw, (place(date(2023, month, 1), 0)[0], bottom + 4), f"{date(2023, month, 1):%b}", 15, fill=FAINT)
    for curve in curves:
        known = [place(d, v) for d, v in zip(days, curve.values, strict=True) if np.isfinite(v)]
        draw.line(known, fill=curve.colour, width=3, joint="curve")
        for x, y in known:
            dot(draw, x, y, curve.colour)
        text(draw, (known[-1][0] + 14, known[-1][1] - 10), curve.name, 16, fill=curve.colour)
