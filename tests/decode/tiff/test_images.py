"""Image streams in TIFF: shared JPEG tables, colour spaces, masks and alpha; compared with tifffile and GDAL."""

import base64
import io

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from periplus.errors import DecodeError, FormatError
from periplus.testing.formats import samples
from periplus.testing.formats.tiff import gdal_written, picture, seen_by_gdal

SHAPE = (3, 64, 64)


def first_tile(data):
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages.first
        return page, data[page.dataoffsets[0] :][: page.databytecounts[0]]


def test_shared_jpeg_tables_complete_abbreviated_streams(decoder):
    for photometric, number in (("ycbcr", 6), ("rgb", 2)):
        image = picture("tables", "u1", SHAPE)
        data = gdal_written(
            image,
            compress="jpeg",
            photometric=photometric,
            tiled=True,
            blockxsize=64,
            blockysize=64,
            interleave="pixel",
        )
        page, raw = first_tile(data)
        wanted = np.moveaxis(tifffile.imread(io.BytesIO(data)), -1, 0)
        assert page.jpegtables
        assert page.photometric == number
        tables = base64.b64encode(page.jpegtables).decode()
        decode = decoder(samples.tiff_tile(image, 7, photometric=number, jpeg_tables=tables), SHAPE, "u1")
        np.testing.assert_array_equal(decode(raw, valid=SHAPE), wanted)
        with pytest.raises(DecodeError):
            decoder(samples.tiff_tile(image, 7, photometric=number), SHAPE, "u1")(raw, valid=SHAPE)


def test_hostile_tables_are_decode_errors(decoder):
    sample = samples.sample("jpeg-ycbcr")
    for tables in (b"", b"\xff\xd8\xff\xd9", sample.data, b"\0" * 99, b"\xff\xd8\xff\xc4\xff\xff" + b"\xff" * 99):
        codec = samples.tiff_tile(sample.values, 7, photometric=6, jpeg_tables=base64.b64encode(tables).decode())
        decode = decoder(codec, sample.chunks, "u1")
        try:
            found = decode(sample.data, valid=sample.chunks)
        except DecodeError:
            continue
        assert np.abs(found.astype(int) - sample.values).mean() < 4


def test_photometric_decides_whether_ycbcr_becomes_rgb(decoder):
    rgb = picture("colours", "u1", SHAPE)
    stream = imagecodecs.jpeg8_encode(samples.chunky(rgb), 99, subsampling="444")
    # The header of JFIF, which would contradict a tag of RGB, has 18 bytes.
    stream = stream[:2] + stream[20:]
    converted = decoder(samples.tiff_tile(rgb, 7, photometric=6), SHAPE, "u1")(stream, valid=SHAPE).copy()
    stored = decoder(samples.tiff_tile(rgb, 7, photometric=2), SHAPE, "u1")(stream, valid=SHAPE)
    np.testing.assert_array_equal(converted, np.moveaxis(imagecodecs.jpeg8_decode(stream), -1, 0))
    raw = imagecodecs.jpeg8_decode(stream, colorspace="RGB", outcolorspace="RGB")
    np.testing.assert_array_equal(stored, np.moveaxis(raw, -1, 0))
    assert np.abs(converted.astype(int) - rgb).mean() < 3 < np.abs(stored.astype(int) - rgb).mean()


