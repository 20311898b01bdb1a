"""The registered codecs read hand-laid Zarr v3 and v2 stores as GDAL and tifffile read the files themselves."""

import io
import json
import pickle
import warnings

import imagecodecs
import numcodecs
import numpy as np
import pytest
import tifffile
from PIL import Image
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import MemoryFile
from zarr.storage import MemoryStore

import zarr
from periplus.decode.pipeline import IMAGES
from periplus.errors import DecodeError, FormatError, LimitError
from periplus.limits import GIB
from periplus.model import Found
from periplus.scan import jpegbands
from periplus.scan.drive import scan_bytes
from periplus.testing import dteds, j2ks, nitfs, pictures, tiffs, tiles
from periplus.zarr import codecs, filters

BASE = "https://awslabs.github.io/osml-imagery-io/codecs/"
TIFF_TILE = BASE + "tiff-tile"


@pytest.fixture(autouse=True)
def ours():
    """Other libraries may offer the same names; these tests are of ours."""
    before = dict(zarr.config.get("codecs"))
    known = dict(numcodecs.registry.codec_registry)
    codecs.register()
    yield
    zarr.config.set({"codecs": before})
    numcodecs.registry.codec_registry.clear()
    numcodecs.registry.codec_registry.update(known)


def gdal(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with MemoryFile(data) as memory, memory.open() as image:
            return image.read()


def first(data):
    return next(step for step in scan_bytes(data) if isinstance(step, Found))


def fragments(data, found):
    """The stored bytes of every chunk, its ranges joined."""
    refs, chunks = found.refs, {}
    for row, cell in enumerate(refs.chunk.T.tolist()):
        start, length = int(refs.offset[row]), int(refs.length[row])
        chunks[tuple(cell)] = chunks.get(tuple(cell), b"") + data[start : start + length]
    return chunks


def document(shape, chunks, dtype, codec_list, version):
    """The metadata of an array whose chunks have one codec, or in v3 a list of them."""
    dtype = np.dtype(dtype)
    if version == 3:
        little = {"name": "bytes", "configuration": {"endian": "little"}} if dtype.itemsize > 1 else {"name": "bytes"}
        at = next(n for n, codec in enumerate(codec_list) if codec["name"] in IMAGES)
        return "zarr.json", {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(shape),
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [*codec_list[:at], little, *codec_list[at:]],
        }
    (codec,) = codec_list
    return ".zarray", {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chunks),
        "dtype": dtype.newbyteorder("<").str,
        "fill_value": 0,
        "order": "C",
        "compressor": None,
        "filters": [{"id": codec["name"], **codec.get("configuration", {})}],
        "dimension_separator": "/",
    }


def laid(shape, chunks, dtype, codec_list, stored, version):
    """A store with these chunks, by position."""
    name, metadata = document(shape, chunks, dtype, codec_list, version)
    prefix = "c/" if version == 3 else ""
    buffer = zarr.core.buffer.cpu.Buffer.from_bytes
    parts = {prefix + "/".join(map(str, cell)): buffer(data) for cell, data in stored.items()}
    return MemoryStore({name: buffer(json.dumps(metadata).encode()), **parts})


def opened(data, version, found=None, **changes):
    """The first array of a file, its bytes laid as they are."""
    found = found or first(data)
    array = found.array
    (codec,) = array.encodings[0]
    codec = {**codec, "configuration": {**codec["configuration"], **changes}}
    stored = fragments(data, found)
    store = laid(array.shape, array.chunks, array.dtype, [codec], stored, version)
    return zarr.open_array(store, mode="r", zarr_format=version)


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
    np.testing.assert_array_equal(opened(data, version)[...], gdal(data))


