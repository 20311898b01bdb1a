"""Every refusal that docs/refusals.md names happens, with the words it gives."""

import re
import struct
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

import periplus
from periplus.decode.tiff.codec import REFUSED
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures
from periplus.testing.formats.custom_tiff import ASCII, SHORT, image_tags, tiff

PAGE = (Path(__file__).parent.parent.parent / "docs" / "refusals.md").read_text()
BOMB = b'<!DOCTYPE x [<!ENTITY a "b">]><GDALMetadata><Item name="x">&a;</Item></GDALMetadata>'


def refusal(folder, data, **limits):
    """(kind, message) of indexing and reading a file."""
    path = folder / "a.tif"
    path.write_bytes(data)
    with pytest.raises(periplus.PeriplusError) as caught:
        periplus.index(path, limits=periplus.Limits(**limits))["0/data"][...]
    return caught.value.kind, caught.value.message


def documented(kind, message):
    """Whether the page has the error, or a beginning or end of it that tells it apart."""
    said = [" ".join(words.split()) for words in re.findall(rf"`{kind}`: ([^|\n]+?) *(?=\||$)", PAGE, re.MULTILINE)]
    return any(words in message for words in said)


def image(width=4, height=4, **changes):
    return tiff(image_tags(width, height, **changes), data=bytes(64))


def coloured(stored, photometric, subsampling="444", *, bare=False, lossless=False):
    """A TIFF with a JPEG stream of that colour space; `bare` is without its first marker, which declares it."""
    bands = 4 if stored == "YCCK" else 3
    colours = {"colorspace": "CMYK" if bands == 4 else "RGB", "outcolorspace": stored, "subsampling": subsampling}
    data = imagecodecs.jpeg8_encode(np.zeros((16, 16, bands), np.uint8), lossless=lossless, **colours)
    data = data[:2] + data[20:] if bare else data
    changes = {"t258": (SHORT, [8] * bands), "t277": bands, "t262": photometric, "t279": len(data)}
    return tiff(image_tags(16, 16, t259=7, **changes), data=data)


@pytest.mark.parametrize("number", sorted(REFUSED))
def test_each_compression_we_refuse_is_named_by_number(tmp_path, number):
    kind, message = refusal(tmp_path, image(t259=number))
    assert kind == "format"
    assert str(number) in message
    assert documented(kind, message), message
    assert f"| {number} |" in PAGE


