"""JPEG 2000 components that are subsampled, in tiles that begin anywhere; and components with and without a sign."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import periplus
from periplus.errors import DecodeError, FormatError
from periplus.testing.formats import codestreams
from periplus.testing.formats import jpeg2000 as j2ks

FILES = Path(__file__).parents[1] / "files"
REFERENCE = {
    "steps-alike-pcrl": (0x80F7A250, 0xE44BE642, 0xD4D6F582),
    "steps-alike-rpcl": (0x626B2927, 0x62B86469),
    "steps-apart": (0x411CAA76,),
    "steps-chroma": (0x9A99895E,),
    "steps-signed": (0x6829D1C7,),
}
"""What `opj_decompress -r` gave of files that OpenJPEG's own encoder made, level by level.

Of `apart` and `signed` each component alone, its values repeated from where they lie on the reference grid: chroma has
no sign.
"""


@pytest.mark.parametrize("name", REFERENCE)
def test_tiles_that_begin_between_two_values(name: str, tmp_path: Path) -> None:
    data = (FILES / f"{name}.j2k").read_bytes()
    items = j2ks.found(data)
    assert len(items) == len(REFERENCE[name])
    for item, expected in zip(items, REFERENCE[name], strict=True):
        assert zlib.crc32(j2ks.read(data, item).tobytes()) == expected
    path = tmp_path / "a.j2k"
    path.write_bytes(data)
    index = periplus.index(path)
    values = index["0/data"][...]
    assert zlib.crc32(values.tobytes()) == REFERENCE[name][0]
    assert np.array_equal(index["0/data"][1:, 9:31, 13:40], values[1:, 9:31, 13:40])


def test_chunks_begin_where_all_components_do() -> None:
    array = j2ks.found((FILES / "steps-chroma.j2k").read_bytes())[0].array
    # Tiles of 33 x 17 in 66 x 50, and steps of 2: the odd ones are read together with those before them.
    assert (array.chunks, array.shape) == ((3, 34, 66), (3, 50, 66))
    array = j2ks.found((FILES / "steps-apart.j2k").read_bytes())[0].array
    assert (array.chunks, array.shape, array.edges) == ((3, 42, 60), (3, 44, 60), None)


def test_the_tiles_of_a_chunk_must_make_a_rectangle() -> None:
    data = (FILES / "steps-chroma.j2k").read_bytes()
    header, parts = j2ks.split(data)
    # The last tile-part of the first chunk, 2 x 2 tiles, is said to be of a tile elsewhere.
    moved = [part.data[:4] + struct.pack(">H", 5) + part.data[6:] if part.tile == 3 else part.data for part in parts]
    item = j2ks.found(data)[0]
    with pytest.raises(DecodeError, match="do not form a rectangle"):
        j2ks.read(header + b"".join(moved) + b"\xff\xd9", item)
    missing = header + b"".join(part.data for part in parts if part.tile != 3) + b"\xff\xd9"
    with pytest.raises(FormatError, match="5 of its 6 tiles"):
        j2ks.found(missing)
    with pytest.raises(DecodeError, match="does not begin at whole steps"):
        j2ks.whole(data, 0)


def test_an_image_must_begin_at_whole_steps() -> None:
    data = bytearray((FILES / "steps-apart.j2k").read_bytes())
    struct.pack_into(">2I", data, 16, 1, 0)
    with pytest.raises(FormatError, match="an image that does not begin at whole steps"):
        j2ks.found(bytes(data))


def test_components_of_too_many_kinds() -> None:
    header, parts = j2ks.split(j2ks.made(j2ks.picture(1, "u1", 64, 64)))
    size = struct.pack(">HHH8IH", 0xFF51, 38 + 3 * 65, 0, 64, 64, 0, 0, 64, 64, 0, 0, 65)
    many = b"\xff\x4f" + size + b"".join(bytes([7, n, 1]) for n in range(1, 66)) + header[45:]
    data = many + parts[0].data + b"\xff\xd9"
    with pytest.raises(DecodeError, match="components of 65 kinds"):
        j2ks.read(data, j2ks.found(data)[0])


def test_the_tiles_of_a_chunk_are_weighed_together() -> None:
    header, _ = j2ks.split(j2ks.made(np.full((1, 64, 64), 128, np.uint8), RESOLUTIONS=1))
    rest = bytearray(header[45:])
    style = rest.index(b"\xff\x52") + 4
    rest[style + 6 : style + 8] = b"\0\0"
    # Each tile has some 200,000 code-blocks of 4 x 4, which is as many as one may have in a few bytes.
    size = struct.pack(">HHH8IH", 0xFF51, 44, 0, 3_200, 3_200, 0, 0, 1_599, 1_600, 0, 0, 2)
    tiles = [struct.pack(">HHHIBBH", 0xFF90, 10, n, 16, 0, 1, 0xFF93) + b"\0\0" for n in range(6)]
    data = b"\xff\x4f" + size + b"\x07\x01\x01\x07\x02\x02" + bytes(rest) + b"".join(tiles) + b"\xff\xd9"
    item = j2ks.found(data)[0]
    assert item.array.chunks == (2, 1_600, 3_198)
    with pytest.raises(DecodeError, match="code-blocks in"):
        j2ks.read(data, item)


def test_tiles_without_a_value_are_in_no_chunk() -> None:
    values = j2ks.picture(1, "u1", 96, 64)
    header, parts = j2ks.split(j2ks.made(values, blockxsize=64, blockysize=32))
    size = bytearray(header)
    # One line of four has values: the first tile, from line 126 to 128, has none, and may be left away.
    struct.pack_into(">8I", size, 8, 64, 512, 0, 126, 64, 128, 0, 0)
    size[42:45] = bytes([7, 1, 4])
    moved = [part.data[:4] + struct.pack(">H", part.tile + 1) + part.data[6:] for part in parts]
    empty = struct.pack(">HHHIBBHB", 0xFF90, 10, 0, 15, 0, 1, 0xFF93, 0)
    for tiles in (moved, [empty, *moved]):
        data = bytes(size) + b"".join(tiles) + b"\xff\xd9"
        [item] = j2ks.found(data)
        assert item.array.chunks == (1, 32, 64)
        assert np.array_equal(j2ks.read(data, item), values)
    with pytest.raises(FormatError, match="2 of its 4 tiles"):
        j2ks.found(bytes(size) + b"".join(moved[1:]) + b"\xff\xd9")


@pytest.mark.parametrize(("first", "second", "dtype"), [("u1", "i2", "i2"), ("i2", "u2", "i4")])
@pytest.mark.parametrize("order", ["LRCP", "CPRL"])
def test_components_with_and_without_a_sign(first: str, second: str, dtype: str, order: str) -> None:
    options = {"blockxsize": 64, "blockysize": 64, "RESOLUTIONS": 3, "PROGRESSION": order}
    one, other = j2ks.picture(1, first, 96, 128), j2ks.picture(1, second, 96, 128)
    data = codestreams.joined_components(j2ks.made(one, **options), j2ks.made(other, **options))
    items = j2ks.found(data)
    assert items[0].array.dtype == np.dtype(dtype)
    assert np.array_equal(j2ks.read(data, items[0]), np.concatenate([one.astype(dtype), other.astype(dtype)]))
    assert len(items) == (3 if order == "LRCP" else 1)
    for level in range(1, 3):
        mine = j2ks.whole(data, level)
        assert np.array_equal(mine[:1], j2ks.whole(j2ks.made(one, **options), level))
        assert np.array_equal(mine[1:], j2ks.whole(j2ks.made(other, **options), level))


@pytest.mark.parametrize("marker", [b"\xff\x30", b"\xff\x3f\xff\x31"])
def test_markers_that_nothing_follows_are_passed_over(marker: bytes) -> None:
    plain = j2ks.layout("parts-rpcl")
    at = plain.index(b"\xff\x5c")
    data = plain[:at] + marker + plain[at:]
    for item, same in zip(j2ks.found(data), j2ks.found(plain), strict=True):
        assert item.array.encodings == same.array.encodings
        assert np.array_equal(j2ks.read(data, item), j2ks.read(plain, same))
