"""Codecs are registered, refuse what they do not know, travel, and mean the same as those of osml-imagery-io."""

import base64
import pickle
import warnings

import fsspec
import numcodecs
import numpy as np
import pytest
import zarr

import periplus
from periplus.decode.pipeline import IMAGES
from periplus.errors import DecodeError, FormatError, LimitError
from periplus.limits import GIB
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import samples
from periplus.testing.formats import tiff as tiffs
from periplus.testing.zarr_arrays import memory_store, open_first_array
from periplus.zarr.codecs import v2 as filters
from periplus.zarr.codecs import v3 as codecs

pytestmark = pytest.mark.usefixtures("our_codecs")
BASE = "https://awslabs.github.io/osml-imagery-io/codecs/"
TIFF_TILE = BASE + "tiff-tile"
TILED = {"tiled": True, "blockxsize": 32, "blockysize": 32}
VERSIONS = pytest.mark.parametrize("version", [3, 2])


def settings():
    for name, configuration in {
        "jpeg2000": {"main_header": "", "resolution_level": 0},
        "jpeg": {"bits_per_pixel": 8, "num_bands": 1, "block_width": 8, "block_height": 8, "imode": "B"},
        "jbp-block": {"num_bands": 1, "block_height": 8, "block_width": 8, "nbpp": 8, "imode": "B", "pvtype": "INT"},
        "tiff-tile": samples.tiff_tile(samples.rgb(1), 1)["configuration"],
        "dted": {"num_lat_points": 3, "num_lon_lines": 3, "record_size": 18},
    }.items():
        yield BASE + name, configuration
    yield "periplus.png", {"width": 4, "height": 4, "bands": 1, "bits": 8}


@pytest.mark.parametrize(("name", "configuration"), list(settings()))
def test_settings_that_are_not_known_are_refused_when_the_array_is_opened(name, configuration):
    wrong = {**configuration, "surprise": 1}
    for version in (3, 2):
        store = memory_store((1, 8, 8), (1, 8, 8), "u1", [{"name": name, "configuration": wrong}], {}, version)
        with pytest.raises(FormatError):
            zarr.open_array(store, mode="r", zarr_format=version)


@pytest.mark.parametrize("name", ["periplus.crop", "periplus.unpack", "periplus.vq", "periplus.pipeline"])
def test_settings_of_ours_that_are_not_known_are_refused(name):
    codec = {"name": name, "configuration": {"surprise": 1}}
    rest = [] if name in IMAGES else [samples.tiff_tile(samples.rgb(1), 1)]
    shape = samples.rgb(1).shape
    with pytest.raises(FormatError):
        zarr.open_array(memory_store(shape, shape, "u1", [codec, *rest], {(0, 0, 0): b"0"}, 3), mode="r")[...]


def test_a_list_within_a_list_is_refused():
    inner = {"name": "periplus.pipeline", "configuration": {"codecs": [{"name": "bytes"}]}}
    outer = {"name": "periplus.pipeline", "configuration": {"codecs": [inner]}}
    with pytest.raises(FormatError, match="within itself"):
        zarr.open_array(memory_store((4,), (4,), "u1", [outer], {(0,): b"0123"}, 3), mode="r")[...]


@VERSIONS
def test_chunks_over_the_budget_are_refused_before_anything_is_decoded(version):
    side = 1 << 16
    codec = samples.tiff_tile(samples.rgb(1), 8, tile_width=side, tile_height=side)
    assert side * side > GIB
    header = base64.b64encode(j2ks.split(j2ks.giant(side))[0]).decode()
    image = {"name": BASE + "jpeg2000", "configuration": {"main_header": header, "resolution_level": 0}}
    for each in (codec, image):
        store = memory_store((1, side, side), (1, side, side), "u1", [each], {(0, 0, 0): b"x"}, version)
        array = zarr.open_array(store, zarr_format=version)
        with pytest.raises(LimitError):
            array[0, 0, 0]


@VERSIONS
def test_damaged_chunks_are_our_errors(version):
    sample = samples.sample("jpeg-ycbcr")
    chunk = {(0, 0, 0): sample.data[: len(sample.data) // 2]}
    store = memory_store(sample.chunks, sample.chunks, "u1", sample.codecs, chunk, version)
    with pytest.raises(DecodeError):
        zarr.open_array(store, mode="r", zarr_format=version)[...]


@VERSIONS
def test_nothing_is_encoded(version):
    values = samples.rgb(1)
    store = memory_store(values.shape, values.shape, "u1", [samples.tiff_tile(values, 1)], {}, version)
    with pytest.raises(NotImplementedError, match="only decodes"):
        zarr.open_array(store, mode="r+", zarr_format=version)[...] = 1


@VERSIONS
def test_codecs_and_arrays_travel(version):
    values = samples.rgb(3)
    chunk = {(0, 0, 0): samples.chunky(values).tobytes()}
    array = zarr.open_array(
        memory_store(values.shape, values.shape, "u1", [samples.tiff_tile(values, 1)], chunk, version),
        zarr_format=version,
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
    configuration = samples.tiff_tile(samples.rgb(1), 1)["configuration"]
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
    array = open_first_array(data, version)
    np.testing.assert_array_equal(array[...], tiffs.seen_by_gdal(data)["0/data"])
    codec = array.metadata.codecs[-1] if version == 3 else array.metadata.filters[0]
    assert type(codec).__module__.startswith("periplus." if whose == "ours" else "aws.")


def test_a_tile_larger_than_its_image_is_said_in_v2_only_with_its_shape(tmp_path):
    data = bytearray(j2ks.made(j2ks.picture()))
    data[24:32] = (1000).to_bytes(4, "big") + (900).to_bytes(4, "big")
    path = tmp_path / "tile.j2k"
    path.write_bytes(data)
    with periplus.index(path) as index:
        with pytest.raises(FormatError, match="smaller than a tile"):
            index.write(tmp_path / "imagery.json", zarr_format=2, codecs="imagery")
        index.write(tmp_path / "all.json", zarr_format=2)
    fs = fsspec.filesystem(
        "reference", fo=str(tmp_path / "all.json"), asynchronous=True, remote_options={"asynchronous": True}
    )
    group = zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2)
    np.testing.assert_array_equal(group["0/data"][...], j2ks.picture())
