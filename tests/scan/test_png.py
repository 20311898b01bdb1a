"""PNG files give GDAL's values whatever their depth, colour type and interlacing; damaged ones give only our errors."""

import io
import itertools
import os
import struct
import time
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from rasterio.io import MemoryFile

import periplus
from periplus.decode import png, prepare
from periplus.errors import DecodeError, FormatError, LimitError, PeriplusError
from periplus.limits import MIB, Limits
from periplus.model import About, Array
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import pictures
from periplus.testing.mutants import byte_mutants
from periplus.testing.scans import decoded_values, only_array

MUTANTS = 80 * int(os.environ.get("PERIPLUS_FUZZ", "1"))
KINDS = [
    *((bits, 0, 1) for bits in (1, 2, 4, 8, 16)),
    *((bits, 3, 1) for bits in (1, 2, 4, 8)),
    *((bits, colour, bands) for bits in (8, 16) for colour, bands in ((2, 3), (4, 2), (6, 4))),
]
"""Bits, colour type and bands of everything a PNG can hold."""


def stored(bits: int, bands: int, height: int = 45, width: int = 61) -> NDArray[Any]:
    rng = np.random.default_rng(bits * 10 + bands)
    return rng.integers(0, 1 << bits, (bands, height, width)).astype("u2" if bits == 16 else "u1")


def palette(bits: int) -> tuple[bytes, bytes]:
    return b"PLTE", bytes(np.random.default_rng(bits).integers(0, 256, 3 << bits, dtype=np.uint8))


def made(bits: int, colour: int, bands: int, chunks: Any = (), **options: Any) -> bytes:
    extra = [palette(bits)] if colour == 3 else []
    return pictures.png(stored(bits, bands), bits=bits, colour=colour, chunks=[*extra, *chunks], **options)


def found(data: bytes, limits: Limits | None = None) -> Array:
    step = only_array(data, limits)
    assert (step.refs.offset.tolist(), step.refs.length.tolist()) == ([0], [len(data)])
    return step.array


@pytest.mark.parametrize(("bits", "colour", "bands"), KINDS)
def test_values_are_those_of_gdal(bits: int, colour: int, bands: int) -> None:
    for interlaced in (False, True):
        data = made(bits, colour, bands, interlaced=interlaced)
        seen = decoded_values(data)
        np.testing.assert_array_equal(seen, stored(bits, bands))
        with MemoryFile(data) as memory, memory.open() as image:
            expected = image.read()
        assert seen.dtype == expected.dtype
        np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize(("bits", "colour", "bands"), KINDS)
def test_rows_filtered_by_one_neighbour_at_most_are_those_of_gdal(bits: int, colour: int, bands: int) -> None:
    expected = stored(bits, bands)
    for filters, interlaced in itertools.product([(0,), (1,), (2,), (2, 2, 0, 1, 1, 2, 2)], (False, True)):
        data = made(bits, colour, bands, interlaced=interlaced, filters=filters)
        np.testing.assert_array_equal(decoded_values(data), expected)
        with MemoryFile(data) as memory, memory.open() as image:
            np.testing.assert_array_equal(image.read(), expected)
        array = found(data)
        decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
        for rows in (slice(0, 1), slice(3, 5), slice(7, 19), slice(44, 45), slice(30, 20, -3)):
            seen = decode(data, valid=array.shape, want=(slice(None), rows, slice(None)))
            np.testing.assert_array_equal(seen[:, rows], expected[:, rows])
            assert seen.dtype == expected.dtype


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (3, 2), (5, 5), (9, 1)])
def test_small_interlaced_pictures_lack_passes(shape: tuple[int, int], capfd: pytest.CaptureFixture[str]) -> None:
    expected = stored(4, 1, *shape)
    np.testing.assert_array_equal(decoded_values(pictures.png(expected, bits=4, colour=0, interlaced=True)), expected)
    assert capfd.readouterr().err == ""


