"""Pictures that promise giants or do not hold together: one of our errors, before any native decoder is called."""

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

import periplus
from periplus.errors import DecodeError, FormatError, LimitError, PeriplusError
from periplus.limits import GIB, Limits
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures, samples
from periplus.testing.formats.custom_tiff import LONG, SHORT, image_tags, tiff

FRAME = re.compile(rb"\xff[\xc0-\xc3]\0")
FAX = ("ccittrle_decode", "ccittfax3_decode", "ccittfax4_decode")
SOUND = np.arange(72, dtype=np.uint8).reshape(1, 8, 9)


def jpeg(width: int, height: int, kind: str = "gray") -> bytes:
    """A small JPEG whose frame header says another size."""
    data = pictures.jpegs()[kind]()
    at = FRAME.search(data).start() + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def png(width: int, height: int, bits: int = 8, *, chunks: list[tuple[bytes, bytes]] | None = None) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    parts = chunks or [(b"IDAT", zlib.compress(bytes(99)))]
    return pictures_of([(b"IHDR", head), *parts, (b"IEND", b"")])


def pictures_of(chunks: list[tuple[bytes, bytes]]) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(pictures.png_chunk(*chunk) for chunk in chunks)


def codestream(width: int, height: int, tile: tuple[int, int] | None = None) -> bytes:
    """One tile of 64 x 64 pixels whose size marker says another size."""
    data = j2ks.made(j2ks.picture(1, "u1", 64, 64))
    at = data.index(b"\xff\x51") + 6
    return data[:at] + struct.pack(">8I", width, height, 0, 0, *(tile or (width, height)), 0, 0) + data[at + 32 :]


def nitf(coding: str, stream: bytes, side: int) -> bytes:
    size = {"NROWS": f"{side:08d}", "NCOLS": f"{side:08d}", "NPPBH": "0000", "NPPBV": "0000"}
    return nitfs.nitf(nitfs.ImageSegment(values=SOUND, coding=coding, streams=(stream,), changes=size))


def cell(lines: int, posts: int) -> bytes:
    data = dteds.cell(dteds.heights("giant", 5, 5))
    return data[:47] + f"{lines:04d}{posts:04d}".encode() + data[55:]


def fax(compression: int) -> bytes:
    strip = b"\x26\xa1" * 50
    sizes = {"t278": (LONG, [30_000]), "t279": (LONG, [len(strip)])}
    return tiff(image_tags(30_000, 30_000, t259=compression, t258=(SHORT, [1]), **sizes), data=strip)


