"""Masked NITF in JPEG 2000: blocks that the mask leaves out have the value of pad pixels, in the codestream or not."""

import struct
from collections.abc import Collection

import numpy as np
import pytest

import periplus
from periplus.errors import FormatError
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs

VALUES = nitfs.values_of("u8", 2, (80, 90))
ABSENT = frozenset({1, 3})
HOLED = nitfs.with_absent_blocks(nitfs.ImageSegment(values=VALUES, block=(32, 48), absent=ABSENT), 9)


def tiled(**options: str) -> tuple[bytes, list[bytes]]:
    """The main header of a codestream, and its tiles."""
    stream = j2ks.made(VALUES, blockxsize=48, blockysize=32, RESOLUTIONS=2, **{"PROGRESSION": "RLCP", **options})
    at = stream.index(b"\xff\x90")
    head, tiles = stream[:at], []
    while stream[at : at + 2] == b"\xff\x90":
        number, length = struct.unpack_from(">HI", stream, at + 4)
        tiles += [b""] * (number + 1 - len(tiles))
        tiles[number] += stream[at : at + length]
        at += length
    return head, tiles


def masked(tiles: list[bytes], head: bytes, pad: int = 9, absent: Collection[int] = ABSENT) -> bytes:
    """A file whose mask points to the tiles of its codestream."""
    offsets, at = [], len(head)
    for number, tile in enumerate(tiles):
        offsets.append(0xFFFFFFFF if number in absent else at)
        at += len(tile)
    mask = struct.pack(">IHHHB", 11 + 4 * len(tiles), 4, 0, 8, pad) + np.array(offsets, ">u4").tobytes()
    data = mask + head + b"".join(tiles) + b"\xff\xd9"
    return nitfs.nitf(nitfs.ImageSegment(values=VALUES, block=(32, 48), streams=[data], coding="M8"))


@pytest.mark.parametrize("kept", [True, False])
def test_blocks_the_mask_leaves_out_are_fill(kept, tmp_path):
    head, tiles = tiled()
    path = tmp_path / "a.ntf"
    path.write_bytes(masked([tile if kept or n not in ABSENT else b"" for n, tile in enumerate(tiles)], head))
    (tmp_path / "a.j2k").write_bytes(head + b"".join(tiles) + b"\xff\xd9")
    with periplus.index(path) as index:
        assert list(index.arrays) == ["0/data", "1/data"]
        np.testing.assert_array_equal(index["0/data"][...], HOLED)
        # Levels of whole codestreams are compared with another decoder elsewhere.
        wanted = periplus.index(tmp_path / "a.j2k")["1/data"][...]
        wanted[:, :32, 24:] = 9
        np.testing.assert_array_equal(index["1/data"][...], wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"PROGRESSION": "RPCL", "TILEPARTS": "RESOLUTIONS"},
        {"PROGRESSION": "RPCL", "PLT": "YES"},
        {"PROGRESSION": "PCRL", "PLT": "YES"},
    ],
)
@pytest.mark.parametrize("absent", [{0}, {5}, {2, 5}])
def test_levels_refer_to_as_few_bytes_where_tiles_are_left_out(options, absent, tmp_path):
    head, tiles = tiled(**options)
    (tmp_path / "a.j2k").write_bytes(head + b"".join(tiles) + b"\xff\xd9")
    path = tmp_path / "a.ntf"
    path.write_bytes(masked([b"" if n in absent else tile for n, tile in enumerate(tiles)], head, absent=absent))
    whole, index = periplus.index(tmp_path / "a.j2k"), periplus.index(path)
    for name, step in (("0/data", 1), ("1/data", 2)):
        wanted = whole[name][...]
        for y, x in (divmod(number, 2) for number in absent):
            rows, columns = slice(y * 32 // step, (y + 1) * 32 // step), slice(x * 48 // step, (x + 1) * 48 // step)
            wanted[:, rows, columns] = 9
        np.testing.assert_array_equal(index[name][...], wanted)
        lengths = [found.select(array=name).column("length").to_pylist() for found in (whole, index)]
        assert set(lengths[1]) <= set(lengths[0])


def test_a_codestream_that_lacks_a_tile_the_mask_has_is_refused(tmp_path):
    head, tiles = tiled()
    path = tmp_path / "a.ntf"
    path.write_bytes(masked([b"" if number in (0, 1, 3) else tile for number, tile in enumerate(tiles)], head))
    with pytest.raises(FormatError, match="holds 3 of its 6 tiles"):
        periplus.index(path)


def test_a_mask_of_other_blocks_than_the_tiles_is_refused(tmp_path):
    stream = j2ks.made(VALUES, blockxsize=32, blockysize=32, RESOLUTIONS=1)
    mask = struct.pack(">IHHHB", 11 + 4 * 6, 4, 0, 8, 9) + np.array([0, 0xFFFFFFFF, *[0] * 4], ">u4").tobytes()
    path = tmp_path / "a.ntf"
    path.write_bytes(
        nitfs.nitf(nitfs.ImageSegment(values=VALUES, block=(32, 48), streams=[mask + stream], coding="M8"))
    )
    with pytest.raises(FormatError, match="blocks of the mask are not the tiles"):
        periplus.index(path)
