"""Colour spaces of JPEG in TIFF, by the photometric tag and the stream's markers, as in GDAL, Pillow and tifffile."""

import io
import struct
from collections.abc import Iterator
from functools import lru_cache

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image
from rasterio.io import MemoryFile

import periplus
from periplus.errors import DecodeError
from periplus.testing.formats.custom_tiff import LONG, SHORT, image_tags, tiff

OLD, NEW = 6, 7
GRAY, RGB, CMYK, YCBCR = 1, 2, 5, 6
JFIF = {0xE0: b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"}
HEIGHT, WIDTH = 48, 40
NEAR = 8
"""Mean difference of decoders that agree, with any chroma upsampling; another colour space gives ten times that."""


def adobe(transform: int) -> dict[int, bytes]:
    return {0xEE: b"Adobe\0\x64\0\0\0\0" + bytes([transform])}


@lru_cache
def picture(samples: int = 3) -> np.ndarray:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [127 + 110 * np.sin((n + 1) * x / 20 + (3 - n) * y / 25 + n) for n in range(samples)]
    return np.stack(waves, -1).astype(np.uint8)


def segments(stream: bytes) -> Iterator[tuple[int, bytes]]:
    """Markers and their contents; the last is the scan with all that follows."""
    at = 2
    while stream[at + 1] != 0xDA:
        length = int.from_bytes(stream[at + 2 : at + 4], "big")
        yield stream[at + 1], stream[at + 4 : at + 2 + length]
        at += 2 + length
    yield 0xDA, stream[at + 4 :]


def encoded(values: np.ndarray, *, stored: str, markers: dict[int, bytes], names: bytes, subsampling: str) -> bytes:
    """A stream of that colour space with these markers and identifiers of its components."""
    space = {3: "RGB", 4: "CMYK"}[values.shape[2]]
    kind = {"colorspace": space, "outcolorspace": stored, "subsampling": subsampling}
    pieces = [b"\xff\xd8"]
    found = [*markers.items(), *segments(imagecodecs.jpeg8_encode(np.ascontiguousarray(values), 95, **kind))]
    for marker, content in found:
        if marker in (0xE0, 0xEE) and (marker, content) not in markers.items():
            continue
        body = bytearray(content)
        if marker == 0xC0:
            body[6::3] = names
        elif marker == 0xDA:
            body[1 : 1 + 2 * len(names) : 2] = names
        length = 6 + 2 * len(names) if marker == 0xDA else len(body) + 2
        pieces.append(struct.pack(">BBH", 0xFF, marker, length) + body)
    return b"".join(pieces)


def made(
    compression: int, photometric: int | None, *, stored: str = "YCBCR", markers: dict[int, bytes] | None = None,
    names: bytes = b"\1\2\3", subsampling: str = "444", strips: int = 1, samples: int = 3,
) -> bytes:  # fmt: skip
    rows = HEIGHT // strips
    options = {"stored": stored, "markers": markers or {}, "names": names, "subsampling": subsampling}
    streams = [encoded(picture(samples)[n : n + rows], **options) for n in range(0, HEIGHT, rows)]
    starts = np.cumsum([8, *map(len, streams)])[:-1].tolist()
    tags = image_tags(
        WIDTH, HEIGHT, t258=(SHORT, [8] * samples), t259=(SHORT, [compression]), t277=(SHORT, [samples]), t278=rows,
        t262=None if photometric is None else (SHORT, [photometric]), t273=(LONG, starts),
        t279=(LONG, [len(stream) for stream in streams]),
    )  # fmt: skip
    if photometric == YCBCR:
        tags[530] = (SHORT, [1, 1] if subsampling == "444" else [2, 2])
    if compression == OLD:
        tags |= {513: (LONG, starts), 514: (LONG, [len(streams[0])])}
    return tiff(tags, data=b"".join(streams))


def read(data: bytes, folder) -> np.ndarray:
    path = folder / "a.tif"
    path.write_bytes(data)
    return periplus.index(str(path))["0/data"][...]


def peers(data: bytes) -> dict[str, np.ndarray]:
    with MemoryFile(data) as memory, memory.open() as raster:
        found = {"gdal": raster.read()}
    with Image.open(io.BytesIO(data)) as image:
        found["pillow"] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        found["tifffile"] = file.pages[0].asarray().transpose(2, 0, 1)
    return found


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(int) - other).mean())