def test_a_file_of_pillow_is_read_with_its_metadata() -> None:
    image = np.moveaxis(stored(8, 4), 0, -1)
    tags = Image.Exif()
    tags[0x0132] = "2020:02:29 12:13:14"
    text = PngInfo()
    text.add_text("Title", "a view")
    target = io.BytesIO()
    Image.fromarray(image).save(target, "PNG", dpi=(100, 100), exif=tags, pnginfo=text)
    data = target.getvalue()
    np.testing.assert_array_equal(np.moveaxis(decoded_values(data), 0, -1), image)
    assert scan_bytes(data)[0] == About(datetime=datetime(2020, 2, 29, 12, 13, 14, tzinfo=UTC))
    assert found(data).attributes == {
        "datetime": "2020:02:29 12:13:14",
        "text": {"Title": "a view"},
        "resolution": {"x": 3937, "y": 3937, "per": "metre"},
        "photometric": "rgb",
        "extra_samples": ["alpha"],
    }


def test_a_palette_is_reported_and_its_indices_read() -> None:
    data = made(4, 3, 1, [(b"tRNS", b"\0\x80")])
    array = found(data)
    with MemoryFile(data) as memory, memory.open() as image:
        expected = [list(colour[:3]) for _, colour in sorted(image.colormap(1).items())][:16]
    assert array.attributes["colormap"] == expected
    assert array.attributes["colormap_alpha"] == [0, 128]
    np.testing.assert_array_equal(decoded_values(data), stored(4, 1))


def test_the_transparent_value_is_reported_and_changes_nothing() -> None:
    gray, colour = made(8, 0, 1, [(b"tRNS", b"\0\x07")]), made(8, 2, 3, [(b"tRNS", b"\0\1\0\2\0\3")])
    assert (found(gray).attributes["_FillValue"], found(gray).fill) == (7, 7)
    assert found(colour).attributes["transparent_colour"] == [1, 2, 3]
    np.testing.assert_array_equal(decoded_values(gray), stored(8, 1))
    np.testing.assert_array_equal(decoded_values(colour), stored(8, 3))


def header(**changes: int) -> bytes:
    parts = {"width": 61, "height": 45, "bits": 8, "colour": 0, "compression": 0, "filter": 0, "interlace": 0}
    body = struct.pack(">IIBBBBB", *(parts | changes).values())
    return b"\x89PNG\r\n\x1a\n" + pictures.png_chunk(b"IHDR", body)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header()[:20], "ends past the end"),
        (header() + pictures.png_chunk(b"IEND", b""), "ends before its image"),
        (header(width=0), "0 x 45 pixels"),
        (header(height=2**31), "x 2147483648 pixels"),
        (header(bits=3), "does not exist"),
        (header(colour=2, bits=4), "does not exist"),
        (header(interlace=2), "does not exist"),
        (header(colour=3) + pictures.png_chunk(b"IDAT", b""), "no palette"),
        (header() + b"\xff\xff\xff\xffzzzz", "ends before its image"),
    ],
)
def test_what_is_no_picture_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        scan_bytes(data)


@pytest.mark.parametrize("interlaced", [False, True])
def test_damaged_pixels_are_refused(interlaced: bool) -> None:
    data = made(8, 2, 3, interlaced=interlaced)
    start = data.index(b"IDAT")
    wrong = data[: start + 40] + bytes([data[start + 40] ^ 1]) + data[start + 41 :]
    with pytest.raises(DecodeError, match="fails its checksum"):
        decoded_values(wrong)
    with pytest.raises(DecodeError, match="cut off"):
        decoded_values(data[: start + 100])
    short = made(8, 2, 3, interlaced=interlaced, pieces=2)
    second = short.rindex(b"IDAT") - 4
    with pytest.raises(DecodeError):
        decoded_values(short[:second] + pictures.png_chunk(b"IEND", b""))


def test_another_picture_than_the_indexed_one_is_refused() -> None:
    array = found(made(8, 0, 1))
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    with pytest.raises(DecodeError, match="another image"):
        decode(made(8, 2, 3), valid=array.shape)


