"""NITF images in JPEG and JPEG 2000, masked or not, give what independent decoders see in their streams."""

import io
import struct

import imagecodecs
import numpy as np
import pytest
import rasterio
import rasterio.shutil
import tifffile
from PIL import Image

from periplus.errors import FormatError, LimitError
from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.scan.nitf import fax as nitffax
from periplus.scan.nitf import scan as nitf
from periplus.scan.nitf import streams as nitfstreams
from periplus.testing.formats import nitf as nitfs


def jpegs(values, block, mode="P"):
    """JPEG streams of the blocks of (bands, y, x) values, and the values they decode to."""
    bands, height, width = values.shape
    down, across = -(-height // block[0]), -(-width // block[1])
    padded = np.pad(values, ((0, 0), (0, down * block[0] - height), (0, across * block[1] - width)), mode="edge")
    seen = np.empty_like(padded)
    streams = []
    for planes in [[b] for b in range(bands)] if mode == "S" else [list(range(bands))]:
        for y in range(0, padded.shape[1], block[0]):
            for x in range(0, padded.shape[2], block[1]):
                part = padded[planes, y : y + block[0], x : x + block[1]]
                stream = imagecodecs.jpeg8_encode(np.ascontiguousarray(np.squeeze(np.moveaxis(part, 0, -1))), 90)
                decoded = imagecodecs.jpeg8_decode(stream).reshape(*block, len(planes))
                seen[planes, y : y + block[0], x : x + block[1]] = np.moveaxis(decoded, -1, 0)
                streams.append(stream)
    return streams, seen[:, :height, :width]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("bands", "mode", "block"), [(1, "B", (32, 48)), (3, "P", (32, 48)), (3, "S", (32, 48)), (3, "P", (72, 90))]
)
def test_jpeg_blocks_give_what_their_streams_hold(bands, mode, block, masked, read_all):
    values = nitfs.values_of("u8", bands)
    streams, seen = jpegs(values, block, mode)
    absent = frozenset({1, 3} if masked and len(streams) > 3 else ())
    item = nitfs.ImageSegment(
        values=seen, mode=mode, block=block, streams=streams, coding="M3" if masked else "C3", masked=masked,
        absent=absent, pad=9 if masked else None,
    )  # fmt: skip
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], nitfs.with_absent_blocks(item, 9))


@pytest.mark.parametrize(("coding", "bands"), [("C3", 1), ("C3", 3), ("C8", 3)])
def test_what_gdal_compresses_reads_as_gdal_reads_it(coding, bands, read_all, tmp_path):
    plain, path = tmp_path / "a.tif", tmp_path / "a.ntf"
    with rasterio.open(plain, "w", driver="GTiff", width=90, height=72, count=bands, dtype="uint8") as file:
        file.write(nitfs.values_of("u8", bands))
    rasterio.shutil.copy(plain, path, driver="NITF", IC=coding, BLOCKXSIZE=32, BLOCKYSIZE=32)
    with rasterio.open(path) as file:
        wanted = file.read()
    found = read_all(path.read_bytes())["0/data"]
    if (coding, bands) == ("C3", 3):
        # GDAL's own JPEG decoder is another one than ours: chroma differs by a few levels.
        assert np.abs(found.astype("i2") - wanted).mean() < 2
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("kind", "bits"), [("u8", 8), ("u16", 16), ("u12", 12), ("u4", 4)])
@pytest.mark.parametrize("coding", ["C5", "M5"])
def test_lossless_jpeg_gives_its_values(kind, bits, coding, read_all):
    values = nitfs.values_of(kind, 2)
    streams = [imagecodecs.jpeg8_encode(band, lossless=True, bitspersample=bits) for band in values]
    item = nitfs.ImageSegment(
        values=values, kind=kind, mode="S", streams=streams, coding=coding, masked=coding == "M5", absent=frozenset()
    )
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], values)


@pytest.mark.parametrize(("kind", "bits"), [("u8", 8), ("u12", 12), ("u16", 16)])
@pytest.mark.parametrize("bands", [2, 3, 4])
@pytest.mark.parametrize("labelled", [True, False])
def test_lossless_jpeg_of_several_bands_keeps_them_as_they_are(kind, bits, bands, labelled, read_all):
    values = nitfs.values_of(kind, bands)
    pixels = np.ascontiguousarray(np.moveaxis(values, 0, -1))
    stream = imagecodecs.jpeg8_encode(pixels, lossless=True, bitspersample=bits)
    at = stream.find(b"\xff\xee")
    if not labelled and at > 0:  # the label that says which colours they are; NITF has none
        stream = stream[:at] + stream[at + 16 :]
    item = nitfs.ImageSegment(values=values, kind=kind, mode="P", streams=[stream], coding="C5")
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], values)


