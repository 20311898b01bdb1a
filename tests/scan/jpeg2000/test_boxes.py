"""Boxes of JP2 and JPX files: lengths of every form, palettes, alpha, several codestreams, pieces."""

import struct
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.shutil
from rasterio.io import MemoryFile

import periplus
from periplus.errors import FormatError
from periplus.model import About
from periplus.scan.drive import scan_bytes
from periplus.scan.jpeg2000.boxes import GEOTIFF
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats.custom_tiff import DOUBLE, image_tags, tiff

HEADER = b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0\0\0\x14ftypjp2 \0\0\0\0jp2 "
SIZE = {"blockxsize": 64, "blockysize": 64}


FILES = Path(__file__).parents[2] / "decode" / "files"


def box(kind: bytes, content: bytes, form: str = "short") -> bytes:
    if form == "long":
        return struct.pack(">I4sQ", 1, kind, 16 + len(content)) + content
    return struct.pack(">I4s", 0 if form == "open" else 8 + len(content), kind) + content


def described(components: int, *more: bytes, size: tuple[int, int] = (96, 128)) -> bytes:
    """A header box: its image, its colours, and what else."""
    image = box(b"ihdr", struct.pack(">IIHBBBB", *size, components, 7, 7, 0, 0))
    colours = box(b"colr", b"\x01\0\0" + struct.pack(">I", 16 if components >= 3 else 17))
    return box(b"jp2h", image + colours + b"".join(more))


def codestream(components: int = 1, seed: int = 0) -> tuple[np.ndarray, bytes]:
    values = np.roll(j2ks.picture(components, "u1", 96, 128), seed, axis=2)
    return values, j2ks.made(values, PROGRESSION="RPCL", TILEPARTS="RESOLUTIONS", **SIZE)


@pytest.mark.parametrize("form", ["short", "long", "open"])
@pytest.mark.parametrize("components", [1, 3])
def test_boxes_have_three_forms_of_length(form: str, components: int) -> None:
    values, stream = codestream(components)
    data = HEADER + described(components) + box(b"free", bytes(40), "long") + box(b"jp2c", stream, form)
    items = j2ks.found(data)
    assert len(items) == 3
    assert np.array_equal(j2ks.read(data, items[0]), values)
    for item in items:
        assert np.array_equal(j2ks.read(data, item), j2ks.pillow(stream, item.array.level))
    with MemoryFile(data) as memory, memory.open() as raster:
        assert np.array_equal(raster.read(), values)


def test_every_codestream_of_a_file_is_an_image() -> None:
    pictures = [codestream(1, 0), codestream(3, 5), codestream(1, 9)]
    boxes = [box(b"jp2c", stream, form) for (_, stream), form in zip(pictures, ("short", "long", "open"), strict=True)]
    data = HEADER + described(1) + b"".join(boxes)
    items = j2ks.found(data)
    assert [item.array.name for item in items] == [
        f"{prefix}{level}/data" for prefix in ("", "images/1/", "images/2/") for level in range(3)
    ]
    for item, (values, stream) in zip(items[::3], pictures, strict=True):
        assert np.array_equal(j2ks.read(data, item), values)
        assert np.array_equal(j2ks.read(data, items[items.index(item) + 1]), j2ks.pillow(stream, 1))


@pytest.mark.parametrize("columns", [3, 4])
def test_palettes_are_reported_and_not_applied(columns: int) -> None:
    values, stream = codestream()
    colours = [tuple((n * (column + 1)) % 256 for column in range(columns)) for n in range(256)]
    palette = box(b"pclr", struct.pack(">HB", 256, columns) + b"\x07" * columns + b"".join(map(bytes, colours)))
    mapped = box(b"cmap", b"".join(struct.pack(">HBB", 0, 1, column) for column in range(columns)))
    data = HEADER + described(1, palette, mapped) + box(b"jp2c", stream)
    item = j2ks.found(data)[0]
    assert np.array_equal(j2ks.read(data, item), values)
    assert item.array.attributes["colormap"] == [list(colour[:3]) for colour in colours]
    assert item.array.attributes.get("colormap_alpha") == (None if columns == 3 else [c[3] for c in colours])
    applied = j2ks.pillow(data) if columns == 3 else None
    if applied is not None and applied.shape[0] == 3:
        assert np.array_equal(np.moveaxis(np.array(colours, np.uint8)[values[0]], -1, 0), applied)


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ([(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 1, 0)], ["alpha"]),
        ([(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 2, 0)], ["associated_alpha"]),
        ([(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 0)], None),
        ([(0, 1, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3)], None),
        ([(9, 1, 0)], None),
    ],
)
def test_alpha_is_reported(channels: list[tuple[int, int, int]], expected: list[str] | None) -> None:
    values, stream = codestream(4)
    rows = b"".join(struct.pack(">HHH", *channel) for channel in channels)
    data = HEADER + described(4, box(b"cdef", struct.pack(">H", len(channels)) + rows)) + box(b"jp2c", stream)
    item = j2ks.found(data)[0]
    assert item.array.attributes.get("extra_samples") == expected
    assert np.array_equal(j2ks.read(data, item), values)


def test_alpha_as_gdal_writes_it() -> None:
    values = j2ks.picture(4, "u1", 96, 128)
    data = j2ks.made(values, CODEC="JP2", photometric="RGB", ALPHA="YES", **SIZE)
    assert b"cdef" in data
    assert j2ks.found(data)[0].array.attributes["extra_samples"] == ["alpha"]


