"""JPEG files give the pixels of libjpeg-turbo and the metadata of the camera; damaged ones give only our errors."""

import io
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from PIL import Image
from rasterio.io import MemoryFile

import periplus
from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError, LimitError, PeriplusError
from periplus.limits import MIB, Limits
from periplus.model import About, Array
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import pictures
from periplus.testing.mutants import byte_mutants
from periplus.testing.scans import decoded_values, only_array

MUTANTS = 80 * int(os.environ.get("PERIPLUS_FUZZ", "1"))
NAMES = list(pictures.jpegs())


def found(data: bytes, limits: Limits | None = None) -> Array:
    step = only_array(data, limits)
    assert (step.refs.offset.tolist(), step.refs.length.tolist()) == ([0], [len(data)])
    return step.array


@pytest.mark.parametrize("name", NAMES)
def test_pixels_are_those_of_libjpeg(name: str) -> None:
    data = pictures.jpegs()[name]()
    expected = imagecodecs.jpeg8_decode(data)
    if name in ("cmyk", "ycck"):
        # Adobe's inks are inverted: what is left of the light.
        expected = (expected[..., :3].astype(int) * expected[..., 3:] // 255).astype(np.uint8)
    expected = expected[None] if expected.ndim == 2 else np.moveaxis(expected, -1, 0)
    seen = decoded_values(data)
    assert seen.dtype == expected.dtype
    np.testing.assert_array_equal(seen, expected)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("twelve", "lossless", "lossless-16")])
def test_pixels_are_near_those_of_pillow(name: str) -> None:
    data = pictures.jpegs()[name]()
    image = Image.open(io.BytesIO(data))
    seen = np.moveaxis(decoded_values(data).astype(int), 0, -1)
    expected = np.asarray(image.convert("RGB") if image.mode == "CMYK" else image).astype(int)
    assert np.abs(seen - expected.reshape(seen.shape)).max() <= 4


@pytest.mark.parametrize("name", ["cmyk", "ycck"])
def test_inks_become_the_light_that_gdal_gives(name: str) -> None:
    data = pictures.jpegs()[name]()
    with MemoryFile(data) as memory, memory.open() as image:
        expected, space = image.read(), image.tags(ns="IMAGE_STRUCTURE")["SOURCE_COLOR_SPACE"]
    # GDAL turns YCbCr around by itself, and rounds once more.
    assert np.abs(decoded_values(data).astype(int) - expected).max() <= (name == "ycck")
    assert found(data).attributes["source_color_space"] == space
    assert found(data).attributes["photometric"] == "rgb"


def test_four_lossless_bands_are_no_inks() -> None:
    expected = pictures.picture("four", "u1", (4, 20, 30))
    data = bytes(imagecodecs.jpeg8_encode(np.moveaxis(expected, 0, -1).copy(), lossless=True, colorspace="CMYK"))
    np.testing.assert_array_equal(decoded_values(data), expected)


def test_a_lossless_file_keeps_every_value() -> None:
    expected = pictures.picture("jpeg-16", "u2", (1, pictures.HEIGHT, pictures.WIDTH))
    np.testing.assert_array_equal(decoded_values(pictures.jpegs()["lossless-16"]()), expected)


def test_metadata_of_the_camera_are_reported_but_not_applied() -> None:
    tags = Image.Exif()
    tags[0x0112], tags[0x0110], tags[0x0132] = 6, "Pinhole", "2021:05:04 03:02:01"
    tags.get_ifd(0x8769)[0x9003] = "2020:02:29 12:13:14"
    where = tags.get_ifd(0x8825)
    where[1], where[2], where[3], where[4] = "S", (33.0, 30.0, 36.0), "E", (151.0, 12.0, 0.0)
    where[5], where[6] = b"\0", 58.5
    data = pictures.pillow_jpeg(3, exif=tags, dpi=(300, 300), comment=b"a view")
    steps = scan_bytes(data)
    array = found(data)
    assert array.shape == (3, pictures.HEIGHT, pictures.WIDTH)
    assert steps[0] == About(datetime=datetime(2020, 2, 29, 12, 13, 14, tzinfo=UTC))
    assert array.attributes == {
        "orientation": 6,
        "model": "Pinhole",
        "datetime": "2020:02:29 12:13:14",
        "gps": {"latitude": pytest.approx(-33.51), "longitude": pytest.approx(151.2), "altitude": 58.5},
        "resolution": {"x": 300, "y": 300, "per": "inch"},
        "comment": "a view",
        "coding": "baseline",
        "photometric": "rgb",
    }