@pytest.mark.parametrize("coding", ["C8", "M8"])
@pytest.mark.parametrize("form", ["j2k", "jp2"])
def test_a_codestream_gives_its_values(coding, form, read_all):
    values = nitfs.values_of("u16", 3)
    stream = imagecodecs.jpeg2k_encode(np.ascontiguousarray(np.moveaxis(values, 0, -1)), level=0, codecformat=form)
    item = nitfs.ImageSegment(values=values, kind="u16", streams=[stream], coding=coding, masked=coding == "M8", pad=3)
    data = nitfs.nitf(nitfs.ImageSegment(values=values, kind="u16"), item)
    found = read_all(data)
    np.testing.assert_array_equal(found["images/1/0/data"], values)
    arrays = {step.array.name: step.array for step in scan_bytes(data) if isinstance(step, Found)}
    assert arrays["images/1/0/data"].fill == (3 if coding == "M8" else 0)


@pytest.mark.parametrize("coding", ["CD", "MD"])
@pytest.mark.parametrize("kind", ["u8", "u16"])
def test_a_high_throughput_codestream_gives_its_values_and_levels(coding, kind, read_all):
    values = nitfs.values_of(kind, 3)
    stream = imagecodecs.htj2k_encode(np.ascontiguousarray(np.moveaxis(values, 0, -1)), reversible=True, resolutions=2)
    item = nitfs.ImageSegment(values=values, kind=kind, streams=[stream], coding=coding, masked=coding == "MD", pad=3)
    found = read_all(nitfs.nitf(item))
    np.testing.assert_array_equal(found["0/data"], values)
    for level in range(1, len(found)):
        wanted = imagecodecs.htj2k_decode(stream, skipres=level)
        np.testing.assert_array_equal(np.moveaxis(found[f"{level}/data"], 0, -1), wanted)


@pytest.mark.parametrize(("coding", "mode", "bands"), [("C3", "B", 1), ("M3", "B", 1), ("C3", "S", 3), ("C3", "P", 3)])
def test_jpeg_of_12_bits_gives_what_its_streams_hold(coding, mode, bands, read_all):
    values = nitfs.values_of("u12", bands, (64, 96))
    blocks = [values[:, :, x : x + 32] for x in range(0, 96, 32)]
    parts = [block[band : band + 1] for band in range(bands) for block in blocks] if mode == "S" else blocks
    streams = [
        imagecodecs.jpeg8_encode(np.ascontiguousarray(np.squeeze(np.moveaxis(part, 0, -1))), 95, bitspersample=12)
        for part in parts
    ]
    seen = [imagecodecs.jpeg8_decode(stream).reshape(64, 32, -1) for stream in streams]
    if mode == "S":
        bands_of = [np.concatenate(seen[3 * band : 3 * band + 3], axis=1)[..., 0] for band in range(bands)]
        wanted = np.stack(bands_of)
    else:
        wanted = np.moveaxis(np.concatenate(seen, axis=1), -1, 0)
    item = nitfs.ImageSegment(
        values=values, kind="u12", mode=mode, block=(64, 32), streams=streams, coding=coding, masked=coding == "M3"
    )
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], wanted)
    assert np.abs(wanted.astype(int) - values).mean() < 64


def test_a_codestream_of_another_size_than_its_image_is_refused():
    stream = imagecodecs.jpeg2k_encode(nitfs.values_of("u8", 1)[0, :40], level=0, codecformat="j2k")
    item = nitfs.ImageSegment(values=nitfs.values_of("u8", 1), streams=[stream], coding="C8")
    with pytest.raises(FormatError, match="its codestream 1 of 90 x 40"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)


def test_a_downsampled_jpeg_gives_the_pixels_it_has(read_all):
    streams, seen = jpegs(nitfs.values_of("u8", 1), (72, 90))
    whole = nitfs.ImageSegment(values=seen, streams=streams, coding="I1")
    np.testing.assert_array_equal(read_all(nitfs.nitf(whole))["0/data"], seen)
    corners = "411900N0200400E411900N0200700E411700N0200700E411700N0200400E"
    large = nitfs.values_of("u8", 1, (144, 180))
    less = nitfs.nitf(nitfs.ImageSegment(values=large, streams=streams, coding="I1", icords="G", igeolo=corners))
    np.testing.assert_array_equal(read_all(less)["0/data"], seen)
    full = nitfs.nitf(nitfs.ImageSegment(values=large, icords="G", igeolo=corners))
    small, large = (next(s.array for s in scan_bytes(data) if isinstance(s, Found)) for data in (less, full))
    assert small.attributes["downsampled_from"] == [144, 180]
    a, _, c, _, e, f = large.georeference.transform
    assert small.georeference.transform == (2 * a, 0, c, 0, 2 * e, f)