def test_colours_are_reported_as_the_values_have_them() -> None:
    _, stream = codestream(3)
    image = box(b"ihdr", struct.pack(">IIHBBBB", 96, 128, 3, 7, 7, 0, 0))
    profile = box(b"colr", b"\x02\0\0" + bytes(40))

    def photometric(data: bytes, *boxes: bytes) -> str | None:
        found = j2ks.found(HEADER + box(b"jp2h", image + b"".join(boxes)) + box(b"jp2c", data))
        return found[0].array.attributes.get("photometric")

    numbered = {number: box(b"colr", b"\x01\0\0" + struct.pack(">I", number)) for number in (0, 16, 17, 18)}
    assert [photometric(stream, numbered[number]) for number in numbered] == [None, "rgb", "min_is_black", "ycbcr"]
    assert photometric(stream, profile) is None
    assert photometric(stream, profile, numbered[16]) == "rgb"
    assert photometric(stream) is None
    # Chroma of half the resolution is turned into colours when it is read.
    assert photometric((FILES / "steps-chroma.j2k").read_bytes(), numbered[18]) == "rgb"
    assert photometric(stream, box(b"colr", b"\1")) is None


def test_broken_boxes_are_refused_or_passed_over() -> None:
    _, stream = codestream()
    with pytest.raises(FormatError, match="in fragments"):
        j2ks.found(HEADER + described(1) + box(b"ftbl", box(b"flst", bytes(16))))
    with pytest.raises(FormatError, match="holds no codestream"):
        j2ks.found(HEADER + described(1))
    for length in (2, 7):
        with pytest.raises(FormatError, match=f"a length of {length} bytes"):
            j2ks.found(HEADER + struct.pack(">I4s", length, b"free") + box(b"jp2c", stream))
    with pytest.raises(FormatError, match="a length of 15 bytes"):
        j2ks.found(HEADER + struct.pack(">I4sQ", 1, b"free", 15) + box(b"jp2c", stream))
    with pytest.raises(FormatError, match="past the end"):
        j2ks.found(HEADER + struct.pack(">I4sQ", 1, b"free", 1 << 60) + box(b"jp2c", stream))
    for inner in (box(b"cdef", b"\0\x05"), box(b"pclr", b"\0"), b"\0\0\0\x01abcd", box(b"pclr", b"\xff\xff\x03\7\7\7")):
        data = HEADER + described(1, inner) + box(b"jp2c", stream)
        kind = "palette" if b"pclr" in inner else "min_is_black"
        assert j2ks.found(data)[0].array.attributes == {"photometric": kind}
        assert len(lost(data)) == 1


def lost(data: bytes) -> list[str]:
    """The metadata of a file that could not be read."""
    return next((s.attributes.get("refused", []) for s in scan_bytes(data) if isinstance(s, About)), [])


def test_georeferencing_that_cannot_be_read_is_reported() -> None:
    _, stream = codestream()

    def unread(*boxes: bytes) -> list[str]:
        return lost(HEADER + described(1) + b"".join(boxes) + box(b"jp2c", stream))

    assert unread() == []
    assert "GeoJP2" in unread(box(b"uuid", GEOTIFF + b"II*\0" + bytes(20)))[0]
    flat = tiff(image_tags(1, 1, t33550=(DOUBLE, [0.0] * 3), t33922=(DOUBLE, [0.0] * 6)), data=b"\0")
    assert "do not give a transform" in unread(box(b"uuid", GEOTIFF + flat))[0]
    labelled = box(b"lbl ", b"gml.root-instance") + box(b"xml ", b"<FeatureCollection>")
    assert "GMLJP2" in unread(box(b"asoc", labelled))[0]
    assert "too large" in unread(box(b"asoc", bytes(4 << 20) + b"\0"))[0]


def test_what_is_broken_behind_the_pixels_does_not_harm_them() -> None:
    values, stream = codestream()
    data = HEADER + described(1) + box(b"jp2c", stream)
    for rest in (struct.pack(">I4s", 9_999, b"dstr") + bytes(20), struct.pack(">I4s", 3, b"junk"), b"\0\0"):
        with MemoryFile(data + rest) as memory, memory.open() as raster:
            assert np.array_equal(raster.read(), values)
        assert np.array_equal(j2ks.read(data + rest, j2ks.found(data + rest)[0]), values)
    # It may have held the georeference.
    with pytest.raises(FormatError, match="past the end of the file"):
        j2ks.found(data + struct.pack(">I4s", 9_999, b"uuid") + bytes(20))


@pytest.mark.parametrize("lossy", [False, True])
def test_an_alpha_of_one_bit_is_0_and_255_as_in_gdal(lossy: bool, tmp_path) -> None:
    values = np.concatenate([j2ks.picture(3, "u1", 96, 80), np.zeros((1, 96, 80), np.uint8)])
    values[3, 20:70, 30:60] = 255
    source, path = tmp_path / "a.tif", tmp_path / "a.jp2"
    size = {"height": 96, "width": 80, "count": 4, "dtype": "uint8"}
    with rasterio.open(source, "w", driver="GTiff", photometric="RGB", ALPHA="YES", **size) as dataset:
        dataset.write(values)
    quality = {"QUALITY": "30", "REVERSIBLE": "NO"} if lossy else {"QUALITY": "100", "REVERSIBLE": "YES"}
    options = {"1BIT_ALPHA": "YES", "CODEC": "JP2", **quality}
    rasterio.shutil.copy(source, path, driver="JP2OpenJPEG", **options)
    index = periplus.index(path)
    with rasterio.open(path) as dataset:
        truth = dataset.read()
    assert set(np.unique(truth[3])) == {0, 255}
    np.testing.assert_array_equal(index["0/data"][...], truth)
    assert index["0/data"].attrs["extra_samples"] == ["alpha"]
    # Others know the codec, but not this setting.
    assert index.store(codecs="all").layout.leaves["0/data"].kind == "ours"
