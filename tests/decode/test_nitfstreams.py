"""NITF images in JPEG and JPEG 2000, masked or not, give what independent decoders see in their streams."""

import io

import imagecodecs
import numpy as np
import pytest
import rasterio
import rasterio.shutil
import tifffile
from PIL import Image

from periplus.errors import FormatError
from periplus.model import Found
from periplus.scan import nitf
from periplus.scan.drive import scan_bytes
from periplus.testing import nitfs

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


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
    item = nitfs.Picture(
        values=seen, mode=mode, block=block, streams=streams, coding="M3" if masked else "C3", masked=masked,
        absent=absent, pad=9 if masked else None,
    )  # fmt: skip
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], nitfs.holed(item, 9))


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


@pytest.mark.parametrize(("kind", "bits"), [("u8", 8), ("u16", 16), ("u12", 12)])
@pytest.mark.parametrize("coding", ["C5", "M5"])
def test_lossless_jpeg_gives_its_values(kind, bits, coding, read_all):
    values = nitfs.values_of(kind, 2)
    streams = [imagecodecs.jpeg8_encode(band, lossless=True, bitspersample=bits) for band in values]
    item = nitfs.Picture(
        values=values, kind=kind, mode="S", streams=streams, coding=coding, masked=coding == "M5", absent=frozenset()
    )
    np.testing.assert_array_equal(read_all(nitfs.nitf(item))["0/data"], values)
    several = nitfs.Picture(values=values, kind=kind, mode="P", streams=streams[:1], coding="C5")
    with pytest.raises(FormatError, match="lossless JPEG of 2 bands"):
        scan_bytes(nitfs.nitf(several), scanner=nitf)


@pytest.mark.parametrize("coding", ["C8", "M8"])
@pytest.mark.parametrize("form", ["j2k", "jp2"])
def test_a_codestream_gives_its_values(coding, form, read_all):
    values = nitfs.values_of("u16", 3)
    stream = imagecodecs.jpeg2k_encode(np.ascontiguousarray(np.moveaxis(values, 0, -1)), level=0, codecformat=form)
    item = nitfs.Picture(values=values, kind="u16", streams=[stream], coding=coding, masked=coding == "M8", pad=3)
    data = nitfs.nitf(nitfs.Picture(values=values, kind="u16"), item)
    found = read_all(data)
    np.testing.assert_array_equal(found["images/1/0/data"], values)
    arrays = {step.array.name: step.array for step in scan_bytes(data) if isinstance(step, Found)}
    assert arrays["images/1/0/data"].fill == (3 if coding == "M8" else 0)


def test_a_codestream_of_another_size_than_its_image_is_refused():
    stream = imagecodecs.jpeg2k_encode(nitfs.values_of("u8", 1)[0, :40], level=0, codecformat="j2k")
    item = nitfs.Picture(values=nitfs.values_of("u8", 1), streams=[stream], coding="C8")
    with pytest.raises(FormatError, match="its codestream 1 of 90 x 40"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)


def test_a_downsampled_jpeg_is_read_only_where_it_has_all_pixels(read_all):
    streams, seen = jpegs(nitfs.values_of("u8", 1), (72, 90))
    whole = nitfs.Picture(values=seen, streams=streams, coding="I1")
    np.testing.assert_array_equal(read_all(nitfs.nitf(whole))["0/data"], seen)
    less = nitfs.Picture(values=nitfs.values_of("u8", 1, (144, 180)), streams=streams, coding="I1")
    with pytest.raises(FormatError, match="compression I1 with fewer pixels"):
        scan_bytes(nitfs.nitf(less), scanner=nitf)


def test_a_stream_too_few_is_refused():
    streams, seen = jpegs(nitfs.values_of("u8", 1), (32, 48))
    item = nitfs.Picture(values=seen, block=(32, 48), streams=streams[:-1], coding="C3")
    with pytest.raises(FormatError, match="6 blocks, but 5 JPEG streams"):
        scan_bytes(nitfs.nitf(item), scanner=nitf)


@pytest.mark.parametrize(("rate", "options"), [("1D  ", 0), ("2DS ", 1), ("2DH ", 1)])
@pytest.mark.parametrize("coding", ["C1", "M1"])
def test_fax_gives_the_bits_gdal_reads(rate, options, coding, read_all, tmp_path):
    values = nitfs.values_of("b1", 1, (72, 96))
    strip = fax(values[0], options)
    item = nitfs.Picture(
        values=values, kind="b1", streams=[strip], coding=coding, masked=coding == "M1", changes={"COMRAT": rate}
    )
    path = tmp_path / "a.ntf"
    path.write_bytes(nitfs.nitf(item))
    found = read_all(path.read_bytes())["0/data"]
    np.testing.assert_array_equal(found, values)
    if coding == "C1":
        with rasterio.open(path) as file:
            np.testing.assert_array_equal(file.read(), found)


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
