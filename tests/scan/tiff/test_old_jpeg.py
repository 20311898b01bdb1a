"""Old-style JPEG whose strips are pieces of streams: tables and sizes are in tags, or in a stream of their own."""

import struct

import imagecodecs
import numpy as np
import pytest
import rasterio

import periplus
from periplus.parse.jpeg import segments
from periplus.testing.formats.custom_tiff import LONG, SHORT, image_tags, tiff

WIDTH, STRIPS = 50, 3


def strips(factors, rows):
    """The tables, and the data of every strip, of a picture of noisy colours."""
    rng = np.random.default_rng(rows)
    y, x = np.mgrid[: STRIPS * rows - 5, :WIDTH]
    values = np.stack([128 + 90 * np.sin(x / 5 + k) + 30 * np.cos(y / 4 - k) for k in range(3)], axis=-1)
    values = np.clip(values + rng.normal(0, 6, values.shape), 0, 255).astype(np.uint8)
    subsampling = {(1, 1): "444", (2, 1): "422", (2, 2): "420"}[factors]
    streams = [
        imagecodecs.jpeg8_encode(values[first : first + rows], level=80, subsampling=subsampling)
        for first in range(0, len(values), rows)
    ]
    found = [list(segments(stream)) for stream in streams]
    data = [stream[at + 4 + len(body) : -2] for stream, ((*_, (_, at, body))) in zip(streams, found, strict=True)]
    return values.shape[0], found[0], data


def _tall(frame, height):
    return bytes(frame[:1]) + struct.pack(">H", height) + bytes(frame[3:])


def written(factors, rows, form, order="<"):
    """A file with the tables in tags, or with the segments in a stream and the scan's in the first strip."""
    height, found, data = strips(factors, rows)
    found = [(m, at, _tall(body, height) if m == 0xC0 else bytes(body)) for m, at, body in found]
    pieces = {"data": b"", "at": 8}

    def put(piece):
        pieces["data"] += piece
        return 8 + len(pieces["data"]) - len(piece)

    tags = {}
    if form == "tags":
        quantised = [put(bytes(body[1:65])) for marker, _, body in found if marker == 0xDB]
        if len(quantised) == 1:  # libjpeg puts both tables into one segment
            (body,) = (bytes(body) for marker, _, body in found if marker == 0xDB)
            quantised = [put(body[1:65]), put(body[66:130])]
        huffman = {}
        for marker, _, body in found:
            body = bytes(body)
            while marker == 0xC4 and body:
                size = 17 + sum(body[1:17])
                huffman[body[0]] = put(body[1:size])
                body = body[size:]
        for number, (luma, chroma) in (
            (519, quantised),
            (520, (huffman[0], huffman[1])),
            (521, (huffman[16], huffman[17])),
        ):
            tags[f"t{number}"] = (LONG, [luma, chroma, chroma])
    else:
        segment = lambda marker, body: struct.pack(">BBH", 0xFF, marker, len(body) + 2) + bytes(body)  # noqa: E731
        tables = b"\xff\xd8" + b"".join(segment(m, body) for m, _, body in found if m in (0xDB, 0xC4, 0xC0))
        tags |= {"t513": put(tables), "t514": len(tables)}
        data[0] = segment(0xDA, found[-1][2]) + data[0]
    offsets = [put(piece) for piece in data]
    tags |= {"t258": (SHORT, [8] * 3), "t259": (SHORT, [6]), "t262": (SHORT, [6]), "t277": (SHORT, [3]),
             "t278": rows, "t273": (LONG, offsets), "t279": (LONG, [len(piece) for piece in data]),
             "t512": (SHORT, [1]), "t530": (SHORT, list(factors))}  # fmt: skip
    return tiff(image_tags(WIDTH, height, **tags), data=pieces["data"], order=order)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["tags", "stream"])
@pytest.mark.parametrize(("factors", "rows"), [((1, 1), 8), ((2, 1), 24), ((2, 2), 16)])
def test_pixels_are_those_of_libtiff(factors, rows, form, order, tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(written(factors, rows, form))
    with rasterio.open(path) as dataset:
        truth = dataset.read()
    # libtiff loses its way after the first strip of a big-endian file, so that the truth is that of the other order.
    path.write_bytes(written(factors, rows, form, order))
    index = periplus.index(path)
    np.testing.assert_array_equal(index["0/data"][...], truth)
    np.testing.assert_array_equal(index["0/data"][:, rows + 3 : rows + 9, 7:20], truth[:, rows + 3 : rows + 9, 7:20])
    assert index["0/data"].attrs["photometric"] == "rgb"


def test_what_is_cut_off_or_lacks_tables_is_refused(tmp_path):
    path = tmp_path / "a.tif"
    data = written((2, 1), 24, "tags")
    path.write_bytes(data.replace(struct.pack("<HHI", 521, LONG, 3), struct.pack("<HHI", 522, LONG, 3)))
    with pytest.raises(periplus.FormatError, match="lacks tables"):
        periplus.index(path)
    *_, pieces = strips((2, 1), 24)
    counts = struct.pack("<3I", *(len(piece) for piece in pieces))
    short = struct.pack("<3I", *(len(piece) // 2 for piece in pieces))
    assert data.count(counts) == 1
    path.write_bytes(data.replace(counts, short))
    with pytest.raises(periplus.DecodeError, match="cut off"):
        periplus.index(path)["0/data"][...]