@VERSIONS
def test_the_levels_of_a_codestream_are_its_overviews(version):
    data = j2ks.interleaved(j2ks.made(j2ks.picture(), PROGRESSION="RPCL", blockxsize=128, blockysize=64, RESOLUTIONS=3))
    levels = [step for step in scan_bytes(data) if isinstance(step, Found)]
    assert [level.array.encodings[0][0]["configuration"]["resolution_level"] for level in levels] == [0, 1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with MemoryFile(data) as memory, memory.open(OVERVIEW_LEVEL=0) as image:
            expected = image.read()
    np.testing.assert_array_equal(opened(data, version, levels[1])[...], expected)


@VERSIONS
@pytest.mark.parametrize("name", ["gray", "rgb", "rgb-420", "rgb-progressive"])
def test_jpeg_is_near_that_of_pillow(name, version):
    data = pictures.jpegs()[name]()
    seen = np.moveaxis(opened(data, version)[...].astype(int), 0, -1)
    assert np.abs(seen - np.asarray(Image.open(io.BytesIO(data))).reshape(seen.shape)).max() <= 4


@VERSIONS
@pytest.mark.parametrize("kind", ["12", "8", "16", "float32"])
@pytest.mark.parametrize("mode", ["B", "P", "R"])
def test_nitf_blocks_are_the_values_written(kind, mode, version):
    kinds = [each for each in nitfs.KINDS if nitfs.KINDS[each][1] == int(kind.removeprefix("float"))]
    kind = next(each for each in kinds if np.dtype(nitfs.KINDS[each][2]).kind == ("f" if "float" in kind else "u"))
    picture = nitfs.Picture(values=nitfs.values_of(kind), kind=kind, mode=mode, block=(16, 32))
    data = nitfs.nitf(picture)
    found = first(data)
    codec = {
        "name": BASE + "jbp-block",
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
    store = laid(array.shape, array.chunks, array.dtype, [codec], fragments(data, found), version)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r", zarr_format=version)[...], picture.values)


@VERSIONS
def test_an_elevation_cell_is_that_of_gdal(version):
    values = dteds.heights("zarr")
    data = dteds.gdal_cell(values)
    np.testing.assert_array_equal(opened(data, version)[...], gdal(data))


@VERSIONS
def test_a_cell_may_be_trimmed(version):
    data = dteds.cell(dteds.heights("trim"))
    found = first(data)
    trims = {"trim_top": 1, "trim_bottom": 2, "trim_left": 0, "trim_right": 3}
    (codec,) = found.array.encodings[0]
    codec = {**codec, "configuration": {**codec["configuration"], **trims}}
    shape = (1, 118, 118)
    store = laid(shape, shape, "i2", [codec], fragments(data, found), version)
    seen = zarr.open_array(store, mode="r", zarr_format=version)[...]
    np.testing.assert_array_equal(seen, gdal(data)[:, 1:-2, :-3])


@VERSIONS
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_png_is_that_of_gdal(bits, bands, version):
    values = tiffs.picture("png", f"u{bits // 8}", (bands, 45, 61))
    data = pictures.png(values, bits=bits, colour={1: 0, 3: 2}[bands])
    np.testing.assert_array_equal(opened(data, version)[...], gdal(data))


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
    array = opened(data, version)
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
    found = first(data)
    (codec,) = found.array.encodings[0]
    assert ("byte_order" in codec["configuration"]) == (endianness == "big")
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        expected = file.asarray()
    expected = expected if interleave == "band" else np.moveaxis(expected, -1, 0)
    np.testing.assert_array_equal(opened(data, version, found)[...], expected)


@VERSIONS
@pytest.mark.parametrize("compress", ["lzw", "packbits", "deflate", "jpeg", "ccittfax4", "lzma"])
def test_a_last_strip_that_is_shorter_is_read_where_the_codec_says_so(compress, version):
    image = tiffs.picture("strips", "u1", (1, 45, 61))
    bits = {}
    if compress == "ccittfax4":
        image, bits = image & 1, {"nbits": 1}
    data = tiffs.gdal_written(image, compress=compress, blockysize=16, predictor=1, **bits)
    found = first(data)
    (codec,) = found.array.encodings[0]
    assert codec["configuration"]["last_rows"] == 13
    silent = {key: value for key, value in codec["configuration"].items() if key != "last_rows"}
    found = Found(found.array.renamed("0/data", encodings=(({**codec, "configuration": silent},),)), found.refs)
    seen = opened(data, version, found, last_rows=13)
    np.testing.assert_array_equal(seen[...], gdal(data))
    if compress == "ccittfax4":  # one that ends by its own code is white below
        return
    with pytest.raises(DecodeError):
        opened(data, version, found, last_rows=14)[:, 32:]
    with pytest.raises(DecodeError):
        opened(data, version, found)[:, 32:]


@pytest.mark.parametrize("name", [name for name in tiles.names() if tiles.sample(name).codecs[-1]["name"] in IMAGES])
def test_every_sample_chunk_is_read_in_v3_and_where_its_codec_is_complete_in_v2(name):
    sample = tiles.sample(name)
    store = laid(sample.chunks, sample.chunks, sample.values.dtype, sample.codecs, {(0, 0, 0): sample.data}, 3)
    wanted = np.asarray(zarr.open_array(store, mode="r")[...])
    if sample.lossy:
        assert np.abs(wanted.astype(float) - sample.values).mean() < 6
    else:
        np.testing.assert_array_equal(wanted, sample.values)
    listed = {"codecs": list(sample.codecs), "shape": list(sample.chunks), "dtype": sample.values.dtype.str}
    v2 = sample.codecs if sample.codecs[0]["name"] in filters.FILTERS else None
    for codec in (v2, [{"name": "periplus.pipeline", "configuration": listed}]):
        if codec is not None:
            store = laid(sample.chunks, sample.chunks, sample.values.dtype, codec, {(0, 0, 0): sample.data}, 2)
            np.testing.assert_array_equal(zarr.open_array(store, mode="r", zarr_format=2)[...], wanted)


def test_stored_chunks_that_are_larger_are_cropped():
    values = tiles.rgb(3)
    codec = tiles.tiff_tile(values, 1)
    chunks = (3, values.shape[1] - 5, values.shape[2] - 7)
    crop = {"name": "periplus.crop", "configuration": {"shape": list(values.shape)}}
    store = laid(chunks, chunks, "u1", [crop, codec], {(0, 0, 0): tiles.chunky(values).tobytes()}, 3)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], values[:, :-5, :-7])


