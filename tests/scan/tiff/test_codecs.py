"""Codec pipelines: standard Zarr codecs where they describe the bytes exactly, tiff-tile with every key elsewhere."""

import base64
import io

import pytest
import tifffile

from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.scan.tiff.codecs import KNOWN, TIFF_TILE
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.custom_tiff import SHORT, image_tags, tiff

TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 2, 0]}}
ZLIB = {"name": "numcodecs.zlib", "configuration": {"level": 6}}
ZSTD = {"name": "zstd", "configuration": {"level": 0, "checksum": False}}


def codecs(data: bytes) -> list:
    return [
        dict(codec) for step in scan_bytes(data) if isinstance(step, Found) for codec in step.array.encodings[0].codecs
    ]


def endian(order: str) -> dict:
    return {"name": "bytes", "configuration": {"endian": order}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("le-uint16-1", [endian("little")]),
        ("be-uint16-1", [endian("big")]),
        ("le-uint8-1", [{"name": "bytes"}]),
        ("le-int8-3", [TRANSPOSE, {"name": "bytes"}]),
        ("be-complex64-3", [TRANSPOSE, endian("big")]),
        ("le-float16-1", [endian("little")]),
        ("deflate-tiles", [TRANSPOSE, {"name": "bytes"}, ZLIB]),
        ("zstd-tiles", [TRANSPOSE, {"name": "bytes"}, ZSTD]),
        ("be-classic-tiles-planar-zstd-p1", [endian("big"), ZSTD]),
    ],
)
def test_plain_zarr_codecs(name: str, expected: list) -> None:
    assert codecs(tiffs.case(name).data) == expected


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        (
            "le-classic-tiles-chunky-deflate-p2",
            {"compression": 32946, "predictor": 2, "samples_per_pixel": 3, "tile_width": 32},
        ),
        ("be-classic-tiles-planar-deflate-p2", {"byte_order": "big", "planar_config": 2, "samples_per_pixel": 1}),
        ("le-classic-strips-chunky-deflate-p2", {"tile_height": 16, "tile_width": 90}),
        ("adobe_deflate-strips", {"compression": 8, "tile_height": 16}),
        ("uint12-pixel", {"bits_per_sample": 12, "sample_format": 1}),
        ("float24", {"bits_per_sample": 24, "sample_format": 3}),
        ("complex-int16", {"bits_per_sample": 32, "sample_format": 5, "compression": 1}),
        ("le-bool-1", {"bits_per_sample": 1}),
        ("lzma-tiles", {"compression": 34925}),
        ("gdal-lerc_zstd-pixel", {"compression": 34887, "lerc_parameters": [4, 2]}),
        ("ccittfax3", {"compression": 3, "photometric": 1}),
        ("jpeg-ycbcr", {"compression": 7, "photometric": 6, "tile_width": 32}),
    ],
)
def test_tiff_tile_describes_the_rest(name: str, keys: dict) -> None:
    (codec,) = codecs(tiffs.case(name).data)
    assert codec["name"] == TIFF_TILE
    assert {key: codec["configuration"].get(key) for key in keys} == keys


@pytest.mark.parametrize(
    ("name", "clipped"),
    [("adobe_deflate-strips", ("y",)), ("le-classic-strips-chunky-deflate-p2", ("y",)), ("lzma-tiles", ())],
)
def test_a_last_strip_with_fewer_rows_is_marked_as_clipped(name: str, clipped: tuple) -> None:
    found = next(step for step in scan_bytes(tiffs.case(name).data) if isinstance(step, Found))
    assert found.array.encodings[0].clipped == clipped


def test_jpeg_tables_go_along() -> None:
    data = tiffs.case("gdal-jpeg-pixel").data
    (codec,) = codecs(data)
    with tifffile.TiffFile(io.BytesIO(data)) as opened:
        tables = opened.pages.first.jpegtables
    assert tables
    assert base64.b64decode(codec["configuration"]["jpeg_tables"]) == tables


def test_only_unusual_keys_are_added() -> None:
    (codec,) = codecs(tiffs.case("lzma-tiles").data)
    assert set(codec["configuration"]) == {
        "compression", "bits_per_sample", "samples_per_pixel", "photometric", "planar_config", "predictor",
        "tile_width", "tile_height", "sample_format", "jpeg_tables", "extra_samples",
    }  # fmt: skip


def test_colour_and_bit_order_are_stored() -> None:
    (codec,) = codecs(tiff(image_tags(4, 4, t266=2), data=bytes(16)))
    assert codec["configuration"]["fill_order"] == 2
    ycbcr = image_tags(4, 4, t262=6, t277=3, t258=(SHORT, [8] * 3), t530=(SHORT, [2, 1]), t279=32)
    (codec,) = codecs(tiff(ycbcr, data=bytes(64)))
    assert codec["configuration"]["ycbcr_subsampling"] == [2, 1]
    (codec,) = codecs(tiff(image_tags(4, 4, t259=3, t258=(SHORT, [1]), t292=5), data=bytes(16)))
    assert codec["configuration"]["t4_options"] == 5


def test_a_predictor_counts_only_where_libtiff_runs_one() -> None:
    assert codecs(tiff(image_tags(4, 4, t317=2), data=bytes(16))) == [{"name": "bytes"}]
    (codec,) = codecs(tiff(image_tags(4, 4, t259=32773, t317=2), data=bytes(16)))
    assert codec["configuration"]["predictor"] == 1


def test_a_whole_old_jpeg_stream_is_read_as_jpeg() -> None:
    tags = image_tags(8, 8, t259=6, t258=None, t277=None, t262=None, t273=10, t279=80, t513=8, t514=90)
    steps = scan_bytes(tiff(tags, data=bytes(100)))
    (found,) = (step for step in steps if isinstance(step, Found))
    configuration = found.array.encodings[0].codecs[0]["configuration"]
    assert (configuration["compression"], configuration["photometric"]) == (7, 6)
    assert found.array.shape == (3, 8, 8)
    assert (found.refs.offset.tolist(), found.refs.length.tolist()) == ([8], [90])


@pytest.mark.parametrize("compression", sorted(KNOWN - {6}))
def test_every_known_compression_is_named_in_its_codec(compression: int) -> None:
    found = codecs(tiff(image_tags(4, 4, t259=compression, t266=2), data=bytes(16)))
    assert found[0]["configuration"]["compression"] == compression