def test_the_size_of_a_downsampled_jpeg_is_found_behind_its_tables(read_all):
    (stream,), seen = jpegs(nitfs.values_of("u8", 1), (72, 90))
    frame, tables, scan = (stream.index(marker) for marker in (b"\xff\xc0", b"\xff\xc4", b"\xff\xda"))
    assert frame < tables < scan
    turned = stream[:frame] + stream[tables:scan] + stream[frame:tables] + stream[scan:]
    item = nitfs.ImageSegment(values=nitfs.values_of("u8", 1, (144, 180)), streams=[turned], coding="I1")
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], seen)


def test_a_downsampled_jpeg_is_smaller_than_its_image_and_alone():
    streams, _ = jpegs(nitfs.values_of("u8", 1), (72, 90))
    for values, block, what in (
        (nitfs.values_of("u8", 1, (40, 90)), (0, 0), "90 x 72 pixels, and the image 90 x 40"),
        (nitfs.values_of("u8", 1, (144, 90)), (72, 90), "several blocks"),
    ):
        item = nitfs.ImageSegment(values=values, block=block, streams=streams, coding="I1")
        with pytest.raises(FormatError, match=what):
            scan_bytes(nitfs.nitf(item), scanner=nitf)
    item = nitfs.ImageSegment(values=nitfs.values_of("u8", 1), streams=[b"\xff\xd8\xff\xd9"], coding="I1")
    with pytest.raises(FormatError, match="has no frame header"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)


STEPS = {
    1: "8 72*9 78 74 76 74 78 89 81 84 84 81 89 106 93 94 99 94 93 106 129 111 108 116 116 108 111 129 135 128 136 145"
    " 136 128 135 155 160 177 177 160 155 193 213 228 213 193 255*10",
    3: "8 10*9 11 10 11 10 11 13 11 12 12 11 13 15 13 13 14 13 13 15 18 16 15 16 16 15 16 18 19 18 19 21 19 18 19 22 23"
    " 25 25 23 22 27 30 32 30 27 36 40 40 36 50 53 50 68 68 91",
}
"""What the tables of the JITC's own streams of these qualities hold, in a stream's order; 72*9 is nine times 72."""


def steps(quality):
    runs = (text.partition("*") for text in STEPS[quality].split())
    return bytes(value for number, _, times in runs for value in [int(number)] * int(times or 1))


def bare_stream(quality, values=None):
    """A stream with the tables of a quality, and the same without them, naming it."""
    data = imagecodecs.jpeg8_encode(np.zeros((64, 64), np.uint8) if values is None else values, 50)
    at = data.index(b"\xff\xdb")
    label = b"\xff\xe6\0\x19NITF\0\2\0B\0\1\0\1\0\x08\0\1" + bytes([quality]) + b"\0\x08\1\1\0\0"
    whole = data[: at + 5] + steps(quality) + data[at + 69 :] if quality in STEPS else data
    return whole, b"\xff\xd8" + label + data[at + 69 :]


def test_streams_with_tables_use_them_whatever_the_rate_says(read_all):
    streams, seen = jpegs(nitfs.values_of("u8", 1), (72, 90))
    item = nitfs.ImageSegment(values=seen, streams=streams, coding="C3", changes={"COMRAT": "00.2"})
    data = nitfs.nitf(item)
    np.testing.assert_array_equal(read_all(data)["0/data"], seen)
    (array,) = (step.array for step in scan_bytes(data) if isinstance(step, Found))
    assert "jpeg_tables" not in array.encodings[0].codecs[0]["configuration"]


@pytest.mark.parametrize("quality", sorted(STEPS))
def test_streams_without_tables_mean_those_of_their_quality(quality, read_all):
    values = nitfs.values_of("u8", 1)
    pairs = [bare_stream(quality, values[0, y : y + 36]) for y in (0, 36)]
    seen = np.concatenate([imagecodecs.jpeg8_decode(whole) for whole, _ in pairs])[None]
    streams = [bare for _, bare in pairs]
    item = nitfs.ImageSegment(
        values=seen, block=(36, 90), streams=streams, coding="C3", changes={"COMRAT": f"00.{quality}"}
    )
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], seen)