@pytest.mark.parametrize(
    ("taken", "changed", "offset", "moment"),
    [
        ("2020:02:29 12:13:14", "+05:30", "+05:30", datetime(2020, 2, 29, 6, 43, 14, tzinfo=UTC)),
        ("2020:02:29 22:13:14", "-08:00", "-08:00", datetime(2020, 3, 1, 6, 13, 14, tzinfo=UTC)),
        ("2020:02:29 12:13:14", "   :  ", None, datetime(2020, 2, 29, 12, 13, 14, tzinfo=UTC)),
        ("0001:01:01 00:00:00", "+01:00", "+01:00", None),
        ("", "+02:00", "+03:00", datetime(2021, 5, 4, 0, 2, 1, tzinfo=UTC)),
    ],
)
def test_the_offset_of_a_camera_clock_is_applied(
    taken: str, changed: str, offset: str | None, moment: datetime | None
) -> None:
    tags = Image.Exif()
    tags[0x0132] = "2021:05:04 03:02:01"
    own = tags.get_ifd(0x8769)
    own[0x9003], own[0x9010], own[0x9011] = taken, "+03:00", changed
    steps = scan_bytes(pictures.pillow_jpeg(1, exif=tags))
    assert [step.datetime for step in steps if isinstance(step, About)] == ([moment] if moment else [])
    assert steps[-1].array.attributes.get("utc_offset") == offset


@pytest.mark.parametrize(("name", "space"), [("gray", "MONO"), ("rgb", "YCbCr601"), ("cmyk", "CMYK"), ("ycck", "YCCK")])
def test_the_codec_has_the_keys_of_the_imagery_seed(name: str, space: str) -> None:
    (codec,) = found(pictures.jpegs()[name]()).encodings[0].codecs
    bands = {"gray": 1, "rgb": 3, "cmyk": 3, "ycck": 3}[name]
    assert codec["name"].endswith("/codecs/jpeg")
    assert codec["configuration"] == {
        "bits_per_pixel": 8,
        "num_bands": bands,
        "block_width": pictures.WIDTH,
        "block_height": pictures.HEIGHT,
        "imode": "P" if bands > 1 else "B",
        "color_space": space,
    }


