"""Hostile TIFFs, whole files through index and read: one of our errors or right pixels, in a second, in 256 MiB."""

import lzma
import math
import struct
import zlib
from collections.abc import Callable

import imagecodecs
import numpy as np
import pytest

import periplus
from periplus.limits import MIB
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.custom_tiff import ASCII, BYTE, DOUBLE, LONG, LONG8, RATIONAL, SHORT, image_tags, tiff

PIXELS = bytes(range(16))
VALUES = np.arange(16, dtype="u1").reshape(1, 4, 4)
IFD, IFD8, UNKNOWN = 13, 18, 99


def small(**changes: object) -> bytes:
    """A valid 4 x 4 image with some tags changed."""
    return tiff(image_tags(4, 4, **changes), data=PIXELS)


def big(**changes: object) -> bytes:
    """The same as a BigTIFF."""
    return tiff(image_tags(4, 4, **{"t273": 16, **changes}), data=PIXELS, big=True)


def xml(text: str) -> tuple[int, bytes]:
    return ASCII, text.encode() + b"\0"


BOMB = '<?xml version="1.0"?><!DOCTYPE z [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
)
BOMB += "]><GDALMetadata><Item name='x'>&j;</Item></GDALMetadata>"
OUTSIDE = '<!DOCTYPE z [<!ENTITY a SYSTEM "file:///etc/passwd">]><GDALMetadata><Item name="x">&a;</Item></GDALMetadata>'
ITEMS = "".join(f'<Item name="n{n}" sample="{n}" role="scale">1</Item>' for n in range(15_000))
SPREAD = "".join(f'<Item name="n" sample="{n * 10**9}" role="scale">{n}</Item>' for n in range(9_000))
DEEP = "<a>" * 100_000

HARMLESS: dict[str, Callable[[], bytes]] = {
    "unknown tag type": lambda: small(t700=(BYTE, b"ab", 2), t65000=(UNKNOWN, b"abcd", 1)),
    "a known tag of an unknown type": lambda: small(t306=(UNKNOWN, b"abcd", 2**32 - 1)),
    "4 GiB of text": lambda: small(t270=(ASCII, b"12345678", 2**32 - 1)),
    "2^63 of text": lambda: big(t270=(ASCII, b"123456789", 2**63)),
    "text outside the file": lambda: small(t270=(LONG, [2**31], 1000)),
    "a date that is none": lambda: small(t306=(ASCII, b"9999:99:99 99:99:99\0")),
    "text that is no text": lambda: small(t305=(ASCII, bytes(range(128, 256)))),
    "NaN and infinity for a scale": lambda: small(
        t33550=(DOUBLE, [math.nan, math.inf, 0.0]), t33922=(DOUBLE, [0.0] * 6)
    ),
    "a scale that overflows": lambda: small(t33550=(DOUBLE, [1e308, 1e308, 0.0]), t33922=(DOUBLE, [1e308] * 6)),
    "a scale that vanishes": lambda: small(t33550=(DOUBLE, [5e-324, 5e-324, 0.0]), t33922=(DOUBLE, [0.0] * 6)),
    "tie points at infinity": lambda: small(t33922=(DOUBLE, [math.inf] * 12)),
    "a matrix of NaN": lambda: small(t34264=(DOUBLE, [math.nan] * 16)),
    "a matrix of the largest numbers": lambda: small(t34264=(DOUBLE, [1.7e308, -1.7e308] * 8)),
    "keys that point nowhere": lambda: small(t34735=(SHORT, [1, 1, 0, 2**16 - 1] + [3072, 34736, 9999, 9999] * 4)),
    "keys of NaN": lambda: small(
        t34735=(SHORT, [1, 1, 0, 2, 1024, 0, 1, 1, 3080, 34736, 1, 0]), t34736=(DOUBLE, [math.nan])
    ),
    "RPC of infinities": lambda: small(t50844=(DOUBLE, [math.inf] * 92)),
    "nodata 1e999": lambda: small(t42113=xml("1e999")),
    "nodata of 250 digits": lambda: small(t42113=xml("9" * 250)),
    "nodata that is no number": lambda: small(t42113=xml("0x__import__")),
    "a resolution by zero": lambda: small(t282=(RATIONAL, [1, 0]), t283=(RATIONAL, [0, 0])),
    "metadata that are no XML": lambda: small(t42112=xml("<" * 5000)),
    "metadata of a million brackets": lambda: small(t42112=xml(DEEP)),
    "metadata of 15,000 bands": lambda: small(t42112=xml(f"<GDALMetadata>{ITEMS}</GDALMetadata>")),
    "metadata of bands that are not there": lambda: small(t42112=xml(f"<GDALMetadata>{SPREAD}</GDALMetadata>")),
    "metadata over a megabyte": lambda: small(t42112=xml(f"<GDALMetadata>{ITEMS * 2}</GDALMetadata>")),
    "a scale of 1e400": lambda: small(
        t42112=xml('<GDALMetadata><Item name="s" sample="0" role="scale">1e400</Item></GDALMetadata>')
    ),
    "a colour map of the wrong size": lambda: small(t262=3, t320=(SHORT, list(range(200)))),
    "4,000 tags that mean nothing": lambda: small(**{f"t{60_000 + n}": (LONG, [n]) for n in range(4_000)}),
    "the same bytes for every tile": lambda: tiff(
        image_tags(8, 8, t273=None, t279=None, t322=4, t323=4, t324=(LONG, [8] * 4), t325=(LONG, [16] * 4)), data=PIXELS
    ),
}
"""Nonsense in tags that do not concern the pixels, which are read correctly."""