def test_all_tables_are_one_list_made_finer():
    lists = [list(bytes.fromhex(nitfstreams.GENERAL[quality])) for quality in "12345"]
    coarse = lists[0]
    assert coarse == list(steps(1))
    assert lists[2] == list(steps(3))
    for fine in lists[1:]:
        pairs = [(a, b) for a, b in zip(coarse[1:], fine[1:], strict=True) if a < 255]
        assert all(abs(a * fine[1] / 72 - b) <= 2 for a, b in pairs)


@pytest.mark.parametrize(("rate", "bands", "kind"), [("03.1", 1, "u8"), ("00.1", 3, "u8"), ("00.1", 1, "u12")])
def test_streams_whose_tables_nobody_knows_are_refused(rate, bands, kind):
    values = nitfs.values_of(kind, bands, (64, 64))
    item = nitfs.ImageSegment(
        values=values, kind=kind, mode="P", streams=[bare_stream(1)[1]], coding="C3", changes={"COMRAT": rate}
    )
    with pytest.raises(FormatError, match=f"have no tables, .* rate {rate}"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)


@pytest.mark.parametrize("coding", ["C3", "M3", "I1"])
@pytest.mark.parametrize("block", [(0, 0), (32, 48)])
def test_what_fills_the_space_before_a_stream_is_passed_over(coding, block, read_all):
    """As any marker may, the first one may have bytes of ones before it."""
    streams, seen = jpegs(nitfs.values_of("u8", 1), block if block[0] and coding != "I1" else (72, 90))
    item = nitfs.ImageSegment(
        values=seen, block=block if coding != "I1" else (0, 0), streams=[b"\xff" * 6 + stream for stream in streams],
        coding=coding, masked=coding == "M3", changes={"COMRAT": "00.3"},
    )  # fmt: skip
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], seen)


@pytest.mark.parametrize("window", [40, 41, 64, 1000])
@pytest.mark.parametrize("padding", [b"", b"\0\0\0", b"\xff" * 5])
def test_streams_are_found_whichever_windows_they_lie_in(window, padding, read_all, monkeypatch):
    streams, seen = jpegs(nitfs.values_of("u8", 1), (32, 48))
    monkeypatch.setattr(nitfstreams, "WINDOW", window)
    item = nitfs.ImageSegment(
        values=seen, block=(32, 48), streams=[stream + padding for stream in streams], coding="C3"
    )
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], seen)


def test_more_data_than_one_would_pass_by_are_refused(monkeypatch):
    streams, seen = jpegs(nitfs.values_of("u8", 1), (32, 48))
    monkeypatch.setattr(nitfstreams, "MOST_STREAMED", 1000)
    with pytest.raises(LimitError, match="JPEG blocks without a mask"):
        scan_bytes(
            nitfs.nitf(nitfs.ImageSegment(values=seen, block=(32, 48), streams=streams, coding="C3")), scanner=nitf
        )


def test_a_stream_too_few_is_refused():
    streams, seen = jpegs(nitfs.values_of("u8", 1), (32, 48))
    item = nitfs.ImageSegment(values=seen, block=(32, 48), streams=streams[:-1], coding="C3")
    with pytest.raises(FormatError, match="6 blocks, but 5 JPEG streams"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)


@pytest.mark.parametrize(("rate", "options"), [("1D  ", 0), ("2DS ", 1), ("2DH ", 1)])
@pytest.mark.parametrize("coding", ["C1", "M1"])
def test_fax_gives_the_bits_gdal_reads(rate, options, coding, read_all, tmp_path):
    values = nitfs.values_of("b1", 1, (72, 96))
    strip = fax(values[0], options)
    item = nitfs.ImageSegment(
        values=values, kind="b1", streams=[strip], coding=coding, masked=coding == "M1", changes={"COMRAT": rate}
    )
    path = tmp_path / "a.ntf"
    path.write_bytes(nitfs.nitf(item))
    found = read_all(path.read_bytes())["0/data"]
    np.testing.assert_array_equal(found, values)
    if coding == "C1":
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(file.read(), found)


@pytest.mark.parametrize(("rate", "options"), [("1D  ", 0), ("2DS ", 1)])
def test_fax_in_several_blocks_is_found_by_its_mask(rate, options, read_all):
    values = nitfs.values_of("b1", 1, (72, 96))
    strips = [fax(values[0, y : y + 24, x : x + 48], options) for y in range(0, 72, 24) for x in range(0, 96, 48)]
    item = nitfs.ImageSegment(
        values=values, kind="b1", block=(24, 48), streams=strips, coding="M1", masked=True, absent=frozenset({2}),
        pad=1, changes={"COMRAT": rate},
    )  # fmt: skip
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], nitfs.with_absent_blocks(item, 1))