def test_a_picture_over_the_limit_is_refused() -> None:
    with pytest.raises(LimitError):
        found(made(8, 2, 3), Limits(chunk_bytes=1000))


@pytest.mark.parametrize("change", [{"bands": 5}, {"bits": 3}, {"width": 60}, {"bits": 16}, {"height": None}])
def test_settings_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    array = found(made(8, 2, 3))
    (codec,) = array.encodings[0].codecs
    codec = {**codec, "configuration": {**codec["configuration"], **change}}
    with pytest.raises(FormatError):
        prepare((codec,), chunks=array.chunks, dtype=array.dtype, limits=Limits())


def test_a_file_is_read_through_the_index(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(made(16, 2, 3))
    np.testing.assert_array_equal(periplus.index(path)["0/data"][:, 3:9, 10:20], stored(16, 3)[:, 3:9, 10:20])


@pytest.mark.parametrize("interlaced", [False, True])
def test_a_picture_that_lacks_rows_is_refused(interlaced: bool) -> None:
    half = pictures.png(stored(8, 1, 20, 30), bits=8, colour=0, interlaced=interlaced)
    head = pictures.png(stored(8, 1, 40, 30), bits=8, colour=0, interlaced=interlaced)[:33]
    with pytest.raises(DecodeError, match=r"of 12(40|75) bytes"):
        decoded_values(head + half[33:])


@pytest.mark.parametrize("together", [1, 700])
@pytest.mark.parametrize(("bits", "colour", "bands"), [(1, 0, 1), (4, 3, 1), (8, 2, 3), (16, 6, 4)])
def test_rows_that_are_undone_a_few_at_a_time_are_as_in_the_whole(
    bits: int, colour: int, bands: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(png, "TOGETHER", together)
    data, expected = made(bits, colour, bands), stored(bits, bands)
    np.testing.assert_array_equal(decoded_values(data), expected)
    array = found(data)
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    # Every fifth row is filtered by nothing, the next by what is left of it, the others by the row above.
    for rows in (
        slice(0, 1),
        slice(4, 7),
        slice(5, 9),
        slice(8, 9),
        slice(13, 44, 7),
        slice(44, 45),
        slice(30, 20, -3),
    ):
        seen = decode(data, valid=array.shape, want=(slice(None), rows, slice(None)))
        np.testing.assert_array_equal(seen[:, rows], expected[:, rows])


def test_pixels_without_their_last_check_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(png, "TOGETHER", 1)
    data = made(8, 2, 3, pieces=1)
    start = data.index(b"IDAT")
    body = data[start + 4 : start + 4 + int.from_bytes(data[start - 4 : start], "big")]
    assert zlib.adler32(zlib.decompress(body)) == int.from_bytes(body[-4:], "big")
    cut = data[: start - 4] + pictures.png_chunk(b"IDAT", body[:-4]) + pictures.png_chunk(b"IEND", b"")
    np.testing.assert_array_equal(decoded_values(cut), stored(8, 3))


@pytest.mark.fuzz
@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("bits", "colour", "bands"), [(1, 0, 1), (4, 3, 1), (16, 6, 4)])
def test_mutants_give_only_our_errors(bits: int, colour: int, bands: int, interlaced: bool) -> None:
    small = Limits(chunk_bytes=4 * MIB)
    data = made(bits, colour, bands, interlaced=interlaced)
    refused = 0
    for mutant in byte_mutants(data, seed=bits, count=MUTANTS):
        start = time.process_time()
        try:
            decoded_values(mutant, small)
        except PeriplusError:
            refused += 1
        assert time.process_time() - start < 10
    assert 0 < refused <= MUTANTS


def test_a_nodata_value_that_fails_its_check_is_reported() -> None:
    data = made(8, 0, 1, [(b"tRNS", b"\0\x07")])
    at = data.index(b"tRNS")
    about, found = scan_bytes(data[: at + 5] + b"\x08" + data[at + 6 :])
    assert "_FillValue" not in found.array.attributes
    assert about.attributes["refused"] == ["the chunk tRNS fails its checksum"]