def test_numbers_are_unpacked():
    values = tiles.rgb(2, "i2")
    values[:, 0] = -1
    unpack = {"name": "periplus.unpack", "configuration": {"dtype": "<i2", "nodata": -1, "scale": [2, 3], "offset": 5}}
    chunk = tiles.chunky(values).tobytes()
    store = laid(values.shape, values.shape, "f4", [unpack, tiles.tiff_tile(values, 1)], {(0, 0, 0): chunk}, 3)
    expected = np.where(values == -1, np.nan, values * np.array([2.0, 3.0]).reshape(2, 1, 1) + 5).astype("f4")
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], expected)


def test_leading_dimensions_of_size_one_are_added():
    values = tiles.rgb(3)
    shape = (1, *values.shape)
    chunk = {(0, 0, 0, 0): tiles.chunky(values).tobytes()}
    store = laid(shape, shape, "u1", [tiles.tiff_tile(values, 1)], chunk, 3)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[0], values)


@VERSIONS
def test_missing_chunks_are_fill(version):
    values = tiles.rgb(1)
    store = laid(values.shape, values.shape, "u1", [tiles.tiff_tile(values, 1)], {}, version)
    assert not zarr.open_array(store, mode="r", zarr_format=version)[...].any()


def settings():
    for name, configuration in {
        "jpeg2000": {"main_header": "", "resolution_level": 0},
        "jpeg": {"bits_per_pixel": 8, "num_bands": 1, "block_width": 8, "block_height": 8, "imode": "B"},
        "jbp-block": {"num_bands": 1, "block_height": 8, "block_width": 8, "nbpp": 8, "imode": "B", "pvtype": "INT"},
        "tiff-tile": tiles.tiff_tile(tiles.rgb(1), 1)["configuration"],
        "dted": {"num_lat_points": 3, "num_lon_lines": 3, "record_size": 18},
    }.items():
        yield BASE + name, configuration
    yield "periplus.png", {"width": 4, "height": 4, "bands": 1, "bits": 8}


@pytest.mark.parametrize(("name", "configuration"), list(settings()))
def test_settings_that_are_not_known_are_refused_when_the_array_is_opened(name, configuration):
    wrong = {**configuration, "surprise": 1}
    for version in (3, 2):
        store = laid((1, 8, 8), (1, 8, 8), "u1", [{"name": name, "configuration": wrong}], {}, version)
        with pytest.raises(FormatError):
            zarr.open_array(store, mode="r", zarr_format=version)


@pytest.mark.parametrize("name", ["periplus.crop", "periplus.unpack", "periplus.vq", "periplus.pipeline"])
def test_settings_of_ours_that_are_not_known_are_refused(name):
    codec = {"name": name, "configuration": {"surprise": 1}}
    rest = [] if name in IMAGES else [tiles.tiff_tile(tiles.rgb(1), 1)]
    shape = tiles.rgb(1).shape
    with pytest.raises(FormatError):
        zarr.open_array(laid(shape, shape, "u1", [codec, *rest], {(0, 0, 0): b"0"}, 3), mode="r")[...]


def test_a_list_within_a_list_is_refused():
    inner = {"name": "periplus.pipeline", "configuration": {"codecs": [{"name": "bytes"}]}}
    outer = {"name": "periplus.pipeline", "configuration": {"codecs": [inner]}}
    with pytest.raises(FormatError, match="within itself"):
        zarr.open_array(laid((4,), (4,), "u1", [outer], {(0,): b"0123"}, 3), mode="r")[...]