AGREED = {
    "old-rgb-jfif": (OLD, RGB, {"markers": JFIF}),
    "old-rgb-jfif-420": (OLD, RGB, {"markers": JFIF, "subsampling": "420"}),
    "old-rgb-adobe": (OLD, RGB, {"markers": adobe(1)}),
    "old-rgb-bare": (OLD, RGB, {}),
    "old-ycbcr-jfif": (OLD, YCBCR, {"markers": JFIF}),
    "old-untagged-bare": (OLD, None, {}),
    "new-ycbcr-jfif": (NEW, YCBCR, {"markers": JFIF, "strips": 3}),
    "new-ycbcr-adobe": (NEW, YCBCR, {"markers": adobe(1), "subsampling": "420"}),
    "new-ycbcr-bare": (NEW, YCBCR, {"subsampling": "420", "strips": 3}),
    "new-rgb-bare": (NEW, RGB, {"stored": "RGB", "strips": 3}),
    "new-rgb-names": (NEW, RGB, {"stored": "RGB", "names": b"RGB"}),
    "new-rgb-adobe": (NEW, RGB, {"stored": "RGB", "markers": adobe(0)}),
    "new-rgb-other-adobe": (NEW, RGB, {"stored": "RGB", "markers": adobe(1)}),
}


@pytest.mark.parametrize("name", AGREED)
def test_colours_are_those_all_readers_agree_on(name: str, tmp_path) -> None:
    compression, photometric, options = AGREED[name]
    data = made(compression, photometric, **options)
    values = read(data, tmp_path)
    assert apart(values, picture().transpose(2, 0, 1)) < NEAR
    for reader, theirs in peers(data).items():
        assert apart(values, theirs) < NEAR, reader


@pytest.mark.parametrize(
    ("photometric", "options"),
    [(GRAY, {"markers": JFIF}), (None, {"markers": adobe(1)}), (GRAY, {"stored": "RGB", "markers": adobe(0)}),
     (GRAY, {"stored": "RGB", "names": b"\0\1\2"}), (None, {"stored": "RGB", "names": b"RGB"}),
     (RGB, {"markers": JFIF, "subsampling": "420"})],
)  # fmt: skip
def test_markers_decide_where_the_tag_does_not_or_cannot(photometric: int | None, options: dict, tmp_path) -> None:
    values = read(made(NEW, photometric, **options), tmp_path)
    assert apart(values, picture().transpose(2, 0, 1)) < NEAR


@pytest.mark.parametrize("markers", [{"markers": adobe(0)}, {"names": b"RGB"}])
def test_an_old_stream_that_declares_rgb_like_its_tag_is_rgb(markers: dict, tmp_path) -> None:
    # libtiff takes it for YCbCr all the same; tifffile does not.
    data = made(OLD, RGB, stored="RGB", **markers)
    values = read(data, tmp_path)
    assert apart(values, picture().transpose(2, 0, 1)) < NEAR
    assert apart(values, peers(data)["tifffile"]) < NEAR


@pytest.mark.parametrize(
    ("photometric", "options", "why"),
    [
        (RGB, {"markers": JFIF}, "is YCbCr by its markers, but RGB by the photometric tag"),
        (YCBCR, {"stored": "RGB", "markers": adobe(0)}, "is RGB by its markers, but YCbCr by the photometric tag"),
        (YCBCR, {"stored": "RGB", "names": b"RGB"}, "is RGB by its markers, but YCbCr by the photometric tag"),
        (RGB, {"subsampling": "420"}, "components of different resolutions"),
        (GRAY, {"subsampling": "420"}, "components of different resolutions"),
    ],
)
def test_streams_on_which_readers_differ_are_refused(photometric: int, options: dict, why: str, tmp_path) -> None:
    with pytest.raises(DecodeError, match=why):
        read(made(NEW, photometric, **options), tmp_path)


def test_inks_in_ycck_are_refused(tmp_path) -> None:
    plain = {"names": b"\1\2\3\4", "samples": 4}
    assert read(made(NEW, CMYK, stored="CMYK", **plain), tmp_path).shape == (4, HEIGHT, WIDTH)
    with pytest.raises(DecodeError, match="YCCK"):
        read(made(NEW, CMYK, stored="YCCK", markers=adobe(2), **plain), tmp_path)
