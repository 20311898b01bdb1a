"""Hostile sidecar files, and hostile boxes and tags in images: ignored quickly, and the pixels are correct."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

import periplus
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures
from periplus.testing.formats.custom_tiff import ASCII, image_tags, tiff

VALUES = np.arange(72, dtype=np.uint8).reshape(1, 8, 9)
LAUGHS = '<?xml version="1.0"?><!DOCTYPE z [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
)
LAUGHS += "]>"
BOMB = (ASCII, f"{LAUGHS}<a>&j;</a>".encode() + b"\0")
OUTSIDE = '<!DOCTYPE z [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
LONG = "1" * 60_000
GEOTIFF = bytes.fromhex("b14bf8bd083d4b43a5ae8cd7d5a6ce03")


def dataset(inside: str, before: str = "") -> str:
    return f"{before}<PAMDataset>{inside}</PAMDataset>"


WORLDS: dict[str, str] = {
    "a row of digits that is no number": f"{LONG}x 0 0 -1 0 0",
    "six such rows": " ".join([f"{LONG[:10_000]}.{LONG[:500]}x"] * 6),
    "numbers without end": f"{LONG} 0 0 -1 0 0",
    "infinity": "1e999 0 0 -1 0 0",
    "an exponent without end": f"1e{LONG} 0 0 -1 0 0",
    "not a number": "nan 0 0 -1 0 0",
    "numbers that overflow": "1e308 1e308 -1e308 1e308 1e308 1e308",
    "digits of another script": "\u0661 0 0 \u0661 0 0",
    "nothing but blanks": " " * 60_000,
    "nothing but zero bytes": "\0" * 60_000,
    "too much": "1 0 0 -1 0 0 " * 60_000,
}
AUXILIARIES: dict[str, str] = {
    "entities of entities": dataset("<SRS>&j;</SRS>", LAUGHS),
    "an entity from outside": dataset("<SRS>&a;</SRS>", OUTSIDE),
    "elements in elements": dataset("<a>" * 9_000 + "</a>" * 9_000),
    "elements without end": "<PAMDataset>" + "<a>" * 20_000,
    "a transform of rows of digits": dataset(f"<GeoTransform>{','.join([LONG[:9_000] + 'x'] * 6)}</GeoTransform>"),
    "a transform of thousands": dataset(f"<GeoTransform>{'1,' * 30_000}</GeoTransform>"),
    "a transform of nothing": dataset("<GeoTransform>nan,1,0,0,0,1</GeoTransform>"),
    "an encoding that is none": "<?xml version='1.0' encoding='klingon'?><PAMDataset/>",
    "an encoding that is a compression": "<?xml version='1.0' encoding='zip'?><PAMDataset/>",
    "a CRS of brackets": dataset(
        f"<GeoTransform>0,1,0,0,0,0</GeoTransform><SRS>{'PROJCS[' * 4_000}{']' * 4_000}</SRS>"
    ),
}


def read(tmp_path, data: bytes, name: str, bounded) -> periplus.Index:
    (tmp_path / name).write_bytes(data)
    with bounded():
        return periplus.index(tmp_path / name)


@pytest.mark.parametrize(
    ("sidecar", "texts", "name"),
    [("a.pgw", WORLDS, name) for name in WORLDS] + [("a.png.aux.xml", AUXILIARIES, name) for name in AUXILIARIES],
)
def test_a_hostile_sidecar_does_not_georeference(sidecar, texts, name, tmp_path, bounded):
    (tmp_path / sidecar).write_text(texts[name])
    with read(tmp_path, pictures.png(VALUES, bits=8, colour=0), "a.png", bounded) as index:
        np.testing.assert_array_equal(index["0/data"][...], VALUES)
        assert index["0/data"].array.georeference is None


def test_numbers_of_fortran_are_read_wherever_they_are(tmp_path, bounded):
    (tmp_path / "a.png.aux.xml").write_text(dataset("<GeoTransform>5d2,1D1,0,7.5d+1,0,-1d-1</GeoTransform>"))
    with read(tmp_path, pictures.png(VALUES, bits=8, colour=0), "a.png", bounded) as index:
        assert index["0/data"].array.georeference.transform == (10, 0, 500, 0, -0.1, 75)


@pytest.mark.parametrize("text", [f"{LONG}x", f"{LONG * 15}x", f".{LONG}x", f"1.{LONG}x", f"1e{LONG}x"])
def test_rows_of_digits_in_the_metadata_of_a_tiff_are_no_numbers(text, tmp_path, bounded):
    item = f'<GDALMetadata><Item name="s" sample="0" role="scale">{text}</Item></GDALMetadata>'
    data = tiff(image_tags(9, 8, t42112=(ASCII, item.encode() + b"\0"), t42113=(ASCII, b"1" * 240 + b"x\0")),
                data=VALUES.tobytes())  # fmt: skip
    with read(tmp_path, data, "a.tif", bounded) as index:
        np.testing.assert_array_equal(index["0/data"][...], VALUES)
        assert "scale_factor" not in index["0/data"].array.attributes


def box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", len(content) + 8, kind) + content


def boxed(*extra: bytes) -> bytes:
    """A JP2 file with further boxes before its codestream."""
    header = box(b"ihdr", struct.pack(">IIHBBBB", 8, 9, 1, 7, 7, 0, 0)) + box(b"colr", b"\1\0\0\0\0\0\x11")
    front = box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ") + box(b"jp2h", header)
    return front + b"".join(extra) + box(b"jp2c", j2ks.made(VALUES))


def gml(text: str) -> bytes:
    inner = box(b"lbl ", b"gml.root-instance") + box(b"xml ", text.encode())
    return box(b"asoc", box(b"lbl ", b"gml.data") + box(b"asoc", inner))


def nested(depth: int) -> bytes:
    found = box(b"lbl ", b"gml.root-instance")
    for _ in range(depth):
        found = box(b"asoc", found)
    return found


GRID = "<RectifiedGrid srsName='{}'><pos>{}</pos><offsetVector>{}</offsetVector><offsetVector>0 -1</offsetVector>"
GRID += "</RectifiedGrid>"
BOXES: dict[str, Callable[[], bytes]] = {
    "entities of entities": lambda: gml(f"{LAUGHS}<a>&j;</a>"),
    "an entity from outside": lambda: gml(f"{OUTSIDE}<a>&a;</a>"),
    "elements in elements": lambda: gml("<a>" * 100_000 + "</a>" * 100_000),
    "a CRS without end": lambda: gml(GRID.format("urn:ogc:def:crs:EPSG:" + "1." * 200_000, "1 2", "1 0")),
    "a place without end": lambda: gml(GRID.format("EPSG:32631", f"{LONG}x 2", "1 0")),
    "a place that is no number": lambda: gml(GRID.format("EPSG:32631", "nan inf", "1 0")),
    "associations of associations": lambda: nested(20_000),
    "a TIFF that runs in a loop": lambda: box(b"uuid", GEOTIFF + b"II*\0\x08\0\0\0\0\0\x08\0\0\0"),
    "a TIFF of entities": lambda: box(
        b"uuid",
        GEOTIFF + tiff(image_tags(1, 1, t42112=(ASCII, f"{LAUGHS}<a>&j;</a>".encode() + b"\0")), data=b"x" * 16),
    ),
    "a JP2 for a TIFF": lambda: box(b"uuid", GEOTIFF + boxed()),
    "two thousand TIFFs": lambda: box(b"uuid", GEOTIFF + b"II*\0\x08\0\0\0\1\0") * 2_000,
    "a palette that is not there": lambda: box(b"jp2h", box(b"pclr", struct.pack(">HB", 1024, 255))),
}


@pytest.mark.parametrize("name", BOXES)
def test_hostile_boxes_do_not_georeference(name, tmp_path, bounded):
    with read(tmp_path, boxed(BOXES[name]()), "a.jp2", bounded) as index:
        np.testing.assert_array_equal(index["0/data"][...], VALUES)
        assert index["0/data"].array.georeference is None


def entry(tag: int, kind: int, count: int, value: int) -> bytes:
    return struct.pack("<HHII", tag, kind, count, value)


def exif(*entries: bytes, following: int = 0) -> bytes:
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + b"".join(entries) + struct.pack("<I", following)


EXIFS: dict[str, bytes] = {
    "a directory that is its own": exif(entry(0x8769, 4, 1, 8), entry(0x8825, 4, 1, 8)),
    "a directory that follows itself": exif(following=8),
    "4 GiB of text": exif(entry(0x0132, 2, 2**32 - 1, 8)),
    "a directory outside": exif(entry(0x8769, 4, 1, 2**32 - 1)),
    "five thousand directories": exif(*[entry(0x8769, 4, 1, 8)] * 5_000),
    "a place by zero": exif(entry(0x8825, 4, 1, 8), entry(2, 5, 3, 8), entry(4, 5, 3, 8)),
}


@pytest.mark.parametrize("name", EXIFS)
def test_hostile_exif_is_ignored(name, tmp_path, bounded):
    picture, tags = pictures.jpegs()["gray"](), EXIFS[name]
    marker = b"\xff\xe1" + struct.pack(">H", len(tags) + 8) + b"Exif\0\0" + tags
    with (
        read(tmp_path, picture, "plain.jpg", bounded) as plain,
        read(tmp_path, picture[:2] + marker + picture[2:], "a.jpg", bounded) as index,
        read(tmp_path, pictures.png(VALUES, bits=8, colour=0, chunks=[(b"eXIf", tags)]), "a.png", bounded) as other,
    ):
        np.testing.assert_array_equal(index["0/data"][...], plain["0/data"][...])
        np.testing.assert_array_equal(other["0/data"][...], VALUES)


def test_extensions_that_all_images_share_are_not_repeated(tmp_path, bounded):
    records = nitfs.tre("BLOCKA", b"0" * 123) * 4_096
    data = nitfs.nitf(*[nitfs.ImageSegment(values=VALUES, overflow=1)] * 400, extensions=[records])
    (tmp_path / "a.ntf").write_bytes(data)
    with bounded(seconds=4), pytest.raises(periplus.FormatError, match="too many others"):
        periplus.index(tmp_path / "a.ntf")


def test_an_extension_that_overflows_into_itself_or_nowhere_ends(tmp_path, bounded):
    records = nitfs.tre("BLOCKA", b"0" * 123)
    for number in (1, 2, 999):
        data = nitfs.nitf(nitfs.ImageSegment(values=VALUES, overflow=number), extensions=[records])
        with read(tmp_path, data, f"{number}.ntf", bounded) as index:
            np.testing.assert_array_equal(index["0/data"][...], VALUES)


@pytest.mark.parametrize("harm", ["itself", "larger", "cut", "another format", "empty"])
def test_hostile_r_sets_are_ignored(harm, tmp_path, bounded):
    good = nitfs.nitf(nitfs.ImageSegment(values=VALUES))
    small = nitfs.nitf(nitfs.ImageSegment(values=np.ascontiguousarray(VALUES[:, ::2, ::2])))
    harmed = {
        "itself": good,
        "larger": nitfs.nitf(nitfs.ImageSegment(values=np.tile(VALUES, (1, 2, 2)))),
        "cut": small[:-9],
        "another format": pictures.png(VALUES, bits=8, colour=0),
        "empty": b"",
    }[harm]
    for number in range(1, 12):
        (tmp_path / f"a.ntf.r{number}").write_bytes(harmed)
    with read(tmp_path, good, "a.ntf", bounded) as index:
        assert list(index.arrays) == ["0/data"]
        np.testing.assert_array_equal(index["0/data"][...], VALUES)
