"""The registered codecs read hand-laid Zarr v3 and v2 stores as GDAL and tifffile read the files themselves."""

import io

import imagecodecs
import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image
from rasterio.io import MemoryFile

from periplus.decode.pipeline import IMAGES
from periplus.errors import DecodeError
from periplus.model import Encoding, Found
from periplus.scan.drive import scan_bytes
from periplus.scan.jpeg import bands as jpegbands
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures, samples
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.tiff import seen_by_gdal
from periplus.testing.zarr_arrays import first_array, memory_store, open_first_array, stored_chunks
from periplus.zarr.codecs import v2 as filters

pytestmark = pytest.mark.usefixtures("our_codecs")
VERSIONS = pytest.mark.parametrize("version", [3, 2])


@VERSIONS
@pytest.mark.parametrize("name", ["rpcl", "lrcp", "untiled"])
def test_jpeg2000_tiles_are_those_of_gdal(name, version):
    options = {
        "rpcl": {"PROGRESSION": "RPCL", "blockxsize": 100, "blockysize": 77},
        "lrcp": {"blockxsize": 128, "blockysize": 128},
        "untiled": {},
    }[name]
    data = j2ks.made(j2ks.picture(), **options)
    np.testing.assert_array_equal(open_first_array(data, version)[...], seen_by_gdal(data)["0/data"])


@VERSIONS
def test_the_levels_of_a_codestream_are_its_overviews(version):
    data = j2ks.interleaved(j2ks.made(j2ks.picture(), PROGRESSION="RPCL", blockxsize=128, blockysize=64, RESOLUTIONS=3))
    levels = [step for step in scan_bytes(data) if isinstance(step, Found)]
    assert [level.array.encodings[0].codecs[0]["configuration"]["resolution_level"] for level in levels] == [0, 1, 2]
    with MemoryFile(data) as memory, memory.open(OVERVIEW_LEVEL=0) as image:
        expected = image.read()
    np.testing.assert_array_equal(open_first_array(data, version, levels[1])[...], expected)


@VERSIONS
@pytest.mark.parametrize("progression", ["LRCP", "RPCL", "PCRL", "CPRL"])
@pytest.mark.parametrize("level", [1, 2])
def test_whole_tiles_are_decoded_at_any_level(progression, level, version):
    data = j2ks.made(j2ks.picture(), PROGRESSION=progression, blockxsize=128, blockysize=64, RESOLUTIONS=4)
    found = first_array(data)
    (codec,) = found.array.encodings[0].codecs
    codec = {**codec, "configuration": {**codec["configuration"], "resolution_level": level}}
    shape, chunks = ((3, *(n >> level for n in sizes[1:])) for sizes in (found.array.shape, found.array.chunks))
    store = memory_store(shape, chunks, "u1", [codec], stored_chunks(data, found), version)
    with MemoryFile(data) as memory, memory.open(OVERVIEW_LEVEL=level - 1) as image:
        expected = image.read()
    np.testing.assert_array_equal(zarr.open_array(store, mode="r", zarr_format=version)[...], expected)


@VERSIONS
@pytest.mark.parametrize("name", ["gray", "rgb", "rgb-420", "rgb-progressive"])
def test_jpeg_is_near_that_of_pillow(name, version):
    data = pictures.jpegs()[name]()
    seen = np.moveaxis(open_first_array(data, version)[...].astype(int), 0, -1)
    assert np.abs(seen - np.asarray(Image.open(io.BytesIO(data))).reshape(seen.shape)).max() <= 4


