"""Write GeoTIFF: one tiled image with deflate compression, as BigTIFF where necessary."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from periplus.model import RPC_COEFFICIENTS, RPC_NAMES, GroundControlPoint, Transform

TILE = 256
BIG = 0xF0000000
"""Uncompressed bytes from which 32-bit offsets may be too small."""
USER_DEFINED = 32767
"""The GeoKey value of a CRS without a code."""
HEIGHTS = 4096
"""The GeoKey of the vertical CRS, the last of all."""
CODE = re.compile(r"EPSG:([0-9]{4,5})(?:\+([0-9]{4,5}))?", re.IGNORECASE)
_SAMPLE_FORMAT = {"u": 1, "i": 2, "f": 3, "c": 6}
_SHORT, _LONG, _DOUBLE, _LONG8, _ASCII = 3, 4, 12, 16, 2
_LETTER = {_SHORT: "H", _LONG: "I", _DOUBLE: "d", _LONG8: "Q"}
Tag = tuple[int, int, Any]
"""(number, type, values): a sequence of numbers, or bytes for ASCII."""


def write(
    file: BinaryIO,
    bands: NDArray[Any],
    *,
    transform: Transform | None = None,
    gcps: Sequence[GroundControlPoint] = (),
    rpc: Mapping[str, Any] | None = None,
    crs: str | None = None,
    geographic: bool = False,
    nodata: int | float | None = None,
    items: Iterable[tuple[int, str, str]] = (),
    colormap: Sequence[Sequence[int]] | None = None,
    white_is_zero: bool = False,
) -> None:
    """Write (bands, y, x) to a seekable file.

    `crs` is an authority code (EPSG:32633, with heights EPSG:32633+5773) or WKT, `geographic` whether its coordinates
    are angles; `items` are (band, role, text) for GDAL's metadata, the role being one of description, unittype, scale,
    offset. `colormap` has red, green and blue of every value of a single band.
    """
    if bands.dtype == bool:
        bands = bands.astype(np.uint8)
    big = bands.nbytes + (bands.nbytes >> 4) > BIG
    file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0) if big else struct.pack("<2sHI", b"II", 42, 0))
    predictor = 2 if bands.dtype.kind in "iu" else 1
    offsets, counts = [], []
    for tile in _tiles(bands, predictor):
        offsets.append(file.tell())
        counts.append(file.write(tile))
    long = _LONG8 if big else _LONG
    tags = [
        *_layout(bands, predictor),
        *_colours(bands, colormap, white_is_zero),
        (324, long, offsets),
        (325, long, counts),
        *_georeference(transform, gcps, crs, geographic),
        *_rpc(rpc),
        *_metadata(items, nodata),
    ]
    directory = _write_directory(file, sorted(tags), big)
    file.seek(8 if big else 4)
    file.write(struct.pack("<Q" if big else "<I", directory))


def _tiles(bands: NDArray[Any], predictor: int) -> Iterable[bytes]:
    count, height, width = bands.shape
    little = bands.dtype.newbyteorder("<")
    for row in range(0, height, TILE):
        for column in range(0, width, TILE):
            part = bands[:, row : row + TILE, column : column + TILE].transpose(1, 2, 0)
            tile = np.zeros((TILE, TILE, count), little)
            tile[: part.shape[0], : part.shape[1]] = part
            if predictor == 2:
                tile[:, 1:] = np.diff(tile, axis=1)
            yield zlib.compress(tile.data, 6)


def _layout(bands: NDArray[Any], predictor: int) -> list[Tag]:
    count, height, width = bands.shape
    tags: list[Tag] = [
        (256, _LONG, [width]),
        (257, _LONG, [height]),
        (258, _SHORT, [bands.dtype.itemsize * 8] * count),
        (259, _SHORT, [8]),
        (277, _SHORT, [count]),
        (284, _SHORT, [1]),
        (317, _SHORT, [predictor]),
        (322, _SHORT, [TILE]),
        (323, _SHORT, [TILE]),
        (339, _SHORT, [_SAMPLE_FORMAT[bands.dtype.kind]] * count),
    ]
    return tags


def _colours(bands: NDArray[Any], colormap: Sequence[Sequence[int]] | None, white_is_zero: bool) -> list[Tag]:
    """How values are shown: as grey, by a palette, or as colours, for three or four bands of uint8."""
    count = len(bands)
    if count == 1 and colormap and bands.dtype in (np.uint8, np.uint16):
        size = 256**bands.dtype.itemsize
        table = np.zeros((size, 3), np.uint16)
        given = np.array(colormap[:size], np.uint16).reshape(-1, 3)
        table[: len(given)] = given * 257  # TIFF has 16 bits per colour
        return [(262, _SHORT, [3]), (320, _SHORT, table.T.ravel().tolist())]
    colour = bands.dtype == np.uint8 and count in (3, 4)
    tags: list[Tag] = [(262, _SHORT, [2 if colour else 0 if white_is_zero and count == 1 else 1])]
    if extra := count - (3 if colour else 1):
        # 2 is alpha, 0 unspecified
        tags.append((338, _SHORT, [2] if colour else [0] * extra))
    return tags


def _georeference(
    transform: Transform | None, gcps: Sequence[GroundControlPoint], crs: str | None, geographic: bool
) -> list[Tag]:
    tags: list[Tag] = []
    if transform is None and gcps:
        points = [number for p in gcps for number in (p.column, p.row, 0.0, p.x, p.y, p.z)]
        tags.append((33922, _DOUBLE, points))
    if transform is not None:
        a, b, c, d, e, f = transform
        if b == d == 0 and a > 0 > e:
            tags += [(33550, _DOUBLE, [a, -e, 0.0]), (33922, _DOUBLE, [0.0, 0.0, 0.0, c, f, 0.0])]
        else:
            tags.append((34264, _DOUBLE, [a, b, 0.0, c, d, e, 0.0, f, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]))
    if not crs:
        return tags  # readers take GeoKeys without a CRS for a CRS of unknown units
    keys = [(1025, 0, 1, 1)]
    text = b""
    code = CODE.fullmatch(crs)
    if code and all(1024 <= int(number) < USER_DEFINED for number in code.groups() if number):
        keys += [(1024, 0, 1, 2 if geographic else 1), (2048 if geographic else 3072, 0, 1, int(code[1]))]
        if code[2]:
            keys.append((HEIGHTS, 0, 1, int(code[2])))
    else:
        # GDAL reads the definition from this citation where the model is user-defined.
        text = f"ESRI PE String = {crs.replace('|', ' ')}|".encode("ascii", "replace")
        keys += [(1024, 0, 1, USER_DEFINED), (3073, 34737, len(text), 0)]
    keys.sort()
    revision = int(keys[-1][0] == HEIGHTS)  # readers use vertical CRSs from GeoTIFF 1.1 on
    tags.append((34735, _SHORT, [1, 1, revision, len(keys), *(number for key in keys for number in key)]))
    if text:
        tags.append((34737, _ASCII, text + b"\0"))
    return tags


def _rpc(rpc: Mapping[str, Any] | None) -> list[Tag]:
    """The tag of rational polynomial coefficients; errors that are not known are -1."""
    if rpc is None:
        return []
    numbers = [float(rpc.get(name, -1)) for name in RPC_NAMES]
    return [(50844, _DOUBLE, [*numbers, *(float(number) for name in RPC_COEFFICIENTS for number in rpc[name])])]


def _metadata(items: Iterable[tuple[int, str, str]], nodata: int | float | None) -> list[Tag]:
    tags: list[Tag] = []
    # Escaped twice, as GDAL does and expects.
    lines = [
        f'  <Item name={quoteattr(role.upper())} sample="{band}" role={quoteattr(role)}>{escape(escape(text))}</Item>\n'
        for band, role, text in items
    ]
    if lines:
        xml = "<GDALMetadata>\n" + "".join(lines) + "</GDALMetadata>\n"
        tags.append((42112, _ASCII, xml.encode() + b"\0"))
    if nodata is not None:
        tags.append((42113, _ASCII, str(nodata).encode() + b"\0"))
    return tags


def _write_directory(file: BinaryIO, tags: Sequence[Tag], big: bool) -> int:
    """Write the values that do not fit into their entries, then the entries; returns the offset of the directory."""
    inline = 8 if big else 4
    entries = []
    for number, kind, values in tags:
        data = values if isinstance(values, bytes) else struct.pack(f"<{len(values)}{_LETTER[kind]}", *values)
        if len(data) > inline:
            file.write(b"\0" * (-file.tell() % 8))
            where = file.tell()
            file.write(data)
            data = struct.pack("<Q" if big else "<I", where)
        entries.append(struct.pack("<HHQ" if big else "<HHI", number, kind, len(values)) + data.ljust(inline, b"\0"))
    file.write(b"\0" * (-file.tell() % 8))
    start = file.tell()
    file.write(struct.pack("<Q" if big else "<H", len(entries)) + b"".join(entries) + b"\0" * inline)
    return start
