"""Seeded DTED cells of any level, with the records, checksums and peculiarities of real producers."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

NULL = -32767


def heights(name: str, posts: int = 121, lines: int = 121) -> NDArray[np.int16]:
    """(1, y, x): hills and sea floor with a few null posts, the same for the same name always."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    y, x = np.indices((posts, lines))
    values = np.round(1500 * np.sin(x / 17) * np.cos(y / 23) + rng.normal(0, 40, (posts, lines))).astype(np.int16)
    values[rng.random((posts, lines)) < 0.01] = NULL
    return values[None]


def cell(
    values: NDArray[Any],
    *,
    west: int = -80,
    south: int = 43,
    interval: tuple[int, int] = (300, 300),
    datum: str = "WGS84",
    stored: tuple[int, ...] | None = None,
    complement: bool = False,
    checksums: int | None = None,
    labels: bytes = b"",
    latitude_first: bool = False,
) -> bytes:
    """A cell of (1, y, x) heights; intervals in tenths of seconds, `stored` the lines that are written at all.

    `checksums` replaces the checksum of every record.
    """
    _, posts, lines = values.shape
    x = f"{abs(west):03d}0000{'W' if west < 0 else 'E'}"
    y = f"{abs(south):03d}0000{'S' if south < 0 else 'N'}"
    head = _placed(
        80, {0: "UHL1", 4: y + x if latitude_first else x + y, 20: f"{interval[0]:04d}{interval[1]:04d}",
             28: "0200", 32: "U", 47: f"{lines:04d}{posts:04d}0"},
    )  # fmt: skip
    head += _placed(
        648, {0: "DSIU", 59: "DTED0", 64: "F18 062", 87: "01A960900000000US090078", 126: "SPEXDLMS2", 137: "9609",
              141: f"MSL{datum}AS11+C", 159: "9609", 289: "00"},
    )  # fmt: skip
    head += _placed(2700, {0: "ACC0100020000300040", 55: "00"})
    up = values[0, ::-1].T.astype(np.int16)
    wanted = range(lines) if stored is None else stored
    return labels + head + b"".join(_record(up[n], n, complement, checksums) for n in wanted)


def gdal_cell(values: NDArray[Any], *, west: int = -80, south: int = 43) -> bytes:
    """The same, written by GDAL; the size must be one of a DTED level."""
    from affine import Affine
    from rasterio.io import MemoryFile
    from rasterio.shutil import copy

    _, posts, lines = values.shape
    dx, dy = 1 / (lines - 1), 1 / (posts - 1)
    where = Affine(dx, 0, west - dx / 2, 0, -dy, south + 1 + dy / 2)
    profile = {"count": 1, "height": posts, "width": lines, "dtype": "int16", "crs": "EPSG:4326", "transform": where}
    with MemoryFile() as memory, MemoryFile(ext=".dt0") as target:
        with memory.open(driver="GTiff", nodata=NULL, **profile) as image:
            image.write(values)
        copy(memory.name, target.name, driver="DTED")
        return bytes(target.read())


def _record(posts: NDArray[np.int16], line: int, complement: bool, checksum: int | None) -> bytes:
    wide = posts.astype(np.int32)
    coded = wide & 0xFFFF if complement else np.where(wide < 0, 0x8000 | -wide, wide)
    body = b"\xaa" + line.to_bytes(3, "big") + line.to_bytes(2, "big") + b"\0\0" + coded.astype(">u2").tobytes()
    return body + (sum(body) if checksum is None else checksum).to_bytes(4, "big")


def _placed(size: int, texts: dict[int, str]) -> bytes:
    record = bytearray(b" " * size)
    for at, text in texts.items():
        record[at : at + len(text)] = text.encode()
    return bytes(record)