GIANTS: dict[str, Callable[[], bytes]] = {
    "JPEG": lambda: jpeg(65_500, 65_500),
    "JPEG within the limits": lambda: jpeg(30_000, 30_000),
    "JPEG of colours": lambda: jpeg(16_000, 20_000, "rgb"),
    "JPEG of colours at half the resolution": lambda: jpeg(16_000, 20_000, "rgb-420"),
    "progressive JPEG": lambda: jpeg(17_000, 17_000, "rgb-progressive"),
    "JPEG with restarts": lambda: jpeg(17_000, 17_000, "rgb-restarts"),
    "JPEG of inks": lambda: jpeg(14_000, 14_000, "cmyk"),
    "JPEG of 12 bits": lambda: jpeg(20_000, 20_000, "twelve"),
    "lossless JPEG": lambda: jpeg(30_000, 30_000, "lossless"),
    "PNG": lambda: png(2**31 - 1, 2**31 - 1),
    "PNG of one row": lambda: png(900_000_000, 1),
    "PNG of bits": lambda: png(2_000_000, 100, 1),
    "high PNG of bits": lambda: png(100, 2_000_000, 1),
    "JPEG 2000": lambda: codestream(2**31 - 1, 2**31 - 1),
    "JPEG 2000 of no bytes": lambda: j2ks.giant(30_000),
    "JPEG 2000 of many tiles": lambda: codestream(2**31 - 1, 2**31 - 1, (64, 64)),
    "JPEG 2000 of tiles that are not there": lambda: codestream(255 * 64, 256 * 64, (64, 64)),
    "JPEG in NITF": lambda: nitf("C3", jpeg(65_500, 65_500), 65_500),
    "JPEG in NITF within the limits": lambda: nitf("C3", jpeg(30_000, 30_000), 30_000),
    "lossless JPEG in NITF": lambda: nitf("C5", jpeg(30_000, 30_000, "lossless"), 30_000),
    "JPEG 2000 in NITF": lambda: nitf("C8", codestream(99_999_999, 99_999_999), 99_999_999),
    "plain NITF": lambda: nitf("NC", bytes(99), 99_999_999),
    "DTED": lambda: cell(9_999, 9_999),
    "Group 4 fax": lambda: fax(4),
    "Group 3 fax": lambda: fax(3),
    "run lengths of a fax": lambda: fax(2),
}
"""Files of a few hundred bytes to a few thousand, for hundreds of megabytes and more."""


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the image decoders that were called."""
    from periplus.decode import pipeline

    called: list[str] = []
    pipeline._prepared.cache_clear()
    for name in ("jpeg8_decode", "jpeg2k_decode", "png_decode", "webp_decode", "jpegxl_decode", "lerc_decode", *FAX):
        monkeypatch.setattr(imagecodecs, name, lambda *_, name=name, **__: called.append(name))
    yield called
    pipeline._prepared.cache_clear()


def attempt(path: Path, data: bytes, limits: Limits | None = None) -> list[str]:
    """The kinds of all errors that a file gives: of itself, else of its arrays; the values of an array for none."""
    path.write_bytes(data)
    try:
        index = periplus.index(path, limits=limits or Limits())
    except PeriplusError as error:
        return [error.kind]
    found = []
    with index:
        for name in index.arrays:
            try:
                index[name][...]
                found.append("read")
            except PeriplusError as error:
                found.append(error.kind)
    return found


@pytest.mark.parametrize("name", GIANTS)
def test_a_header_that_promises_a_giant_is_refused_without_a_decoder(name, tmp_path, silent, bounded):
    data = GIANTS[name]()
    with bounded(memory=64 << 20):
        kinds = attempt(tmp_path / "giant", data)
    assert kinds
    assert set(kinds) <= {"limit", "decode", "format"}
    assert silent == []


@pytest.mark.parametrize("name", ["JPEG", "PNG", "JPEG 2000", "JPEG in NITF", "plain NITF", "DTED"])
@pytest.mark.parametrize("target", ["index.parquet", "index"])
def test_nothing_is_left_of_an_index_of_what_is_refused(name, target, tmp_path):
    (tmp_path / "giant").write_bytes(GIANTS[name]())
    with pytest.raises(PeriplusError):
        periplus.index(tmp_path / "giant", to=tmp_path / target)
    assert [path.name for path in tmp_path.iterdir()] == ["giant"]


@pytest.mark.parametrize(
    "name", ["jpeg-ycbcr", "jpeg-progressive", "jpeg2000", "jpeg2000-boxes", "webp", "webp-lossless", "png", "jpegxl"]
)
def test_a_stream_of_another_size_than_its_tile_is_refused_without_a_decoder(name, silent):
    from periplus.decode import prepare

    sample = samples.sample(name)
    smaller = (*sample.chunks[:-2], sample.chunks[-2] // 2, sample.chunks[-1])
    (codec,) = sample.codecs
    codecs = ({**codec, "configuration": {**codec["configuration"], "tile_height": smaller[-2]}},)
    decode = prepare(codecs, chunks=smaller, dtype=sample.values.dtype, limits=Limits())
    with pytest.raises(DecodeError, match="image stream is"):
        decode(sample.data, valid=smaller)
    assert silent == []


def test_pictures_as_large_as_their_streams_can_hold_are_decoded():
    # Nothing but zeros, in the shortest codes there are: what is the least for a stream must not be too much.
    for bands in (1, 3):
        flat = np.full((256, 256, bands), 128, np.uint8).squeeze()
        for options in ({"optimize": True}, {"optimize": True, "lossless": True}, {"optimize": True, "level": 1}):
            data = imagecodecs.jpeg8_encode(flat, **options)
            values = read_whole(data)
            np.testing.assert_array_equal(values, np.moveaxis(np.atleast_3d(imagecodecs.jpeg8_decode(data)), -1, 0))


def read_whole(data: bytes, limits: Limits | None = None) -> np.ndarray:
    from periplus.decode import prepare
    from periplus.model import Found
    from periplus.scan.drive import scan_bytes

    limits = limits or Limits()
    (item,) = (step for step in scan_bytes(data, limits=limits) if isinstance(step, Found))
    array = item.array
    assert array.grid == (1, 1, 1)
    start, length = int(item.refs.offset[0]), int(item.refs.length[0])
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=limits)
    return decode(data[start : start + length], valid=array.shape).copy()


def test_limits_refuse_and_can_be_raised(tmp_path):
    values = np.zeros((1, 600, 500), np.uint8)
    files = {
        "a.png": pictures.png(values, bits=8, colour=0),
        "a.jpg": imagecodecs.jpeg8_encode(values[0]),
        "a.j2k": j2ks.made(values),
        "a.ntf": nitfs.nitf(
            nitfs.ImageSegment(values=values, coding="C3", streams=(imagecodecs.jpeg8_encode(values[0]),))
        ),
        "a.dt0": dteds.cell(dteds.heights("limits", 500, 300)),
    }
    for name, data in files.items():
        # Smaller levels may be within the limits.
        assert attempt(tmp_path / name, data, Limits(chunk_bytes=299_999))[0] == "limit", name
        assert set(attempt(tmp_path / name, data, Limits(chunk_bytes=400_000))) == {"read"}, name
        assert "limit" in attempt(tmp_path / name, data, Limits(read_bytes=299_999)), name
    assert set(attempt(tmp_path / "a.j2k", files["a.j2k"], Limits(memory_bytes=400_000))) >= {"limit"}
    assert set(attempt(tmp_path / "a.png", png(40_000, 40_000), Limits(chunk_bytes=2 * GIB))) == {"decode"}


def test_a_giant_of_zeros_in_a_png_is_not_inflated(bounded):
    stream = zlib.compressobj()
    part = stream.compress(bytes(16 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)
    bomb = part + (stream.compress(bytes(16 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)) * 63
    data = png(64, 64, chunks=[(b"IDAT", bomb)])
    with bounded(memory=32 << 20), pytest.raises(DecodeError):
        read_whole(data)


def test_what_a_native_decoder_would_only_complain_about_is_never_printed(tmp_path, capfd):
    for data in (png(1_000_001, 2), png(2, 1_000_001, 1)):
        assert attempt(tmp_path / "wide.png", data) == ["format"]
    assert capfd.readouterr() == ("", "")


def test_a_png_in_a_tiff_is_checked_before_libpng_sees_it(capfd):
    from periplus.decode import prepare

    sample = samples.sample("png")
    decode = prepare(sample.codecs, chunks=sample.chunks, dtype=sample.values.dtype, limits=Limits())
    parts = chunks_of(sample.data)
    body = b"".join(content for kind, content in parts if kind == b"IDAT")
    loose = [*parts[:1], (b"gAMA", b""), (b"gAMA", b"\0\0\0\0\0"), (b"iCCP", b"x"), (b"IDAT", body), (b"IEND", b"")]
    np.testing.assert_array_equal(decode(pictures_of(loose), valid=sample.chunks), sample.values)
    longer = zlib.compress(zlib.decompress(body) + bytes(999))
    np.testing.assert_array_equal(
        decode(pictures_of([*parts[:1], (b"IDAT", longer), (b"IEND", b"")]), valid=sample.chunks), sample.values
    )
    for wrong in (body[:-6], body[: len(body) // 2], b"", b"\0" + body[1:], zlib.compress(zlib.decompress(body)[:-1])):
        with pytest.raises(DecodeError):
            decode(pictures_of([*parts[:1], (b"IDAT", wrong), (b"IEND", b"")]), valid=sample.chunks)
    at = sample.data.index(b"IDAT") + 40
    with pytest.raises(DecodeError, match="fails its checksum"):
        decode(sample.data[:at] + b"\xff\0\xff" + sample.data[at + 3 :], valid=sample.chunks)
    assert capfd.readouterr() == ("", "")


def chunks_of(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def test_the_chunks_of_a_png_must_hold_together():
    rows = zlib.compress(bytes(8 * 10))
    head, palette = struct.pack(">IIBBBBB", 9, 8, 8, 3, 0, 0, 0), (b"PLTE", bytes(range(30)))
    sound = [(b"IHDR", head), palette, (b"gAMA", b"\0\0\xb1\x8f"), (b"IDAT", rows), (b"IEND", b"")]
    assert facts(pictures_of(sound)) == (10, 0.45455)
    for wrong, message in (
        ([sound[0], sound[0], *sound[1:]], "second header"),
        ([sound[0], (b"PLTE", bytes(31)), *sound[2:]], "palette"),
        ([sound[0], (b"PLTE", b""), *sound[2:]], "palette"),
        ([*sound[:2], *sound[1:]], "palette"),
    ):
        with pytest.raises(FormatError, match=message):
            facts(pictures_of(wrong))
    good = pictures_of(sound)
    at = good.index(b"PLTE") + 10
    with pytest.raises(FormatError, match="palette"):
        facts(good[:at] + b"\xff" + good[at + 1 :])
    at = good.index(b"gAMA") + 4
    assert facts(good[:at] + b"\xff" + good[at + 1 :]) == (10, None)


def facts(data: bytes) -> tuple[int, float | None]:
    """Colours of the palette, and the gamma, that a PNG tells of."""
    from periplus.model import Found
    from periplus.scan.drive import scan_bytes

    (item,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    return len(item.array.attributes["colormap"]), item.array.attributes.get("gamma")


def test_a_codestream_whose_tile_swallowed_its_end_is_refused(tmp_path):
    data = j2ks.made(j2ks.picture(1, "u1", 64, 64))
    assert data.endswith(b"\xff\xd9")
    start = data.index(b"\xff\x90")
    (length,) = struct.unpack_from(">I", data, start + 6)
    assert start + length + 2 == len(data)
    # Two bytes are gone from the middle, so that what is said to be the tile's includes the mark of the end.
    lacking = data[: start + length // 2] + data[start + length // 2 + 2 :]
    assert attempt(tmp_path / "a.j2k", lacking) == ["decode"]
    # Without its mark alone, nothing is missing.
    assert set(attempt(tmp_path / "b.j2k", data[:-2])) == {"read"}
    with periplus.index(tmp_path / "b.j2k") as index:
        np.testing.assert_array_equal(index["0/data"][...][0], imagecodecs.jpeg2k_decode(data))


@pytest.mark.parametrize("marker", [0xFF53, 0xFF5D, 0xFF5E], ids=["COC", "QCC", "RGN"])
def test_settings_of_a_component_that_is_not_there_are_refused(marker, tmp_path):
    data = j2ks.made(j2ks.picture(3, "u1", 64, 64))
    at = data.index(b"\xff\x90")
    body = {0xFF53: bytes([3, 0, 1, 4, 4, 0, 1]), 0xFF5D: bytes([3, 0x40, 0x48]), 0xFF5E: bytes([3, 0, 0])}[marker]
    wrong = data[:at] + struct.pack(">HH", marker, 2 + len(body)) + body + data[at:]
    assert attempt(tmp_path / "a.j2k", wrong) == ["format"]


def test_a_limit_is_ours_and_a_value_error():
    with pytest.raises(LimitError) as error:
        read_whole(jpeg(65_500, 65_500))
    assert isinstance(error.value, ValueError)
