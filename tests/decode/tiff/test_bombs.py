"""Streams that decode to a gigabyte, or say so, are refused soon and in little memory."""

import lzma
import resource
import struct
import zlib

import imagecodecs
import numpy as np
import pytest

from periplus.errors import DecodeError
from periplus.limits import GIB, MIB
from periplus.testing.formats import samples

SIDE = 256
"""A chunk of 64 kB."""


def deflated(wbits=15):
    """A gigabyte of zeros; every part after a full flush is the same, so one is made and repeated."""
    stream = zlib.compressobj(wbits=wbits)
    first, part = (stream.compress(bytes(16 * MIB)) + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + part * 63 + stream.flush()


def lzw():
    """Ever longer strings of zeros, each code being the one just defined, until the table is full; over and over."""
    once, width = [format(0, "09b")], 9
    for code in range(258, 4094):
        once.append(format(code, f"0{width}b"))
        width += code + 1 in (511, 1023, 2047)
    bits = format(256, "09b") + ("".join(once) + format(256, "012b")) * 140
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def zstd():
    """A frame of run-length blocks, each a zero repeated 128 KiB times."""
    block = struct.pack("<I", (1 << 1) | (128 * 1024 << 3))[:3] + b"\0"
    last = struct.pack("<I", 1 | (1 << 1) | (128 * 1024 << 3))[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * (GIB // (128 * 1024) - 1) + last


def blosc():
    head = bytearray(imagecodecs.blosc_encode(bytes(4 * MIB)))
    head[4:8] = struct.pack("<I", GIB)
    return bytes(head)


BOMBS = {
    "lzw": (5, lzw),
    "deflate": (8, deflated),
    "packbits": (32773, lambda: b"\x81\x00" * MIB),
    "xz": (34925, lambda: lzma.compress(bytes(64 * MIB), preset=0)),
    "zstd": (50000, zstd),
    "lerc-zstd": (34887, zstd),
    "lerc-deflate": (34887, deflated),
    "zlib": ("numcodecs.zlib", deflated),
    "gzip": ("gzip", lambda: deflated(31)),
    "blosc": ("blosc", blosc),
    "lz4": ("numcodecs.lz4", lambda: struct.pack("<I", GIB) + b"\x1f\x00\x01\x00" + b"\xff" * 4 * MIB + b"\x00"),
    "plain-zstd": ("zstd", zstd),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_gigabyte_in_a_chunk_of_64_kb_is_refused(name, decoder):
    codec, make = BOMBS[name]
    bomb = make()
    values = np.zeros((1, SIDE, SIDE), "u1")
    inner = {"lerc-zstd": 2, "lerc-deflate": 1}.get(name, 0)
    codecs = (
        [{"name": "bytes"}, {"name": codec}]
        if isinstance(codec, str)
        else [samples.tiff_tile(values, codec, lerc_parameters=[4, inner])]
    )
    decode = decoder(codecs, values.shape, "u1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DecodeError):
        decode(bomb, valid=values.shape)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 2 * values.nbytes + 32 * MIB


def test_the_bombs_are_refused_for_their_size_and_not_for_being_broken():
    assert len(imagecodecs.lzw_decode(lzw(), out=64 * MIB)) == 64 * MIB
    assert zlib.decompressobj().decompress(deflated(), 64 * MIB) == bytes(64 * MIB)
    assert len(imagecodecs.packbits_decode(b"\x81\x00" * MIB, out=160 * MIB)) == 128 * MIB
    with pytest.raises(imagecodecs.ZstdError, match="too small"):
        imagecodecs.zstd_decode(zstd(), out=MIB)


def patched(data, marker, offset, value):
    at = data.index(marker) + offset
    return data[:at] + value + data[at + len(value) :]


HEADERS = {
    "jpeg-ycbcr": lambda d: patched(d, b"\xff\xc0", 5, struct.pack(">HH", 65500, 65500)),
    "jpeg-progressive": lambda d: patched(d, b"\xff\xc2", 5, struct.pack(">HH", 65500, 65500)),
    "jpeg2000": lambda d: patched(d, b"\xff\x51", 6, struct.pack(">II", 2**31 - 1, 2**31 - 1)),
    "jpeg2000-boxes": lambda d: patched(d, b"\xff\x51", 6, struct.pack(">II", 60000, 60000)),
    "webp": lambda d: patched(d, b"VP8 ", 14, struct.pack("<HH", 16383, 16383)),
    "webp-lossless": lambda d: patched(d, b"VP8L", 9, struct.pack("<I", 16382 | 16382 << 14)),
    "png": lambda d: patched(d, b"IHDR", 4, struct.pack(">II", 2**31 - 1, 2**31 - 1)),
    "lerc": lambda d: patched(d, b"Lerc2 ", 14, struct.pack("<ii", 2**31 - 1, 2**31 - 1)),
    "jpegxl": lambda d: patched(d, b"\xff\x0a", 2, b"\xfe\xff\xff\xff\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_declares_a_giant_image_is_refused_before_decoding(name, decoder):
    sample = samples.sample(name)
    decode = decoder(sample.codecs, sample.chunks, sample.values.dtype)
    decode(sample.data, valid=sample.chunks)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DecodeError, match=r"image stream is|declares|header"):
        decode(HEADERS[name](sample.data), valid=sample.chunks)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 8 * MIB


def test_scans_without_end_are_refused(decoder):
    sample = samples.sample("jpeg-progressive")
    at = sample.data.rindex(b"\xff\xda")
    endless = sample.data[:at] + sample.data[at:-2] * 200 + b"\xff\xd9"
    with pytest.raises(DecodeError, match="scans"):
        decoder(sample.codecs, sample.chunks, "u1")(endless, valid=sample.chunks)


def test_a_stream_of_other_shape_or_depth_than_its_tile_is_refused(decoder):
    rgb, grey, deep = samples.rgb(3), samples.rgb(1), samples.rgb(1, "u2")
    for number, encode in (
        (7, imagecodecs.jpeg8_encode),
        (34712, imagecodecs.jpeg2k_encode),
        (34933, imagecodecs.png_encode),
        (50002, imagecodecs.jpegxl_encode),
        (34887, imagecodecs.lerc_encode),
    ):
        wider = np.pad(grey, ((0, 0), (0, 0), (0, 8)))
        for values, tile in ((rgb, grey), (grey, rgb), (grey, deep), (wider, grey), (grey, wider)):
            with pytest.raises(DecodeError):
                decoder(samples.tiff_tile(tile, number), tile.shape, tile.dtype)(
                    encode(samples.chunky(values)), valid=tile.shape
                )
        if number not in (7,):
            with pytest.raises(DecodeError):
                decoder(samples.tiff_tile(grey, number), grey.shape, "u1")(
                    encode(samples.chunky(deep)), valid=grey.shape
                )


@pytest.mark.parametrize("where", ["image", "tile"])
def test_tiny_precincts_of_a_jpeg_2000_tile_in_tiff_are_refused_before_it_is_decoded(where):
    from periplus.decode.tiff import headers

    size = struct.pack(">HHHIIIIIIIIHBBB", 0xFF51, 41, 0, 4096, 4096, 0, 0, 4096, 4096, 0, 0, 1, 7, 1, 1)
    sane = struct.pack(">HHBBHBBBBBB", 0xFF52, 12, 0, 2, 1, 0, 5, 4, 4, 0, 1)
    tiny = struct.pack(">HHBBHBBBBBBB", 0xFF52, 13, 1, 2, 1, 0, 0, 4, 4, 0, 1, 0)
    body = (tiny if where == "tile" else b"") + b"\xff\x93" + bytes(500)
    part = struct.pack(">HHHIBB", 0xFF90, 10, 0, 12 + len(body), 0, 1) + body
    steps = struct.pack(">HHB16B", 0xFF5C, 19, 0x40, *[0x48] * 16)
    stream = b"\xff\x4f" + size + (sane if where == "tile" else tiny) + steps + part + b"\xff\xd9"
    with pytest.raises(DecodeError, match=r"packets or more|code-blocks in"):
        headers.jpeg2000(memoryview(stream))
    right = stream.replace(tiny, sane)
    if where == "image":
        assert headers.jpeg2000(memoryview(right)).width == 4096
