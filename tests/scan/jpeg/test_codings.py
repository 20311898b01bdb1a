"""JPEG in every coding, and what is missing from it; of arithmetic coding tiny streams of libjpeg's own tools."""

import base64
import io
import itertools
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import rasterio
import rasterio.shutil
from numpy.typing import NDArray
from PIL import Image

import periplus
from periplus.decode import prepare
from periplus.errors import DecodeError, FormatError
from periplus.limits import Limits
from periplus.model import Array, Found
from periplus.scan.drive import scan_bytes
from periplus.scan.jpeg import bands as jpegbands
from periplus.testing.formats.custom_tiff import SHORT, image_tags, tiff
from periplus.testing.formats.pictures import pillow_jpeg

STREAMS = {
    "gray": """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNS
        Mj5aYVpQYEpRUk//yQALCAANABMBAREA/8wABgAQEAX/2gAIAQEAAD8A0ldyU5NqqZLvDlF6ZLd+Fzy1Ps3meRZgXaWu0e8Mr3y/7A0w
        hID/2Q==""",
    "colours": """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNS
        Mj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P
        T0//yQARCAANABMDASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIRAxEAPwDSV3JTk2qpku8OUXpkt34W5iBAqgfzixMRo/G+Jwv2
        SMWJ8SXIvytn+Hlb90OKbzkwWwvO1kl5XKjZ34D/2Q==""",
    "progressive": """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNS
        Mj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P
        T0//ygARCAANABMDASEAAhEBAxEB/8wABgAQARD/2gAMAwEAAhADEAAAAdG6j9vVSA+kIw8zMkVamP/MAAQQBf/aAAgBAQABBQJDXEHZ
        4Kb4KKbZRv/MAAQRBf/aAAgBAwEBPwGOsWq9b1D/zAAEEQX/2gAIAQIBAT8BE5AGMl8Ek4xYcP/MAAQQBf/aAAgBAQAGPwLgaP/MAAQQ
        Bf/aAAgBAQABPyGNKE4EOP/aAAwDAQACAAMAAAAQjzT/zAAEEQX/2gAIAQMBAT8Qf5jGvMD/zAAEEQX/2gAIAQIBAT8Q2p4iGf/MAAQQ
        Bf/aAAgBAQABPxCr0QGMTP0X17PA/9k=""",
    "restarts": """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNS
        Mj5aYVpQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09P
        T0//yQARCAANABMDAREAAhEBAxEB/8wACgAQEAUBEBEF/90ABAAB/9oADAMBAAIRAxEAPwDSV3JTk2qpku8PW0X4KRKOa3eLgP/Q/wBA
        kXv9oK+VvuGPeyCpnVe1tv/R0dYEUBC2ZuQ9IZIYRf5ySWo4gP/S0hfCXt1RWGBgoTTBW1fg+x+w+eWA/9P/AGRvKBMcrkhebOOkRg2c
        2avw/9TRDGM1PJeTyKhE9PsJ0uWD9paI/9k=""",
}
"""`cjpeg -arithmetic -quality 60` of `view()`: gray, at 4:2:0, `-progressive` at 4:2:2, `-restart 1B` at 4:4:4."""

FLAT = """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNS
        Mj5aYVpQYEpRUk//yQALCAAYAAsBAREA/8wABgAQEAX/2gAIAQEAAD8A/wBIMZxAbV0BRoXl5RsA7OH/2Q=="""
"""Eight rows of something, and gray below."""
ROUGH = """
        /9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACAWGBwYFCAcGhwkIiAmMFA0MCwsMGJGSjpQdGZ6eHJmcG6AkLicgIiuim5woNqirr7EztDO
        fJri8uDI8LjKzsb/yQALCAAYABgBAREA/8wABgAQEAX/2gAIAQEAAD8A7ffk8Xywdn9Avk5lVSN7v0Q6nXJz5V4ML6UKhqRnpnvydYgw
        silbZVmItUUR1fYPClCb6ob5CtW78A+ChJ/0De/XySkD44zMMkWPEM6hiiTx13VJRTKoTY/IXdgS3JMTCND6yqbo3pZcIi5TCdfYhKQf
        jIEFUo+IEQnmdHXStq/mweCp8JtXoJpxE/w3L5OqeEzBk8CZmhQ3p7aqBy3fh8PEeMD/2Q=="""
