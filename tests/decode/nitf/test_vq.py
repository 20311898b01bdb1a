"""Vector quantised NITF images give the pixels their codes stand for, which are those GDAL reads."""

import struct
from functools import lru_cache

import numpy as np
import pyproj
import pytest
import rasterio

from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.scan.drive import scan_bytes
from periplus.scan.nitf import scan as nitf
from periplus.testing.formats import nitf as nitfs

ABSENT = 0xFFFFFFFF
BLOCK, SIDE = 256, 2
HOLE = 2
"""The block that is not stored, of four."""


@lru_cache
def quantised(*, whole: bool = False, idle: bool = False) -> tuple[bytes, np.ndarray, dict[int, tuple[int, int]]]:
    """Data of an image of 2 x 2 blocks of which one is absent, its values, and where the parts of the data lie.

    A `whole` image has all its blocks, and no mask; or one that is `idle`, which lists nothing.
    """
    rng = np.random.default_rng(4)
    books = rng.integers(0, 216, (4, 4096, 4), dtype=np.uint8)
    codes = rng.integers(0, 4096, (SIDE * SIDE, 64, 64))
    values = np.full((1, SIDE * BLOCK, SIDE * BLOCK), 216, np.uint8)
    blocks, table = [], []
    for number in range(SIDE * SIDE):
        hole = number == HOLE and not whole
        table.append(ABSENT if hole else 6144 * len(blocks))
        if hole:
            continue
        y, x = divmod(number, SIDE)
        pixel = np.arange(BLOCK)
        tile = books[pixel[:, None] % 4, codes[number][pixel[:, None] // 4, pixel // 4], pixel % 4]
        values[0, y * BLOCK : (y + 1) * BLOCK, x * BLOCK : (x + 1) * BLOCK] = tile
        bits = "".join(format(code, "012b") for code in codes[number].ravel())
        blocks.append(int(bits, 2).to_bytes(6144, "big"))
    mask = struct.pack(">HHHB4I", 0 if idle else 4, 0, 8, 216, *table)
    sizes = struct.pack(">IIB", 64, 64, 12)
    kinds = struct.pack(">HHH", 1, 4, 0)
    lookup = struct.pack(">IH", 6, 14)
    lookup += b"".join(struct.pack(">HIHHI", n + 1, 4096, 4, 8, 62 + 16384 * n) for n in range(4)) + books.tobytes()
    parts = {138: mask, 137: sizes, 131: kinds, 132: lookup, 140: b"".join(blocks)}
    if whole and not idle:
        del parts[138]
    # The mask of a raster product has no place for where the blocks start: its table of locations tells.
    places, at = {}, 0 if whole else 4
    for number, part in parts.items():
        places[number] = (at, len(part))
        at += len(part)
    return (b"" if whole else struct.pack(">I", places[140][0])) + b"".join(parts.values()), values, places


def picture(data: bytes, values: np.ndarray, table: bytes = b"", coding: str = "M4") -> nitfs.ImageSegment:
    return nitfs.ImageSegment(
        values=values, block=(BLOCK, BLOCK), streams=[data], coding=coding, luts=[bytes(range(216))] * 3,
        tres=nitfs.tre("RPFIMG", table) if table else b"", icords="G",
        igeolo="400000N0100000E400000N0120000E390000N0120000E390000N0100000E",
    )  # fmt: skip


def frame(
    *outer: float, whole: bool = False, idle: bool = False, coverage: int | None = None
) -> tuple[bytes, np.ndarray]:
    """The image with a table of locations and its outer corners, as frames of charts have them.

    The corners are said to be at `coverage`, where that is given.
    """
    data, values, places = quantised(whole=whole, idle=idle)
    coding = "C4" if whole else "M4"
    corners = struct.pack(">12d", *(outer or (40, 10, 39, 10, 40, 12, 39, 12)), 0, 0, 0, 0)
    count = len(places) + 1

    def table(first: int, own: int) -> bytes:
        records = {number: (first + at, length) for number, (at, length) in places.items()}
        records[130] = (own + 14 + 10 * count if coverage is None else coverage, len(corners))
        rows = b"".join(struct.pack(">HII", number, length, at) for number, (at, length) in sorted(records.items()))
        return struct.pack(">HIHHI", 14 + len(rows), 14, count, 10, len(data)) + rows + corners

    once = nitfs.nitf(picture(data, values, table(0, 0), coding))
    places_in = table(len(once) - len(data), once.index(b"RPFIMG") + 11)
    return nitfs.nitf(picture(data, values, places_in, coding)), values


def assembled(data: bytes) -> tuple[np.ndarray, object]:
    found = scan_bytes(data, scanner=nitf)[1]
    array, refs = found.array, found.refs
    out = np.full(array.shape, array.fill, array.dtype)
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    for row in range(0, len(refs), 2):
        ranges = zip(refs.offset[row : row + 2].tolist(), refs.length[row : row + 2].tolist(), strict=True)
        chunk = b"".join(data[offset : offset + length] for offset, length in ranges)
        _, y, x = refs.chunk[:, row]
        out[:, y * BLOCK : (y + 1) * BLOCK, x * BLOCK : (x + 1) * BLOCK] = decode(chunk, valid=array.chunks)
    assert refs.part.tolist() == [0, 1] * (len(refs) // 2)
    return out, array


def test_codes_give_the_pixels_they_stand_for():
    data, values, _ = quantised()
    found, array = assembled(nitfs.nitf(picture(data, values)))
    np.testing.assert_array_equal(found, values)
    assert array.fill == 216


def test_codes_without_a_mask_follow_the_code_books():
    data, values, _ = quantised(whole=True)
    found, _ = assembled(nitfs.nitf(picture(data, values, coding="C4")))
    np.testing.assert_array_equal(found, values)
    with pytest.raises(FormatError, match="do not fill the data after the code books"):
        scan_bytes(nitfs.nitf(picture(data + b"\0", values, coding="C4")), scanner=nitf)


@pytest.mark.parametrize(("whole", "idle"), [(False, False), (True, False), (True, True)])
def test_a_frame_of_a_chart_is_what_gdal_reads(whole, idle, tmp_path):
    data, values = frame(whole=whole, idle=idle)
    found, array = assembled(data)
    np.testing.assert_array_equal(found, values)
    path = tmp_path / "a.ntf"
    path.write_bytes(data)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(), values)
        np.testing.assert_allclose(array.georeference.transform, tuple(file.transform)[:6])


def test_corners_elsewhere_in_the_file_are_asked_for():
    corners = struct.pack(">8d", 30, 10, 29, 10, 30, 12, 29, 12)
    size = len(frame()[0])
    _, array = assembled(frame(coverage=size)[0] + corners)
    assert array.georeference.transform == (2 / 512, 0.0, 10.0, 0.0, -1 / 512, 30.0)
    _, array = assembled(frame(coverage=size)[0] + corners[:-1])
    assert "coverage section" in array.attributes["grid_unread"]
    assert array.georeference.transform is not None


@pytest.mark.parametrize("south", [False, True])
def test_a_frame_of_a_polar_zone_has_a_transform_in_its_plane(south):
    # Latitudes and longitudes of the corners, first and last row of the first column and then of the last.
    corners = [74.1886116991581, -71.56505117707799, 68.78679656440357, -45.0, 82.92893218813452, -45.0,
               74.1886116991581, -18.434948822922017]  # fmt: skip
    if south:  # the same places of the other plane
        corners = [-value if n % 2 == 0 else 180 - value for n, value in enumerate(corners)]
    _, array = assembled(frame(*corners)[0])
    # GDAL has these numbers for a frame of 1536 pixels of the Global Navigation Chart with the same corners.
    size, left, top = 724.7362681853748 * 3, -1669792.3618991037, -556597.453966368
    found = array.georeference.transform
    np.testing.assert_allclose(found, (size, 0, left, 0, -size, top), rtol=1e-9)
    plane = pyproj.Transformer.from_crs(pyproj.CRS(array.georeference.crs), "EPSG:4326", always_xy=True)
    x, y = plane.transform(found[2], found[5])
    np.testing.assert_allclose((y, (x - corners[1] + 180) % 360), (corners[0], 180), atol=1e-6)


def test_blocks_cut_off_and_other_chunks_are_refused():
    codecs = ({"name": "periplus.vq"},)
    decode = prepare(codecs, chunks=(1, 256, 256), dtype=np.dtype("u1"), limits=Limits())
    with pytest.raises(DecodeError, match="71679 of 71680 bytes"):
        decode(bytes(71679), valid=(1, 256, 256))
    for chunks, dtype in (((1, 255, 256), "u1"), ((2, 256, 256), "u1"), ((256, 256), "u1"), ((1, 256, 256), "u2")):
        with pytest.raises(FormatError):
            prepare(codecs, chunks=chunks, dtype=np.dtype(dtype), limits=Limits())


def test_damaged_frames_give_only_our_errors():
    data, _ = frame()
    refused = 0
    rng = np.random.default_rng(3)
    for place in rng.integers(0, len(data) - 65536 - 3 * 6144, 400).tolist():
        mutant = bytearray(data)
        mutant[place] = int(rng.integers(256))
        try:
            scan_bytes(bytes(mutant), scanner=nitf)
        except FormatError:
            refused += 1
    assert refused > 0