@pytest.mark.parametrize(("rate", "options"), [("1D  ", 0), ("2DS ", 1)])
@pytest.mark.parametrize("window", [17, 40, 1 << 20])
@pytest.mark.parametrize("masked", [False, True])
def test_fax_in_several_blocks_is_found_by_its_ends(rate, options, window, masked, read_all, monkeypatch):
    monkeypatch.setattr(nitffax, "WINDOW", window)
    values = nitfs.values_of("b1", 1, (70, 90))
    padded = np.pad(values, ((0, 0), (0, 2), (0, 6)))
    blocks = [padded[0, y : y + 24, x : x + 48] for y in range(0, 72, 24) for x in range(0, 96, 48)]
    strips = [ended(fax(block, options), options) for block in blocks]
    head = struct.pack(">IHHH", 10, 0, 0, 0) if masked else b""
    item = nitfs.ImageSegment(
        values=values, kind="b1", block=(24, 48), streams=[head, *strips], coding="M1" if masked else "C1",
        changes={"COMRAT": rate},
    )  # fmt: skip
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], values)


@pytest.mark.parametrize("missing", [0, 5])
def test_fax_without_its_ends_is_refused(missing):
    values = nitfs.values_of("b1", 1, (72, 96))
    blocks = [values[0, y : y + 24, x : x + 48] for y in range(0, 72, 24) for x in range(0, 96, 48)]
    strips = [fax(block, 0) if number == missing else ended(fax(block, 0), 0) for number, block in enumerate(blocks)]
    item = nitfs.ImageSegment(
        values=values, kind="b1", block=(24, 48), streams=strips, coding="C1", changes={"COMRAT": "1D  "}
    )
    with pytest.raises(FormatError, match="6 blocks, but 5 fax pictures"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)


def ended(strip, options):
    """A strip and what a picture ends with, as files of the JITC have it; zeros may stand before the end of a line."""
    bits = ("0" * 11 + "1" + "1" * options) * 6
    return strip + int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")


def fax(bits, options):
    """One strip of Group 3 fax, by libtiff."""
    target = io.BytesIO()
    picture = Image.fromarray(bits == 1)
    picture.save(target, "TIFF", compression="group3", tiffinfo={278: bits.shape[0], 292: options})
    target.seek(0)
    with tifffile.TiffFile(target) as tiff:
        page = tiff.pages.first
        assert page.tags["T4Options"].value & 1 == options
        assert len(page.dataoffsets) == 1
        return target.getvalue()[page.dataoffsets[0] :][: page.databytecounts[0]]


def test_bands_that_are_no_whole_bytes_may_be_in_a_codestream(read_all):
    values = nitfs.values_of("u12", 3, (33, 35))
    stream = imagecodecs.jpeg2k_encode(
        np.ascontiguousarray(np.moveaxis(values, 0, -1)), level=0, codecformat="j2k", bitspersample=12
    )
    item = nitfs.ImageSegment(values=values, kind="u12", streams=[stream], coding="C8")
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], values)


@pytest.mark.parametrize(("kind", "bands"), [("u8", 1), ("u8", 3), ("u16", 2), ("u12", 3), ("i16", 1)])
@pytest.mark.parametrize("cut", [False, True])
def test_masked_blocks_may_have_codestreams_of_their_own(kind, bands, cut, read_all):
    """As osml-imagery-io writes them, those at the edges cut or not."""
    values = nitfs.values_of(kind, bands)
    whole = np.pad(values, ((0, 0), (0, 24), (0, 6)))[:, :96, :96]
    seen = values if cut else whole
    parts = [seen[:, y : y + 32, x : x + 48] for y in range(0, 72, 32) for x in range(0, 90, 48)]
    bits = nitfs.KINDS[kind][1]
    streams = [
        imagecodecs.jpeg2k_encode(
            np.ascontiguousarray(np.moveaxis(part, 0, -1)).squeeze(), level=0, codecformat="j2k", bitspersample=bits
        )
        for part in parts
    ]
    item = nitfs.ImageSegment(
        values=values, kind=kind, block=(32, 48), streams=streams, coding="M8", masked=True, absent=frozenset({0, 3}),
        pad=9,
    )  # fmt: skip
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], nitfs.with_absent_blocks(item, 9))