@pytest.mark.parametrize("name", HARMLESS)
def test_nonsense_in_other_tags_does_not_change_the_pixels(name, tmp_path, bounded):
    data = HARMLESS[name]()
    path = tmp_path / "a.tif"
    path.write_bytes(data)
    with bounded(), periplus.index(path, to=tmp_path / "index.parquet") as index:
        values = index["0/data"][...]
        index.read(max_size=2)
        assert repr(index)
    np.testing.assert_array_equal(values[:, :4, :4], VALUES)
    np.testing.assert_array_equal(values[:, -4:, -4:], VALUES)


def sub_cycle() -> bytes:
    """Two directories that are each other's SubIFD."""
    first = 8 + len(PIXELS)
    second = first + 2 + 12 * 10 + 4
    tags = image_tags(4, 4)
    return tiff(
        {**tags, 330: (IFD, struct.pack("<I", second), 1)},
        {**tags, 330: (IFD, struct.pack("<I", first), 1)},
        data=PIXELS,
    )


def fan() -> bytes:
    """A directory with 30,000 SubIFDs, all of which are the file's header."""
    return small(t330=(LONG, [8 + n for n in range(30_000)]))


def shared(tag: int, kind: int, count: int, blob: bytes, directories: int) -> bytes:
    """Images of different width, all of which have the same large value."""
    value = (kind, struct.pack("<I", 8 + len(PIXELS)), count)
    return tiff(*[{**image_tags(4 + n, 1, t279=4 + n), tag: value} for n in range(directories)], data=PIXELS + blob)


def tiles(width: int, height: int, count: int, **changes: object) -> bytes:
    return tiff(
        image_tags(width, height, t273=None, t279=None, **{
            "t322": 16, "t323": 16, "t324": (LONG, [8] * count), "t325": (LONG, [16] * count), **changes
        }), data=PIXELS,
    )  # fmt: skip