"""Nothing that is easily foretold: `cjpeg -arithmetic -quality 25`."""


def view() -> NDArray[np.float64]:
    y, x = np.mgrid[:13, :19]
    return np.clip(np.stack([128 + 90 * np.sin(x / 3 + k) + 40 * np.cos(y / 2 - k) for k in range(3)]), 0, 255)


def stream(name: str) -> bytes:
    return base64.b64decode("".join(STREAMS[name].split()))


def found(data: bytes) -> Array:
    (step,) = (step for step in scan_bytes(data) if isinstance(step, Found))
    assert len(step.refs) == 1
    return step.array


def values(data: bytes, rows: slice = slice(None)) -> NDArray[np.uint8]:
    array = found(data)
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    return decode(data, valid=array.shape, want=(slice(None), rows, slice(None)))[:, rows].copy()


@pytest.mark.parametrize("name", list(STREAMS))
def test_pixels_are_those_of_pillow_and_near_the_picture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Restarts between units of arithmetic coding are no places to cut at.
    monkeypatch.setattr(jpegbands, "LARGE", 1)
    monkeypatch.setattr(jpegbands, "ROWS", 8)
    data = stream(name)
    seen = values(data)
    expected = np.asarray(Image.open(io.BytesIO(data)))
    np.testing.assert_array_equal(seen, expected[None] if name == "gray" else np.moveaxis(expected, -1, 0))
    picture = np.tensordot([[0.299, 0.587, 0.114]], view(), 1) if name == "gray" else view()
    assert np.abs(seen - picture).mean() < (4 if name in ("gray", "restarts") else 20)
    np.testing.assert_array_equal(values(data, slice(3, 9, 2)), seen[:, 3:9:2])
    kind = "progressive arithmetic" if name == "progressive" else "arithmetic"
    assert found(data).attributes["coding"] == kind


def test_a_stream_that_lacks_its_end_and_more_is_refused() -> None:
    data = stream("gray")
    np.testing.assert_array_equal(values(data[:-2]), values(data))
    with pytest.raises(DecodeError, match="has no end"):
        values(data[:-20])


def test_zeros_that_arithmetic_coding_leaves_out_are_not_missed() -> None:
    data = base64.b64decode("".join(FLAT.split()))
    expected = np.asarray(Image.open(io.BytesIO(data)))
    assert np.all(expected[8:] == 128)
    np.testing.assert_array_equal(values(data), expected[None])


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("bands", [1, 3, 4])
def test_a_stream_that_was_cut_and_ended_is_refused(bands: int, part: float) -> None:
    data = pillow_jpeg(bands)
    start = data.index(b"\xff\xda")
    with pytest.raises(DecodeError, match="cut off"):
        values(data[: start + 20 + int((len(data) - start - 20) * part)].rstrip(b"\xff") + b"\xff\xd9")


def scene(**options: object) -> bytes:
    y, x = np.mgrid[:120, :152]
    bands = [128 + 60 * np.sin(x / 9 + k) + 40 * np.cos(y / 7) + (x * y * 31 % 23) for k in range(3)]
    target = io.BytesIO()
    Image.fromarray(np.stack(bands, -1).clip(0, 255).astype(np.uint8)).save(target, "JPEG", **options)
    return target.getvalue()