def test_no_other_compression_is_said_to_be_refused():
    numbers = {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    # Old-style JPEG is refused in pieces only.
    assert numbers == {*REFUSED, 6}


@pytest.mark.parametrize(
    "data",
    [
        image(t259=32898),
        image(t259=6),
        coloured("YCBCR", photometric=2),
        coloured("YCBCR", photometric=2, subsampling="420", bare=True),
        coloured("YCCK", photometric=5),
        coloured("RGB", photometric=6, lossless=True),
        image(t259=5, t279=5000),
        tiff(image_tags(4, 12, t278=4), data=bytes(48)),
        image(t273=None),
        image(t277=2, t258=(SHORT, [8, 16])),
        image(t258=(SHORT, [24]), t339=6),
        image(t42112=(ASCII, BOMB)),
        image(8, 8, t259=32773),
        image(t262=6, t277=3, t258=(SHORT, [8, 8, 8]), t284=2, t530=(SHORT, [2, 2]), t273=(SHORT, [8, 24, 40]),
              t279=(SHORT, [16, 16, 16])),
        image(t262=6, t277=3, t258=(SHORT, [8, 8, 8]), t259=5, t317=2, t530=(SHORT, [2, 2]), t279=24),
        tiff(image_tags(4, 4, t258=(SHORT, [16]), t259=50002), data=bytes(64), order=">"),
    ],
)  # fmt: skip
def test_files_that_do_not_hold_together(tmp_path, data):
    kind, message = refusal(tmp_path, data)
    assert documented(kind, message), f"{kind}: {message}"


def changed(data, start, *values):
    """The bytes with others from a position on."""
    return data[:start] + bytes(values) + data[start + len(values) :]


def test_pictures_and_cells_that_do_not_hold_together(tmp_path):
    cell, picture = dteds.cell(dteds.heights("refused")), pictures.jpegs()["rgb"]()
    frame, still = picture.index(b"\xff\xc0"), pictures.png(np.zeros((1, 9, 9), np.uint8), bits=8, colour=0)
    for data in (
        cell[:-1],
        changed(cell, 3440, 0x7F, 0x7F),
        changed(picture, frame, 0xFF, 0xC5),
        changed(picture, frame, 0xFF, 0xF7),
        changed(picture, frame + 5, 0, 0),
        picture[: len(picture) * 2 // 3],
        picture[: len(picture) * 2 // 3] + b"\xff\xd9",
        pictures.jpegs()["rgb-restarts"]().replace(b"\xff\xd0", b"\xff\xd3"),
        changed(still, still.index(b"IDAT") + 4, 0),
        pictures.png(np.zeros((1, 9, 9), np.uint8), bits=8, colour=3, chunks=[(b"PLTE", bytes(7))]),
        pictures.png(np.zeros((1, 9, 1_000_001), np.uint8), bits=8, colour=0),
    ):
        kind, message = refusal(tmp_path, data)
        assert documented(kind, message), f"{kind}: {message}"


def codestreams():
    """(a word of its line, bytes, limits) for every line of the table of JPEG 2000."""
    tiled, lossy = j2ks.layout("tiled"), j2ks.layout("lossy")
    header, parts = j2ks.split(tiled)
    style = lossy.index(b"\xff\x52")
    small = j2ks.made(j2ks.picture(1, "u1", 64, 64), PRECINCTS="{32,32}", RESOLUTIONS=2)
    tiny = bytearray(changed(small, small.index(b"\xff\x52") + 14, 0x11, 0x11))
    struct.pack_into(">8I", tiny, 8, 8_000, 8_000, 0, 0, 8_000, 8_000, 0, 0)
    boxes = b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0\0\0\x14ftypjp2 \0\0\0\0jp2 " + b"\0\0\0\x08ftbl"
    half = changed(tiled, 45, 7, 2, 2, 7, 2, 2)
    yield "5 of its 6", header + b"".join(part.data for part in parts[:5]) + b"\xff\xd9", {}
    yield "ends past", tiled[: len(tiled) // 2], {}
    yield "does not have", header + bytes.fromhex("ff5e0005030000") + tiled[len(header) :], {}
    yield "out of order", header + b"".join(part.data for part in (*parts, parts[0])) + b"\xff\xd9", {}
    joint = changed(tiled, tiled.index(b"\xff\x52") + 8, 1)
    yield "without a sign", changed(joint, 45, 0x87), {}
    yield "38 bits", changed(tiled, 42, 37, 1, 1, 37, 1, 1, 37), {}
    yield "whole steps", changed(half, 16, 0, 0, 0, 1), {}
    yield "together", changed(changed(lossy, 45, 3), style + 8, 1), {}
    yield "part 2", changed(tiled, tiled.index(b"\xff\x52") + 9, 0x82), {}
    yield "wavelets", changed(tiled, tiled.index(b"\xff\x52") + 13, 2), {}
    yield "fragments", boxes, {}
    yield "packets", bytes(tiny), {}
    yield "while it is decoded", tiled, {"memory_bytes": 128 * 128 * 3}


def test_codestreams_that_are_refused(tmp_path):
    for word, data, limits in codestreams():
        kind, message = refusal(tmp_path, data, **limits)
        assert word in message
        assert documented(kind, message), f"{kind}: {message}"


def nitf_files():
    """A file for every line of the table of NITF, by a word of it."""
    plain, bits = nitfs.values_of("u8", 1), nitfs.values_of("b1", 1, (72, 96))
    stream = imagecodecs.jpeg8_encode(plain[0], 80)
    at = stream.index(b"\xff\xdb")
    bare = stream[:at] + stream[at + 69 :]
    short = imagecodecs.jpeg2k_encode(plain[0, :40], level=0, codecformat="j2k")
    coded = {"streams": [stream], "coding": "C3"}
    items = {
        "compression C7": nitfs.ImageSegment(values=plain, streams=[b"x"], coding="C7"),
        "do not cover": nitfs.ImageSegment(values=plain, changes={"NCOLS": "00000091"}),
        "65 bits": nitfs.ImageSegment(values=plain, changes={"NBPP": "65"}),
        "do not fit": nitfs.ImageSegment(values=plain, changes={"NBPP": "16"}),
        "overlap": nitfs.ImageSegment(values=plain, block=(36, 90), masked=True, streams=[b"x" * 3000, b"x" * 3240]),
        "mask": nitfs.ImageSegment(values=plain, masked=True),
        "no tables": nitfs.ImageSegment(values=plain, streams=[bare], coding="C3", changes={"COMRAT": "01.1"}),
        "JPEG streams": nitfs.ImageSegment(values=np.tile(plain, 2), block=(72, 90), **coded),
        "fax": nitfs.ImageSegment(values=bits, kind="b1", block=(24, 48), streams=[b"x"], coding="C1",
                             changes={"COMRAT": "1D  "}),
        "quantisation": nitfs.ImageSegment(values=plain, streams=[b"x" * 9], coding="C4"),
        "codestream": nitfs.ImageSegment(values=plain, streams=[short], coding="C8"),
    }  # fmt: skip
    return {word: nitfs.nitf(*([] if item is None else [item])) for word, item in items.items()}


@pytest.mark.parametrize("word", sorted(nitf_files()))
def test_nitf_files_that_are_refused(tmp_path, word):
    data = nitf_files()[word]
    if word == "mask":
        start = data.rindex(b"\0\0\0\x0e\0\4")
        data = changed(data, start + 10, 0, 0, 0, 9)
    kind, message = refusal(tmp_path, data)
    assert word in message
    assert documented(kind, message), f"{kind}: {message}"


def test_files_beside_that_are_left_out(tmp_path):
    values = nitfs.values_of("u16", 2, (101, 203))
    (tmp_path / "a.ntf").write_bytes(nitfs.nitf(nitfs.ImageSegment(values=values, kind="u16")))
    (tmp_path / "a.ntf.r1").write_bytes(nitfs.nitf(nitfs.ImageSegment(values=values[:1, ::2, ::2], kind="u16")))
    (tmp_path / "a.ntf.r2").write_bytes(nitfs.nitf(nitfs.ImageSegment(values=values[:, ::3, ::3], kind="u16")))
    (tmp_path / "b.jpg").write_bytes(pictures.jpegs()["rgb"]())
    (tmp_path / "b.jgw").write_text("none")
    for name in ("a.ntf", "b.jpg"):
        summary = periplus.index(tmp_path / name).summary
        (note,) = summary.warnings
        for why in note.partition("omitted: ")[2].split("; "):
            assert f" {why.partition(': ')[2]} |" in PAGE, why


@pytest.mark.parametrize(
    ("data", "limits"),
    [
        (tiff(*[image_tags(4, 4)] * 9, data=bytes(16)), {"header_bytes": 64}),
        (tiff(*[image_tags(4, 4)] * 9, data=bytes(16)), {"images": 8}),
        (image(), {"tags": 5}),
        (image(256, 256, t259=5, t322=16, t323=16), {"chunks": 100}),
        (image(t259=5), {"chunk_bytes": 10}),
        (image(), {"read_bytes": 10}),
    ],
)
def test_sizes_over_the_limits(tmp_path, data, limits):
    kind, message = refusal(tmp_path, data, **limits)
    assert kind == "limit"
    assert documented(kind, message), message
    (name,) = limits
    assert f"`{name}`, " in PAGE


def test_the_limits_given_are_those_that_hold():
    given = dict(re.findall(r"`(\w+)`, ([\d,]+(?: [MG]iB)?) \|", PAGE))
    units = {"MiB": 1 << 20, "GiB": 1 << 30}
    for name, text in given.items():
        number, _, unit = text.replace(",", "").partition(" ")
        assert getattr(periplus.Limits(), name) == int(number) * units.get(unit, 1)
    assert len(given) == 12
