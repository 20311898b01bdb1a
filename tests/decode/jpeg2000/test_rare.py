"""Rare JPEG 2000 files: images that begin anywhere, regions of interest, all block styles, high throughput, deep."""

import struct
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

from periplus.errors import DecodeError
from periplus.parse.jpeg2000.segments import PLT
from periplus.testing.formats import codestreams
from periplus.testing.formats import jpeg2000 as j2ks

HIGH_THROUGHPUT = pytest.mark.skipif(
    not getattr(getattr(imagecodecs, "HTJ2K", None), "available", False), reason="this imagecodecs has no OpenJPH"
)
FILES = Path(__file__).parents[1] / "files"
REFERENCE = {
    "modes-layers": (0x7FBC3CE7, 0x14B24024, 0x065F39C1),
    "offsets-tiled-cprl": (0xDE66D1E0, 0x06A4BE89, 0xC9DB578E),
    "offsets-tiled-rpcl": (0x278ED986, 0x9198E4DA, 0x9D28AB59),
    "offsets-untiled-pcrl": (0x84C41F40, 0x6D9FA2AB, 0xA01C78E9),
    "region": (0xBA46323C, 0x46874EFB, 0x3AD06800),
}
"""What `opj_decompress -r` 0, 1 and 2 gave of these files, which OpenJPEG's own encoder made."""


@pytest.mark.parametrize("name", REFERENCE)
def test_files_of_the_reference_encoder(name: str) -> None:
    data = (FILES / f"{name}.j2k").read_bytes()
    items = j2ks.found(data)
    # Packets of tiles that begin at odd places may change theirs at a lower resolution: then there is no level.
    assert len(items) == (1 if name == "offsets-tiled-cprl" else 3)
    for level, expected in enumerate(REFERENCE[name]):
        assert zlib.crc32(j2ks.whole(data, level).tobytes()) == expected
        if level < len(items):
            assert zlib.crc32(j2ks.read(data, items[level]).tobytes()) == expected


def test_an_image_that_begins_elsewhere_lies_there() -> None:
    data = (FILES / "offsets-tiled-rpcl.j2k").read_bytes()
    shapes = [item.array.shape for item in j2ks.found(data)]
    # From (13, 7) to (153, 137) of the reference grid.
    assert shapes == [(3, 130, 140), (3, 69 - 4, 77 - 7), (3, 35 - 2, 39 - 4)]


@HIGH_THROUGHPUT
@pytest.mark.parametrize("parts", [None, 1, 2, 3])
@pytest.mark.parametrize("tile", [None, (64, 64)])
@pytest.mark.parametrize("reversible", [True, False])
def test_high_throughput(parts: int | None, tile: tuple[int, int] | None, reversible: bool) -> None:
    values = j2ks.picture(1, "u2", 128, 192)
    data = imagecodecs.htj2k_encode(
        values[0], tile=tile, tilepart=parts, resolutions=3, reversible=reversible, tlm=parts == 1 or None
    )
    items = j2ks.found(data)
    assert len(items) == 3
    for item in items:
        level = item.array.level
        expected = imagecodecs.htj2k_decode(data, skipres=level)[None]
        assert j2ks.alike(j2ks.read(data, item), j2ks.pillow(data, level), exact=reversible)
        assert j2ks.alike(j2ks.whole(data, level), j2ks.pillow(data, level), exact=reversible)
        if reversible:
            # OpenJPH, a decoder of its own, which lets values that overshoot at lower resolutions run over.
            mine = j2ks.read(data, item)
            inside = (mine > 0) & (mine < 0xFFFF)
            assert np.array_equal(mine[inside], expected[inside])
            assert inside.mean() > 0.9
        if parts in (1, 3) and level:
            assert item.refs.length.sum() < len(data) / 2**level


@HIGH_THROUGHPUT
@pytest.mark.parametrize("progression", [0, 3, 4])
def test_high_throughput_in_other_orders(progression: int) -> None:
    values = j2ks.picture(3, "u1", 128, 192)
    plain = imagecodecs.htj2k_encode(np.moveaxis(values, 0, -1).copy(), tile=(64, 64), resolutions=3, reversible=True)
    for packets in (None, PLT):
        data = codestreams.reordered(plain, progression=progression, packets=packets)
        assert np.array_equal(j2ks.read(data, j2ks.found(data)[0]), values)
        for level in range(3):
            assert np.array_equal(j2ks.whole(data, level), j2ks.pillow(data, level))
        items = j2ks.found(data)
        assert len(items) == (3 if packets or progression == 0 else 1)
        for item in items:
            assert np.array_equal(j2ks.read(data, item), j2ks.pillow(data, item.array.level))