PARTLY_REFUSED: dict[str, Callable[[], bytes]] = {
    "a directory that is its own successor": lambda: tiff(image_tags(4, 4), data=PIXELS, following=[0]),
    "a circle of directories": lambda: tiff(*[image_tags(4, 4)] * 5, data=PIXELS, following=[1, 2, 3, 4, 2]),
    "directories that are each other's children": sub_cycle,
    "a directory whose child it is": lambda: small(t330=8 + len(PIXELS)),
    "directories with the same 20,000 control points": lambda: shared(33922, DOUBLE, 120_000, bytes(960_000), 2000),
    "directories with the same million offsets": lambda: shared(324, LONG, 10**6, b"\x08\0\0\0" * 10**6, 2000),
}
"""Directories that are wrong after good ones."""


@pytest.mark.parametrize("name", PARTLY_REFUSED)
def test_the_good_pages_before_a_wrong_one_are_kept(name, tmp_path, bounded):
    path = tmp_path / "a.tif"
    path.write_bytes(PARTLY_REFUSED[name]())
    with bounded(), periplus.index(path) as index:
        first = index[next(iter(index))][...]
    np.testing.assert_array_equal(first.ravel()[:4], VALUES.ravel()[:4])
    assert any("omitted" in text for text in index.summary.warnings)