def closed(data: bytes) -> bytes:
    """With an end, where it was cut off."""
    return data.rstrip(b"\xff") + b"\xff\xd9"


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"restart_marker_rows": 1}])
def test_a_progressive_stream_that_was_cut_and_ended_is_refused(options: dict[str, object]) -> None:
    data = scene(progressive=True, **options)
    np.testing.assert_array_equal(values(data), np.asarray(Image.open(io.BytesIO(data))).transpose(2, 0, 1))
    start = data.index(b"\xff\xda") + 20
    refused = 0
    for cut in range(start, len(data) - 9, (len(data) - start) // 25):
        left = closed(data[:cut])
        # Where a whole scan ends, fewer of them are a picture too.
        if data[len(left) - 2 : len(left)] not in (b"\xff\xc4", b"\xff\xda"):
            with pytest.raises(DecodeError):
                values(left)
            refused += 1
    assert refused > 20


def test_what_an_early_scan_lacks_is_noticed() -> None:
    data = scene(progressive=True, quality=95)
    scans = [at for at in range(len(data)) if data[at : at + 2] == b"\xff\xda"]
    assert len(scans) == 10
    for scan, following in itertools.pairwise(scans):
        tables = data.find(b"\xff\xc4", scan, following)
        end = tables if tables > 0 else following
        lost = (end - scan) // 3
        with pytest.raises(DecodeError, match="cut off"):
            values(data[: end - lost].rstrip(b"\xff") + data[end:])


def restarts(data: bytes) -> list[int]:
    return [at for at in range(len(data) - 1) if data[at] == 0xFF and 0xD0 <= data[at + 1] <= 0xD7]


@pytest.mark.parametrize("options", [{"restart_marker_rows": 1}, {"restart_marker_blocks": 3, "subsampling": 0}])
def test_restarts_must_be_all_there_and_in_order(options: dict[str, object]) -> None:
    data = scene(**options)
    marks = restarts(data)
    np.testing.assert_array_equal(values(data), np.asarray(Image.open(io.BytesIO(data))).transpose(2, 0, 1))
    np.testing.assert_array_equal(values(data + data), values(data))
    lacking = [data[:mark] + b"\xff\xd9" for mark in marks]
    lacking += [data[:one] + data[next_one:] for one, next_one in itertools.pairwise(marks)]
    lacking += [data[:one] + data[one:other] * 2 + data[other:] for one, other in itertools.pairwise(marks[:-1])]
    lacking += [data[: mark + 1] + bytes([data[mark + 1] ^ 1]) + data[mark + 2 :] for mark in marks]
    for each in lacking:
        with pytest.raises(DecodeError, match="restart markers are missing or out of order"):
            values(each)


def test_a_window_sees_that_restarts_are_missing() -> None:
    data = scene(restart_marker_rows=1)
    one, other = restarts(data)[:2]
    array = found(data)
    lacking = data[:one] + data[other:]
    decode = prepare(array.encodings[0], chunks=array.chunks, dtype=array.dtype, limits=Limits())
    with pytest.raises(DecodeError, match="restart markers are missing or out of order"):
        decode(lacking, valid=array.shape, want=(slice(0, 3), slice(0, 40), slice(0, 9)))


@pytest.mark.parametrize("cut", [130, 145, 160, 190, 205, 250, 265])
def test_a_stream_in_arithmetic_coding_that_was_cut_and_ended_is_refused(cut: int) -> None:
    # Zeros take its place, of which such coding needs few, so that this is not noticed everywhere.
    data = base64.b64decode("".join(ROUGH.split()))
    np.testing.assert_array_equal(values(data), np.asarray(Image.open(io.BytesIO(data)))[None])
    with pytest.raises(DecodeError, match="cut off"):
        values(closed(data[:cut]))


def test_components_in_scans_of_their_own_must_all_be_there() -> None:
    planes = [np.random.default_rng(n).integers(0, 255, (40, 56), np.uint8) for n in range(3)]
    encoded = [imagecodecs.jpeg8_encode(plane, 80) for plane in planes]
    frame, first = encoded[0].index(b"\xff\xc0"), encoded[0].index(b"\xff\xda")
    sizes = encoded[0][frame + 4 : frame + 9]
    head = b"\xff\xd8\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0" + encoded[0][2:frame].replace(b"JFIF", b"none")
    head += b"\xff\xc0\0\x11" + sizes + b"\3" + b"".join(bytes([k, 0x11, 0]) for k in (1, 2, 3))
    head += encoded[0][frame + 13 : first]
    scans = [b"\xff\xda\0\x08\1" + bytes([k, 0, 0, 63, 0]) + one[first + 10 : -2] for k, one in enumerate(encoded, 1)]
    whole = head + b"".join(scans) + b"\xff\xd9"
    np.testing.assert_array_equal(values(whole), np.stack([imagecodecs.jpeg8_decode(one) for one in encoded]))
    for fewer in (scans[:2], [*scans[:2], scans[2][:200]]):
        with pytest.raises(DecodeError, match="cut off"):
            values(closed(head + b"".join(fewer)))


@pytest.mark.parametrize("ending", [b"", b"\xff" * 3, b"later" * 30])
def test_a_picture_that_is_gray_itself_is_read(ending: bytes) -> None:
    data = imagecodecs.jpeg8_encode(np.full((20, 30), 128, np.uint8))
    np.testing.assert_array_equal(values(data + ending), np.full((1, 20, 30), 128))


@pytest.mark.parametrize("others", [0, 2])
def test_of_several_pictures_the_first_is_read_and_all_are_counted(others: int) -> None:
    shades = [Image.fromarray(np.full((9, 12), 60 * n, np.uint8)) for n in range(1, others + 2)]
    target = io.BytesIO()
    shades[0].save(target, "MPO", save_all=True, append_images=shades[1:], icc_profile=bytes(9000))
    seen = values(target.getvalue())
    np.testing.assert_array_equal(seen, np.asarray(Image.open(target))[None])
    assert found(target.getvalue()).attributes.get("pictures") == (others + 1 if others else None)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("trailer", [b"film" * 40 + b"\xff\xda\0\x08\1" * 200, bytes(999), b"\xff\xd9" + bytes(99)])
def test_what_a_camera_appends_is_passed_over(trailer: bytes, progressive: bool) -> None:
    data = pillow_jpeg(3, progressive=progressive)
    np.testing.assert_array_equal(values(data + trailer), values(data))


def test_a_mask_that_gdal_appended_changes_no_pixel(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    size = {"count": 1, "width": 90, "height": 70, "dtype": "uint8"}
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", **size) as image:
            image.write(np.tile(np.arange(90, dtype=np.uint8), (1, 70, 1)))
            image.write_mask(rng.random((70, 90)) < 0.5)
        rasterio.shutil.copy(tmp_path / "a.tif", tmp_path / "a.jpg", driver="JPEG")
    data = (tmp_path / "a.jpg").read_bytes()
    end = int.from_bytes(data[-4:], "little")
    assert data[end - 2 : end] == b"\xff\xd9"
    assert end < len(data) - 300
    with rasterio.open(tmp_path / "a.jpg") as image:
        np.testing.assert_array_equal(values(data), image.read())


def test_codings_that_nobody_here_decodes_are_refused_by_name() -> None:
    lossless = imagecodecs.jpeg8_encode(np.arange(99, dtype=np.uint8).reshape(9, 11), lossless=True)
    with pytest.raises(FormatError, match="a lossless JPEG in arithmetic coding is not supported"):
        found(lossless.replace(b"\xff\xc3", b"\xff\xcb"))
    with pytest.raises(FormatError, match="JPEG-LS is not supported"):
        found(imagecodecs.jpegls_encode(np.arange(99, dtype=np.uint8).reshape(9, 11)))


@pytest.mark.parametrize("marker", [b"", bytes.fromhex("ffe000104a46494600010100000100010000")])
@pytest.mark.parametrize("names", [b"RGB", b"\1\2\3", b"\0\1\2"])
def test_colours_of_a_lossless_jpeg_are_not_converted(names: bytes, marker: bytes, tmp_path: Path) -> None:
    """Whatever markers and names of components declare; the first of libjpeg's segments is removed."""
    wanted = np.random.default_rng(7).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    data = bytearray(imagecodecs.jpeg8_encode(wanted, lossless=True))
    data[2:18] = marker
    frame, scan = data.index(b"\xff\xc3"), data.index(b"\xff\xda")
    data[frame + 10 : frame + 19 : 3] = data[scan + 5 : scan + 11 : 2] = names
    np.testing.assert_array_equal(imagecodecs.ljpeg_decode(bytes(data)), wanted)
    np.testing.assert_array_equal(values(bytes(data)), wanted.transpose(2, 0, 1))
    path = tmp_path / "a.tif"
    tags = image_tags(24, 16, t258=(SHORT, [8] * 3), t259=7, t262=2, t277=3, t279=len(data))
    path.write_bytes(tiff(tags, data=bytes(data)))
    np.testing.assert_array_equal(periplus.index(path)["0/data"][...], wanted.transpose(2, 0, 1))