def frame(data: bytes) -> int:
    return data.index(b"\xff\xc0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:30], "ends past the end"),
        (lambda data: data[: frame(data)] + b"\xff\xd9", "ends before its image"),
        (lambda data: data[: frame(data) + 5] + b"\0\0" + data[frame(data) + 7 :], "61 x 0 pixels"),
        (lambda data: data[: frame(data) + 1] + b"\xc5" + data[frame(data) + 2 :], "hierarchical"),
        (lambda data: data[: frame(data)] + b"\xff\xe5\0\0" + data[frame(data) :], "no length"),
        (lambda data: data[: frame(data)] + b"\0" * 70_000 + data[frame(data) :], "no marker follows"),
        (
            lambda data: data[: frame(data)] + data[frame(data) : frame(data) + 19] * 2 + data[frame(data) :],
            "two frame",
        ),
    ],
)
def test_what_is_no_picture_is_refused(change: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        scan_bytes(change(pictures.jpegs()["rgb"]()))


def test_rubbish_between_markers_is_stepped_over() -> None:
    data = pictures.jpegs()["rgb"]()
    odd = data[: frame(data)] + b"\0rubbish\xff\0\xff\xff" + data[frame(data) :]
    np.testing.assert_array_equal(decoded_values(odd), decoded_values(data))


def test_a_picture_cut_off_is_refused() -> None:
    data = pictures.jpegs()["rgb"]()
    with pytest.raises(DecodeError, match="cut off"):
        decoded_values(data[: len(data) * 2 // 3])


def test_another_picture_than_the_indexed_one_is_refused() -> None:
    array = found(pictures.jpegs()["rgb"]())
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    with pytest.raises(DecodeError, match="samples"):
        decode(pictures.jpegs()["gray"](), valid=array.shape)


def test_a_picture_over_the_limit_is_refused() -> None:
    with pytest.raises(LimitError):
        found(pictures.jpegs()["rgb"](), Limits(chunk_bytes=1000))


@pytest.mark.parametrize(
    "change", [{"num_bands": 0}, {"block_width": "x"}, {"imode": "S"}, {"bits_per_pixel": 12}, {"jpeg_tables": "%"}]
)
def test_settings_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    array = found(pictures.jpegs()["rgb"]())
    (codec,) = array.encodings[0].codecs
    codec = {**codec, "configuration": {**codec["configuration"], **change}}
    with pytest.raises(FormatError):
        prepare((codec,), chunks=array.chunks, dtype=array.dtype, limits=Limits())


def test_a_file_is_known_by_content_and_read_through_the_index(tmp_path: Path) -> None:
    data = pictures.jpegs()["rgb"]()
    path = tmp_path / "photo"
    path.write_bytes(data)
    seen = periplus.index(path)["0/data"][:, 3:9, 10:20]
    np.testing.assert_array_equal(seen, decoded_values(data)[:, 3:9, 10:20])


@pytest.mark.fuzz
@pytest.mark.parametrize("name", NAMES)
def test_mutants_give_only_our_errors(name: str) -> None:
    small = Limits(chunk_bytes=4 * MIB)
    refused = 0
    for mutant in byte_mutants(pictures.jpegs()[name](), seed=NAMES.index(name), count=MUTANTS):
        start = time.process_time()
        try:
            decoded_values(mutant, small)
        except PeriplusError:
            refused += 1
        assert time.process_time() - start < 10
    assert 0 < refused < MUTANTS


@pytest.mark.parametrize("name", NAMES)
def test_any_window_is_as_in_the_whole(name: str, tmp_path: Path) -> None:
    data = pictures.jpegs()[name]()
    expected = decoded_values(data)
    path = tmp_path / "picture.jpg"
    path.write_bytes(data)
    with periplus.index(path) as index:
        array = index["0/data"]
        for rows in (slice(0, 1), slice(0, 16), slice(3, 17), slice(10, None, 5), slice(44, 45), slice(20, 4, -3)):
            np.testing.assert_array_equal(array[:, rows, 5:30], expected[:, rows, 5:30])
        assert array[0, 0, 0] == expected[0, 0, 0]


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}])
def test_the_upper_rows_of_a_high_picture_are_as_in_the_whole(subsampling: int, options: dict[str, Any]) -> None:
    picture = pictures.picture("high", "u1", (3, 300, 40))
    target = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(np.moveaxis(picture, 0, -1)))
    image.save(target, "JPEG", subsampling=subsampling, **options)
    data = target.getvalue()
    expected = np.moveaxis(imagecodecs.jpeg8_decode(data), -1, 0)
    array = found(data)
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    for stop in (1, 15, 16, 17, 31, 32, 33, 48, 100, 239, 240, 268, 299, 300):
        seen = decode(data, valid=array.shape, want=(slice(None), slice(0, stop), slice(None)))
        np.testing.assert_array_equal(seen[:, :stop], expected[:, :stop])
        assert options.get("progressive") or seen.shape[1] < 300 or stop > 200


def test_a_cut_off_picture_is_refused_where_it_is_looked_at() -> None:
    picture = pictures.picture("high", "u1", (3, 300, 40))
    target = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(np.moveaxis(picture, 0, -1))).save(target, "JPEG")
    data = target.getvalue()
    array = found(data)
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    cut = data[: len(data) // 2]
    upper = (slice(None), slice(0, 20), slice(None))
    expected = np.moveaxis(imagecodecs.jpeg8_decode(data), -1, 0)
    np.testing.assert_array_equal(decode(cut, valid=array.shape, want=upper)[upper], expected[upper])
    with pytest.raises(DecodeError, match="cut off"):
        decode(cut, valid=array.shape, want=(slice(None), slice(290, 300), slice(None)))