REFUSED: dict[str, Callable[[], bytes]] = {
    "an empty file": lambda: b"",
    "a header alone": lambda: b"II*\0\x08\0\0\0",
    "thirty thousand children at nonsense": fan,
    "2^32 - 1 directories below": lambda: small(t330=(LONG, [8, 8], 2**32 - 1)),
    "2^63 directories below": lambda: big(t330=(IFD8, struct.pack("<QQ", 8, 8), 2**63)),
    "2^32 - 1 strips": lambda: small(t273=(LONG, [8, 8], 2**32 - 1)),
    "2^63 strips": lambda: big(t273=(LONG8, [16, 16], 2**63)),
    "2^64 - 1 byte counts": lambda: big(t279=(LONG8, [16, 16], 2**64 - 1)),
    "65,535 bits a sample": lambda: small(t258=(SHORT, [65_535])),
    "65,535 bands in two bytes": lambda: small(t277=(SHORT, [65_535])),
    "a terabyte in one strip": lambda: small(t256=2**20, t257=2**20),
    "a terabyte of strips": lambda: small(t256=2**20, t257=2**20, t278=1),
    "a terabyte of compressed strips": lambda: small(t256=2**20, t257=2**20, t278=1, t259=8),
    "2^31 - 1 squared": lambda: small(t256=2**31 - 1, t257=2**31 - 1),
    "a width of 2^32 - 1": lambda: small(t256=2**32 - 1),
    "a width of 2^63": lambda: big(t256=(LONG8, [2**63])),
    "tiles of 2^31": lambda: tiles(64, 64, 1, t322=2**31, t323=2**31),
    "tiles of 2^31 - 1": lambda: tiles(64, 64, 1, t322=2**31 - 1, t323=2**31 - 1),
    "compressed tiles of 2^31 - 1": lambda: tiles(64, 64, 1, t322=2**31 - 1, t323=2**31 - 1, t259=8),
    "tiles of nothing": lambda: tiles(64, 64, 1, t322=0, t323=0),
    "tiles of one pixel, 2^60 of them": lambda: tiles(2**30, 2**30, 1, t322=1, t323=1),
    "tiles past the end": lambda: tiles(64, 64, 16, t324=(LONG, [2**31] * 16)),
    "compressed tiles past the end": lambda: tiles(64, 64, 16, t259=8, t325=(LONG, [2**31] * 16)),
    "an offset of 2^63": lambda: big(t273=(LONG8, [2**63])),
    "an offset and length that overflow": lambda: big(t259=8, t273=(LONG8, [2**63 - 1]), t279=(LONG8, [2**63 - 1])),
    "a width as a fraction": lambda: small(t256=(DOUBLE, [4.0])),
    "a width as text": lambda: small(t256=(ASCII, b"4\0")),
    "offsets as text": lambda: small(t273=(ASCII, b"8\0")),
    "an XML bomb": lambda: small(t42112=xml(BOMB)),
    "XML that names a file": lambda: small(t42112=xml(OUTSIDE)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("tag", "kind", "count", "size"), [(33922, DOUBLE, 120_000, 960_000), (324, LONG, 10**6, 4 * 10**6)]
)
def test_a_few_directories_that_share_their_values_cost_little(tag, kind, count, size, tmp_path, bounded):
    path = tmp_path / "a.tif"
    path.write_bytes(shared(tag, kind, count, b"\x08\0\0\0" * (size // 4), 4))
    with bounded(), periplus.index(path) as index:
        assert len(index) == 4


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_with_a_wrong_structure_is_refused(name, tmp_path, bounded):
    data = REFUSED[name]()
    path = tmp_path / "a.tif"
    path.write_bytes(data)
    with bounded(), pytest.raises((periplus.FormatError, periplus.LimitError)) as caught:
        periplus.index(path)
    assert caught.value.url == str(path)


VAST: dict[str, Callable[[], bytes]] = {
    "a gigapixel of unwritten tiles": lambda: tiles(2**15, 2**15, 64, t322=2**12, t323=2**12, t324=(LONG, [0] * 64),
                                                    t325=(LONG, [0] * 64)),
    "a terabyte of unwritten tiles": lambda: tiles(2**20, 2**20, 4096, t322=2**14, t323=2**14, t324=(LONG, [0] * 4096),
                                                   t325=(LONG, [0] * 4096), t258=(SHORT, [8]), t259=8),
}  # fmt: skip


@pytest.mark.parametrize("name", VAST)
def test_a_vast_sparse_image_is_indexed_and_a_pixel_of_it_read(name, tmp_path, bounded):
    path = tmp_path / "a.tif"
    path.write_bytes(VAST[name]())
    with bounded(), periplus.index(path) as index:
        assert index["0/data"][0, 12345, 23456] == 0
        if index["0/data"].nbytes > index.limits.read_bytes:
            with pytest.raises(periplus.LimitError):
                index["0/data"][...]


# --- bombs: a chunk that is small by its tags and vast by its stream -------------------------------------------------

SIDE = 256
"""Rows and columns of the image by the tags of the bombs: 64 KiB."""


def bomb(compression: int, stream: bytes, **changes: object) -> bytes:
    return tiff(image_tags(SIDE, SIDE, t259=compression, t279=len(stream), **changes), data=stream)


def deflate_bomb() -> bytes:
    """A gigabyte of zeros: one block that continues no other, a thousand times."""
    packer = zlib.compressobj(9)
    head = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + (packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)) * 1023


def zstd_bomb() -> bytes:
    """A frame without a size, of 8,192 blocks that repeat one byte 128 KiB long."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * 8192 + b"\x01\x00\x00"


def zstd_boast() -> bytes:
    """A frame that declares a terabyte."""
    return b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00"


def xz_bomb() -> bytes:
    """One block of 8 MiB of zeros, again and again in the same stream."""
    whole = lzma.compress(bytes(8 * MIB), check=lzma.CHECK_NONE)
    size = struct.unpack("<I", whole[-8:-4])[0] * 4 + 4
    block = whole[12 : len(whole) - 12 - size]
    return whole[:12] + block * 64


def xz_memory() -> bytes:
    """A stream that wants a dictionary of 4 GiB."""
    sound = bytearray(lzma.compress(b"x" * 100, check=lzma.CHECK_NONE, preset=0))
    sound[16] = 40  # in the header of the block, whose own sum follows
    sound[20:24] = struct.pack("<I", zlib.crc32(bytes(sound[12:20])))
    return bytes(sound)


def patched(name: str, find: bytes, at: int, value: bytes) -> bytes:
    """A valid file with another value in the header of every stream."""
    data = bytearray(tiffs.case(name).data)
    place, count = data.find(find), 0
    while place >= 0:
        data[place + at : place + at + len(value)] = value
        count += 1
        place = data.find(find, place + len(find))
    assert count
    return bytes(data)


BOMBS: dict[str, Callable[[], bytes]] = {
    "deflate": lambda: bomb(8, deflate_bomb()),
    "deflate with a predictor": lambda: bomb(8, deflate_bomb(), t317=2),
    "zstd": lambda: bomb(50000, zstd_bomb()),
    "zstd with a predictor": lambda: bomb(50000, zstd_bomb(), t317=2),
    "zstd that boasts": lambda: bomb(50000, zstd_boast()),
    "lzma": lambda: bomb(34925, xz_bomb()),
    "lzma that wants memory": lambda: bomb(34925, xz_memory()),
    "packbits": lambda: bomb(32773, b"\x81\0" * (1 << 20)),
    "lerc in deflate": lambda: bomb(34887, deflate_bomb(), t50674=(LONG, [4, 1])),
    "lerc in zstd": lambda: bomb(34887, zstd_bomb(), t50674=(LONG, [4, 2])),
    "jpeg": lambda: patched("jpeg-rgb-tiles", b"\xff\xc0\0\x11\x08", 5, b"\xff\xdc\xff\xdc"),
    "jpeg strips": lambda: patched("jpeg-rgb-strips", b"\xff\xc0\0\x11\x08", 5, b"\xff\xdc\xff\xdc"),
    "jpeg 2000": lambda: patched("jpeg2000-rgb-tiles", b"\xff\x4f\xff\x51", 8, b"\x7f\xff\xff\xff" * 2),
    "jpeg 2000 of many tiles": lambda: patched("jpeg2000-rgb-tiles", b"\xff\x4f\xff\x51", 24, b"\0\0\0\1" * 2),
    "jpeg xl": lambda: patched("jpegxl-rgb-tiles", b"\xff\x0a", 2, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
    "webp": lambda: patched("gdal-webp-pixel", b"\x9d\x01\x2a", 3, b"\xff\x3f\xff\x3f"),
    "webp lossless": lambda: patched("webp-lossless-tiles", b"VP8L", 9, b"\xff\xff\xff\x0f"),
    "lerc": lambda: patched("lerc-lossless-tiles", b"Lerc2 ", 14, struct.pack("<ii", 2**31 - 1, 2**31 - 1)),
    "png": lambda: patched("png-tiles", b"IHDR", 4, struct.pack(">II", 2**31 - 1, 2**31 - 1)),
    "fax 2": lambda: bomb(2, b"\x35" * 200, t256=2**16, t258=(SHORT, [1]), t278=SIDE),
    "fax 3": lambda: bomb(3, bytes(200), t256=2**16, t258=(SHORT, [1]), t278=SIDE),
    "fax 4": lambda: bomb(4, b"\xff" * 20, t256=2**16, t258=(SHORT, [1]), t278=SIDE),
}


def test_an_lzw_stream_that_goes_on_is_decoded_as_far_as_its_tags_say(tmp_path, bounded):
    path = tmp_path / "a.tif"
    path.write_bytes(bomb(5, imagecodecs.lzw_encode(bytes(16 * MIB))))
    with bounded(), periplus.index(path) as index:
        assert not index["0/data"][:, :16, :16].any()


@pytest.mark.parametrize("name", BOMBS)
def test_a_stream_larger_than_its_tags_is_a_decode_error(name, tmp_path, bounded):
    data = BOMBS[name]()
    path = tmp_path / "a.tif"
    path.write_bytes(data)
    wanted = pytest.raises((periplus.DecodeError, periplus.LimitError))
    with bounded(), periplus.index(path) as index, wanted as caught:
        index["0/data"][:, :16, :16]
    if isinstance(caught.value, periplus.DecodeError):
        assert caught.value.url == str(path)
        assert caught.value.offset is not None