@VERSIONS
@pytest.mark.parametrize("kind", ["12", "8", "16", "float32"])
@pytest.mark.parametrize("mode", ["B", "P", "R"])
def test_nitf_blocks_are_the_values_written(kind, mode, version):
    kinds = [each for each in nitfs.KINDS if nitfs.KINDS[each][1] == int(kind.removeprefix("float"))]
    kind = next(each for each in kinds if np.dtype(nitfs.KINDS[each][2]).kind == ("f" if "float" in kind else "u"))
    picture = nitfs.ImageSegment(values=nitfs.values_of(kind), kind=kind, mode=mode, block=(16, 32))
    data = nitfs.nitf(picture)
    found = first_array(data)
    codec = {
        "name": "https://awslabs.github.io/osml-imagery-io/codecs/jbp-block",
        "configuration": {
            "num_bands": 3,
            "block_height": 16,
            "block_width": 32,
            "nbpp": nitfs.KINDS[kind][1],
            "imode": mode,
            "pvtype": nitfs.KINDS[kind][0],
        },
    }
    array = found.array
    store = memory_store(array.shape, array.chunks, array.dtype, [codec], stored_chunks(data, found), version)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r", zarr_format=version)[...], picture.values)


@VERSIONS
def test_an_elevation_cell_is_that_of_gdal(version):
    values = dteds.heights("zarr")
    data = dteds.gdal_cell(values)
    np.testing.assert_array_equal(open_first_array(data, version)[...], seen_by_gdal(data)["0/data"])


@VERSIONS
def test_a_cell_may_be_trimmed(version):
    data = dteds.cell(dteds.heights("trim"))
    found = first_array(data)
    trims = {"trim_top": 1, "trim_bottom": 2, "trim_left": 0, "trim_right": 3}
    (codec,) = found.array.encodings[0].codecs
    codec = {**codec, "configuration": {**codec["configuration"], **trims}}
    shape = (1, 118, 118)
    store = memory_store(shape, shape, "i2", [codec], stored_chunks(data, found), version)
    seen = zarr.open_array(store, mode="r", zarr_format=version)[...]
    np.testing.assert_array_equal(seen, seen_by_gdal(data)["0/data"][:, 1:-2, :-3])


@VERSIONS
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_png_is_that_of_gdal(bits, bands, version):
    values = tiffs.picture("png", f"u{bits // 8}", (bands, 45, 61))
    data = pictures.png(values, bits=bits, colour={1: 0, 3: 2}[bands])
    np.testing.assert_array_equal(open_first_array(data, version)[...], seen_by_gdal(data)["0/data"])


@VERSIONS
@pytest.mark.parametrize("subsampling", [0, 2])
def test_a_jpeg_in_bands_is_as_in_the_whole(monkeypatch, subsampling, version):
    monkeypatch.setattr(jpegbands, "LARGE", 1)
    monkeypatch.setattr(jpegbands, "ROWS", 32)
    monkeypatch.setattr(jpegbands, "SPREAD", 2)
    values = tiffs.picture("banded", "u1", (3, 205, 93))
    target = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(np.moveaxis(values, 0, -1)))
    image.save(target, "JPEG", subsampling=subsampling, restart_marker_rows=1)
    data = target.getvalue()
    array = open_first_array(data, version)
    assert array.shape[1] > array.chunks[1] > 0
    np.testing.assert_array_equal(np.moveaxis(array[...], 0, -1), imagecodecs.jpeg8_decode(data))


TILED = {"tiled": True, "blockxsize": 32, "blockysize": 32}


@VERSIONS
@pytest.mark.parametrize("compress", ["lzw", "packbits", "deflate", "zstd"])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("endianness", ["little", "big"])
def test_tiff_tiles_are_those_of_tifffile_in_either_byte_order(compress, interleave, endianness, version):
    image = tiffs.picture("order", "u2", (3, 70, 90))
    predictor = {"predictor": 2} if compress != "packbits" else {}
    data = tiffs.gdal_written(
        image, compress=compress, interleave=interleave, endianness=endianness, **predictor, **TILED
    )
    found = first_array(data)
    (codec,) = found.array.encodings[0].codecs
    assert ("byte_order" in codec["configuration"]) == (endianness == "big")
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        expected = file.asarray()
    expected = expected if interleave == "band" else np.moveaxis(expected, -1, 0)
    np.testing.assert_array_equal(open_first_array(data, version, found)[...], expected)