@pytest.mark.parametrize(("dtype", "bits"), [("u4", 24), ("i4", 20), ("i2", 16), ("i1", 8)])
def test_deep_and_signed_values(dtype: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    low = -(1 << (bits - 1)) if dtype[0] == "i" else 0
    values = rng.integers(low, low + (1 << bits), (48, 64), dtype=np.int64).astype(dtype)
    data = imagecodecs.jpeg2k_encode(values, level=0, bitspersample=bits, codecformat="j2k", reversible=True)
    items = j2ks.found(data)
    assert items[0].array.dtype == values.dtype
    assert np.array_equal(j2ks.read(data, items[0])[0], values)
    for item in items[1:]:
        # No other reader at hand reduces these: two of ours, which cut the tile in two ways, do it alike.
        changed = codestreams.reordered(data, progression=4)
        assert np.array_equal(j2ks.read(data, item), j2ks.whole(changed, item.array.level))


@pytest.mark.parametrize("order", ["RPCL", "PCRL"])
def test_no_decompositions_at_all(order: str) -> None:
    values = j2ks.picture(3, "u1", 96, 128)
    data = j2ks.made(values, RESOLUTIONS=1, PROGRESSION=order, PLT="YES", blockxsize=64, blockysize=64)
    items = j2ks.found(data)
    assert len(items) == 1
    assert np.array_equal(j2ks.read(data, items[0]), values)


@pytest.mark.parametrize("reversible", ["YES", "NO"])
@pytest.mark.parametrize("order", ["LRCP", "PCRL"])
def test_components_of_several_depths(reversible: str, order: str) -> None:
    deep, shallow = j2ks.picture(2, "u2", 96, 128)
    options = {"PROGRESSION": order, "REVERSIBLE": reversible, "QUALITY": "100" if reversible == "YES" else "30"}
    size = {"blockxsize": 64, "blockysize": 64, "RESOLUTIONS": 3}
    one = j2ks.made(deep[None], NBITS=16, **options, **size)
    other = j2ks.made((shallow >> 8).astype(np.uint8)[None], **options, **size)
    data = codestreams.joined_components(one, other)
    assert data[42:48:3] == b"\x0f\x07"
    listed = codestreams.reordered(data, packets=PLT)
    for stream in (data, listed):
        items = j2ks.found(stream)
        assert len(items) == (3 if order == "LRCP" or stream is listed else 1)
        for item in items:
            level = item.array.level
            assert item.array.dtype == np.uint16
            mine = j2ks.read(stream, item)
            exact = reversible == "YES"
            assert j2ks.alike(mine[:1], j2ks.pillow(one, level).astype(np.uint16), exact=exact)
            assert j2ks.alike(mine[1:], j2ks.pillow(other, level).astype(np.uint16), exact=exact)


@pytest.mark.parametrize("progression", [1, 2, 3])
def test_more_tile_parts_than_can_be_numbered(progression: int) -> None:
    plain = j2ks.made(j2ks.picture(3, "u1", 96, 128), PRECINCTS="{16,16},{16,16}", QUALITY="10,40,100")
    data = codestreams.reordered(plain, progression=progression, cuts=300)
    assert len(j2ks.split(data)[1]) == 300
    items = j2ks.found(data)
    for level in range(3):
        expected = j2ks.pillow(plain, level)
        assert np.array_equal(j2ks.whole(data, level), expected)
        if level < len(items):
            assert np.array_equal(j2ks.read(data, items[level]), expected)
    assert len(items) == (1 if progression == 3 else 3)


@pytest.mark.parametrize("progression", [2, 3])
def test_tile_parts_without_packets(progression: int) -> None:
    plain = j2ks.made(j2ks.picture(1, "u1", 96, 128), RESOLUTIONS=3)
    data = codestreams.reordered(plain, progression=progression, packets=PLT, cuts=8)
    assert min(len(part.data) for part in j2ks.split(data)[1]) < 20
    items = j2ks.found(data)
    assert len(items) == 3
    for item in items:
        assert np.array_equal(j2ks.read(data, item), j2ks.pillow(plain, item.array.level))


@pytest.mark.parametrize("order", ["RPCL", "PCRL"])
@pytest.mark.parametrize("step", [(2, 2), (3, 1)])
def test_components_that_are_all_subsampled_alike(order: str, step: tuple[int, int]) -> None:
    values = j2ks.picture(3, "u1", 96, 128)
    plain = j2ks.made(values, PROGRESSION=order, PLT="YES", blockxsize=64, blockysize=64)
    data = bytearray(plain)
    grid = struct.unpack_from(">8I", data, 8)
    struct.pack_into(">8I", data, 8, *(place * step[n % 2] for n, place in enumerate(grid)))
    data[42:51] = bytes([7, *step]) * 3
    items = j2ks.found(bytes(data))
    assert len(items) == 3
    for item in items:
        assert np.array_equal(j2ks.read(bytes(data), item), j2ks.pillow(plain, item.array.level))


@pytest.mark.parametrize("order", ["LRCP", "RPCL", "PCRL", "CPRL"])
@pytest.mark.parametrize("step", [(2, 2), (4, 1), (1, 2)])
def test_components_at_different_steps_are_spread(order: str, step: tuple[int, int]) -> None:
    values = j2ks.picture(2, "u1", 128, 256)
    options = {"PROGRESSION": order, "RESOLUTIONS": 3}
    one = j2ks.made(values[:1], blockxsize=128, blockysize=64, **options)
    fewer = values[1:, :: step[1], :: step[0]]
    other = j2ks.made(
        fewer, blockxsize=128 // step[0], blockysize=64 // step[1], PRECINCTS="{32,32},{16,16}", **options
    )
    data = codestreams.joined_components(one, other, step)
    for stream in (data, codestreams.reordered(data, packets=PLT)):
        items = j2ks.found(stream)
        assert len(items) == (3 if order in ("LRCP", "RPCL") or stream is not data else 1)
        for level in range(3):
            spread = j2ks.pillow(other, level).repeat(step[1], axis=1).repeat(step[0], axis=2)
            expected = np.concatenate([j2ks.pillow(one, level), spread])
            assert np.array_equal(j2ks.whole(stream, level), expected)
            if level < len(items):
                assert np.array_equal(j2ks.read(stream, items[level]), expected)


def ends(data: bytes, length: int | None, *, missing: int = 0, marked: bool = True) -> bytes:
    """The codestream with another length of its last tile-part, and `missing` bytes before its end, `marked` or not."""
    start = data.rfind(b"\xff\x90\x00\x0a")
    (declared,) = struct.unpack_from(">I", data, start + 6)
    assert start + declared + 2 == len(data)
    told = struct.pack(">I", 0 if length is None else declared + length)
    return data[: start + 6] + told + data[start + 10 : len(data) - 2 - missing] + (b"\xff\xd9" if marked else b"")


@pytest.mark.parametrize("options", [{}, {"PROGRESSION": "CPRL", "PLT": "YES"}, {"blockxsize": 64, "blockysize": 64}])
def test_a_last_tile_part_may_count_the_end_or_say_no_length(options: dict[str, object]) -> None:
    values = j2ks.picture(3, "u1", 96, 128)
    data = j2ks.made(values, **options)
    levels = [j2ks.read(data, item) for item in j2ks.found(data)]
    # OpenJPEG (2.5), GDAL, ffmpeg and jasper refuse a part that counts the end; its packets say that all are there.
    (item,) = j2ks.found(ends(data, 2))
    assert np.array_equal(j2ks.read(ends(data, 2), item), values)
    for marked in (True, False):
        some = ends(data, None, marked=marked)
        assert all(np.array_equal(j2ks.read(some, item), levels[item.array.level]) for item in j2ks.found(some))


@pytest.mark.parametrize("missing", [1, 2, 3, 500])
def test_bytes_missing_at_the_end_of_a_codestream_are_noticed(missing: int) -> None:
    data = j2ks.made(j2ks.picture(1, "u1", 96, 128))
    for marked in (True, False):
        some = ends(data, None, missing=missing, marked=marked)
        with pytest.raises(DecodeError):
            j2ks.read(some, j2ks.found(some)[0])
    if missing == 2:
        # This looks like a part that counts the end.
        some = ends(data, 0, missing=2)
        with pytest.raises(DecodeError, match="cut off"):
            j2ks.read(some, j2ks.found(some)[0])


def test_packets_that_are_missing_as_a_whole_are_noticed() -> None:
    # OpenJPEG takes a part without a length that ends with a packet for a whole one.
    data = j2ks.made(j2ks.picture(1, "u1", 96, 128), PROGRESSION="RLCP")
    (packets,) = codestreams.parse_packets(data)[1].values()
    head, body = list(packets.values())[-1]
    some = ends(data, None, missing=len(head) + len(body))
    assert imagecodecs.jpeg2k_decode(some).shape == (96, 128)
    with pytest.raises(DecodeError):
        j2ks.read(some, j2ks.found(some)[0])