def test_a_jfif_header_tells_colours_where_the_photometric_tag_does_not(decoder, read_all):
    """tifffile stores YCbCr then; GDAL, which writes no such header, the bands as they are."""
    image = np.stack([samples.rgb(1)[0], np.full_like(samples.rgb(1)[0], 90), samples.rgb(1)[0] // 2])
    target = io.BytesIO()
    tifffile.imwrite(target, samples.chunky(image), photometric="minisblack", planarconfig="contig", compression="jpeg")
    wanted = tifffile.imread(io.BytesIO(target.getvalue()))
    np.testing.assert_array_equal(samples.chunky(read_all(target.getvalue())["0/data"]), wanted)
    data = gdal_written(image, compress="jpeg", interleave="pixel", photometric="minisblack")
    np.testing.assert_array_equal(read_all(data)["0/data"], seen_by_gdal(data)["0/data"])


def test_a_last_strip_may_be_a_shorter_or_a_full_image(decoder):
    grey = samples.rgb(1)
    decode = decoder(samples.tiff_tile(grey, 7), grey.shape, "u1")
    for rows in (8, 20, grey.shape[1]):
        stream = imagecodecs.jpeg8_encode(grey[0, :rows], 95)
        found = decode(stream, valid=(1, 8, grey.shape[2]))
        np.testing.assert_array_equal(found[0], imagecodecs.jpeg8_decode(stream))
    with pytest.raises(DecodeError):
        decode(imagecodecs.jpeg8_encode(grey[0, :7], 95), valid=(1, 8, grey.shape[2]))


def test_a_last_strip_may_be_said_to_be_full_and_stop_where_the_image_does(decoder):
    grey = samples.rgb(1)
    decode = decoder(samples.tiff_tile(grey, 7), grey.shape, "u1")
    target = io.BytesIO()
    Image.fromarray(grey[0, :16]).save(target, "JPEG", restart_marker_rows=1)
    short = bytearray(target.getvalue())
    expected = imagecodecs.jpeg8_decode(bytes(short))
    frame = short.index(b"\xff\xc0")
    assert short[frame + 5 : frame + 7] == b"\0\x10"
    short[frame + 5 : frame + 7] = grey.shape[1].to_bytes(2, "big")
    found = decode(bytes(short), valid=(1, 16, grey.shape[2]))
    np.testing.assert_array_equal(found[0, :16], expected)
    with pytest.raises(DecodeError, match="restart markers"):
        decode(bytes(short), valid=(1, 32, grey.shape[2]))


def test_a_codestream_that_does_not_say_how_long_it_is_must_have_its_end(decoder):
    grey = samples.rgb(1)
    decode = decoder(samples.tiff_tile(grey, 34712), grey.shape, "u1")
    whole = bytearray(imagecodecs.jpeg2k_encode(grey[0], level=0, reversible=True, codecformat="J2K"))
    start = whole.rfind(b"\xff\x90\x00\x0a")
    whole[start + 6 : start + 10] = bytes(4)
    np.testing.assert_array_equal(decode(bytes(whole), valid=grey.shape), grey)
    for missing in (2, 3, 100):
        with pytest.raises(DecodeError):
            decode(bytes(whole[:-missing]), valid=grey.shape)


def test_opaque_webp_gets_its_alpha_back(decoder):
    rgba = np.concatenate([samples.rgb(3), np.full((1, samples.HEIGHT, samples.WIDTH), 255, "u1")])
    stream = imagecodecs.webp_encode(samples.chunky(rgba[:3]), lossless=True)
    decode = decoder(samples.tiff_tile(rgba, 50001, photometric=2, extra_samples=[2]), rgba.shape, "u1")
    np.testing.assert_array_equal(decode(stream, valid=rgba.shape), rgba)


def test_masked_lerc_floats_are_nan(decoder):
    values = samples.rgb(1, "f4")
    valid = values[0] > 0
    stream = imagecodecs.lerc_encode(values[0], masks=valid)
    found = decoder(samples.tiff_tile(values, 34887), values.shape, "f4")(stream, valid=values.shape)
    np.testing.assert_array_equal(found, np.where(valid, values, np.nan))


@pytest.mark.parametrize("dtype", ["i2", "u4", "f4", "f8"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("compress", ["lerc", "lerc_deflate", "lerc_zstd"])
def test_lerc_of_big_endian_files_holds_values_with_their_bytes_turned_round(dtype, interleave, compress, read_all):
    image = picture("lerc-big", dtype, (3, 40, 30))
    data = gdal_written(image, compress=compress, endianness="big", interleave=interleave, blockysize=16)
    found = read_all(data)["0/data"]
    lost = np.isnan(found)  # numbers that are NaN with their bytes turned round, which libtiff does not store
    assert lost.mean() < 0.01
    np.testing.assert_array_equal(lost, seen_by_gdal(data)["0/data"] != image)
    np.testing.assert_array_equal(found[~lost], image[~lost])


@pytest.mark.parametrize("endianness", ["little", "big"])
def test_bands_of_lerc_that_are_nan_in_different_places_lie_in_blobs_of_their_own(endianness, read_all):
    image = picture("lerc-apart", "f4", (4, 33, 29))
    image[0, :9] = image[1, :9] = image[2, 20:] = np.nan
    data = gdal_written(image, compress="lerc", endianness=endianness, interleave="pixel", blockysize=12)
    found = read_all(data)["0/data"]
    lost = np.isnan(found) & ~np.isnan(image)
    assert lost.any() == (endianness == "big")
    np.testing.assert_array_equal(found[~lost], image[~lost])


def test_lerc_blobs_that_are_not_as_many_as_the_bands_are_refused(decoder):
    values = samples.rgb(3, "f4")
    masks = np.ones(values.shape, bool)
    masks[0, :5] = masks[1, 7:9] = False
    decode = decoder(samples.tiff_tile(values, 34887), values.shape, "f4")
    masks[2] = masks[1]  # stored once
    blob = imagecodecs.lerc_encode(values, masks=masks, planar=True)
    np.testing.assert_array_equal(decode(blob, valid=values.shape), np.where(masks, values, np.nan))
    other = imagecodecs.lerc_encode(
        np.ascontiguousarray(values[:2]), masks=np.ascontiguousarray(masks[:2]), planar=True
    )
    with pytest.raises(DecodeError, match="2 LERC blobs for 3 bands"):
        decode(other, valid=values.shape)
    with pytest.raises(DecodeError, match="differ"):
        decode(other + imagecodecs.lerc_encode(values[2, :-1]), valid=values.shape)


def test_a_lerc_blob_may_end_after_the_one_value_of_every_band(decoder):
    values = np.arange(4, dtype="i1").reshape(4, 1, 1) + np.zeros((4, 3, 2), "i1")
    for version in (4, 5, 6):
        blob = imagecodecs.lerc_encode(samples.chunky(values), version=version)
        found = decoder(samples.tiff_tile(values, 34887), values.shape, "i1")(blob, valid=values.shape)
        np.testing.assert_array_equal(found, values)


def test_deep_jpeg_xl_in_big_endian_files_is_refused(decoder):
    values = samples.rgb(1, "u2")
    codec = samples.tiff_tile(values, 50002, byte_order="big")
    with pytest.raises(FormatError, match="either order"):
        decoder(codec, values.shape, "u2")


def test_the_alpha_of_lerc_is_its_mask(decoder):
    for block in (32, 64):
        image = picture("lerc-alpha", "u1", (4, 64, 64))
        image[3] = np.where(image[0] > 100, 255, 0)
        data = gdal_written(
            image,
            compress="lerc",
            tiled=True,
            blockxsize=block,
            blockysize=block,
            interleave="pixel",
            photometric="rgb",
            alpha="yes",
        )
        page, raw = first_tile(data)
        wanted = seen_by_gdal(data)["0/data"][:, :block, :block]
        codec = samples.tiff_tile(wanted, 34887, photometric=2, extra_samples=[int(n) for n in page.extrasamples])
        np.testing.assert_array_equal(decoder(codec, wanted.shape, "u1")(raw, valid=wanted.shape), wanted)


def fletcher32(data):
    """LERC's checksum: sums of big-endian 16-bit words, folded now and then."""
    one = two = 0xFFFF
    words = np.frombuffer(data + b"\0" * (len(data) % 2), ">u2").tolist()
    for start in range(0, len(words), 359):
        for word in words[start : start + 359]:
            one += word
            two += one
        one, two = (one & 0xFFFF) + (one >> 16), (two & 0xFFFF) + (two >> 16)
    one, two = (one & 0xFFFF) + (one >> 16), (two & 0xFFFF) + (two >> 16)
    return (two << 16 | one) & 0xFFFFFFFF


def test_a_lerc_block_that_declares_no_values_is_refused_before_the_library_reads_them(decoder):
    """With the checksum made right; unguarded, this reads from address zero."""
    values = samples.rgb(1, "u2")
    blob = bytearray(imagecodecs.lerc_encode(values[0]))
    assert fletcher32(bytes(blob[14:])) == int.from_bytes(blob[10:14], "little")
    data_start = 66 + 4 + 2 * 2 + 1
    assert blob[data_start] & 3 == 1
    offset_size = 2 if blob[data_start] >> 6 == 0 else 1
    count = data_start + 1 + offset_size + 1
    assert blob[count] == 64
    blob[count] = 0
    blob[10:14] = fletcher32(bytes(blob[14:])).to_bytes(4, "little")
    with pytest.raises(DecodeError, match="too few values"):
        decoder(samples.tiff_tile(values, 34887), values.shape, "u2")(bytes(blob), valid=values.shape)


def test_lerc_without_checksum_is_refused(decoder):
    values = samples.rgb(1, "u2")
    blob = imagecodecs.lerc_encode(values[0], version=2)
    with pytest.raises(DecodeError, match="checksum"):
        decoder(samples.tiff_tile(values, 34887), values.shape, "u2")(blob, valid=values.shape)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"])
@pytest.mark.parametrize("bands", [1, 3])
def test_lerc_of_every_type_passes_its_inspection(dtype, bands, decoder):
    for seed, level in ((0, 0), (1, 0.5)):
        values = picture(f"lerc-{seed}", dtype, (bands, 45, 53))
        if seed:
            values[:, 10:] = values[:, 10:11, :1]
        stored = samples.chunky(values)
        for version in (3, 4, 5, 6):
            if version < 4 and bands > 1:
                continue
            blob = imagecodecs.lerc_encode(stored, level=level, version=version)
            wanted = imagecodecs.lerc_decode(blob).reshape(stored.shape)
            found = decoder(samples.tiff_tile(values, 34887), values.shape, dtype)(blob, valid=values.shape)
            np.testing.assert_array_equal(samples.chunky(found), wanted)