@VERSIONS
@pytest.mark.parametrize("compress", ["lzw", "packbits", "deflate", "jpeg", "ccittfax4", "lzma"])
def test_a_last_strip_that_is_shorter_is_read_where_the_codec_says_so(compress, version):
    image = tiffs.picture("strips", "u1", (1, 45, 61))
    bits = {}
    if compress == "ccittfax4":
        image, bits = image & 1, {"nbits": 1}
    data = tiffs.gdal_written(image, compress=compress, blockysize=16, predictor=1, **bits)
    found = first_array(data)
    (codec,) = found.array.encodings[0].codecs
    assert "last_rows" not in codec["configuration"]
    assert found.array.encodings[0].clipped == ("y",)
    found = Found(found.array.renamed("0/data", encodings=(Encoding((codec,)),)), found.refs)
    seen = open_first_array(data, version, found, last_rows=13)
    np.testing.assert_array_equal(seen[...], seen_by_gdal(data)["0/data"])
    if compress == "ccittfax4":  # one that ends by its own code is white below
        return
    with pytest.raises(DecodeError):
        open_first_array(data, version, found, last_rows=14)[:, 32:]
    with pytest.raises(DecodeError):
        open_first_array(data, version, found)[:, 32:]


@pytest.mark.parametrize(
    "name", [name for name in samples.names() if samples.sample(name).codecs[-1]["name"] in IMAGES]
)
def test_every_sample_chunk_is_read_in_v3_and_where_its_codec_is_complete_in_v2(name):
    sample = samples.sample(name)
    store = memory_store(sample.chunks, sample.chunks, sample.values.dtype, sample.codecs, {(0, 0, 0): sample.data}, 3)
    wanted = np.asarray(zarr.open_array(store, mode="r")[...])
    if sample.lossy:
        assert np.abs(wanted.astype(float) - sample.values).mean() < 6
    else:
        np.testing.assert_array_equal(wanted, sample.values)
    listed = {"codecs": list(sample.codecs), "shape": list(sample.chunks), "dtype": sample.values.dtype.str}
    v2 = sample.codecs if sample.codecs[0]["name"] in filters.FILTERS else None
    for codec in (v2, [{"name": "periplus.pipeline", "configuration": listed}]):
        if codec is not None:
            store = memory_store(sample.chunks, sample.chunks, sample.values.dtype, codec, {(0, 0, 0): sample.data}, 2)
            np.testing.assert_array_equal(zarr.open_array(store, mode="r", zarr_format=2)[...], wanted)


def test_stored_chunks_that_are_larger_are_cropped():
    values = samples.rgb(3)
    codec = samples.tiff_tile(values, 1)
    chunks = (3, values.shape[1] - 5, values.shape[2] - 7)
    crop = {"name": "periplus.crop", "configuration": {"shape": list(values.shape)}}
    store = memory_store(chunks, chunks, "u1", [crop, codec], {(0, 0, 0): samples.chunky(values).tobytes()}, 3)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], values[:, :-5, :-7])


def test_numbers_are_unpacked():
    values = samples.rgb(2, "i2")
    values[:, 0] = -1
    unpack = {"name": "periplus.unpack", "configuration": {"dtype": "<i2", "nodata": -1, "scale": [2, 3], "offset": 5}}
    chunk = samples.chunky(values).tobytes()
    store = memory_store(
        values.shape, values.shape, "f4", [unpack, samples.tiff_tile(values, 1)], {(0, 0, 0): chunk}, 3
    )
    expected = np.where(values == -1, np.nan, values * np.array([2.0, 3.0]).reshape(2, 1, 1) + 5).astype("f4")
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], expected)


def test_leading_dimensions_of_size_one_are_added():
    values = samples.rgb(3)
    shape = (1, *values.shape)
    chunk = {(0, 0, 0, 0): samples.chunky(values).tobytes()}
    store = memory_store(shape, shape, "u1", [samples.tiff_tile(values, 1)], chunk, 3)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[0], values)


@VERSIONS
def test_missing_chunks_are_fill(version):
    values = samples.rgb(1)
    store = memory_store(values.shape, values.shape, "u1", [samples.tiff_tile(values, 1)], {}, version)
    assert not zarr.open_array(store, mode="r", zarr_format=version)[...].any()