@VERSIONS
def test_chunks_over_the_budget_are_refused_before_anything_is_decoded(version):
    side = 1 << 16
    codec = tiles.tiff_tile(tiles.rgb(1), 8, tile_width=side, tile_height=side)
    assert side * side > GIB
    with pytest.raises(LimitError):
        zarr.open_array(laid((1, side, side), (1, side, side), "u1", [codec], {}, version), zarr_format=version)


@VERSIONS
def test_damaged_chunks_are_our_errors(version):
    sample = tiles.sample("jpeg-ycbcr")
    chunk = {(0, 0, 0): sample.data[: len(sample.data) // 2]}
    store = laid(sample.chunks, sample.chunks, "u1", sample.codecs, chunk, version)
    with pytest.raises(DecodeError):
        zarr.open_array(store, mode="r", zarr_format=version)[...]


@VERSIONS
def test_nothing_is_encoded(version):
    values = tiles.rgb(1)
    store = laid(values.shape, values.shape, "u1", [tiles.tiff_tile(values, 1)], {}, version)
    with pytest.raises(NotImplementedError, match="only decodes"):
        zarr.open_array(store, mode="r+", zarr_format=version)[...] = 1


@VERSIONS
def test_codecs_and_arrays_travel(version):
    values = tiles.rgb(3)
    chunk = {(0, 0, 0): tiles.chunky(values).tobytes()}
    array = zarr.open_array(
        laid(values.shape, values.shape, "u1", [tiles.tiff_tile(values, 1)], chunk, version), zarr_format=version
    )
    again = pickle.loads(pickle.dumps(array))
    assert again.metadata == array.metadata
    assert again.metadata.to_dict() == array.metadata.to_dict()


def test_equal_codecs_are_equal():
    one, two = codecs.Png(width=4, height=4, bands=1, bits=8), codecs.Png(width=4, height=4, bands=1, bits=16)
    assert one == codecs.Png.from_dict(one.to_dict())
    assert hash(one) == hash(codecs.Png.from_dict(one.to_dict()))
    assert one != two
    assert "width='4'" in repr(one)


def test_every_name_of_the_entry_points_is_ours_and_every_codec_has_one():
    from importlib.metadata import entry_points

    for group, home in (("zarr.codecs", codecs.CODECS), ("numcodecs.codecs", filters.FILTERS)):
        points = {each.name: each.load() for each in entry_points(group=group) if each.value.startswith("periplus.")}
        assert points == home


def test_a_registered_codec_is_taken_though_others_offer_its_name():
    from zarr.registry import get_codec_class

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_codec_class(TIFF_TILE) is codecs.TiffTile
    assert type(numcodecs.get_codec({"id": "periplus.png", "width": 4, "height": 4, "bands": 1, "bits": 8}))
    codecs.register()
    configuration = tiles.tiff_tile(tiles.rgb(1), 1)["configuration"]
    assert type(numcodecs.get_codec({"id": TIFF_TILE, **configuration})) is filters.TiffTile


def cells():
    """Files whose chunks the other library decodes as well."""
    # Of tiles that are no power of two wide the other one makes other values, without a word.
    yield "jpeg2000", j2ks.made(j2ks.picture(), PROGRESSION="RPCL", blockxsize=128, blockysize=64)
    yield "dted", dteds.gdal_cell(dteds.heights("both"))
    image = tiffs.picture("both", "u2", (3, 70, 90))
    yield "tiff-tile", tiffs.gdal_written(image, compress="lzw", predictor=2, **TILED)


@VERSIONS
@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize(("name", "data"), [pytest.param(*cell, id=cell[0]) for cell in cells()])
def test_a_store_means_the_same_to_whichever_library_is_taken(name, data, whose, version):
    theirs = pytest.importorskip("aws.osml.io.zarr_codecs")
    other = {"jpeg2000": "Jpeg2000Codec", "dted": "DtedTileCodec", "tiff-tile": "TiffTileCodec"}[name]
    if whose == "theirs":
        qualified = f"aws.osml.io.zarr_codecs.{other}"
        zarr.config.set({"codecs": {**zarr.config.get("codecs"), BASE + name: qualified}})
        numcodecs.register_codec(getattr(theirs, other), codec_id=BASE + name)
    array = opened(data, version)
    np.testing.assert_array_equal(array[...], gdal(data))
    codec = array.metadata.codecs[-1] if version == 3 else array.metadata.filters[0]
    assert type(codec).__module__.startswith("periplus." if whose == "ours" else "aws.")
